"""Which lane, in which register, holds which element of a matrix operand.

One formula generates every operand of the warp-level ``mma`` instructions but one: dense, compressed
sparse (A with half of its columns) and, by ptxlab's own choice, ``wmma`` (see ``ptxlab.isa.wmma``).
A warp is 8 groups of 4 lanes. Along the operand's outer dimension (the rows of A, C and D, the
columns of B) a group owns one line of every 8; along the inner dimension (k for A and B, n for C
and D) each of the 4 lanes owns a run of consecutive elements. The next elements of the same lane
are first the lines 8 further out, then the runs 4 lanes further in. The run is what fits a 32-bit
register for A and B, and two elements for an accumulator whatever its width.

The exception is ``mma.m8n8k4`` with f16 inputs, which multiplies four pairs of 8 x 4 and 4 x 8
matrices at once. Each belongs to a quad-pair, lanes 4p to 4p+3 and 16+4p to 16+4p+3, and a lane of
it owns a line of the matrix, or one element of every line.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "Matrix Fragments for
mma.m8n8k4 with .f16 floating point type" and their sister sections, whose cases these formulas cover;
the tests state those sections separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ptxlab.isa.notebook import Pictured

LANES = 32

FragmentKind = Literal[
    "a",
    "b",
    "accumulator",
    "accumulator.trans",
    "quad a.row",
    "quad a.col",
    "quad b.row",
    "quad b.col",
    "quad accumulator",
]
Index = int | npt.NDArray[np.int64]
Array = npt.NDArray[Any]

QUAD_PAIRS = 4
_OUTER_IS_COLUMNS = ("b", "accumulator.trans", "quad b.row", "quad b.col")
_ONE_LINE_A_LANE = ("quad a.row", "quad b.col", "quad accumulator")


class Place(NamedTuple):
    """Where a warp holds one element: lane, register of that lane, element of that register."""

    lane: int
    register: int
    element: int


def elements_per_register(bits: int) -> int:
    """Return how many elements of ``bits`` share one register: 32-bit ones, or one of 64 bits."""
    return max(1, 32 // bits)


def position(
    kind: FragmentKind, outer_size: int, bits: int, lane: Index, register: Index, element: Index
) -> tuple[Index, Index]:
    """Return (outer, inner) of an element: the one function all fragment layouts come from.

    ``outer_size`` is the number of rows (of columns for B). Arrays broadcast against each other.
    """
    packed = elements_per_register(bits)
    if kind.startswith("quad"):
        return _quad_position(kind, bits, lane, register * packed + element)
    run = 2 if kind.startswith("accumulator") else packed
    group, in_group = lane // 4, lane % 4
    step, within = divmod(register * packed + element, run)
    inward, outward = divmod(step, outer_size // 8)
    return group + 8 * outward, run * (in_group + 4 * inward) + within


def _quad_position(kind: FragmentKind, bits: int, lane: Any, i: Any) -> tuple[Index, Index]:
    """Return (outer, inner) of element ``i`` of a lane, in the 8-line matrix of its quad-pair."""
    in_quad, lower_half = lane % 4, 4 * (lane // 16)
    if kind == "quad accumulator" and bits == 32:
        return (in_quad & 1) + (i & 2) + lower_half, (i & 4) + (in_quad & 2) + (i & 1)
    if kind in _ONE_LINE_A_LANE:
        return in_quad + lower_half, i
    return i + lower_half, in_quad


@dataclass(frozen=True, slots=True)
class FragmentLayout(Pictured):
    """The layout of one operand of a matrix instruction over the 32 lanes of a warp.

    ``rows`` x ``cols`` is the matrix as mathematics writes it: m x k for A, k x n for B, m x n for C
    and D. ``dtype`` is the PTX type of an element and ``bits`` the width of its container. Each lane
    holds ``registers_per_lane`` registers of ``register_bits`` bits; the elements of a register are
    counted from its low bits up.

    The warp holds ``matrices`` such matrices, one or (``quad`` kinds) four, and its registers hold
    each of them ``copies`` times over, the second copy in the registers after the first.

    A layout checks itself when it is made: every element of every matrix has ``copies`` places.
    Raises ValueError when it does not.
    """

    operand: str
    kind: FragmentKind
    rows: int
    cols: int
    dtype: str
    bits: int
    copies: int = 1

    def __post_init__(self) -> None:
        problem = _problem(self.kind, self.rows, self.cols, self.bits, self.copies)
        if problem:
            raise ValueError(f"{self} {problem}")

    @property
    def matrices(self) -> int:
        """How many independent matrices the warp holds: one a quad-pair, or one altogether."""
        return _matrices(self.kind)

    @property
    def outer_size(self) -> int:
        """The dimension that groups of lanes divide: the columns of B, the rows of all others."""
        return self.cols if self.kind in _OUTER_IS_COLUMNS else self.rows

    @property
    def register_bits(self) -> int:
        """The width of one register: 64 for 64-bit elements, else 32."""
        return max(32, self.bits)

    @property
    def elements_per_register(self) -> int:
        """How many elements one register packs."""
        return elements_per_register(self.bits)

    @property
    def registers_per_lane(self) -> int:
        """How many registers of each lane the operand takes."""
        elements = self.matrices * self.rows * self.cols
        return self.copies * elements // (LANES * self.elements_per_register)

    def matrix(self, lane: Index) -> Index:
        """Return which of the ``matrices`` the elements of ``lane`` belong to."""
        return _matrix(self.kind, lane)

    def element(self, lane: Index, register: Index, i: Index = 0) -> tuple[Index, Index]:
        """Return the (row, col) that ``lane`` holds as element ``i`` of ``register``.

        Integer arrays broadcast. Raises IndexError outside the fragment.
        """
        limits = (LANES, self.registers_per_lane, self.elements_per_register)
        for name, index, limit in zip(Place._fields, (lane, register, i), limits, strict=True):
            if np.any(np.less(index, 0)) or np.any(np.greater_equal(index, limit)):
                raise IndexError(f"{self.operand} has no {name} {index}: 0 to {limit - 1}")
        distinct = self.registers_per_lane // self.copies
        return _row_col(self.kind, self.rows, self.cols, self.bits, lane, register % distinct, i)

    def registers(self, row: int, col: int) -> tuple[Place, ...]:
        """Return every place that holds the element, derived from the table: the inverse map.

        One place; several where the registers hold copies, or hold several matrices (one of each).
        Raises IndexError outside the matrix.
        """
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            raise IndexError(
                f"{self.operand} has no element {row},{col}: it is {self.rows} x {self.cols}"
            )
        found = np.argwhere((self.table() == (row, col)).all(axis=-1))
        return tuple(Place(*map(int, place)) for place in found)

    def table(self) -> npt.NDArray[np.int64]:
        """Return (row, col) of everything, [32, registers, elements per register, 2], read-only."""
        return _table(self.kind, self.rows, self.cols, self.bits, self.copies)

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return the element's number in [matrices, rows, cols] of everything, shaped as the table."""
        return _numbers(self.kind, self.rows, self.cols, self.bits, self.copies)

    def pack(self, matrix: Array) -> Array:
        """Return the registers, [..., 32, registers], of element bit patterns [..., rows, cols].

        Where the warp holds several matrices the patterns are [..., matrices, rows, cols].
        """
        matrix = np.asarray(matrix)
        flat = matrix.reshape(*matrix.shape[: -self._dimensions], -1)
        words = flat[..., self.numbers()].astype(self._word)
        return np.asarray(np.bitwise_or.reduce(words << self._shifts, axis=-1))

    def unpack(self, words: Array) -> Array:
        """Return the element bit patterns of registers [..., 32, registers], shaped as ``pack``'s.

        Where the registers hold copies, the last one counts.
        """
        words = np.asarray(words, dtype=self._word)
        mask = self._word.type((1 << self.bits) - 1)
        shape = (self.matrices, self.rows, self.cols)[-self._dimensions :]
        flat = np.empty((*words.shape[:-2], self.matrices * self.rows * self.cols), self._word)
        flat[..., self.numbers()] = (words[..., np.newaxis] >> self._shifts) & mask
        return flat.reshape(*words.shape[:-2], *shape)

    @property
    def _dimensions(self) -> int:
        return 2 if self.matrices == 1 else 3

    @property
    def _word(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.register_bits // 8}")

    @property
    def _shifts(self) -> Array:
        return (np.arange(self.elements_per_register) * self.bits).astype(self._word)


def _row_col(
    kind: FragmentKind,
    rows: int,
    cols: int,
    bits: int,
    lane: Index,
    register: Index,
    element: Index,
) -> tuple[Index, Index]:
    if kind in _OUTER_IS_COLUMNS:
        outer, inner = position(kind, cols, bits, lane, register, element)
        return inner, outer
    return position(kind, rows, bits, lane, register, element)


def _matrices(kind: FragmentKind) -> int:
    return QUAD_PAIRS if kind.startswith("quad") else 1


def _matrix(kind: FragmentKind, lane: Index) -> Index:
    return lane // 4 % _matrices(kind)


# Many operands of many instructions share a layout; what follows is worked out once for each.


@cache
def _table(
    kind: FragmentKind, rows: int, cols: int, bits: int, copies: int
) -> npt.NDArray[np.int64]:
    packed = elements_per_register(bits)
    distinct = _matrices(kind) * rows * cols // (LANES * packed)
    lanes = np.arange(LANES)[:, np.newaxis, np.newaxis]
    registers = np.arange(distinct * copies)[:, np.newaxis] % distinct
    places = _row_col(kind, rows, cols, bits, lanes, registers, np.arange(packed))
    table = np.stack(np.broadcast_arrays(*places), axis=-1)
    table.flags.writeable = False
    return table


@cache
def _numbers(
    kind: FragmentKind, rows: int, cols: int, bits: int, copies: int
) -> npt.NDArray[np.int64]:
    row, col = np.moveaxis(_table(kind, rows, cols, bits, copies), -1, 0)
    matrix = _matrix(kind, np.arange(LANES)[:, np.newaxis, np.newaxis])
    numbers = np.asarray((matrix * rows + row) * cols + col)
    numbers.flags.writeable = False
    return numbers


@cache
def _problem(kind: FragmentKind, rows: int, cols: int, bits: int, copies: int) -> str:
    """Say what is wrong with a layout; nothing where every element has ``copies`` places."""
    elements = _matrices(kind) * rows * cols
    outer_size = cols if kind in _OUTER_IS_COLUMNS else rows
    fits = max(32, bits) % bits == 0 and elements % (LANES * elements_per_register(bits)) == 0
    if not fits or outer_size % 8:
        return "does not divide over the registers of a warp"
    row, col = np.moveaxis(_table(kind, rows, cols, bits, copies), -1, 0)
    inside = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
    numbers = _numbers(kind, rows, cols, bits, copies)[inside]
    places = np.bincount(numbers.ravel(), minlength=elements)
    if not inside.all() or (places != copies).any():
        return "does not hold every element once"
    return ""
