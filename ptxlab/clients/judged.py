"""A launch that a program made, as a judge is given one: its program, and its arguments as arrays and numbers by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ptxlab.clients.elsewhere import WIDEST, value_of
from ptxlab.device.emulator import EmulatorKernel, MachineCodeModule
from ptxlab.device.shapes import dtype_of
from ptxlab.emulator.run.memory import Allocation
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called


def task(
    kernel: EmulatorKernel, config: LaunchConfig, parameters: bytes, names: Sequence[str]
) -> dict[str, Any]:
    """Return a launch, whose memory is mapped, as arguments of ``ptxlab.evaluate``.

    Raises PtxlabError for too few or too many ``names``, and Unsupported for what a judge cannot give to a kernel.
    """
    if isinstance(kernel.module, MachineCodeModule):
        raise Unsupported(
            f"{called(kernel.name)} came as machine code", hint="have the program compiled to PTX"
        )
    if config.cooperative:
        raise Unsupported(f"the launch of {called(kernel.name)} is cooperative")
    given = [*_arguments(kernel, parameters)]
    if names and len(names) != len(given):
        own = ", ".join(name for name, _ in given)
        raise PtxlabError(
            f"{called(kernel.name)} has {len(given)} arguments, and {len(names)} are named",
            hint=f"they are {own}",
        )
    return {
        "candidate": kernel.program.module.source.text,
        "kernel": kernel.name,
        "arguments": dict(
            zip(names or _distinct(given), (value for _, value in given), strict=True)
        ),
        "grid": config.grid,
        "block": config.block,
        "shared": config.shared,
        "cluster": config.cluster,
        "arch": kernel.device.target.name,
    }


def _distinct(given: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the names of arguments, which no two may have."""
    names = [name for name, _ in given]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise Unsupported(f"two arguments are {twice}", hint="a judge gives each memory of its own")
    return names


def _arguments(kernel: EmulatorKernel, parameters: bytes) -> Iterator[tuple[str, Any]]:
    for parameter in kernel.parameters:
        data = parameters[parameter.offset :][: parameter.size]
        address = int.from_bytes(data, "little") if parameter.size == WIDEST else 0
        allocation = kernel.device.memory.find(address) if address else None
        if allocation is not None and allocation.begin <= address < allocation.end:
            yield _array(kernel, parameter, allocation, address)
            continue
        value = value_of(parameter, data)
        if isinstance(value, bytes):
            raise Unsupported(
                f"{parameter.name} of {called(kernel.name)} is {parameter.size} bytes, no number and no tensor"
            )
        yield parameter.name, value.item()


def _array(
    kernel: EmulatorKernel, parameter: Parameter, allocation: Allocation, address: int
) -> tuple[str, Any]:
    """Return the tensor that a parameter points to, and what the program calls it."""
    elements = allocation.elements
    if elements is None or elements.shape is None or elements.address != address:
        raise Unsupported(
            f"what {parameter.name} of {called(kernel.name)} points to, in {allocation.name}, is no tensor that the program "
            "has told of",
            hint="launches of Triton, Numba and CuTe DSL have tensors; ptxlab.evaluate takes arrays for any kernel",
        )
    try:
        dtype = dtype_of(elements.dtype)
    except PtxlabError as error:
        raise Unsupported(f"{elements.name}: {error.message}") from None
    wanted = tuple(prod(elements.shape[axis + 1 :]) for axis in range(len(elements.shape)))
    if any(
        size > 1 and own != other
        for size, own, other in zip(elements.shape, elements.strides, wanted, strict=True)
    ):
        raise Unsupported(
            f"{elements.name} is not contiguous, with strides {', '.join(map(str, elements.strides))}",
            hint=f"a judge gives arrays that are: launch it with {elements.name}.contiguous()",
        )
    data = kernel.device.memory.read(address, prod(elements.shape) * elements.size)
    return elements.name, np.frombuffer(data.tobytes(), dtype).reshape(elements.shape)
