"""Tensor maps as Triton asks for them on the host: its numbers, outermost dimension first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import ELEMENT_TYPES, FILLS, SWIZZLES, Im2col, TensorMap

_L2_PROMOTION = 128


def tensor_map(
    address: int,
    swizzle: int,
    element_bytes: int,
    element_type: int,
    block: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    padding: int,
    *pixels: Sequence[int],
) -> bytes:
    """Return the map of a tensor that is copied in boxes of ``block``; strides count elements.

    For im2col ``pixels`` are the lower and the upper corner and the steps from element to element; the
    ``block`` is then how many pixels, and of each how many channels.
    """
    names = {element_type.driver: element_type.name for element_type in ELEMENT_TYPES.values()}
    box: Any = tuple(reversed(block))
    steps = (1,) * len(shape)
    if pixels:
        lower, upper, steps = (tuple(reversed(pixel)) for pixel in pixels)
        box = Im2col(lower, upper, *box)
    try:
        return encode(
            TensorMap(
                names[element_type],
                address,
                tuple(reversed(shape)),
                tuple(element_bytes * stride for stride in reversed(strides[:-1])),
                box,
                steps,
                SWIZZLES[swizzle],
                fill=FILLS[padding],
                l2_promotion=_L2_PROMOTION,
            )
        )
    except (ValueError, KeyError) as error:
        raise PtxlabError(f"no tensor map can be made of this descriptor: {error}") from None
