"""A launch that a program made, on a GPU that is not here: its machine code, and how long it would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.elsewhere import HeldMemory, allocations, elsewhere
from ptxlab.device.emulator import EmulatorKernel, MachineCodeModule
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import of_launch
from ptxlab.toolchain import link_ptx


def assembly(kernel: EmulatorKernel, arch: str) -> Assembly:
    """Return the program of a kernel beside its machine code for ``arch``."""
    if isinstance(kernel.module, MachineCodeModule):
        return Assembly(None, kernel.module.cubin(kernel.name))
    module = kernel.program.module
    return Assembly(module, link_ptx(module.source.text, arch=arch, path=module.source.path))


def predicted(
    kernel: EmulatorKernel,
    config: LaunchConfig,
    parameters: bytes,
    memory: Sequence[Borrowed],
    gpu: str,
    clock: int | None,
) -> Prediction:
    """Predict a launch, whose ``memory`` is mapped, on a GPU by its name."""
    chip = find(gpu)
    compiled, arch = kernel.device.target.name, chip.gpu.target.name
    reached = allocations(kernel, memory)
    if arch != compiled:
        other = elsewhere(kernel, arch)
        other.fill()
        chosen = other.module.kernel(kernel.name)
        assert isinstance(chosen, EmulatorKernel)
        kernel = chosen
    held = [HeldMemory(kernel.device, each.begin, each.end, dtype) for each, dtype in reached]
    prediction = of_launch(assembly(kernel, arch), kernel, config, parameters, chip, clock, held)
    if arch != compiled:
        unlike = f"what a compiler makes for {arch} itself: this was compiled for {compiled}"
        prediction = replace(prediction, not_modelled=(*prediction.not_modelled, unlike))
    return prediction
