"""The program of a launch on an emulated GPU of another target, which has the same memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401, whose types NumPy then knows by name
import numpy as np

from ptxlab.clients.borrowed import Borrowed
from ptxlab.device.emulator import (
    EmulatorDevice,
    EmulatorKernel,
    EmulatorModule,
    MachineCodeModule,
)
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Module
from ptxlab.emulator.prepare.scope import names_in
from ptxlab.emulator.run.memory import Allocation
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.machine.binary import machine_code
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called
from ptxlab.syntax.parser import parse

WIDEST = 8
"""Bytes of the largest numbers that are taken as such."""


class HeldMemory(Buffer):
    """Memory that is there already, from ``address`` to the end of what it lies in."""

    def __init__(
        self, device: EmulatorDevice, address: int, end: int, dtype: np.dtype[Any]
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.shape = ((end - address) // dtype.itemsize,)
        self.nbytes = end - address
        self._hold(address, lambda: None)


class Elsewhere(NamedTuple):
    """A program on ``device``, and what its variables are to hold, by name."""

    device: EmulatorDevice
    module: Module
    variables: Mapping[str, Any]

    def kernel(self, name: str) -> EmulatorKernel:
        """Return a kernel of it, whose variables hold what those of the launch did."""
        for variable, value in self.variables.items():
            self.module.variable(variable).upload(value)
        kernel = self.module.kernel(name)
        assert isinstance(kernel, EmulatorKernel)
        return kernel


def elsewhere(kernel: EmulatorKernel, arch: str) -> Elsewhere:
    """Load the program of ``kernel`` on an emulated GPU of ``arch``, with the memory of its own.

    Raises Unsupported for machine code, and for a program that the other GPU cannot run.
    """
    if isinstance(kernel.module, MachineCodeModule):
        raise Unsupported(
            f"{called(kernel.name)} came as machine code for {kernel.device.target.name}, which no other GPU runs",
            hint="have the program compiled to PTX",
        )
    device = _beside(kernel.device, arch)
    source = kernel.program.module.source
    return Elsewhere(device, device.load(parse(source.text, source.path)), dict(_variables(kernel)))


def as_brought(kernel: EmulatorKernel, arch: str) -> Elsewhere | None:
    """Load the machine code for ``arch`` that came with the PTX of ``kernel``, with the memory of its own; None where none did."""
    assert isinstance(kernel.module, EmulatorModule)
    device, path = _beside(kernel.device, arch), kernel.program.module.source.path
    try:
        cubins = machine_code(kernel.module.brought, device.target, path)
    except PtxlabError:
        return None
    module = MachineCodeModule.of_cubins(device, cubins, path)
    return Elsewhere(device, module, dict(_variables(kernel)))


def _beside(device: EmulatorDevice, arch: str) -> EmulatorDevice:
    """Return an emulated GPU of ``arch`` that has the same memory."""
    other = open_device("emulator", arch=arch, console=device.console)
    assert isinstance(other, EmulatorDevice)
    other.memory = device.memory
    return other


def _variables(kernel: EmulatorKernel) -> Iterator[tuple[str, Any]]:
    """Yield what the variables of its module hold by name, but those that hold addresses."""
    for name, (_, declarator) in kernel.module.variables.items():
        if name in kernel.module.addresses and not [*names_in(declarator.initializer)]:
            variable = kernel.module.variable(name)
            data = kernel.device.memory.read(variable.address, variable.nbytes).tobytes()
            yield name, value_of(variable.declared, data)


def value_of(parameter: Parameter, data: bytes) -> Any:
    """Return what the bytes of a parameter or variable are: a number, or the bytes themselves."""
    scalar = TYPES[parameter.type]
    if parameter.count != 1 or scalar.name == "b8" or scalar.bytes > WIDEST:
        return data
    return np.frombuffer(data, scalar.dtype)[0]


def allocations(
    kernel: EmulatorKernel, memory: Iterable[Borrowed]
) -> list[tuple[Allocation, np.dtype[Any]]]:
    """Return what ``kernel`` may write but the variables of its module, and the type of the numbers there."""
    types = {borrowed.address: borrowed.dtype for borrowed in memory}
    return [
        (each, _dtype(each, types.get(each.begin)))
        for each in kernel.device.memory.allocations
        if each.writable and each.begin not in kernel.module.addresses.values()
    ]


def _dtype(allocation: Allocation, known: str | None) -> np.dtype[Any]:
    """Return the type of the numbers in memory: words, where it is not known."""
    try:
        dtype = np.dtype(known or np.uint32)
    except TypeError:  # a type of PyTorch's own
        dtype = np.dtype(np.uint8)
    whole = dtype.itemsize <= WIDEST and (allocation.end - allocation.begin) % dtype.itemsize == 0
    return dtype if whole else np.dtype(np.uint8)
