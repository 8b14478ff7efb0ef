"""The registers of many threads, of which not all values are known.

What only becomes a result, the sums of a product, is not computed: it decides neither where a kernel
goes nor what it asks memory for. A value that is not known is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.isa.targets import WARP

Array = npt.NDArray[Any]
Where = slice | Array
"""Which threads: all, or their numbers."""
ALL = slice(None)

Held = tuple[Array, "Array | bool"]
"""The words of a register of some threads, and of which of them they are known."""

_NONE, _SOME, _EVERY = 0, 1, 2


def numbers(where: Where, threads: int) -> Array:
    """Return the numbers of threads, of so many that there are."""
    return np.arange(threads) if isinstance(where, slice) else where


def warps_of(threads: Array) -> tuple[Array, Array]:
    """Return the warps of threads that are in order, and the place of the first thread of each."""
    warps = threads // WARP
    first = runs(warps)
    return warps[first], first


def runs(values: Array) -> Array:
    """Return where other values begin than before, of some in a row."""
    begins = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return np.flatnonzero(begins)


class Bank:
    """``rows`` registers of ``threads`` threads; those in ``fixed`` always have their value."""

    def __init__(self, rows: int, threads: int, dtype: type, fixed: dict[int, int]) -> None:
        self._words: Array = np.zeros((rows, threads), dtype)
        # A program may read what it never wrote where that makes no difference.
        self._state = [_EVERY] * rows
        self._known: dict[int, Array] = {}
        self._forgotten: list[Where | None] = [None] * rows
        """Of which threads each was forgotten last, where nothing was written to it since."""
        self._fixed = fixed
        for row, value in fixed.items():
            self._words[row] = value

    def read(self, row: int, where: Where) -> Array | None:
        state = self._state[row]
        if state == _NONE or (state == _SOME and not self._known[row][where].all()):
            return None
        words: Array = self._words[row]
        return words if isinstance(where, slice) else words.take(where)

    def write(self, row: int, where: Where, value: Array | None) -> None:
        if row in self._fixed or (value is None and self._forgotten[row] is where):
            return
        everywhere = isinstance(where, slice)
        self._forgotten[row] = where if value is None else None
        if value is not None:
            self._words[row][where] = value
        if everywhere:
            self._state[row] = _NONE if value is None else _EVERY
        elif (self._state[row] == _EVERY) != (value is not None):
            known = self._mixed(row)
            known[where] = value is not None
        elif self._state[row] == _SOME:
            self._known[row][where] = value is not None

    def forget(self, rows: Iterable[int], where: Where) -> None:
        """Have some registers be unknown; a product is in a hundred of them, most of which were before."""
        for row in rows:
            if self._forgotten[row] is not where:
                self.write(row, where, None)

    def held(self, row: int, where: Where) -> Held:
        """Return the words of threads, and whether they are known: of all, of none, or of each."""
        state = self._state[row]
        known = self._known[row][where].copy() if state == _SOME else state == _EVERY
        return self._words[row][where].copy(), known

    def put(self, row: int, where: Where, held: Held) -> None:
        """Have threads hold what ``held`` said."""
        words, known = held
        self._words[row][where], self._forgotten[row] = words, None
        if isinstance(known, np.ndarray) or self._state[row] != (_EVERY if known else _NONE):
            self._mixed(row)[where] = known

    def _mixed(self, row: int) -> Array:
        """Return which threads' values are known, kept one by one from now on."""
        if self._state[row] != _SOME:
            known = np.full(self._words.shape[1], self._state[row] == _EVERY)
            self._known[row], self._state[row] = known, _SOME
        return self._known[row]
