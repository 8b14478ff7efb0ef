"""Memory as the interpreter of machine code sees it: words, of which not all values are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.machine.values import ALL, Array, Held, Where, numbers


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """``nbytes`` of global memory at ``base``; ``data`` are its bytes, None where nobody knows them."""

    base: int
    nbytes: int
    data: Array | None = None


_GIVEN, _UNKNOWN, _STORED = range(3)

_COUNTER_BYTES = 32


class Words:
    """Words of 32 bits: those ``given``, all unknown where that is None, until others are stored."""

    def __init__(self, given: Array | None, count: int) -> None:
        self._count, self._given = count, given
        self._state: Array | None = None
        self._stored: Array | None = None
        self.lost = 0
        """How often something that is given was overwritten by what is not known."""
        self._changes: list[Callable[[], None]] | None = None
        """What takes back each change since it is watched."""

    def watch(self) -> None:
        """Take note of what changes from now on, so that it can be taken back."""
        self._changes = []

    def settle(self, taken_back: bool) -> None:
        """Watch no more, with what has changed ``taken_back`` or not."""
        changes, self._changes = self._changes or (), None
        for put_back in reversed(changes) if taken_back else ():
            put_back()

    def load(self, places: Array) -> Array | None:
        """Return the words at ``places``, by number, None unless all are known."""
        given = None if self._given is None else self._given[places]
        if self._state is None:
            return given
        state = self._state[places]
        if (state == _UNKNOWN).any() or (given is None and (state == _GIVEN).any()):
            return None
        if self._stored is None:
            return given
        words: Array = self._stored[places]
        return words if given is None else np.where(state == _STORED, words, given)

    def store(self, places: Array, values: Array | None) -> None:
        """Store words, None for those that are not known."""
        if self._changes is not None:
            self._changes.append(self._before(places))
        if self._state is None:
            if values is None and self._given is None:
                return
            # Of zeros only those that are written to take memory.
            self._state = np.zeros(self._count, np.uint8)
        if values is None:
            self._state[places] = _UNKNOWN
            self.lost += self._given is not None
            return
        if self._stored is None:
            self._stored = np.zeros(self._count, np.uint32)
        self._stored[places] = values
        self._state[places] = _STORED

    def _before(self, places: Array) -> Callable[[], None]:
        """Return what has words at ``places`` be as they are."""
        state, stored = (
            None if each is None else each[places] for each in (self._state, self._stored)
        )

        def put_back() -> None:
            if self._state is not None:
                self._state[places] = _GIVEN if state is None else state
            if self._stored is not None and stored is not None:
                self._stored[places] = stored

        return put_back

    def forget(self) -> None:
        """Have nothing be known any more."""
        if self._changes is not None:
            self._changes.append(partial(self._be, self._given, self._state, self._stored))
        self._be(None, None, None)

    def _be(self, given: Array | None, state: Array | None, stored: Array | None) -> None:
        self._given, self._state, self._stored = given, state, stored

    def held(self, places: Array) -> Held:
        """Return the words at ``places`` that were stored, known or not."""
        if self._state is None or self._stored is None:
            return np.zeros(len(places), np.uint32), False
        return self._stored[places], self._state[places] == _STORED

    def put(self, places: Array, held: Held) -> None:
        """Have words at ``places`` be what ``held`` said."""
        words, known = held
        some = np.broadcast_to(known, places.shape)
        self.store(places[some], words[some])
        self.store(places[~some], None)


class Rows:
    """Words of ``threads`` threads, of which each row is one of every thread, as a register is."""

    def __init__(self, words: Words, threads: int) -> None:
        self._words, self._threads = words, threads

    def held(self, row: int, where: Where) -> Held:
        """Return the words of threads, and of which of them they are known."""
        return self._words.held(self.places(row, where))

    def put(self, row: int, where: Where, held: Held) -> None:
        """Have threads hold what ``held`` said."""
        self._words.put(self.places(row, where), held)

    def places(self, row: int | Array, where: Where) -> Array:
        """Return where the words of threads are, of one row or of one each."""
        return row * self._threads + numbers(where, self._threads)


class GlobalWords:
    """The ``regions`` of global memory that a kernel may reach."""

    def __init__(self, regions: Sequence[MemoryRange]) -> None:
        self._regions = sorted(regions, key=lambda region: region.base)
        self._bases = np.array([region.base for region in self._regions], np.uint64)
        self._ends = np.array([region.base + region.nbytes for region in self._regions], np.uint64)
        self._words = [Words(_words(region), -(-region.nbytes // 4)) for region in self._regions]

    def load(self, addresses: Array) -> Array | None:
        """Return the words at ``addresses``, None unless all are known."""
        values = np.zeros(len(addresses), np.uint32)
        for words, places, here in self._by_region(addresses):
            loaded = words.load(places)
            if loaded is None:
                return None
            values[here] = loaded
        return values

    def store(self, addresses: Array, values: Array | None) -> None:
        """Store words at ``addresses``, None for those that are not known."""
        for words, places, here in self._by_region(addresses):
            words.store(places, None if values is None else values[here])

    @property
    def regions(self) -> Sequence[Words]:
        return self._words

    @property
    def lost(self) -> list[int]:
        """How often something that is given was overwritten by what is not known, by region."""
        return [words.lost for words in self._words]

    def forget(self, lost: Sequence[int]) -> None:
        """Have nothing be known of regions of which more is ``lost`` than that: where else is not said."""
        for words, before in zip(self._words, lost, strict=True):
            if words.lost > before:
                words.forget()

    def is_counter(self, addresses: Array) -> bool:
        """Say whether addresses are all the same, in memory so small that it cannot be there for one CTA of many."""
        region = int(np.searchsorted(self._bases, addresses[0], "right")) - 1
        alike = bool((addresses == addresses[0]).all())
        return alike and self._regions[region].nbytes <= _COUNTER_BYTES

    def require(self, addresses: Array) -> None:
        for _ in self._by_region(addresses):
            pass

    def _by_region(self, addresses: Array) -> Iterator[tuple[Words, Array, Where]]:
        """Yield the words of each region, the places in them, and which of the addresses are there."""
        if not len(addresses):
            return
        extremes = np.array([addresses.min(), addresses.max()])
        first, last = (np.searchsorted(self._bases, extremes, "right") - 1).tolist()
        regions = None
        if first != last:  # seldom
            regions = np.searchsorted(self._bases, addresses, "right") - 1
        for region in [first] if regions is None else np.unique(regions).tolist():
            here: Where = ALL if regions is None else regions == region
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
    whole: Array = np.pad(data, (0, -data.size % 4)) if data.size % 4 else data
    return whole.view(np.uint32)
