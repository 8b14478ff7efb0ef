"""Numbers that carry how far from them a right kernel's may be: ``bounded.h`` as arrays.

A number is a sum of terms, of which so many roundings were made, whose magnitudes add up, and that are off by
``error``, so that a bound for terms in any order follows (N. Higham, "Accuracy and Stability of Numerical
Algorithms", 3.1). All else has the rules of ``ptxlab.judge.rounding``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array, Mask
from ptxlab.judge.rounding import F32_TINY, Bounded, Rounding

UNIT = 2.0**-24


@dataclass(frozen=True, slots=True)
class Carried:
    """Numbers in float64, all four of one shape: [threads, elements] of a register."""

    value: Array
    magnitude: Array
    roundings: Array
    error: Array

    @classmethod
    def exact(cls, value: Array) -> Carried:
        value = value.astype(np.float64)
        none = np.zeros_like(value)
        return cls(value, np.abs(value), none, none)

    @classmethod
    def whole(cls, number: Bounded) -> Carried:
        """Return numbers that are one term each."""
        value, error = np.broadcast_arrays(number.value, number.error)
        return cls(value, np.abs(value), np.zeros_like(value), error)

    @property
    def off(self) -> Array:
        """How far off a number is at most, in whatever order its terms were added."""
        made = self.roundings * UNIT
        with np.errstate(all="ignore"):  # a bound of what is no number is none
            summed = 1.001 * (self.error + made / (1 - made) * self.magnitude) + F32_TINY
        return np.where(made > 0, summed, self.error)

    @property
    def bounded(self) -> Bounded:
        return Bounded(self.value, self.off)

    def columns(self) -> Iterator[Array]:
        yield from (self.value, self.magnitude, self.roundings, self.error)

    def each(self, f: Callable[..., Array], *others: Carried) -> Carried:
        """Return what ``f`` makes of each of the four: what moves, chooses or joins numbers."""
        every = zip(self.columns(), *(other.columns() for other in others), strict=True)
        return Carried(*(f(*columns) for columns in every))

    def or_else(self, mask: Array, other: Carried) -> Carried:
        """Return these numbers where a mask says so, and others elsewhere."""
        return self.each(lambda own, theirs: np.asarray(np.where(mask, own, theirs)), other)

    def plus(self, other: Carried, sign: float, roundings: float) -> Carried:
        total = Carried(
            self.value + sign * other.value,
            self.magnitude + other.magnitude,
            self.roundings + other.roundings + roundings,
            self.error + other.error,
        )
        return total._infinite_of(self, other)

    def times(self, other: Carried, rules: Rounding) -> Carried:
        product = Carried.whole(rules.multiply(self.bounded, other.bounded))
        signed = (abs(self.value) > self.off) & (abs(other.value) > other.off)
        return product._infinite_of(self, other, signed)

    def _infinite_of(self, a: Carried, b: Carried, where: Mask | bool = True) -> Carried:
        """Return results that are infinite because an operand is, as a mask has it, as exact as that."""
        infinite = [np.isinf(each.value) & (each.off == 0) for each in (a, b)]
        if not any(each.any() for each in infinite):
            return self
        settled = np.isinf(self.value) & (infinite[0] | infinite[1]) & where
        return Carried.exact(self.value).or_else(settled, self)

    def narrowed(self, rules: Rounding, dtype: np.dtype[np.generic]) -> Carried:
        """Return numbers rounded to a type; those that it has stay exact."""
        rounded = Carried.whole(rules.stored(self.bounded, dtype))
        with np.errstate(all="ignore"):
            kept: Mask = (self.off == 0) & (
                self.value.astype(dtype).astype(np.float64) == self.value
            )
        return Carried.exact(self.value).or_else(kept, rounded)
