"""Powers of two as fractions, for models of arithmetic that tests write down."""

from __future__ import annotations

from fractions import Fraction
from functools import cache


@cache
def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def exponent_of(value: Fraction, lowest: int) -> int:
    """Return the exponent of the leading bit, ``lowest`` where that is below it or there is none."""
    if value == 0:
        return lowest
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return max(exponent - (abs(value) < power(exponent)), lowest)
