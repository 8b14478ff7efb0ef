"""A launch that a program made, made on an emulated GPU of another target too, and where they part.

Both have the same memory, which is as it was before each launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401, whose types NumPy then knows by name
import numpy as np

from ptxlab.clients.borrowed import Borrowed
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Module
from ptxlab.emulator.prepare.scope import names_in
from ptxlab.emulator.run.memory import Allocation
from ptxlab.launch_config import LaunchConfig
from ptxlab.numbers.types import TYPES
from ptxlab.observe.diff import DeviceLaunch, DiffReport, Repeatable, diff
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.parser import parse

_WIDEST = 8
"""Bytes of the largest numbers that are compared as such."""


class _Held(Buffer):
    """Memory that is there already, from ``address`` to the end of what it lies in."""

    def __init__(
        self, device: EmulatorDevice, address: int, end: int, dtype: np.dtype[Any]
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.shape = ((end - address) // dtype.itemsize,)
        self.nbytes = end - address
        self._hold(address, lambda: None)


def difference(
    kernel: EmulatorKernel,
    config: LaunchConfig,
    parameters: bytes,
    memory: Sequence[Borrowed],
    arch: str,
) -> DiffReport:
    """Compare a launch, whose ``memory`` is mapped, with the same on ``arch``."""
    first, other = kernel.device, open_device("emulator", arch=arch, console=kernel.device.console)
    assert isinstance(other, EmulatorDevice)
    other.memory = first.memory
    module = parse(kernel.program.module.source.text, kernel.program.module.source.path)
    variables = dict(_variables(kernel))
    modules: Mapping[Device, Module] = {first: kernel.module, other: other.load(module)}
    types = {borrowed.address: borrowed.dtype for borrowed in memory}
    compared = [
        (each, _dtype(each, types.get(each.begin)))
        for each in first.memory.allocations
        if each.writable and each.begin not in kernel.module.addresses.values()
    ]
    restore = first.memory.remembered()

    def bound(device: Device) -> DeviceLaunch:
        assert isinstance(device, EmulatorDevice)
        restore()
        loaded = modules[device]
        for name, value in variables.items():
            loaded.variable(name).upload(value)
        arrays = [
            (_name(each), _Held(device, each.begin, each.end, dtype)) for each, dtype in compared
        ]
        args = [
            _argument(device, parameter, parameters[parameter.offset :][: parameter.size])
            for parameter in kernel.parameters
        ]
        return DeviceLaunch(loaded.kernel(kernel.name), args, variables, arrays)

    return diff(Repeatable(module, kernel.name, config, bound), first, other)


def _variables(kernel: EmulatorKernel) -> Iterator[tuple[str, Any]]:
    """Yield what the variables of its module hold by name, but those that hold addresses."""
    for name, (_, declarator) in kernel.module.variables.items():
        if name in kernel.module.addresses and not [*names_in(declarator.initializer)]:
            variable = kernel.module.variable(name)
            data = kernel.device.memory.read(variable.address, variable.nbytes).tobytes()
            yield name, _value(variable.declared, data)


def _argument(device: EmulatorDevice, parameter: Parameter, data: bytes) -> Any:
    """Return an argument from its bytes: memory where they are an address of some."""
    if parameter.size == _WIDEST and parameter.count == 1:
        address = int.from_bytes(data, "little")
        allocation = device.memory.find(address)
        if allocation is not None and address < allocation.end:
            return _Held(device, address, allocation.end, np.dtype(np.uint8))
    return _value(parameter, data)


def _value(parameter: Parameter, data: bytes) -> Any:
    scalar = TYPES[parameter.type]
    if parameter.count != 1 or scalar.name == "b8" or scalar.bytes > _WIDEST:
        return data
    return np.frombuffer(data, scalar.dtype)[0]


def _dtype(allocation: Allocation, known: str | None) -> np.dtype[Any]:
    """Return the type of the numbers in memory: words, where it is not known."""
    try:
        dtype = np.dtype(known or np.uint32)
    except TypeError:  # a type of PyTorch's own
        dtype = np.dtype(np.uint8)
    whole = dtype.itemsize <= _WIDEST and (allocation.end - allocation.begin) % dtype.itemsize == 0
    return dtype if whole else np.dtype(np.uint8)


def _name(allocation: Allocation) -> str:
    return f"{allocation.name} at {allocation.begin:#x}"
