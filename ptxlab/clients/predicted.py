"""A launch that a program made, on a GPU that is not here: its machine code, and how long it would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxlab.arrays import Array
from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.elsewhere import HeldMemory, allocations, as_brought, elsewhere
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel, MachineCodeModule
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import made_otherwise, of_launch
from ptxlab.syntax.functions import Parameter
from ptxlab.toolchain import link_ptx


class _SeenMemory(HeldMemory):
    """Memory that is looked at while nobody writes to it."""

    def numpy(self) -> Array:
        """Return what is there, and no copy: it may be as large as what a GPU has."""
        assert isinstance(self.device, EmulatorDevice)
        seen = self.device.memory.view(self.address, self.nbytes)
        return seen.view(self.dtype).reshape(self.shape)


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
    """Predict a launch, whose ``memory`` is mapped, on a GPU by its name.

    Where assembling its PTX leaves out what a compiler does not, the machine code that it came with is taken.
    """
    chip = find(gpu)
    compiled, arch = kernel.device.target.name, chip.gpu.target.name
    reached = allocations(kernel, memory)
    other = elsewhere(kernel, arch) if arch != compiled else None
    there = other.kernel(kernel.name) if other else kernel
    code = assembly(there, arch)
    own = as_brought(kernel, arch) if made_otherwise(code.cubin) else None
    if own:
        there = own.kernel(kernel.name)
        parameters = _placed(parameters, kernel.parameters, there.parameters)
        code = assembly(there, arch)
    held = [_SeenMemory(there.device, each.begin, each.end, dtype) for each, dtype in reached]
    prediction = of_launch(code, there, config, parameters, chip, clock, held)
    if other and not own:
        unlike = f"what a compiler makes for {arch} itself: this was compiled for {compiled}"
        prediction = replace(prediction, not_modelled=(*prediction.not_modelled, unlike))
    return prediction


def _placed(packed: bytes, declared: Sequence[Parameter], own: Sequence[Parameter]) -> bytes:
    """Return parameters that are ``packed`` as PTX has ``declared`` them where machine code has its ``own``."""
    block = bytearray(max((each.offset + each.size for each in own), default=0))
    for there, here in zip(declared, own, strict=True):
        block[here.offset : here.offset + here.size] = packed[there.offset :][: there.size]
    return bytes(block)
