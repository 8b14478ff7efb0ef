"""Roundings of tensor cores in native code."""

from __future__ import annotations

from ptxlab.native.tensor_core.decoding import magnitude
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
    bits, below = numbers.bits("i64"), (1 << _LOST) - 1
    sticky = ((bits & below) + below) & (1 << _LOST)
    return ((bits | sticky) & ~below).bits("double")


def to_f16(numbers: VectorValue) -> VectorValue:
    """Round float32 to the nearest float16, ties to even, as int32 words; a zero is positive.

    Not for NaN.
    """
    bits = numbers.bits("i32")
    size = bits & F32.nan
    lost = F32.fraction_bits - F16.fraction_bits
    # The unit of 0.5 in float32 is that of float16's subnormals.
    small = (size.bits("float") + 0.5).bits("i32") - ((F32.bias - 1) << F32.fraction_bits)
    moved = size - ((F32.bias - F16.bias) << F32.fraction_bits)
    tie = (size >> lost) & 1
    words = (moved + tie + ((1 << (lost - 1)) - 1)) >> lost
    words = size.is_("ult", (F32.bias + F16.lowest_exponent) << F32.fraction_bits).choose(
        small, words
    )
    beyond = F32.bias + F16.bias + 1
    assert F16.infinity is not None
    words = size.is_("uge", beyond << F32.fraction_bits).choose(F16.infinity, words)
    sign = (bits >> 16) & 1 << F16.sign_bit
    return words.is_("eq", 0).choose(0, words | sign)
