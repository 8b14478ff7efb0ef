"""Tensor maps of buffers: what the copy engine is told of an array, with its dimensions as NumPy has them.

Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxlab.device.memory import Buffer, Memory
from ptxlab.device.shapes import shape_of
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import Target
from ptxlab.launch_config import Dim, integer
from ptxlab.tensormap.tensor_map import ELEMENT_TYPES, Im2col, TensorMap, require_number

_FIRST_CAPABILITY = 90
_PACKED_CAPABILITY = 100


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensorMap:
    """A tensor map of a ``buffer``, which it keeps: ``map`` is what it says, ``data`` its 128 bytes.

    As an argument of a kernel it is these bytes, for ``.param .align 64 .b8 name[128]``.
    """

    buffer: Buffer
    map: TensorMap
    data: bytes


class TensorMaps(Memory):
    """Memory of a device that makes tensor maps of its buffers."""

    target: Target

    def tensor_map(
        self,
        buffer: Buffer,
        box: Dim | None = None,
        *,
        im2col: Im2col | None = None,
        shape: Dim | None = None,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        dtype: str | None = None,
        element_strides: Dim | None = None,
        swizzle: str = "none",
        fill: str = "zeros",
        l2_promotion: int = 0,
    ) -> DeviceTensorMap:
        """Return a tensor map of a buffer, an argument for ``.param .align 64 .b8 name[128]``.

        All that has dimensions has the outermost first, as NumPy and ``buffer.shape``; coordinates in
        PTX have the innermost first. ``box`` is what one copy takes, along every dimension each
        ``element_strides``-th element of it; ``im2col`` takes pixels of a window instead, for im2col::w of one along
        a line (``wide``). The tensor
        begins ``offset`` bytes into the buffer and has its shape, row by row, unless ``shape`` and
        ``strides`` (bytes) say otherwise. A box may reach out of the tensor, where it is filled with
        zeros or ``"nan"``. ``dtype`` is another type of the same size, by PTX's name. Packed ones, b4x16,
        b4x16_p64 and b6x16_p32, are of a buffer of bytes, and all sizes along the innermost dimension count
        numbers of 4 or 6 bits. ``swizzle`` is none, 32B, 64B or 128B, or from sm_100 on 128B.atom32B,
        128B.atom32B.flip8B or 128B.atom64B; ``l2_promotion`` 0, 64, 128 or 256 bytes.

        Raises PtxlabError for what cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col or cuTensorMapEncodeIm2colWide
        refuses, for a tensor that reaches out of its buffer, and on a device before sm_90.
        """
        self.require_open()
        if buffer.device is not self:
            raise PtxlabError(f"{buffer} is on another device", hint="upload it to this one")
        if self.target.capability < _FIRST_CAPABILITY:
            raise PtxlabError(
                f"tensor maps are for sm_{_FIRST_CAPABILITY} and newer, and {self.name} is "
                f"{self.target.name}"
            )
        element = _element_type(buffer.dtype, dtype)
        dims = _shape(buffer, element) if shape is None else shape_of(shape)
        if strides is None:
            steps = _row_major(dims, ELEMENT_TYPES[element].bits)
        else:
            steps = _checked(strides, dims, buffer.dtype.itemsize)
        if (box is None) == (im2col is None):
            raise PtxlabError("a tensor map takes either box= or im2col=")
        taken: tuple[int, ...] | Im2col = (
            _reversed("box", box) if im2col is None else _turned(im2col)
        )
        every = (1,) * len(dims) if element_strides is None else element_strides
        begin = integer("offset", offset)
        try:
            require_number(swizzle)
            made = TensorMap(
                element,
                buffer.address + begin,
                dims[::-1],
                steps[-2::-1],
                taken,
                _reversed("element_strides", every),
                swizzle=swizzle,
                fill=fill,
                l2_promotion=l2_promotion,
            )
        except ValueError as error:
            raise PtxlabError(
                f"no tensor map of {buffer}: {error}",
                hint="dimension 0 is the innermost; the driver says CUDA_ERROR_INVALID_VALUE",
            ) from None
        if not made.is_plain and self.target.capability < _PACKED_CAPABILITY:
            raise PtxlabError(
                f"{made.kind} is for sm_{_PACKED_CAPABILITY} and newer, and {self.name} is {self.target.name}"
            )
        if not 0 <= begin <= buffer.nbytes - made.nbytes:
            raise PtxlabError(
                f"a tensor of {made.nbytes} bytes from byte {begin} on is not inside {buffer}, which "
                f"has {buffer.nbytes}",
                hint="shape and strides say what lies there; only a box may reach out of the tensor",
            )
        return DeviceTensorMap(buffer, made, self.encode_tensor_map(made))

    @abstractmethod
    def encode_tensor_map(self, tensor_map: TensorMap) -> bytes:
        """Return the 128 bytes of a tensor map for kernels on this device."""


def _element_type(held: np.dtype[Any], asked: str | None) -> str:
    """Return the type of a map: the one ``asked`` for, that of the buffer, or bits of its size."""
    same = [name for name, element in ELEMENT_TYPES.items() if element.scalar.dtype == held]
    name = asked or next(iter(same), f"u{8 * held.itemsize}")
    if name not in ELEMENT_TYPES:
        raise PtxlabError(f"element type {name} is none of {', '.join(ELEMENT_TYPES)}")
    if ELEMENT_TYPES[name].scalar.bytes != held.itemsize:
        raise PtxlabError(f"elements of {name} have another size than the buffer's, of {held}")
    return name


def _shape(buffer: Buffer, element: str) -> tuple[int, ...]:
    """Return how many elements a buffer has along each dimension: packed ones are more than its bytes."""
    if ELEMENT_TYPES[element].packing is None:
        return buffer.shape
    *outer, inner = buffer.shape
    return *outer, 8 * inner // ELEMENT_TYPES[element].bits


def _row_major(dims: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Return the bytes from one element to the next along each dimension; the last number is not asked for."""
    steps = [bits]
    for dim in dims[:0:-1]:
        steps.append(steps[-1] * dim)
    return tuple(step // 8 for step in reversed(steps))


def _checked(strides: Sequence[int], dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    steps = tuple(integer("strides", step) for step in strides)
    if len(steps) != len(dims) or steps[-1:] != (size,):
        raise PtxlabError(
            f"strides {steps} are not those of a tensor map of shape {dims}",
            hint=f"they are in bytes, one for each dimension, the last one an element's {size}",
        )
    return steps


def _turned(pixels: Im2col) -> Im2col:
    lower, upper = _reversed("lower", pixels.lower), _reversed("upper", pixels.upper)
    return replace(pixels, lower=lower, upper=upper)


def _reversed(name: str, values: Any) -> tuple[int, ...]:
    several = values if isinstance(values, Sequence) else (values,)
    return tuple(integer(name, value) for value in reversed(several))
