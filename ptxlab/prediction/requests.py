"""What the memory instructions of warps ask for: wavefronts of shared memory, sectors and lines.

Addresses are tables with a row for each warp and a column for each lane. Wavefronts are counted as
``profile`` counts them; wider accesses of which lanes two by two ask for the same go in half as many
passes (NVIDIA developer forum, topic 77228).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.isa.targets import WARP
from ptxlab.layouts.shared_memory import wavefronts
from ptxlab.prediction.values import Array

LINE, SECTOR = 128, 32
_PASS = 128


@dataclass(frozen=True, slots=True)
class Request:
    """What one instruction asks for, warp by warp.

    ``passes`` [warps] through shared memory; ``sectors`` of global memory, by number, and how many
    ``lines`` [warps] they are in.
    """

    passes: Array
    sectors: tuple[tuple[int, ...], ...] = ()
    lines: Array | None = None

    def moved(self, lines: int) -> Request:
        """Return what the same costs when all addresses are so many lines further."""
        if not lines or not self.sectors:
            return self
        by = lines * (LINE // SECTOR)
        moved = tuple(tuple(sector + by for sector in of_warp) for of_warp in self.sectors)
        return Request(self.passes, moved, self.lines)


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
    width = min(lanes, _PASS // max(nbytes, 4))
    counts = wavefronts(filled.reshape(-1, width), nbytes).reshape(len(filled), -1)
    counts = counts * asked.reshape(len(filled), -1, width).any(axis=2)
    total: Array = counts.sum(axis=1)
    return total


def of_matrices(table: Array, count: int) -> Array:
    """Return the wavefronts of ldmatrix, whose lanes name a row of 16 bytes each, ``count`` x 8 of them."""
    rows = table[:, : 8 * count].reshape(-1, 8)
    total: Array = wavefronts(rows, 16).reshape(len(table), -1).sum(axis=1)
    return total


def of_global(table: Array, asked: Array) -> tuple[tuple[tuple[int, ...], ...], Array]:
    """Return the sectors each warp asks for, and of how many lines; items do not cross sectors."""
    sectors = np.sort(_filled(table, asked) // SECTOR, axis=1)
    lines = sectors // (LINE // SECTOR)
    asking = np.asarray(asked.any(axis=1))[:, None]
    new, new_lines = (_changes(one) & asking for one in (sectors, lines))
    return (
        tuple(tuple(row[kept].tolist()) for row, kept in zip(sectors, new, strict=True)),
        new_lines.sum(axis=1),
    )


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
