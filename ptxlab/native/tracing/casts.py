"""Conversions of numbers to 16 bits and from them. Numbers of 16 bits are their bits here."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.native.compiler import has_halves
from ptxlab.native.tracing.ufuncs import NotTraced
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import BF16, F16, F32, F64

_BRAIN_FRACTION = F32.fraction_bits - BF16.fraction_bits
_DOUBLE_FRACTION = F64.fraction_bits - F32.fraction_bits


def single_from_half(words: VectorValue) -> VectorValue:
    """Widen; a NaN keeps its sign, and is quiet."""
    if not has_halves():
        raise NotTraced
    return words.bits("half").to("fpext", "float")


def single_from_brain(words: VectorValue) -> VectorValue:
    return (words.extended(32, signed=False) << _BRAIN_FRACTION).bits("float")


def half_from_single(x: VectorValue) -> VectorValue:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    if not has_halves():
        raise NotTraced
    return x.is_("uno", x).choose(F16.nan, x.to("fptrunc", "half").bits("i16"))


def brain_from_single(x: VectorValue) -> VectorValue:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    bits = x.bits("i32")
    even = (bits >> _BRAIN_FRACTION) & 1
    rounded = (bits + ((1 << _BRAIN_FRACTION - 1) - 1) + even) >> _BRAIN_FRACTION
    return x.is_("uno", x).choose(BF16.nan, rounded.to("trunc", "i16"))


def odd_single(x: Any) -> Any:
    """Round float64 to float32's bits, to odd: a later rounding to fewer bits is not changed by it.

    It is a function of arrays, or what stands for one. Of numbers that are subnormal in float32 more bits are left.
    """
    bits, below = x.view(np.uint64), np.uint64((1 << _DOUBLE_FRACTION) - 1)
    sticky = ((bits & below) + below) & (below + np.uint64(1))
    return ((bits | sticky) & ~below).view(np.float64)
