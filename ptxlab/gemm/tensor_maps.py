"""The arguments of a kernel: matrices by address, or by tensor maps for the copy engine.

The copy engine takes matrices whose rows begin at multiples of 16 bytes. Of an A or B whose rows do not,
or that has no elements, it is given a copy filled up with zeros, which is made before the launch and is
not timed. A kernel stores a D whose rows do not begin there without it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.problem import DeviceOperands, gathered
from ptxlab.tensormap.encoding import MAP_BYTES

ALIGNMENT = 16

LINE = 128
"""Bytes of a line of a box."""

LINES = (64, LINE)
"""The box of A and B, in bytes, where neighbours lie along k; else it has as many lines as elements in one."""

SLAB = (64, 32)
"""The box of D, of f32: lines of 128 bytes, too."""


def arguments(device: Device, operands: DeviceOperands, algorithm: Algorithm) -> list[Any]:
    """Return the arguments of a kernel, which keep what its tensor maps are of."""
    if not algorithm.maps:
        return operands.arguments()
    p, (lda, ldb, ldd) = operands.problem, operands.problem.leading
    of_a, of_b, of_d = p.stored
    epilogue = [p.alpha, p.beta, operands.bias or 0]
    if operands.scales:
        maps = [_bytes(device, factor) for factor in (operands.a, operands.b)]
        return [p.m, p.n, p.k, *maps, *operands.scales, operands.d, ldd, *epilogue]
    factors = [
        _factor(device, operands.a, of_a, lda, p.dtype, along_k=p.layout[0] == "n"),
        _factor(device, operands.b, of_b, ldb, p.dtype, along_k=p.layout[1] == "t"),
    ]
    result = [_result(device, operands.d, of_d, ldd)] if "d" in algorithm.maps else []
    return [p.m, p.n, p.k, *factors, operands.d, ldd, *result, *epilogue]


def _factor(
    device: Device,
    buffer: Buffer,
    shape: tuple[int, int],
    leading: int,
    dtype: str,
    *,
    along_k: bool,
) -> Any:
    """Return the map of A or B, whose f32 become tf32 on the way if they are multiplied as such.

    Tensor cores turn numbers of 32 bits only where a swizzle keeps 32 bytes together.
    """
    across = LINE // buffer.dtype.itemsize
    mapped = partial(
        _map,
        box=(LINES[0] if along_k else across, across),
        dtype=dtype if dtype == "tf32" else None,
        swizzle="128B" if along_k or dtype != "tf32" else "128B.atom32B",
    )
    if buffer.nbytes and _is_aligned(buffer, leading):
        return mapped(device, buffer, shape=shape, leading=leading)
    rows, columns = shape
    width = ALIGNMENT // buffer.dtype.itemsize
    copy = np.zeros((max(rows, 1), max(-(-columns // width), 1) * width), buffer.dtype)
    copy[:rows, :columns], _ = gathered(buffer.numpy().reshape(-1), rows, columns, leading)
    return mapped(device, device.upload(copy), shape=copy.shape, leading=copy.shape[1])


def _bytes(device: Device, buffer: Buffer) -> Any:
    rows, width = buffer.shape
    return _map(device, buffer, LINES, (rows, width), width)


def _result(device: Device, buffer: Buffer, shape: tuple[int, int], leading: int) -> Any:
    if not _is_aligned(buffer, leading):
        return bytes(MAP_BYTES)
    return _map(device, buffer, SLAB, shape, leading)


def _map(
    device: Device,
    buffer: Buffer,
    box: tuple[int, int],
    shape: tuple[int, int],
    leading: int,
    dtype: str | None = None,
    swizzle: str = "128B",
) -> Any:
    size = buffer.dtype.itemsize
    strides = (leading * size, size)
    return device.tensor_map(
        buffer, box, shape=shape, strides=strides, dtype=dtype, swizzle=swizzle
    )


def _is_aligned(buffer: Buffer, leading: int) -> bool:
    return not (buffer.address | leading * buffer.dtype.itemsize) % ALIGNMENT
