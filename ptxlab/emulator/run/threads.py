"""Which threads of a wave an instruction acts on, and how results are merged into registers.

A register's value is an immutable numpy array: one element per thread of the wave, or a single
element that all threads share. Writing for some of the threads makes a new array.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array, Integers, Mask, positions

# Below one active thread in this many, operands are compressed to the active ones.
SPARSE = 8


class Threads:
    """A set of threads of a wave of ``width`` threads, as a mask and as a sorted index.

    ``everyone`` says that it is all threads of the wave, those that fill up warps too. ``full``
    says that no other living thread can see what these threads write, so that registers may be
    overwritten as a whole: threads that have ended (or only fill up the last warp) may compute
    garbage but never touch memory. Of teams of so many threads as ``whole`` names there is none of which
    some are among them and others are not.
    """

    __slots__ = ("_blends", "_index", "_mask", "_size", "everyone", "full", "whole", "width")

    def __init__(
        self,
        width: int,
        *,
        mask: Mask | None = None,
        index: Integers | None = None,
        full: bool = False,
    ) -> None:
        self.width = width
        self._mask = mask
        self._index = index
        self._size: int | None = None
        self._blends: dict[int, Array] = {}
        self.full = full
        self.whole: set[int] = set()
        self.everyone = mask is None and index is None

    @property
    def index(self) -> Integers:
        """The positions of the threads, ascending."""
        if self._index is None:
            everyone = self._mask is None
            self._index = (
                np.arange(self.width, dtype=np.int64) if everyone else positions(self.mask)
            )
        return self._index

    @property
    def mask(self) -> Mask:
        """One truth value per thread of the wave."""
        if self._mask is None:
            if self._index is None:
                self._mask = np.ones(self.width, bool)
            else:
                self._mask = np.zeros(self.width, bool)
                self._mask[self._index] = True
        return self._mask

    @property
    def size(self) -> int:
        if self._size is None:
            if self.everyone:
                self._size = self.width
            elif self._index is not None:
                self._size = len(self._index)
            else:
                self._size = int(np.count_nonzero(self.mask))
        return self._size

    @property
    def sparse(self) -> bool:
        """Whether it pays to compress operands to these threads."""
        return not self.full and self.size * SPARSE < self.width

    def where(self, predicate: Mask) -> Threads | None:
        """Return the threads for which ``predicate`` holds (shape (width,) or (1,)); None if none."""
        if predicate is self._mask:
            return self
        if predicate.size == 1:
            return self if predicate[0] else None
        mask = predicate if self.everyone else predicate & self.mask
        count = int(np.count_nonzero(mask))
        if count == 0:
            return None
        if count == self.width:
            return self
        if not self.everyone and count == self.size:
            return self
        return Threads(self.width, mask=mask)

    def apart(self) -> Threads:
        """Return the same threads where others may see what they write."""
        threads = Threads(self.width, mask=self._mask, index=self.index)
        threads.everyone, threads.whole = self.everyone, self.whole
        return threads

    def pick(self, value: Array) -> Array:
        """Return one element per active thread of a register value; a shared value stays single."""
        if value.shape[0] == 1 or self.everyone:
            return value
        return value[self.index]

    def fill(self, value: Array) -> Array:
        """Return a register value with that of the first active thread in all threads not active."""
        if value.shape[0] == 1 or self.everyone:
            return value
        first = int(np.argmax(self.mask))
        return self._blended(value[first : first + 1], value)

    def merge(self, old: Array | None, new: Array) -> Array:
        """Return ``old`` with the active threads taken from ``new``, which is not compressed.

        It is None where no other thread needs what it has.
        """
        if old is None or self.full or self.everyone:
            return new
        if new.ndim > 1 or new.dtype.itemsize > 8:
            return np.where(self.mask if new.ndim == 1 else self.mask[:, None], new, old)
        return self._blended(old, new)

    def _blended(self, old: Array, new: Array) -> Array:
        """Choose by bits, at the speed of integer arithmetic; `np.where` takes three times as long."""
        size = new.dtype.itemsize
        word = np.dtype(f"u{size}")
        blend = self._blends.get(size)
        if blend is None:
            blend = self._blends[size] = -self.mask.astype(word)
        rest = old.view(word)
        bits: Array = (new.view(word) ^ rest) & blend
        bits ^= rest
        return bits.view(new.dtype)

    def spread(self, old: Array | None, picked: Array) -> Array:
        """Return ``old``, as ``merge`` has it, with the active threads taken from ``picked``, an element for each."""
        if self.full:
            old = None
        if self.everyone or (old is None and picked.shape[0] == 1):
            return picked
        if old is None:
            result = np.zeros((self.width, *picked.shape[1:]), picked.dtype)
        else:
            if old.dtype != picked.dtype:
                old = old.view(picked.dtype)
            result = np.empty((self.width, *picked.shape[1:]), picked.dtype)
            result[:] = old
        result[self.index] = picked
        return result


def union(first: Threads, second: Threads) -> Threads:
    mask = first.mask | second.mask
    if mask.all():
        return Threads(first.width)
    return Threads(first.width, mask=mask)
