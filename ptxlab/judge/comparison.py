"""What a candidate left in an array beside what should be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array, Mask
from ptxlab.judge.rounding import FORMATS, Bounded

POISON = 0xFF
"""Each byte of an array before the launch that is to write it: NaN in every type of floats."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An array of so many ``elements``, of which so many are ``wrong`` and so many were left ``unwritten``.

    ``error`` is that of the worst element in units of what it may be, NaN where one is no number. ``index`` is where
    the first wrong element is, of ``value`` where ``expected`` within ``bound`` should be.
    """

    name: str
    elements: int
    wrong: int
    unwritten: int
    error: float
    index: tuple[int, ...] | None = None
    value: float | None = None
    expected: float | None = None
    bound: float | None = None


def poisoned(array: Array) -> Array:
    return np.full(array.nbytes, POISON, np.uint8).view(array.dtype).reshape(array.shape)


def is_poison(array: Array) -> Mask:
    """Say which elements of an array have all bits set."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    poison: Mask = (flat == POISON).all(axis=1).reshape(array.shape)
    return poison


def wrong(actual: Array, expected: Bounded) -> tuple[Mask, Array]:
    """Return which elements are wrong, and how far off all are in units of what they may be."""
    want, bound = (np.broadcast_to(each, actual.shape) for each in (expected.value, expected.error))
    kept = FORMATS.get(actual.dtype)
    with np.errstate(all="ignore"):
        value = actual.astype(np.float64)
        off = np.abs(value - want)
        units = np.where(off == 0, 0.0, off / bound)
        right = (
            (off <= bound)
            | (value == want)
            | (np.isnan(want) & np.isnan(value))
            | ~np.isfinite(bound) & np.isfinite(want)
        )
        if kept is not None:  # a sum may leave the type on its way where its bound does
            over = np.abs(want) + bound > kept.max_finite
            right |= np.isinf(value) & over & (np.sign(value) == np.sign(want))
    return ~right, np.where(right & ~np.isfinite(units), 0.0, units)


def compare(name: str, actual: Array, expected: Bounded, *, was_poisoned: bool) -> Compared:
    mistaken, units = wrong(actual, expected)
    count = int(mistaken.sum())
    unwritten = (
        int(is_poison(actual).sum()) if was_poisoned and actual.dtype.kind not in "iu" else 0
    )
    error = float(np.max(units, initial=0.0))
    if not count:
        return Compared(name, actual.size, 0, unwritten, error)
    index: Any = np.unravel_index(int(np.argmax(mistaken)), actual.shape)
    want, bound = (
        np.broadcast_to(each, actual.shape)[index] for each in (expected.value, expected.error)
    )
    return Compared(
        name, actual.size, count, unwritten, error, tuple(map(int, index)), float(actual[index]), float(want), float(bound)
    )  # fmt: skip
