"""Tensor maps drawn at random, small enough to follow element by element."""

from __future__ import annotations

import random
from typing import Any

from ptxlab.tensormap.tensor_map import ELEMENT_TYPES, Im2col, TensorMap

BASE = 0x7F00_0000_0000
SPANS = {"none": None, "32B": 32, "64B": 64, "128B": 128}


def tiled(draw: random.Random, **given: Any) -> TensorMap:
    """Return a tile of a tensor of up to five dimensions that fits into some hundred kilobytes."""
    rank = draw.randint(1, 5)
    dtype = draw.choice(["u8", "u16", "s32", "u64", "f16", "bf16", "f32", "f64"])
    size = ELEMENT_TYPES[dtype].scalar.bytes
    swizzle = draw.choice(list(SPANS))
    inner = SPANS[swizzle] or 16 * draw.randint(1, 6)
    most = (40, 24, 6, 3, 3)[:rank]
    dims = tuple(draw.randint(1, limit) for limit in most)
    box = (inner // size, *(draw.randint(1, limit) for limit in (12, 4, 3, 2)[: rank - 1]))
    steps = tuple(draw.choice([1, 1, 1, 2, 3, 8]) for _ in range(rank))
    return TensorMap(
        dtype, BASE, dims, strides(draw, dims, size), box, steps, swizzle, **given
    )  # fmt: skip


def pixels(draw: random.Random, **given: Any) -> TensorMap:
    rank = draw.randint(3, 5)
    dtype = draw.choice(["u8", "f16", "f32"])
    size = ELEMENT_TYPES[dtype].scalar.bytes
    swizzle = draw.choice(list(SPANS))
    channels = (SPANS[swizzle] or 16 * draw.randint(1, 3)) // size
    spatial = tuple(draw.randint(1, 7) for _ in range(rank - 2))
    lower = tuple(draw.randint(-3, 2) for _ in spatial)
    upper = tuple(
        draw.randint(max(-3, low - size + 1), 3) for size, low in zip(spatial, lower, strict=True)
    )
    dims = (draw.randint(1, 40), *spatial, draw.randint(1, 3))
    steps = (1, *(draw.choice([1, 1, 2, 3]) for _ in spatial), 1)
    what = Im2col(lower, upper, channels, draw.randint(1, 40))
    return TensorMap(dtype, BASE, dims, strides(draw, dims, size), what, steps, swizzle, **given)


def strides(draw: random.Random, dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the strides of a packed tensor, of one with gaps, or with a dimension that repeats."""
    strides, reach = [], dims[0] * size
    for dim in dims[1:]:
        stride = -(-reach // 16) * 16 + draw.choice([0, 0, 16])
        reach = stride * dim
        strides.append(0 if draw.random() < 0.1 else stride)
    return tuple(strides)
