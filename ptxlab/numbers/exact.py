"""Numbers without rounding: words to exact values, exact sums, and back with one rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.errors import PtxlabError
from ptxlab.numbers.dissect import Number
from ptxlab.numbers.floats import F64, sum_to_odd, to_odd
from ptxlab.numbers.formats import ByteFormat, Format

Array = npt.NDArray[Any]
AnyFormat = Format | ByteFormat


@dataclass(frozen=True, slots=True)
class _Code:
    """How the words of a format count: a magnitude ``code`` lies at ``shift``, the sign above it.

    Codes follow each other as the values do. ``infinity`` and ``nan``, which has all bits set, are
    None where a format has no such thing.
    """

    shift: int
    sign_bit: int
    largest: int
    infinity: int | None
    nan: int | None

    @classmethod
    def of(cls, form: AnyFormat) -> _Code:
        """Return how the words of ``form`` count."""
        bits = form.exponent_bits + form.fraction_bits
        full = (1 << bits) - 1
        infinity = full >> form.fraction_bits << form.fraction_bits
        if isinstance(form, Format):
            shift = form.exponent_shift - form.fraction_bits
            return cls(shift, form.word_bits - 1, infinity - 1, infinity, full)
        shift, sign_bit = form.low_bit, form.low_bit + bits
        if form.specials == "ieee":
            return cls(shift, sign_bit, infinity - 1, infinity, full)
        if form.specials == "nan":
            return cls(shift, sign_bit, full - 1, None, full)
        return cls(shift, sign_bit, full, None, None)


def decode(words: Array, form: AnyFormat) -> F64:
    """Return the numbers that words stand for; float64 holds those of all these formats exactly."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is no mistake here
        numbers: F64 = form.decode(words)[0]
    return numbers


def encode(numbers: F64, form: AnyFormat) -> Array:
    """Round to the nearest words of ``form``, ties to even; the sign of a zero stays.

    What is too large becomes infinity, NaN the one with all bits set but the sign. Raises
    PtxlabError where ``form`` has neither.
    """
    code = _Code.of(form)
    special = ~np.isfinite(numbers)
    magnitude = np.where(special, 0.0, np.abs(numbers))
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, form.lowest_exponent)
    exponent = np.maximum(exponent, form.lowest_exponent)
    units = np.rint(np.ldexp(magnitude, form.fraction_bits - exponent)).astype(np.int64)
    # One binade further is one more in the exponent field; a carry out of the fraction is too.
    found = (exponent.astype(np.int64) - form.lowest_exponent << form.fraction_bits) + units
    nan = np.isnan(numbers)
    for missing, by in (((found > code.largest) | special & ~nan, code.infinity), (nan, code.nan)):
        if missing.any():
            if by is None:
                raise PtxlabError(f"{form.name} has no number near {numbers[missing][0]:g}")
            found[missing] = by
    sign = (np.signbit(numbers) & ~nan).astype(np.int64) << code.sign_bit
    words: Array = (found << code.shift | sign).astype(form.word)
    return words


def nearest(exact: Number, form: AnyFormat) -> int:
    """Round one exact value as ``encode`` does."""
    if isinstance(exact, float):
        return int(encode(np.array([exact]), form)[0])
    high = float(exact)
    low = float(exact - Fraction(high))
    # Rounding to odd in float64 changes nothing about a later rounding to so many bits less.
    return int(encode(to_odd(np.array([high]), np.array([low])), form)[0])


def dot(a: Sequence[float], b: Sequence[float], c: float) -> Number:
    """Return ``c`` plus all a*b, exactly; a NaN or infinity where IEEE 754 has one."""
    pairs = list(zip(a, b, strict=True))
    if all(map(math.isfinite, (*a, *b, c))):
        return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(c))
    # No finite product reaches float64's infinity: no format goes beyond 2**128.
    return sum((x * y for x, y in pairs), c)


def rounded_once(a: F64, b: F64, c: F64, form: AnyFormat) -> Array:
    """Return ``c`` [count] plus all a*b [k, count], exact until one rounding to ``form``.

    The numbers are finite, and so few of bits that float64 holds each product.
    """
    terms = np.concatenate([a * b, c[None]]).T.tolist()
    high = [math.fsum(row) for row in terms]
    low = [math.fsum((*row, -total)) for row, total in zip(terms, high, strict=True)]
    return encode(to_odd(np.array(high), np.array(low)) + 0.0, form)


def in_order(a: F64, b: F64, c: F64, chain: Format, result: Format) -> Array:
    """Return ``c`` [count] plus a*b [k, count] as IEEE 754 fused multiply-adds in order of k.

    Each is rounded to ``chain``, and the last once more to ``result`` where that is another format.
    """
    words = encode(c, chain)
    with np.errstate(invalid="ignore"):
        for product in a * b:
            words = encode(sum_to_odd(product, decode(words, chain)), chain)
    return words if chain is result else encode(decode(words, chain), result)


def ulps(found: int, expected: int, form: AnyFormat) -> int | None:
    """Count the representable numbers from ``expected`` up to ``found``; None where one is NaN.

    Two NaNs, and zeros of both signs, are no steps apart.
    """
    if found == expected:
        return 0
    if np.isnan(decode(np.array([found, expected], form.word), form)).any():
        return None
    code = _Code.of(form)

    def place(word: int) -> int:
        magnitude = (word & ((1 << code.sign_bit) - 1)) >> code.shift
        return -magnitude if word >> code.sign_bit & 1 else magnitude

    return place(found) - place(expected)
