"""Integer matrix multiply-add: 8, 4 and 1-bit numbers into s32, exact but for the last addition.

Sums of products are far from overflowing s32, and C is added to them once. That addition wraps, or
with ``.satfinite`` clamps to what s32 can hold. 1-bit numbers are combined by and or xor, and the
set bits of the result counted.

Products are added in float32 or float64, where integers of this size are exact.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.arrays import Array

_INTEGERS: dict[str, Callable[[Array], Array]] = {
    "s8": lambda words: words.view(np.int8),
    "u8": lambda words: words,
    "s4": lambda words: ((words & 15) ^ 8).view(np.int8) - np.int8(8),
    "u4": lambda words: words & 15,
    "b1": lambda words: words & 1,
}
"""What the words of a type stand for."""

_LARGEST = 255 * 255
"""The largest product."""


def multiply_add_integer(
    a: Array, b: Array, c: Array, *, a_type: str, b_type: str, satfinite: bool = False
) -> Array:
    """Compute D = A*B + C on integers for a batch of warps.

    ``a`` is [m, k, warps] and ``b`` [k, n, warps] of bytes with one number each, s8, u8, or s4 or u4
    in the low four bits; ``c`` and the result are [m, n, warps] of s32 as uint32.
    """
    return _accumulate(_products(a, b, a_type, b_type), c, satfinite)


def multiply_add_bits(a: Array, b: Array, c: Array, *, operation: str) -> Array:
    """Compute D = C + the set bits of A op B, where ``operation`` is "and" or "xor".

    ``a`` is [m, k, warps] and ``b`` [k, n, warps] of bytes with one bit each, the lowest; ``c`` and
    the result are [m, n, warps] of s32 as uint32, and the sum wraps.
    """
    both = _products(a, b, "b1", "b1")
    if operation == "and":
        return _accumulate(both, c, False)
    left = (a & 1).sum(axis=1, dtype=np.int64)[:, None]
    right = (b & 1).sum(axis=0, dtype=np.int64)[None]
    return _accumulate(left + right - 2 * both, c, False)


def _products(a: Array, b: Array, a_type: str, b_type: str) -> Array:
    """Multiply [m, k, warps] by [k, n, warps]: int64 [m, n, warps]."""
    exact = np.float32 if b.shape[0] * _LARGEST < 1 << 24 else np.float64
    left = _INTEGERS[a_type](a).transpose(2, 0, 1).astype(exact)
    right = _INTEGERS[b_type](b).transpose(2, 0, 1).astype(exact)
    products: Array = np.matmul(left, right)
    return products.transpose(1, 2, 0).astype(np.int64)


def _accumulate(products: Array, c: Array, satfinite: bool) -> Array:
    total = products + c.view(np.int32)
    if satfinite:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return np.ascontiguousarray(total.astype(np.int32)).view(np.uint32)
