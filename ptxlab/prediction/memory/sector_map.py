"""Which sectors of a region of memory are come to, of what kind, and in how many pieces."""

from __future__ import annotations

import numpy as np

from ptxlab.machine.values import Array
from ptxlab.prediction.sm.requests import SECTOR

_BLOCK = 128
"""Sectors in a row that are looked at together."""

MOST_SECTORS = 1 << 24
"""Sectors that are looked at one by one; of a larger region that is one block of every few."""


def scattered(numbers: Array, count: int) -> Array:
    """Return for each number one of ``count``, always the same, and those of numbers in a row in no order."""
    chosen: Array = (numbers * 0x9E3779B1 >> 16) % count
    return chosen


class SectorMap:
    """The sectors of ``nbytes`` at ``base``; each has the least of the ``kinds`` it was added with."""

    def __init__(self, base: int, nbytes: int) -> None:
        self._first = base // SECTOR
        sectors = -(-(base + nbytes) // SECTOR) - self._first
        self._every = -(-sectors // MOST_SECTORS)
        blocks = -(-sectors // (_BLOCK * self._every))
        self._codes: Array = np.zeros(blocks * _BLOCK, np.uint8)
        """255 less the kind, 0 where there is none: pages that nobody writes to take no memory."""

    def add(self, sectors: Array, kind: int) -> None:
        """Add sectors, by number, of those that are looked at."""
        places = self._places(sectors)
        code = 255 - kind
        self._codes[places] = np.maximum(self._codes[places], code)

    def _places(self, sectors: Array) -> Array:
        """Return the places of those of some sectors that are looked at."""
        places: Array = sectors - self._first
        if self._every > 1:
            blocks, within = np.divmod(places, _BLOCK)
            groups, nth = np.divmod(blocks, self._every)
            chosen = nth == scattered(groups, self._every)
            places = groups[chosen] * _BLOCK + within[chosen]
        return places

    def known(self, sectors: Array) -> int:
        """Return how many of some sectors, by number, were added, those that are not looked at included."""
        return int(np.count_nonzero(self._codes[self._places(sectors)])) * self._every

    def count(self, kind: int) -> int:
        """Return how many sectors are of a kind, those that were not looked at included."""
        return int(np.count_nonzero(self._codes == 255 - kind)) * self._every

    def pieces(self, kind: int, fetched: int = 1) -> float:
        """Return in how many pieces the sectors of a kind lie; none goes on in a block that is looked at behind another that is not its next.

        So many are ``fetched`` together: of fewer, beside what is of another kind, each is its part of a piece.
        """
        rows = self._codes.reshape(-1, _BLOCK) if self._every > 1 else self._codes[None]
        of_kind, of_any = (
            np.pad(each, ((0, 0), (1, 1))) for each in (rows == 255 - kind, rows != 0)
        )
        there, before, after = of_kind[:, 1:-1], of_kind[:, :-2], of_kind[:, 2:]
        begins, ends = there & ~before, there & ~after
        parts = np.minimum(1, (np.flatnonzero(ends) - np.flatnonzero(begins) + 1) / fetched)
        beside = of_any[:, :-2][begins] | of_any[:, 2:][ends]
        return float(np.where(beside, parts, 1).sum()) * self._every

    def shared(self, other: SectorMap, but: int) -> float:
        """Return which part of what the ``other`` has is here, what is of the kind ``but`` left out of both."""
        here, there = (
            (sectors._codes != 0) & (sectors._codes != 255 - but) for sectors in (self, other)
        )  # fmt: skip
        theirs = np.count_nonzero(there)
        return np.count_nonzero(here & there) / theirs if theirs else 0.0
