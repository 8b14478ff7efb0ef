"""What the memory instructions of warps ask for: wavefronts of shared memory, sectors and lines.

Addresses are tables with a row for each warp and a column for each lane. Wavefronts are counted as
``profile`` counts them; wider accesses of which lanes two by two ask for the same go in half as many
passes (NVIDIA developer forum, topic 77228). The L1 cache is the same memory with the same banks: strided
loads from it take as many (RRZE-HPC/gpu-benches, gpu-strides, on A100, A40 and H200).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ptxlab.isa.targets import WARP
from ptxlab.layouts.shared_memory import wavefronts
from ptxlab.machine.values import Array

LINE, SECTOR = 128, 32
WORDS = SECTOR // 4
PASS = 128
"""Bytes that a pass brings at most."""


Served = tuple[int, int, list[int], list[int]]
"""What one warp asks for: passes through shared memory or L1, lines, the sectors by number, and how many bytes of each it carries."""


@dataclass(frozen=True, slots=True)
class Places:
    """The ``numbers`` of what warps ask for; those of warp n begin at ``bounds[n]``."""

    numbers: Array
    bounds: Array

    @property
    def warps(self) -> Array:
        """The warp that asks for each of them, by number."""
        counts = np.diff(self.bounds)
        return np.repeat(np.arange(len(counts)), counts)


@dataclass(frozen=True, slots=True)
class Sectors(Places):
    """Sectors, of each of which lanes of the warp store ``carried`` bytes, or load them into registers."""

    carried: Array

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.bounds.nbytes + self.carried.nbytes


@dataclass(frozen=True, slots=True)
class Request:
    """What one instruction asks for, warp by warp.

    ``passes`` [warps] through shared memory or L1; the sectors of global memory that each warp asks for, and
    how many ``lines`` [warps] they are in. Requests that differ by where they begin share one pattern.
    """

    passes: Array
    pattern: Sectors | None = None
    lines: Array | None = None
    begin: int = 0
    """The sector from which those of the pattern are counted, and the words of ``lanes``."""
    common: bool = False
    """Whether what CTAs of other rounds ask for is the same, and does not lie apart from it."""
    lanes: Places | None = None
    """Of an atomic the word that each lane is at."""

    @property
    def words(self) -> tuple[Array, Array]:
        """The word that each lane's atomic is at, by number, and the lane's warp."""
        if self.lanes is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self.lanes.numbers + self.begin * WORDS, self.lanes.warps

    def moved(self, lines: int) -> Request:
        """Return what the same costs when all addresses are so many lines further."""
        if not lines or self.pattern is None:
            return self
        return replace(self, begin=self.begin + lines * (LINE // SECTOR))

    @property
    def every(self) -> Array:
        """The sectors that all warps ask for, one warp's behind another's."""
        numbers = np.zeros(0, np.int64) if self.pattern is None else self.pattern.numbers
        sectors: Array = numbers + self.begin
        return sectors

    def sectors(self, warp: int) -> list[int]:
        """Return the sectors that a warp asks for, by number."""
        return self.served(warp)[2]

    def served(self, warp: int, apart: int = 0) -> Served:
        """Return what one warp asks for, if all that is not ``common`` lies so many sectors further."""
        passes = int(self.passes[warp])
        if self.pattern is None or self.lines is None:
            return passes, 0, [], []
        of_warp = slice(*self.pattern.bounds[warp : warp + 2].tolist())
        sectors = self.pattern.numbers[of_warp] + (self.begin + (0 if self.common else apart))
        carried = self.pattern.carried[of_warp]
        return passes, int(self.lines[warp]), sectors.tolist(), carried.tolist()

    def as_common(self, ctas: int) -> Request:
        """Return the same, told to be common where each of several CTAs asks for the same sectors."""
        if self.pattern is None or ctas < 2:
            return self
        bounds = self.pattern.bounds[:: (len(self.pattern.bounds) - 1) // ctas].tolist()
        first, *others = (self.pattern.numbers[a:b] for a, b in pairwise(bounds))
        return replace(self, common=all(np.array_equal(first, other) for other in others))

    @property
    def nbytes(self) -> int:
        """What keeping it takes."""
        lines = 0 if self.lines is None else self.lines.nbytes
        return self.passes.nbytes + lines + (self.pattern.nbytes if self.pattern else 0)


def of_shared(table: Array, asked: Array, nbytes: int) -> Array:
    """Return the wavefronts of each warp for items of 1 to 16 bytes."""
    filled = _filled(table, asked)
    lanes = WARP
    if nbytes > 4:
        pairs = filled.reshape(len(filled), -1, 2, 2)
        neighbours = (pairs[..., 0] == pairs[..., 1]).all(axis=(1, 2))
        next_but_one = (pairs[..., 0, :] == pairs[..., 1, :]).all(axis=(1, 2))
        if (neighbours | next_but_one).all():
            first = np.where(
                neighbours[:, None], pairs[..., 0].reshape(len(filled), -1),
                pairs[..., 0, :].reshape(len(filled), -1),
            )  # fmt: skip
            filled, lanes = first, WARP // 2
            asked = np.repeat(np.asarray(asked.any(axis=1))[:, None], lanes, axis=1)
    width = min(lanes, PASS // max(nbytes, 4))
    counts = wavefronts(filled.reshape(-1, width), nbytes).reshape(len(filled), -1)
    counts = counts * asked.reshape(len(filled), -1, width).any(axis=2)
    total: Array = counts.sum(axis=1)
    return total


def of_matrices(table: Array, count: int) -> Array:
    """Return the wavefronts of ldmatrix, whose lanes name a row of 16 bytes each, ``count`` x 8 of them."""
    rows = table[:, : 8 * count].reshape(-1, 8)
    total: Array = wavefronts(rows, 16).reshape(len(table), -1).sum(axis=1)
    return total


def of_global(table: Array, asked: Array, nbytes: int) -> tuple[Sectors, Array]:
    """Return the sectors each warp asks for, and of how many lines; items of so many bytes do not cross sectors."""
    sectors = (_filled(table, asked) // SECTOR).astype(np.int64)
    order = np.argsort(sectors, axis=1, kind="stable")
    sectors, asks = (np.take_along_axis(per_lane, order, axis=1) for per_lane in (sectors, asked))
    lines = sectors // (LINE // SECTOR)
    asking = np.asarray(asked.any(axis=1))[:, None]
    new, new_lines = (_changes(per_lane) & asking for per_lane in (sectors, lines))
    bounds = np.append(0, np.cumsum(new.sum(axis=1)))
    begun = np.flatnonzero(new)
    lanes = np.add.reduceat(asks.reshape(-1), begun, dtype=np.int64) if len(begun) else begun
    carried = (lanes * nbytes).astype(np.uint16)
    return Sectors(sectors[new], bounds, carried), new_lines.sum(axis=1)


def of_atomics(table: Array, asked: Array) -> Places:
    """Return the words that the lanes of each warp are at."""
    bounds = np.append(0, np.cumsum(asked.sum(axis=1)))
    return Places((table[asked] // (SECTOR // WORDS)).astype(np.int64), bounds)


def _changes(ordered: Array) -> Array:
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return new


def _filled(table: Array, asked: Array) -> Array:
    """Give lanes that do not ask the address of the first that does, which costs nothing more."""
    if asked.all():
        return table
    first = np.take_along_axis(table, asked.argmax(axis=1)[:, None], axis=1)
    return np.where(asked, table, first)
