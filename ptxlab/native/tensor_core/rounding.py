"""Roundings of tensor cores in native code."""

from __future__ import annotations

import numpy as np

from ptxlab.native.tensor_core.decoding import magnitude
from ptxlab.native.tracing.casts import half_words, odd_single
from ptxlab.native.tracing.trace import applied
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F16, F32, F64, Format

_LOST = F64.fraction_bits - F32.fraction_bits
"""The bits that float64 has more than float32."""


def to_f32(numbers: VectorValue, result: Format) -> VectorValue:
    """Round finite float64 toward zero to words of ``result``, which has float32's exponents.

    What is too large becomes infinity, a zero is positive.
    """
    bits, size = numbers.bits("i64"), magnitude(numbers)
    kept = bits & (-1 << (F32.fraction_bits + _LOST - result.fraction_bits))
    words = kept.bits("double").to("fptrunc", "float").bits("i32")
    sign = (bits >> 63).to("trunc", "i32") << 31
    unit = F32.fraction_bits - F32.lowest_exponent
    small = (size * 2.0**unit).to("fptosi", "i32") & (-1 << result.low_bit)
    small = small.is_("eq", 0).choose(0, small | sign)
    return size.is_("olt", result.min_normal).choose(small, words)


def to_odd(numbers: VectorValue) -> VectorValue:
    """Round float64 to the bits of float32, to odd: a later rounding to fewer bits is not changed by it."""
    return applied(odd_single, np.float64, numbers)


def to_f16(numbers: VectorValue) -> VectorValue:
    """Round float32 to the nearest float16, ties to even, as int32 words; a zero is positive.

    Not for NaN.
    """
    words = applied(half_words, np.float32, numbers)
    return (words & F16.nan).is_("eq", 0).choose(0, words)
