"""Tensor Memory of the CTAs of a wave: its cells, and which columns are allocated.

A CTA has 128 lanes of 512 columns of 32 bits; an address is lane << 16 | column. Columns are allocated
in granules of 32: the lowest free ones whose number is a multiple of as many as are asked for. Nothing
that is only asked for, or given back, needs the cells, so they are made when they are first used.

Source: PTX ISA, "Tensor Memory" and "Tensor Memory Allocation".
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptxlab.arrays import Array
from ptxlab.emulator.run.background import Background

LANES, COLUMNS, GRANULE = 128, 512, 32
GRANULES = COLUMNS // GRANULE
CTA_CELLS = LANES * COLUMNS
CELL_BYTES = 4


def tensor_address(cell: int) -> int:
    """Return the address of a cell in its CTA."""
    lane, column = divmod(cell % CTA_CELLS, COLUMNS)
    return lane << 16 | column


class TensorMemory:
    """That of ``ctas`` CTAs, where each byte that has no value is ``poison``; products may be under way in the ``background``.

    ``changes`` counts what may end somebody's wait for columns. ``group`` is the cta_group of the kernel's
    instructions, 0 before the first. ``relinquished`` says which CTAs may not allocate any more, ``most``
    how many columns their next allocation may have, and ``blank`` is a cell without a value. What operations have
    been found to begin at, where it was allocated, is ``known`` until that changes.
    """

    def __init__(self, ctas: int, background: Background, poison: int = 0) -> None:
        self.ctas = ctas
        self._background = background
        self.blank = np.uint32(poison * 0x01010101)
        self.changes = 0
        self.group = 0
        self.relinquished = np.zeros(ctas, bool)
        self.most = np.full(ctas, COLUMNS)
        self._first = np.full((ctas, GRANULES), -1)
        self._line = np.zeros((ctas, GRANULES), np.int64)
        self._before: Array | None = None
        self.known: dict[Hashable, object] = {}

    @property
    def cells(self) -> Array:
        """All cells, those of a CTA behind each other, lane by lane."""
        self._background.finish()
        return self.unfinished

    @cached_property
    def unfinished(self) -> Array:
        """All cells, to which products may be under way."""
        count = self.ctas * CTA_CELLS
        return np.full(count, self.blank, np.uint32) if self.blank else np.zeros(count, np.uint32)

    def of_cta(self, cta: int) -> Array:
        """Return a copy of the cells [lanes, columns] of a CTA, which are made only if somebody has used some."""
        if "unfinished" not in self.__dict__:
            return np.full((LANES, COLUMNS), self.blank, np.uint32)
        own = self.cells[cta * CTA_CELLS : (cta + 1) * CTA_CELLS]
        return own.reshape(LANES, COLUMNS).copy()

    def columns_of(self, cta: int) -> Array:
        """Return which columns of a CTA are allocated."""
        return np.repeat(self._first[cta] >= 0, GRANULE)

    def find(self, ctas: Array, counts: Array) -> Array:
        """Return where ``counts`` columns could begin that are free in all of the CTAs [requests, group].

        A request takes what those before it leave; it is -1 where there is not enough.
        """
        taken = self._first >= 0
        starts = np.full(len(ctas), -1)
        turn = _turns(ctas[:, 0])
        for number in range(int(turn.max(initial=-1)) + 1):
            for count in np.unique(counts[turn == number]).tolist():
                at = np.flatnonzero((turn == number) & (counts == count))
                free = np.logical_not(taken[ctas[at]].any(axis=1))
                starts[at] = _lowest(np.asarray(free), count // GRANULE)
                for request in at[starts[at] >= 0].tolist():
                    first = starts[request] // GRANULE
                    taken[ctas[request], first : first + count // GRANULE] = True
        return starts

    def take(self, ctas: Array, starts: Array, counts: Array, line: int) -> None:
        """Allocate ``counts`` columns from ``starts`` on in the CTAs [requests, group]."""
        self._changed()
        for own, start, count in zip(ctas.tolist(), starts.tolist(), counts.tolist(), strict=True):
            granules = slice(start // GRANULE, (start + count) // GRANULE)
            self._first[own, granules] = start // GRANULE
            self._line[own, granules] = line
            self.most[own] = count

    def allocated(self, cta: int, start: int) -> int:
        """Return how many columns the allocation has that begins at ``start``; 0 if none does."""
        return int((self._first[cta] == start / GRANULE).sum()) * GRANULE

    def held(self, cta: int) -> int:
        """Return how many columns a CTA has allocated."""
        return int((self._first[cta] >= 0).sum()) * GRANULE

    def free(self, cta: int, start: int) -> None:
        """Give back the allocation that begins at ``start``."""
        self._changed()
        self._first[cta][self._first[cta] == start // GRANULE] = -1
        self.changes += 1

    def _changed(self) -> None:
        self._before = None
        self.known.clear()

    def relinquish(self, ctas: Array) -> None:
        """Have CTAs allocate no more."""
        self.relinquished[ctas] = True
        self.changes += 1

    def outside(self, ctas: Array, columns: Array, width: int) -> Array:
        """Return of ``width`` columns from each of ``columns`` on whether some are not allocated."""
        last = columns + width - 1
        beyond: Array = (columns < 0) | (last >= COLUMNS)
        held = self._allocated_before()
        low = np.clip(columns, 0, COLUMNS - 1) // GRANULE
        high = np.clip(last, 0, COLUMNS - 1) // GRANULE + 1
        whole: Array = held[ctas, high] - held[ctas, low] == high - low
        return beyond | ~whole

    def _allocated_before(self) -> Array:
        """Return how many granules of a CTA are allocated before each of them, and of all."""
        if self._before is None:
            counts = np.cumsum(self._first >= 0, axis=1)
            self._before = np.concatenate([np.zeros((self.ctas, 1), int), counts], 1)
        return self._before

    def left(self) -> tuple[int, int, int] | None:
        """Return a CTA that holds columns, how many, and the line that allocated them; None if none does."""
        held = np.argwhere(self._first >= 0)
        if not held.size:
            return None
        cta, granule = map(int, held[0])
        return cta, self.held(cta), int(self._line[cta, granule])


def _lowest(free: Array, granules: int) -> Array:
    """Return the lowest column of so many ``free`` granules [requests, 16], -1 where they are not there.

    A power of two begins at a multiple of itself.
    """
    runs = np.asarray(sliding_window_view(free, granules, axis=1).all(axis=2))
    if granules & (granules - 1) == 0:
        runs = runs & (np.arange(runs.shape[1]) % granules == 0)
    return np.where(runs.any(axis=1), runs.argmax(axis=1) * GRANULE, -1)


def _turns(values: Array) -> Array:
    """Return of each entry how many equal ones come before it, of entries in ascending order."""
    turns: Array = np.arange(len(values)) - np.searchsorted(values, values)
    return turns
