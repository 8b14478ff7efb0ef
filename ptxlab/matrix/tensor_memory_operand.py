"""Where ``tcgen05.mma`` finds its operands in Tensor Memory: D, A, the scales, and the metadata of sparse A.

All is said of one CTA, whose rows are those of its part of M, and counts lanes and columns from where the
operand's address leads. With fewer rows than lanes, D is either ``folded`` (its columns are cut into
parts that lie side by side, each in its own lanes) or scattered: 16 rows in each quarter of the lanes.
What is multiplied with a part lies in the lanes of that part, so that A and its metadata are there as
often as there are parts.

Source: PTX ISA, "Data path layout organization", "Scale factor layout" and "Sparse matrices" of tcgen05;
their figures' content after CUTLASS's ``mma_traits_sm100_frag.hpp`` and ``copy_traits_sm100.hpp``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array

LANES = 128
QUARTER = 32
_CHUNK_BITS = 4
_COPIED = re.compile(r"\d+x\d+b")


@dataclass(frozen=True, slots=True)
class DataPath:
    """How a D of ``rows`` x ``n`` lies: the layouts D, E, G, A and B of the ISA, or scattered F and C."""

    rows: int
    n: int
    folded: bool

    @classmethod
    def of(cls, m: int, n: int, group: int, *, stationary: bool, sparse: bool) -> DataPath:
        """Return that of a product of ``m`` x ``n`` by ``group`` CTAs."""
        return cls(m // group, n, folded=stationary or (group == 2 and not sparse))

    def letter(self, group: int) -> str:
        """Return what the ISA calls the layout of D of a product by so many CTAs."""
        if self.scattered:
            return "C" if group > 1 else "F"
        return {128: "A" if group > 1 else "D", 64: "B" if group > 1 else "E", 32: "G"}[self.rows]

    @property
    def parts(self) -> int:
        """How many parts the columns are cut into."""
        return LANES // self.rows if self.folded else 1

    @property
    def columns(self) -> int:
        """How many columns of Tensor Memory D takes."""
        return self.n // self.parts

    @property
    def scattered(self) -> bool:
        """Whether 16 rows lie in each quarter, in its lower or its upper half."""
        return self.rows < LANES and not self.folded

    def lanes(self) -> Array:
        """Return the lane of each row in each part, [parts, rows] of int64."""
        row = np.arange(self.rows)
        if self.scattered:
            row = QUARTER * (row // 16) + row % 16
        return row + self.rows * np.arange(self.parts)[:, np.newaxis]

    def d(self) -> tuple[Array, Array]:
        """Return (lane, column) of every element, [rows, n] of int64 each."""
        part, column = np.divmod(np.arange(self.n), self.columns)
        lane = self.lanes()[part].T
        return lane, np.broadcast_to(column, lane.shape)

    def scales_of_a(self) -> tuple[Array, Array]:
        """Return the lanes [copies, rows] and the column [rows] of the scales of A, of int64."""
        return _copied(np.arange(self.rows), np.arange(4) * QUARTER)

    def scales_of_b(self) -> tuple[Array, Array]:
        """Return the lanes [copies, n] and the column [n] of the scales of B, of int64, for all parts of n."""
        part, column = np.divmod(np.arange(self.n), self.columns)
        copies = np.arange(4 // self.parts) * QUARTER
        lanes, columns = _copied(column, copies)
        return lanes + self.rows * part, columns


def _copied(number: Array, copies: Array) -> tuple[Array, Array]:
    """Return the lanes [copies, numbers] and the columns [numbers] of a scale each, 32 in a column."""
    return number % QUARTER + copies[:, np.newaxis], number // QUARTER


def metadata(rows: int, chunks: int, bits: int) -> tuple[Array, Array, Array]:
    """Return (lane, column, lowest bit) of the four bits of each chunk of k, [rows, chunks] of int64 each.

    ``bits`` is the width of the elements.
    """
    row, chunk = np.indices((rows, chunks))
    if bits >= 16:
        lane = row % 8 + 8 * (chunk // 4) + 16 * (row // 16)
        return lane, np.zeros_like(lane), _CHUNK_BITS * (chunk % 4) + 16 * (row // 8 % 2)
    return row, chunk // 8, _CHUNK_BITS * (chunk % 8)


def lanes_of_copy(modifiers: Sequence[str]) -> tuple[int, int, Array]:
    """Return what a ``tcgen05.cp`` copies: rows, the bits of each, and its lanes [copies, rows] of int64."""
    shape = next(part for part in modifiers if _COPIED.fullmatch(part))
    rows, width = (int(part) for part in shape.rstrip("b").split("x"))
    row = np.arange(rows)
    if rows < QUARTER:
        return rows, width, QUARTER * row[np.newaxis]
    if "warpx2::01_23" in modifiers:
        row = row % QUARTER + 2 * QUARTER * (row // QUARTER)
        return rows, width, row + QUARTER * np.arange(2)[:, np.newaxis]
    return rows, width, row + rows * np.arange(LANES // rows)[:, np.newaxis]


def held_bit(bits: int) -> int:
    """Return the lowest bit of a number of 4 or 6 ``bits`` in its byte of Tensor Memory, in whose middle it stands.

    Source: CUTLASS, ``cp_narrow_a_to_tmem_mma.py``; the figures of the PTX ISA show it.
    """
    return (8 - bits) // 2


def shifted(cells: Array) -> tuple[Array, Array]:
    """Return which of the cells [CTAs, ..., lanes, columns] of int64 a shift reads and which it writes, of whole quarters.

    Both are [CTAs, quarters, 31, columns] of int64: a lane takes what the next one has, the last of a quarter keeps what it
    has. Source: CUTLASS, ``tcgen05_mma`` and ``tcgen05_shift`` of ``primitives/nvvm_wrapper.py``.
    """
    quarters = cells.reshape(len(cells), -1, QUARTER, cells.shape[-1])
    return quarters[:, :, 1:], quarters[:, :, :-1]


def zero_columns(mask: int, n: int, parts: int) -> Array:
    """Return which columns of B, [n] of bool, a zero-column mask makes zero, each of ``parts`` by its own rule.

    A part's columns are runs of used and of skipped ones in turn, ``first`` saying which of them comes
    first, of which as many are dropped as it says. Raises ValueError for what is not modelled.
    """
    shift = mask >> 56 & 0x3F
    if shift:
        raise ValueError(f"a zero-column mask that shifts columns, by {shift}, is not modelled")
    if not mask >> 39 & 1:
        return np.zeros(n, bool)
    skipped, used = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
    width = n // parts
    zero = np.zeros((parts, width), bool)
    for part in range(parts):
        dropped, first = mask >> 8 * part & 0xFF, mask >> 32 + part & 1
        position = (np.arange(width) + dropped + (0 if first else skipped)) % (skipped + used)
        zero[part] = position < skipped
    return zero.reshape(n)
