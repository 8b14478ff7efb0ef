"""Copies and fills: between any two of the GPU's memory and that of this process, at once.

Source: CUDA Driver API, "Memory Management".
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from ptxlab.arrays import Array, Octets
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


@answers("cuMemcpy", "u64 u64 u64")
@answers("cuMemcpyHtoD_v2", "u64 u64 u64")
@answers("cuMemcpyDtoH_v2", "u64 u64 u64")
@answers("cuMemcpyDtoD_v2", "u64 u64 u64")
@answers("cuMemcpyAsync", "u64 u64 u64 -u64")
@answers("cuMemcpyHtoDAsync_v2", "u64 u64 u64 -u64")
@answers("cuMemcpyDtoHAsync_v2", "u64 u64 u64 -u64")
@answers("cuMemcpyDtoDAsync_v2", "u64 u64 u64 -u64")
@answers("cuMemcpyPeer", "u64 -u64 u64 -u64 u64")
@answers("cuMemcpyPeerAsync", "u64 -u64 u64 -u64 u64 -u64")
def copy(gpu: EmulatedGpu, to: int, source: int, nbytes: int) -> None:
    if nbytes:
        put(gpu, to, bytes_at(gpu, source, nbytes))  # NumPy sees where both overlap


class _Side(NamedTuple):
    """One side of a copy of rows: where its first byte is, and the bytes from row to row and plane to plane."""

    address: int
    pitch: int
    plane: int


def _side(
    x: int, y: int, z: int, kind: int, host: int, device: int, pitch: int, rows: int
) -> _Side:
    if kind == _ARRAY:
        raise Refused(DriverResult.NOT_SUPPORTED, "arrays for textures are not there")
    base = host if kind == _HOST else device
    return _Side(base + x + pitch * (y + rows * z), pitch, pitch * rows)


_HOST, _ARRAY = 1, 3  # CUmemorytype


@answers("cuMemcpy2D_v2", "u64")
@answers("cuMemcpy2DUnaligned_v2", "u64")
@answers("cuMemcpy2DAsync_v2", "u64 -u64")
def copy_rows(gpu: EmulatedGpu, parameters: int) -> None:
    x, y, kind, host, device, _, pitch, *to, width, height = fetch(parameters, "<2QI4x4Q2QI4x6Q")
    to_x, to_y, to_kind, to_host, to_device, _, to_pitch = to
    source = _side(x, y, 0, kind, host, device, pitch, 0)
    target = _side(to_x, to_y, 0, to_kind, to_host, to_device, to_pitch, 0)
    _copy_box(gpu, target, source, width, height, 1)


BOX = "<4QI4x6Q4QI4x9Q"  # CUDA_MEMCPY3D


@answers("cuMemcpy3D_v2", "u64")
@answers("cuMemcpy3DAsync_v2", "u64 -u64")
def copy_box(gpu: EmulatedGpu, parameters: int) -> None:
    copy_fetched(gpu, fetch(parameters, BOX))


def copy_fetched(gpu: EmulatedGpu, box: tuple[int, ...]) -> None:
    """Copy as the values of a CUDA_MEMCPY3D say."""
    x, y, z, _, kind, host, device, _, _, pitch, rows, *to, width, height, depth = box
    to_x, to_y, to_z, _, to_kind, to_host, to_device, _, _, to_pitch, to_rows = to
    source = _side(x, y, z, kind, host, device, pitch, rows)
    target = _side(to_x, to_y, to_z, to_kind, to_host, to_device, to_pitch, to_rows)
    _copy_box(gpu, target, source, width, height, depth)


def _copy_box(
    gpu: EmulatedGpu, to: _Side, source: _Side, width: int, height: int, depth: int
) -> None:
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
    answers(f"cuMemsetD{bits}_v2", f"u64 u{bits} u64")(fill_all)
    answers(f"cuMemsetD{bits}Async", f"u64 u{bits} u64 -u64")(fill_all)
    answers(f"cuMemsetD2D{bits}_v2", f"u64 u64 u{bits} u64 u64")(fill_rows)
    answers(f"cuMemsetD2D{bits}Async", f"u64 u64 u{bits} u64 u64 -u64")(fill_rows)


for _kind in (np.uint8, np.uint16, np.uint32):
    _answer_fills(_kind)
