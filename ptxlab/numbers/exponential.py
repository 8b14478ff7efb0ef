"""Powers of two and logarithms to base two of numbers with 24 bits at most, by sums, products and a table alone.

So every processor has the same bits, which numpy's own functions do not promise, and machine code can be made of
them. What is returned is exact to about one unit in float64's last place.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from math import factorial

import numpy as np

from ptxlab.arrays import Array, Doubles, looked_up

_EXPONENT, _BIAS = np.int64(52), np.int64(1023)
"""Where the exponent of float64 begins, and what of it is the exponent of 1."""

_FARTHEST = 1000.0
"""A power of which only its being too large or too small for any format of 32 bits counts."""

_PARTS, _TURN = 32, 13
"""Into how many parts the table cuts the interval from 1 to 2; those from ``_TURN`` on are taken as of 0.5 to 1."""

_LN2 = Decimal(2).ln()
_OF_POWER = [float(_LN2**n / factorial(n)) for n in range(15)]
_OF_LOGARITHM = [float((-1) ** n / ((n + 1) * _LN2)) for n in range(11)]
"""The series of 2**x, and of log2(1 + z) / z."""


def _polynomial(x: Array, factors: Iterable[float]) -> Array:
    *others, last = factors
    result: Array = x * last
    for factor in reversed(others[1:]):
        result = (result + factor) * x
    return result + others[0]


@cache
def _table() -> tuple[Doubles, Doubles, Doubles]:
    """Return for each part about 1 over its middle, by which a number is multiplied exactly, and -log2 of that.

    The logarithm is the sum of two numbers. Around 1 it is 0, so that of logarithms near 0 no digit is lost.
    """
    middles = [(1 if part < _TURN else 0.5) * (1 + (part + 0.5) / _PARTS) for part in range(_PARTS)]
    near = [round(4096 / middle) / 4096 for middle in middles]
    near[0] = near[-1] = 1.0
    exact = [-Decimal(x).ln() / _LN2 for x in near]
    high = [float(value) for value in exact]
    low = [float(value - Decimal(part)) for value, part in zip(exact, high, strict=True)]
    return np.array(near), np.array(high), np.array(low)


def power_of_two(x: Array) -> Array:
    """Return 2**x for float64 ``x`` of any shape with at most 24 bits; beyond 1000 or -1000 that power."""
    nan = x != x
    near = np.where(nan, 0.0, np.maximum(np.minimum(x, _FARTHEST), -_FARTHEST))
    whole = np.rint(near)
    scale = (whole.astype(np.int64) + _BIAS << _EXPONENT).view(np.float64)
    power: Array = np.where(nan, x, _polynomial(near - whole, _OF_POWER) * scale)
    return power


def logarithm(x: Array) -> Array:
    """Return log2(x) for normal float64 ``x`` of any shape with at most 24 bits: NaN below zero, -inf of zero."""
    bits = x.view(np.int64)
    exponent = (bits - np.int64(_TURN << 47) >> _EXPONENT) - (_BIAS - np.int64(1))
    part = bits >> np.int64(47) & np.int64(_PARTS - 1)
    near, high, low = (looked_up(part, column) for column in _table())
    z = (bits - (exponent << _EXPONENT)).view(np.float64) * near - 1.0
    more = z * _polynomial(z, _OF_LOGARITHM)
    result = exponent.astype(np.float64) + high + (low + more)
    result = np.where((x > 0) & (x < np.inf), result, np.where(x == 0, -np.inf, x))
    answer: Array = np.where(x < 0, np.nan, result)
    return answer
