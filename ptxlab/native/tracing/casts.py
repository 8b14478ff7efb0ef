"""Conversions of numbers that machine code has no instruction for, in terms of those it has.

They are functions of arrays, or what stands for one. Numbers of 16 bits are their bits here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.numbers.formats import BF16, F16, F32, F64

_HALF_FRACTION = F32.fraction_bits - F16.fraction_bits
_HALF_BIAS = F32.bias - F16.bias
_BRAIN_FRACTION = F32.fraction_bits - BF16.fraction_bits
_DOUBLE_FRACTION = F64.fraction_bits - F32.fraction_bits


def _field(exponent: int) -> np.uint32:
    """Return an exponent at its place in float32."""
    return np.uint32(exponent << F32.fraction_bits)


def half_from_single(x: Any) -> Any:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    return np.where(x != x, np.uint32(F16.nan), half_words(x)).astype(np.uint16)


def half_words(x: Any) -> Any:
    """Round so what is no NaN, to words of 32 bits."""
    bits = x.view(np.uint32)
    size = bits & np.uint32(F32.nan)
    # The unit of 0.5 in float32 is that of float16's subnormals.
    small = (size.view(np.float32) + np.float32(0.5)).view(np.uint32) - _field(F32.bias - 1)
    even = (size >> np.uint32(_HALF_FRACTION)) & np.uint32(1)
    below = np.uint32((1 << _HALF_FRACTION - 1) - 1)
    normal = (size - _field(_HALF_BIAS) + below + even) >> np.uint32(_HALF_FRACTION)
    words = np.where(size < _field(F32.bias + F16.lowest_exponent), small, normal)
    beyond = size >= _field(F32.bias + F16.bias + 1)
    words = np.where(beyond, np.uint32(F16.infinity or 0), words)
    sign = (bits >> np.uint32(F32.sign_bit)) << np.uint32(F16.sign_bit)
    return words | sign


def brain_from_single(x: Any) -> Any:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    bits, drop = x.view(np.uint32), np.uint32(_BRAIN_FRACTION)
    even = (bits >> drop) & np.uint32(1)
    words = (bits + np.uint32((1 << _BRAIN_FRACTION - 1) - 1) + even) >> drop
    return np.where(x != x, np.uint32(BF16.nan), words).astype(np.uint16)


def odd_single(x: Any) -> Any:
    """Round float64 to float32's bits, to odd: a later rounding to fewer bits is not changed by it.

    Of numbers that are subnormal in float32 more bits are left.
    """
    bits, below = x.view(np.uint64), np.uint64((1 << _DOUBLE_FRACTION) - 1)
    sticky = ((bits & below) + below) & (below + np.uint64(1))
    return ((bits | sticky) & ~below).view(np.float64)
