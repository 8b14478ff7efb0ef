"""Data on its way between memories: what the copy engine reads, and what it writes, some time later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.memory import ITEM, Allocation, Part, Region

Put = Callable[[Part, Array], None]
"""Write items to where a part says."""


@dataclass(frozen=True, slots=True)
class CompletionSignal:
    """The mbarriers that hear of copies: the word of each, the bytes it hears of, whose copy it is.

    ``owner`` is the position of the thread.
    """

    words: Array
    nbytes: Array
    owner: Array


@dataclass(frozen=True, slots=True)
class Tiles:
    """How matrices lie in shared memory: in ``rows`` of ``row_bytes``, each from its byte ``first`` on.

    A descriptor does not say how many rows: 0. ``swizzle`` is the name of their mode.
    """

    swizzle: str
    row_bytes: int
    rows: int
    first: Array


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Memory that asynchronous work reads or ``writes``: items of ``size`` bytes from ``first`` on.

    ``owner`` is the position of the thread that has each of them moved. What tensor cores read of shared
    memory is in the order in which they read it. ``tiles`` is how it lies there, if a tensor map or a
    matrix descriptor says so. Of what is copied as it is ``offset`` says how far from the first byte of its copy each
    item is: what is read and written there is the same.
    """

    memory: Allocation | Region
    first: Array
    size: int
    owner: Array
    writes: bool
    tiles: Tiles | None = None
    offset: Array | None = None


class Transfer:
    """Items of ``size`` bytes that threads have had moved: ``owner`` is the thread's position of each.

    ``sources`` and ``targets`` say where they are, part by part; what is in no source is zero, or what the
    ``items`` say to begin with. What is read is kept until it lands, by ``put``, which writes it over
    what was there unless another way is given.
    """

    def __init__(
        self,
        sources: list[Part],
        targets: list[Part],
        owner: Array,
        size: int,
        put: Put | None = None,
        items: Array | None = None,
    ) -> None:
        self._sources = sources
        self._targets = targets
        self._owner = owner
        self._put = put or _replace
        self._items = np.zeros(len(owner), ITEM[size]) if items is None else items
        self._unread: Array | None = np.ones(len(owner), bool)

    written = None

    def moved(self) -> list[MemoryAccess]:
        return [
            moved_items(part, self._items.itemsize, self._owner, writes=writes)
            for parts, writes in ((self._sources, False), (self._targets, True))
            for part in parts
        ]

    def read(self, chosen: Array | None) -> None:
        """Read what the threads at the positions ``chosen`` (None for all) have had moved, once."""
        if self._unread is None:
            return
        wanted = self._unread & self._of(chosen)
        for part in self._sources:
            moving, where = _some(part, wanted)
            self._items[where] = moving.memory.items(self._items.itemsize).take(moving.index)
        left = self._unread & ~wanted
        self._unread = left if left.any() else None

    def land(self, chosen: Array | None) -> None:
        self.read(chosen)
        wanted = self._of(chosen)
        for part in self._targets:
            moving, where = _some(part, wanted)
            self._put(moving, self._items[where])

    def _of(self, chosen: Array | None) -> Array:
        if chosen is None:
            return np.ones(len(self._owner), bool)
        return np.isin(self._owner, chosen)


def moved_items(part: Part, size: int, owner: Array, *, writes: bool) -> MemoryAccess:
    where = np.arange(len(owner)) if part.where is None else part.where
    first = np.broadcast_to(part.index, where.shape) * size
    return MemoryAccess(part.memory, first, size, owner[where], writes, offset=where * size)


def _some(part: Part, wanted: Array) -> tuple[Part, Array | slice]:
    """Return the part of the ``wanted`` items, and their positions."""
    if wanted.all():
        return part, slice(None) if part.where is None else part.where
    where = np.arange(len(wanted)) if part.where is None else part.where
    index = np.broadcast_to(part.index, where.shape)
    keep = wanted[where]
    return Part(part.memory, index[keep], where[keep]), where[keep]


def _replace(part: Part, items: Array) -> None:
    part.memory.items(items.itemsize)[part.index] = items
