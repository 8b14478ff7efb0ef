"""A launch that a program made, made on an emulated GPU of another target too, and where they part.

Both have the same memory, which is as it was before each launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.elsewhere import WIDEST, HeldMemory, allocations, elsewhere, value_of
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.protocol import Device, Module
from ptxlab.emulator.run.memory import Allocation
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.diff import DeviceLaunch, DiffReport, Repeatable, diff
from ptxlab.syntax.functions import Parameter


def difference(
    kernel: EmulatorKernel,
    config: LaunchConfig,
    parameters: bytes,
    memory: Sequence[Borrowed],
    arch: str,
) -> DiffReport:
    """Compare a launch, whose ``memory`` is mapped, with the same on ``arch``."""
    first, other = kernel.device, elsewhere(kernel, arch)
    modules: Mapping[Device, Module] = {first: kernel.module, other.device: other.module}
    compared = allocations(kernel, memory)
    restore = first.memory.remembered()

    def bound(device: Device) -> DeviceLaunch:
        assert isinstance(device, EmulatorDevice)
        restore()
        loaded = modules[device]
        for name, value in other.variables.items():
            loaded.variable(name).upload(value)
        arrays = [
            (_name(each), HeldMemory(device, each.begin, each.end, dtype))
            for each, dtype in compared
        ]
        args = [
            _argument(device, parameter, parameters[parameter.offset :][: parameter.size])
            for parameter in kernel.parameters
        ]
        return DeviceLaunch(loaded.kernel(kernel.name), args, other.variables, arrays)

    module = other.module.tree
    assert module is not None
    return diff(Repeatable(module, kernel.name, config, bound), first, other.device)


def _argument(device: EmulatorDevice, parameter: Parameter, data: bytes) -> Any:
    """Return an argument from its bytes: memory where they are an address of some."""
    if parameter.size == WIDEST and parameter.count == 1:
        address = int.from_bytes(data, "little")
        allocation = device.memory.find(address)
        if allocation is not None and address < allocation.end:
            return HeldMemory(device, address, allocation.end, np.dtype(np.uint8))
    return value_of(parameter, data)


def _name(allocation: Allocation) -> str:
    return f"{allocation.name} at {allocation.begin:#x}"
