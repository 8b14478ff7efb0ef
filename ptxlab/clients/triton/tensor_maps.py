"""Tensor maps as Triton asks for them on the host: its numbers, outermost dimension first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import ELEMENT_TYPES, FILLS, SWIZZLES, Im2col, TensorMap

_L2_PROMOTION = 128


def tiled_map(
    address: int,
    swizzle: int,
    element_bytes: int,
    element_type: int,
    block: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    padding: int,
) -> bytes:
    """Return the map of a tensor that is copied in boxes of ``block``; strides count elements."""
    box = tuple(reversed(block))
    ones = (1,) * len(shape)
    return _encoded(
        address, swizzle, element_bytes, element_type, box, shape, strides, padding, ones
    )


def im2col_map(
    address: int,
    swizzle: int,
    element_bytes: int,
    element_type: int,
    block: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    padding: int,
    lower: Sequence[int],
    upper: Sequence[int],
    element_strides: Sequence[int],
) -> bytes:
    """Return the map of a tensor of pixels: ``block`` is how many, and of each how many channels."""
    pixels, channels = block
    box = Im2col(tuple(reversed(lower)), tuple(reversed(upper)), channels, pixels)
    steps = tuple(reversed(element_strides))
    return _encoded(
        address, swizzle, element_bytes, element_type, box, shape, strides, padding, steps
    )


def _encoded(
    address: int,
    swizzle: int,
    element_bytes: int,
    element_type: int,
    box: Any,
    shape: Sequence[int],
    strides: Sequence[int],
    padding: int,
    element_strides: tuple[int, ...],
) -> bytes:
    names = {one.driver: one.name for one in ELEMENT_TYPES.values()}
    try:
        return encode(
            TensorMap(
                names[element_type],
                address,
                tuple(reversed(shape)),
                tuple(element_bytes * stride for stride in reversed(strides[:-1])),
                box,
                element_strides,
                SWIZZLES[swizzle],
                fill=FILLS[padding],
                l2_promotion=_L2_PROMOTION,
            )
        )
    except (ValueError, KeyError) as error:
        raise PtxlabError(f"no tensor map can be made of this descriptor: {error}") from None
