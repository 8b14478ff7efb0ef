"""Copies and fills: between any two of the GPU's memory and that of this process, at once.

Source: CUDA Driver API, "Memory Management".
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ptxlab.arrays import Array, Octets
from ptxlab.clients.captures import NodeKind, Stream, Work
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch
from ptxlab.emulator.address_map import HOST_END


def bytes_at(gpu: EmulatedGpu, address: int, nbytes: int) -> Octets:
    """Return ``nbytes`` at an address, those of this process without a copy."""
    if address >= HOST_END:
        try:
            return gpu.session.device.read(address, nbytes)
        except ValueError as error:
            raise Refused(DriverResult.INVALID_VALUE, str(error)) from None
    if not address:
        raise Refused(DriverResult.INVALID_VALUE)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def put(gpu: EmulatedGpu, address: int, data: Array) -> None:
    if address < HOST_END:
        bytes_at(gpu, address, data.nbytes)[:] = data.reshape(-1).view(np.uint8)
        return
    try:
        gpu.session.device.write(address, data)
    except ValueError as error:
        raise Refused(DriverResult.INVALID_VALUE, str(error)) from None


@answers("cuMemcpy", "u64 u64 u64", waits=True)
@answers("cuMemcpyHtoD_v2", "u64 u64 u64", waits=True)
@answers("cuMemcpyDtoH_v2", "u64 u64 u64", waits=True)
@answers("cuMemcpyDtoD_v2", "u64 u64 u64", waits=True)
@answers("cuMemcpyAsync", "u64 u64 u64 queue:memcpy")
@answers("cuMemcpyHtoDAsync_v2", "u64 u64 u64 queue:memcpy")
@answers("cuMemcpyDtoHAsync_v2", "u64 u64 u64 queue:memcpy")
@answers("cuMemcpyDtoDAsync_v2", "u64 u64 u64 queue:memcpy")
@answers("cuMemcpyPeer", "u64 -u64 u64 -u64 u64", waits=True)
@answers("cuMemcpyPeerAsync", "u64 -u64 u64 -u64 u64 queue:memcpy")
def copy(gpu: EmulatedGpu, to: int, source: int, nbytes: int) -> None:
    if nbytes:
        put(gpu, to, bytes_at(gpu, source, nbytes))  # NumPy sees where both overlap


class Side(NamedTuple):
    """One side of a copy of rows: where its first byte is, and the bytes from row to row and plane to plane."""

    address: int
    pitch: int
    plane: int


def side(array: int, x: int, y: int, z: int, base: int, pitch: int, rows: int) -> Side:
    """Return the side that begins ``x`` bytes, ``y`` rows and ``z`` planes of so many ``rows`` behind a base, which is no ``array``."""
    if array:
        raise Refused(DriverResult.NOT_SUPPORTED, "arrays for textures are not there")
    return Side(base + x + pitch * (y + rows * z), pitch, pitch * rows)


_HOST, _ARRAY = 1, 3  # CUmemorytype


def _side(x: int, y: int, z: int, kind: int, host: int, device: int, pitch: int, rows: int) -> Side:
    return side(kind == _ARRAY, x, y, z, host if kind == _HOST else device, pitch, rows)


@answers("cuMemcpy2D_v2", "u64", waits=True)
@answers("cuMemcpy2DUnaligned_v2", "u64", waits=True)
@answers("cuMemcpy2DAsync_v2", "u64 stream")
def copy_rows(gpu: EmulatedGpu, parameters: int, stream: Stream | None = None) -> None:
    x, y, kind, host, device, _, pitch, *to, width, height = fetch(parameters, "<2QI4x4Q2QI4x6Q")
    to_x, to_y, to_kind, to_host, to_device, _, to_pitch = to
    source = _side(x, y, 0, kind, host, device, pitch, 0)
    target = _side(to_x, to_y, 0, to_kind, to_host, to_device, to_pitch, 0)
    work = partial(copy_between, gpu, target, source, width, height, 1)
    (stream or gpu.legacy_stream).put(NodeKind.MEMCPY, work)


@answers("cuMemcpy3D_v2", "u64", waits=True)
@answers("cuMemcpy3DAsync_v2", "u64 stream")
def copy_box(gpu: EmulatedGpu, parameters: int, stream: Stream | None = None) -> None:
    (stream or gpu.legacy_stream).put(NodeKind.MEMCPY, box_copy(gpu, parameters))


def box_copy(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the copy that a CUDA_MEMCPY3D is of, as it is now."""
    box = fetch(parameters, "<4QI4x6Q4QI4x9Q")
    x, y, z, _, kind, host, device, _, _, pitch, rows, *to, width, height, depth = box
    to_x, to_y, to_z, _, to_kind, to_host, to_device, _, _, to_pitch, to_rows = to
    source = _side(x, y, z, kind, host, device, pitch, rows)
    target = _side(to_x, to_y, to_z, to_kind, to_host, to_device, to_pitch, to_rows)
    return partial(copy_between, gpu, target, source, width, height, depth)


def copy_between(
    gpu: EmulatedGpu, to: Side, source: Side, width: int, height: int, depth: int
) -> None:
    """Copy ``depth`` planes of ``height`` rows of ``width`` bytes."""
    for plane in range(depth):
        for row in range(height):
            at, begin = (
                side.address + row * side.pitch + plane * side.plane for side in (to, source)
            )
            copy(gpu, at, begin, width)


def fill(
    gpu: EmulatedGpu, kind: type[np.unsignedinteger[Any]], address: int, value: int, count: int
) -> None:
    if address % kind().itemsize:
        raise Refused(DriverResult.INVALID_VALUE)
    if count:
        put(gpu, address, np.full(count, kind(value)))


def _answer_fills(kind: type[np.unsignedinteger[Any]]) -> None:
    """Put the functions that fill with elements of a ``kind`` into the table."""

    def fill_all(gpu: EmulatedGpu, address: int, value: int, count: int) -> None:
        fill(gpu, kind, address, value, count)

    def fill_rows(
        gpu: EmulatedGpu, address: int, pitch: int, value: int, width: int, height: int
    ) -> None:
        for row in range(height):
            fill(gpu, kind, address + row * pitch, value, width)

    bits = 8 * kind().itemsize
    answers(f"cuMemsetD{bits}_v2", f"u64 u{bits} u64", waits=True)(fill_all)
    answers(f"cuMemsetD{bits}Async", f"u64 u{bits} u64 queue:memset")(fill_all)
    answers(f"cuMemsetD2D{bits}_v2", f"u64 u64 u{bits} u64 u64", waits=True)(fill_rows)
    answers(f"cuMemsetD2D{bits}Async", f"u64 u64 u{bits} u64 u64 queue:memset")(fill_rows)


_KINDS: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
for _kind in _KINDS.values():
    _answer_fills(_kind)


def box_fill(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the fill of rows that a CUDA_MEMSET_NODE_PARAMS is of, as it is now."""
    address, pitch, value, size, width, height = fetch(parameters, "<2Q2I2Q")
    if size not in _KINDS:
        raise Refused(DriverResult.INVALID_VALUE)

    def fill_all() -> None:
        for row in range(height):
            fill(gpu, _KINDS[size], address + row * pitch, value, width)

    return fill_all
