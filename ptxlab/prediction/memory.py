"""Memory as the interpreter of machine code sees it: words, of which not all values are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.prediction.values import Array


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """``nbytes`` of global memory at ``base``; ``data`` are its bytes, None where nobody knows them."""

    base: int
    nbytes: int
    data: Array | None = None


class Words:
    """Words of 32 bits, all unknown until known ones are stored."""

    def __init__(self, words: Array | None, count: int) -> None:
        self._count = count
        self._given = words
        self._words: Array | None = words
        self._known: Array | None = None if words is None else np.ones(len(words), bool)

    def load(self, places: Array) -> Array | None:
        """Return the words at ``places``, by number, None unless all are known."""
        if self._words is None or self._known is None:
            return None
        if not self._known[places].all():
            return None
        found: Array = self._words[places]
        return found

    def store(self, places: Array, values: Array | None) -> None:
        """Store words, None for those that are not known."""
        if self._words is None or self._known is None:
            if values is None:
                return
            self._words, self._known = (
                np.zeros(self._count, np.uint32), np.zeros(self._count, bool)
            )  # fmt: skip
        elif self._words is self._given:
            self._words = self._words.copy()
        if values is not None:
            self._words[places] = values
        self._known[places] = values is not None


class GlobalWords:
    """The ``regions`` of global memory that a kernel may reach."""

    def __init__(self, regions: Sequence[MemoryRange]) -> None:
        self._regions = sorted(regions, key=lambda region: region.base)
        self._bases = np.array([region.base for region in self._regions], np.uint64)
        self._ends = np.array([one.base + one.nbytes for one in self._regions], np.uint64)
        self._words = [Words(_words(one), -(-one.nbytes // 4)) for one in self._regions]

    def load(self, addresses: Array) -> Array | None:
        """Return the words at ``addresses``, None unless all are known."""
        found = np.zeros(len(addresses), np.uint32)
        for words, places, here in self._by_region(addresses):
            loaded = words.load(places)
            if loaded is None:
                return None
            found[here] = loaded
        return found

    def store(self, addresses: Array, values: Array | None) -> None:
        """Store words at ``addresses``, None for those that are not known."""
        for words, places, here in self._by_region(addresses):
            words.store(places, None if values is None else values[here])

    def require(self, addresses: Array) -> None:
        for _ in self._by_region(addresses):
            pass

    def _by_region(self, addresses: Array) -> Iterator[tuple[Words, Array, Array]]:
        """Yield the words of each region, the places in them, and which of the addresses are there."""
        regions = np.searchsorted(self._bases, addresses, "right") - 1
        for region in np.unique(regions).tolist():
            here = regions == region
            inside = addresses[here]
            if region < 0 or inside.max() >= self._ends[region]:
                raise Unsupported(
                    f"the kernel accesses {int(inside.max()):#x}, which is in no buffer",
                    hint="ptxlab check says where it goes out of bounds",
                )
            places = (inside - self._bases[region]) >> np.uint64(2)
            yield self._words[region], places.astype(np.int64), here


def _words(region: MemoryRange) -> Array | None:
    if region.data is None:
        return None
    data = np.ascontiguousarray(region.data).reshape(-1).view(np.uint8)
    padded: Array = np.pad(data, (0, -data.size % 4))
    return padded.view(np.uint32)
