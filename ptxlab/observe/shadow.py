"""What a check remembers of every byte of a memory, in granules as coarse as the accesses allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.arrays import Array

LARGEST = 16
"""Bytes of the largest access, and of a granule before anything smaller is seen."""


class ShadowTable:
    """Something known of each granule; zero before anything is."""

    __slots__ = ("data",)

    def __init__(self, granules: int, dtype: type[np.generic]) -> None:
        self.data: Array = np.zeros(granules, dtype)

    def split(self, parts: int) -> None:
        """Make ``parts`` granules of each, of which the same is known."""
        if self.data.any():
            self.data = np.repeat(self.data, parts)
        else:  # zeros that nobody has touched take no memory
            self.data = np.zeros(parts * self.data.size, self.data.dtype)


class Shadow:
    """The granules of ``nbytes`` of memory, and what is known of them.

    A granule is as large as the smallest access so far. Every access is aligned to its size, so all
    bytes of a granule have had the same ones, and nothing is lost when granules are split for a
    smaller access: what is known stays exact to the byte.
    """

    def __init__(self, nbytes: int) -> None:
        self.size = LARGEST
        self._shift = LARGEST.bit_length() - 1
        self._granules = -(-nbytes // LARGEST)
        self._splits: list[Callable[[int], None]] = []

    def table(self, dtype: type[np.generic]) -> ShadowTable:
        table = ShadowTable(self._granules, dtype)
        self.attach(table.split)
        return table

    def attach(self, split: Callable[[int], None]) -> None:
        """Call ``split`` from now on when as many parts are made of each granule."""
        self._splits.append(split)

    def cover(self, first: Array, nbytes: int) -> tuple[Array, int]:
        """Return the granules of accesses of ``nbytes`` from ``first`` on, and how many each has.

        Those of one access lie together.
        """
        if nbytes < self.size:
            self._split(self.size // nbytes)
        granules = (first >> self._shift).astype(np.int64, copy=False)
        count = nbytes >> self._shift
        if count > 1:
            granules = (granules[:, None] + np.arange(count)).reshape(-1)
        return granules, count

    def _split(self, parts: int) -> None:
        self.size //= parts
        self._shift = self.size.bit_length() - 1
        self._granules *= parts
        for split in self._splits:
            split(parts)
