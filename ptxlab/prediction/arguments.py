"""The arguments of a launch that is predicted, and the memory that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device
from ptxlab.device.tensor_maps import DeviceTensorMap
from ptxlab.machine.memory import MemoryRange
from ptxlab.prediction.unfilled import UnfilledDevice
from ptxlab.tensormap.encoding import MAP_BYTES
from ptxlab.tensormap.encoding import decode as decode_map


@dataclass(frozen=True, slots=True, eq=False)
class MapOf:
    """A tensor map of an ``array`` as an argument, with ``options`` as ``Device.tensor_map`` takes them: ``{"box": (64, 64)}``."""

    array: np.ndarray[Any, Any]
    options: Mapping[str, Any]


def put_on(
    device: UnfilledDevice, args: tuple[Any, ...], there: dict[int, Buffer]
) -> tuple[Any, ...]:
    """Return arguments as a device takes them, the arrays in them, each once, ``there`` by their identity."""

    def put(arg: Any) -> Any:
        if isinstance(arg, tuple):
            return put_on(device, arg, there)
        if isinstance(arg, MapOf):
            return device.tensor_map(put(arg.array), **arg.options)
        if not isinstance(arg, np.ndarray) or not arg.ndim:
            return arg
        if id(arg) not in there:
            there[id(arg)] = device.upload(arg)
        return there[id(arg)]

    return tuple(map(put, args))


def memory_reached(device: Device, passed: Sequence[Any], floats: bool) -> list[MemoryRange]:
    """Return the memory that arguments lead to, each once."""
    ranges = (memory for arg in passed for memory in _reached(device, arg, floats))
    return list({memory.base: memory for memory in ranges}.values())


def _reached(device: Device, arg: Any, floats: bool) -> Iterator[MemoryRange]:
    """Yield the memory that an argument leads to: a buffer, what a tensor map, also one in memory, is of, and a struct's."""
    if isinstance(arg, tuple):
        for member in arg:
            yield from _reached(device, member, floats)
    buffer = arg.buffer if isinstance(arg, DeviceTensorMap) else arg
    if not isinstance(buffer, Buffer):
        return
    yield MemoryRange(buffer.address, buffer.nbytes, _held(buffer, floats))
    if buffer.nbytes == MAP_BYTES and buffer.dtype == np.uint8:
        try:
            tensor_map = decode_map(buffer.numpy().tobytes())
        except ValueError:
            return
        if tensor_map.address:
            yield MemoryRange(tensor_map.address, tensor_map.nbytes)


def _held(buffer: Buffer, floats: bool) -> Any:
    """Return what a buffer holds if that is known, and integers, which may be indices, or ``floats`` are asked for."""
    device = buffer.device
    if isinstance(device, UnfilledDevice) and not device.knows(buffer.address):
        return None
    return buffer.numpy() if floats or buffer.dtype.kind in "iu" else None
