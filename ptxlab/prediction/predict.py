"""From a program and what it is launched with to a prediction: ``ptxlab.predict``.

The constants of a chip stand beside their sources in ptxlab/prediction/chips.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from ptxlab.device.emulator import EmulatorKernel, MachineCodeModule
from ptxlab.device.loading import (
    Loadable,
    OtherTarget,
    is_cuda,
    is_machine_code,
    load_assembled,
    load_cubins,
)
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Arguments, Kernel, Module
from ptxlab.device.shapes import clusters
from ptxlab.device.variable import ModuleVariable
from ptxlab.emulator.run.grid import WORKSPACE_BYTES
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import WORKSPACE, Launch, constant_bank
from ptxlab.machine.memory import MemoryRange
from ptxlab.machine.operands import SassConstant
from ptxlab.prediction.arguments import memory_reached, put_on
from ptxlab.prediction.assumptions import NO_ASSUMPTIONS, Assumptions, numbered, place, told
from ptxlab.prediction.chip import Chip, find, names
from ptxlab.prediction.following.symbols import resolved, variables_named
from ptxlab.prediction.kept import kept
from ptxlab.prediction.lines import by_line
from ptxlab.prediction.model import Changed, LaunchModel, Prediction
from ptxlab.prediction.refusal import NotFollowed
from ptxlab.prediction.sm.issues import PredictedIssues
from ptxlab.prediction.unfilled import UnfilledDevice
from ptxlab.prediction.what_if import EVERY, NOTHING, WhatIf, alone
from ptxlab.syntax.functions import Parameter
from ptxlab.toolchain import LINE_INFO
from ptxlab.toolchain.constant_memory import (
    ADDRESSES,
    VARIABLES,
    ConstantMemory,
    constant_memory,
)
from ptxlab.toolchain.cubin import Cubin, Used

Predicted = TypeVar("Predicted")

_SETMAXNREG = "C7504"
"""What ptxas says where it ignores setmaxnreg, as in PTX that is assembled to be linked; in CUDA C it does not."""


def predict(
    source: Loadable,
    gpu: str,
    grid: Dim,
    block: Dim,
    args: Sequence[Any] = (),
    *,
    kernel: str | None = None,
    shared: int = 0,
    cluster: Dim | None = None,
    options: Sequence[str] = (),
    clock: int | None = None,
    cold: bool = False,
    what_if: Sequence[str] = (),
    assume: Assumptions = NO_ASSUMPTIONS,
) -> Prediction:
    """Predict how long a kernel would take on a GPU that is not here.

    ``source`` is a .cu or .ptx file, or PTX text, compiled for that very GPU, or machine code for it; ``gpu`` is one of
    ``ptxlab.prediction.chip.names()``, or a file that tells of one, ``mine.toml``; the other parameters are those of
    ``LaunchConfig.of``, ``shared`` in bytes, with NumPy arrays of any shape and type where the kernel takes pointers, in a tuple
    where these are members of a struct, and ``MapOf`` for tensor maps. ``options`` are NVRTC's. ``clock`` in MHz, the
    GPU's boost clock or what its limit of power leaves unless given. A ``cold`` launch begins alone and finds nothing in the L2 cache, as under Nsight Compute. ``what_if`` are changes that are predicted beside it, ``"dram=inf,occupancy=2"``,
    of which ``ptxlab.prediction.what_if.CHANGES`` has all; ``"all"`` is each alone. ``assume`` says of what depends on data that is
    not computed, by line, whether it is done: ``{"64": True}`` that a branch there is taken.

    Raises Unsupported where control flow or an address depends on data that is not computed, and for
    instructions whose time is not known; PtxlabError for a GPU that is not known, arguments that do not fit
    and a kernel of which no CTA fits into an SM, PtxSyntaxError and ToolchainError for a program that does
    not compile.
    """
    chip = find(gpu).found(cold)
    with closing(UnfilledDevice(chip.gpu.target)) as device:
        assembly, module = load_for(device, source, options)
        chosen = module.kernel(kernel)
        config = LaunchConfig.of(grid, block, shared, cluster)
        passed = put_on(device, tuple(args), {})
        return of_launch(
            assembly, chosen, config, passed, chip, clock, what_if=what_if, assume=assume
        )


def load_for(
    device: UnfilledDevice, source: Loadable, options: Sequence[str] = ()
) -> tuple[Assembly, Module]:
    """Compile a program for a device and load it there, CUDA C so that its lines are known; machine code is taken as it is.

    Raises OtherTarget, with the GPUs that run it, for a program of another.
    """
    if is_machine_code(source):
        cubins = load_cubins(source, device.target)
        module = MachineCodeModule.of_cubins(device, cubins, os.fspath(source))
        return Assembly(None, cubins[0]), module
    if is_cuda(source):
        options = [*dict.fromkeys((*options, LINE_INFO))]
    try:
        program, cubin = load_assembled(source, device.target, options)
    except OtherTarget as error:
        able = [name for name in names() if find(name).gpu.target.runs(error.needed)]
        error.hint = f"GPUs that run it: {', '.join(able)}" if able else "no GPU here runs it"
        raise
    return Assembly(program, cubin), device.load(program)


def of_launch(
    assembly: Assembly,
    kernel: Kernel,
    config: LaunchConfig,
    passed: Arguments,
    chip: Chip,
    clock: int | None = None,
    memory: Sequence[Buffer] = (),
    what_if: Sequence[str] = (),
    assume: Assumptions = NO_ASSUMPTIONS,
) -> Prediction:
    """Predict one launch of a kernel that is loaded on the emulator, with its arguments there, at a ``clock`` in MHz.

    ``memory`` is what it may reach beside its arguments: all that it may, where these are bytes; ``what_if`` the changes
    that are predicted beside it, ``assume`` what holds that is not computed. Raises Unsupported, with the line, where something
    decides of which that is not said, or is not modelled, and PtxlabError for a change that is none and a line that decides nothing.
    """
    each = [WhatIf.read(text) for text in what_if if text != EVERY]
    assembly, used = _part_of(assembly, kernel), _used(assembly, kernel)
    registers, shared = used.registers, used.shared + config.shared

    def predicted(floats: bool) -> Prediction:
        code, launch = as_machine_code(assembly, kernel, config, passed, floats, memory)
        launch = replace(launch, assumed=numbered(assembly, code, assume))

        @cache
        def model() -> LaunchModel:
            return LaunchModel(code, launch, chip, registers=registers, shared=shared, clock=clock)

        def changed(change: WhatIf) -> Prediction:
            image = assembly.cubin.image
            return kept(
                image, kernel.name, launch, chip, clock, change, lambda: model().predict(change)
            )

        prediction = changed(NOTHING)
        asked = [*each, *(alone(prediction.occupancy) if EVERY in what_if else ())]
        others = [(change, changed(change)) for change in dict.fromkeys(asked)]
        told = [Changed(str(change), other.seconds, other.bound_by) for change, other in others]
        return replace(prediction, what_if=tuple(sorted(told, key=lambda each: each.seconds)))

    prediction = _with_floats_if_needed(assembly, predicted)
    lines = by_line(prediction.by_instruction, assembly, kernel.name)
    assumed = (
        f"what line {at} decides where it is not computed: {'yes' if holds else 'no'} is assumed"
        for at, holds in assume.items()
    )
    not_modelled = (*prediction.not_modelled, *made_otherwise(assembly.cubin), *assumed)
    return replace(prediction, kernel=kernel.name, lines=lines, not_modelled=not_modelled)


def made_otherwise(cubin: Cubin) -> tuple[str, ...]:
    """Say what machine code lacks that a compiler of one text alone would have made of the same PTX."""
    ignored = any(remark.code == _SETMAXNREG for remark in cubin.remarks)
    return (
        ("setmaxnreg, which is ignored in PTX, so that registers are spilled",) if ignored else ()
    )


def issues_of_launch(
    assembly: Assembly,
    kernel: Kernel,
    config: LaunchConfig,
    passed: Arguments,
    chip: Chip,
    most: int,
) -> PredictedIssues:
    """Predict when the warps of the first CTA of a launch issue what, ``most`` instructions of it.

    Raises Unsupported as ``of_launch`` does.
    """
    assembly, used = _part_of(assembly, kernel), _used(assembly, kernel)

    def predicted(floats: bool) -> PredictedIssues:
        code, launch = as_machine_code(assembly, kernel, config, passed, floats)
        shared = used.shared + config.shared
        return LaunchModel(code, launch, chip, registers=used.registers, shared=shared).issues(most)

    return _with_floats_if_needed(assembly, predicted)


def _part_of(assembly: Assembly, kernel: Kernel) -> Assembly:
    """Return the machine code that a kernel is part of, of a program that was linked of several."""
    assert isinstance(kernel, EmulatorKernel)
    if assembly.module is not None or not isinstance(kernel.module, MachineCodeModule):
        return assembly
    cubin = kernel.module.cubin(kernel.name)
    return assembly if cubin is assembly.cubin else replace(assembly, cubin=cubin)


def _used(assembly: Assembly, kernel: Kernel) -> Used:
    """Return the registers and bytes of shared memory of a kernel, as its machine code or who made that says."""
    assert isinstance(kernel, EmulatorKernel)
    module = kernel.module
    if isinstance(module, MachineCodeModule):
        return module.used[kernel.name]
    return assembly.cubin.kernels[kernel.name]


def _with_floats_if_needed(assembly: Assembly, predicted: Callable[[bool], Predicted]) -> Predicted:
    """Return what is predicted; what needs numbers of f32, which take longer, with them."""
    try:
        try:
            return predicted(False)
        except NotFollowed:
            return predicted(True)
    except NotFollowed as error:
        sass = error.instruction.sass
        error.location = place(assembly, sass)
        if error.undecided:
            done = "done" if error.instruction.target is None else "taken"
            at = told(assembly, sass)
            error.hint = (
                f"ptxlab predict --assume {at}=yes says that it is {done}, {at}=no that it is not"
            )
        raise


def _banks(
    constants: ConstantMemory, kernel: EmulatorKernel, variables: dict[str, ModuleVariable]
) -> dict[int, bytes]:
    """Return constant memory with what variables hold; those that it has the addresses of are added to ``variables``."""
    banks = {bank: bytearray(content) for bank, content in constants.banks.items()}
    for name, start in constants.variables.items():
        held = kernel.module.variable(name).numpy().tobytes()
        banks[VARIABLES][start : start + len(held)] = held
    for start, (name, offset) in constants.addresses.items():
        if name in kernel.module.variables:
            variables[name] = variable = kernel.module.variable(name)
            banks[ADDRESSES][start : start + 8] = (variable.address + offset).to_bytes(8, "little")
    return {bank: bytes(content) for bank, content in banks.items()}


def as_machine_code(
    assembly: Assembly,
    kernel: Kernel,
    config: LaunchConfig,
    passed: Arguments,
    floats: bool = False,
    memory: Sequence[Buffer] = (),
) -> tuple[list[DecodedInstruction], Launch]:
    """Return the machine code of a kernel loaded on the emulator, and one launch of it with its arguments.

    ``floats`` says whether numbers of f32 are computed, ``memory`` what it may reach beside its arguments.
    """
    target = kernel.device.target
    code = decode(assembly.cubin, assembly.functions, kernel.name)
    assert isinstance(kernel, EmulatorKernel)
    constants = constant_memory(assembly.cubin.image, kernel.name)
    named = variables_named(code) & kernel.module.variables.keys()
    variables = {name: kernel.module.variable(name) for name in named}
    banks = _banks(constants, kernel, variables)
    code = resolved(code, constants.addresses, {n: each.address for n, each in variables.items()})
    parameters = _laid_out(
        kernel.parameters, kernel.packed(passed), constant_bank(target).parameters
    )
    reached = () if isinstance(passed, bytes) else passed
    regions = memory_reached(kernel.device, [*reached, *memory, *variables.values()], floats)
    met_at = constant_bank(target).workspace
    if any(isinstance(o, SassConstant) and o.offset == met_at for i in code for o in i.operands):
        regions.append(MemoryRange(WORKSPACE, WORKSPACE_BYTES))
    return code, Launch(target, _clustered(kernel, config), parameters, regions, banks, floats)


def _laid_out(parameters: Sequence[Parameter], packed: bytes, first: int) -> bytes:
    """Return what constant memory holds from offset ``first`` on: parameters, aligned where they are there."""
    held = bytearray()
    for parameter in parameters:
        held += bytes(-(first + len(held)) % parameter.alignment)
        held += packed[parameter.offset : parameter.offset + parameter.size]
    return bytes(held)


def _clustered(kernel: Kernel, config: LaunchConfig) -> LaunchConfig:
    """Return how a kernel is launched whose program may say what its clusters are."""
    own = clusters(kernel.function, config) if kernel.function else config.cluster
    return replace(config, cluster=own)
