"""Numbers without rounding: words to exact values, exact sums, and back with one rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ptxlab.arrays import Array, Doubles
from ptxlab.errors import PtxlabError
from ptxlab.numbers.formats import Format
from ptxlab.numbers.rounding import ROUNDINGS, magnitudes, round_exactly, sum_to_odd, to_odd

Number = Fraction | float
"""An exact value; a float only where it is infinite or NaN."""


def decode(words: Array, form: Format) -> Doubles:
    """Return the numbers that words stand for; float64 holds those of all these formats exactly."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is no mistake here
        numbers: Doubles = form.decode(words)[0]
    return numbers


def encode(numbers: Doubles, form: Format) -> Array:
    """Round to the nearest words of ``form``, ties to even; the sign of a zero stays.

    What is too large becomes infinity, NaN the one with all bits set but the sign. Raises
    PtxlabError where ``form`` has neither.
    """
    if form.infinity is None:
        codes = magnitudes(numbers, form, ROUNDINGS["rn"])
        nan = np.isnan(numbers)
        missing = (codes > form.largest) | np.isinf(numbers) | (nan & (form.specials == "none"))
        if missing.any():
            raise PtxlabError(f"{form.name} has no number near {numbers[missing][0]:g}")
    return round_exactly(numbers, form, "rn")


def nearest(exact: Number, form: Format) -> int:
    """Round one exact value as ``encode`` does."""
    return int(encode(odd(exact), form)[0])


def odd(exact: Number) -> Doubles:
    """Return one exact value rounded to odd, which changes nothing about a later rounding to less."""
    high = np.array([float(exact)])
    low = float(exact - Fraction(high[0])) if isinstance(exact, Fraction) else 0.0
    return to_odd(high, np.array([low]))


def dot(a: Sequence[float], b: Sequence[float], c: float) -> Number:
    """Return ``c`` plus all a*b, exactly; a NaN or infinity where IEEE 754 has one."""
    pairs = list(zip(a, b, strict=True))
    if all(map(math.isfinite, (*a, *b, c))):
        return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(c))
    # No finite product reaches float64's infinity: no format goes beyond 2**128.
    return sum((x * y for x, y in pairs), c)


def rounded_once(a: Doubles, b: Doubles, c: Doubles, form: Format) -> Array:
    """Return ``c`` [count] plus all a*b [k, count], exact until one rounding to ``form``.

    The numbers are finite, and so few of bits that float64 holds each product.
    """
    terms = np.concatenate([a * b, c[None]]).T.tolist()
    high = [math.fsum(row) for row in terms]
    low = [math.fsum((*row, -total)) for row, total in zip(terms, high, strict=True)]
    return encode(to_odd(np.array(high), np.array(low)) + 0.0, form)


def in_order(a: Doubles, b: Doubles, c: Doubles, chain: Format, result: Format) -> Array:
    """Return ``c`` [count] plus a*b [k, count] as IEEE 754 fused multiply-adds in order of k.

    Each is rounded to ``chain``, and the last once more to ``result`` where that is another format.
    """
    words = encode(c, chain)
    with np.errstate(invalid="ignore"):
        for product in a * b:
            words = encode(sum_to_odd(product, decode(words, chain)), chain)
    return words if chain is result else encode(decode(words, chain), result)


def ulps(actual: int, expected: int, form: Format) -> int | None:
    """Count the representable numbers from ``expected`` up to ``found``; None where one is NaN.

    Two NaNs, and zeros of both signs, are no steps apart.
    """
    if actual == expected:
        return 0
    if np.isnan(decode(np.array([actual, expected], form.word), form)).any():
        return None

    def place(word: int) -> int:
        code = word >> form.low_bit
        return -(code & form.nan) if code >> form.sign_bit & 1 else code & form.nan

    return place(actual) - place(expected)
