"""Which lane, in which register, holds which element of a matrix operand.

One formula generates every dense operand of the warp-level ``mma`` instructions with M of 8 or 16.
A warp is 8 groups of 4 lanes. Along the operand's outer dimension (the rows of A, C and D, the
columns of B) a group owns one line of every 8; along the inner dimension (k for A and B, n for C
and D) each of the 4 lanes owns a run of consecutive elements. The next elements of the same lane
are first the lines 8 further out, then the runs 4 lanes further in. The run is what fits a 32-bit
register for A and B, and two elements for an accumulator whatever its width.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and its sister
sections, whose cases this formula covers; the tests state those sections separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

LANES = 32

FragmentKind = Literal["a", "b", "accumulator"]
Index = int | npt.NDArray[np.int64]
Array = npt.NDArray[Any]


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
    run = 2 if kind == "accumulator" else packed
    group, in_group = lane // 4, lane % 4
    step, within = divmod(register * packed + element, run)
    inward, outward = divmod(step, outer_size // 8)
    return group + 8 * outward, run * (in_group + 4 * inward) + within


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """The layout of one operand of a matrix instruction over the 32 lanes of a warp.

    ``rows`` x ``cols`` is the matrix as mathematics writes it: m x k for A, k x n for B, m x n for C
    and D. ``dtype`` is the PTX type of an element and ``bits`` the width of its container. Each lane
    holds ``registers_per_lane`` registers of ``register_bits`` bits; the elements of a register are
    counted from its low bits up.

    A layout checks itself when it is made: every element of the matrix has exactly one place.
    Raises ValueError when it does not.
    """

    operand: str
    kind: FragmentKind
    rows: int
    cols: int
    dtype: str
    bits: int

    def __post_init__(self) -> None:
        in_step = LANES * self.elements_per_register
        if self.register_bits % self.bits or self.outer_size % 8 or self.rows * self.cols % in_step:
            raise ValueError(f"{self} does not divide over the registers of a warp")
        row, col = np.moveaxis(_table(self), -1, 0)
        inside = (row >= 0) & (row < self.rows) & (col >= 0) & (col < self.cols)
        if not inside.all() or np.unique(row * self.cols + col).size != self.rows * self.cols:
            raise ValueError(f"{self} does not hold every element once")

    @property
    def outer_size(self) -> int:
        """The dimension that groups of lanes divide: the columns of B, the rows of all others."""
        return self.cols if self.kind == "b" else self.rows

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
        return self.rows * self.cols // (LANES * self.elements_per_register)

    def element(self, lane: Index, register: Index, i: Index = 0) -> tuple[Index, Index]:
        """Return the (row, col) that ``lane`` holds as element ``i`` of ``register``.

        Integer arrays broadcast. Raises IndexError outside the fragment.
        """
        limits = (LANES, self.registers_per_lane, self.elements_per_register)
        for name, index, limit in zip(Place._fields, (lane, register, i), limits, strict=True):
            if np.any(np.less(index, 0)) or np.any(np.greater_equal(index, limit)):
                raise IndexError(f"{self.operand} has no {name} {index}: 0 to {limit - 1}")
        outer, inner = position(self.kind, self.outer_size, self.bits, lane, register, i)
        return (inner, outer) if self.kind == "b" else (outer, inner)

    def registers(self, row: int, col: int) -> tuple[Place, ...]:
        """Return every place that holds the element, derived from the table: the inverse map.

        Raises IndexError outside the matrix.
        """
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            raise IndexError(
                f"{self.operand} has no element {row},{col}: it is {self.rows} x {self.cols}"
            )
        found = np.argwhere((_table(self) == (row, col)).all(axis=-1))
        return tuple(Place(*map(int, place)) for place in found)

    def table(self) -> npt.NDArray[np.int64]:
        """Return (row, col) of everything, [32, registers, elements per register, 2], read-only."""
        return _table(self)

    def pack(self, matrix: Array) -> Array:
        """Return the registers, [..., 32, registers], of element bit patterns [..., rows, cols]."""
        row, col = np.moveaxis(_table(self), -1, 0)
        words = np.asarray(matrix)[..., row, col].astype(self._word)
        return np.asarray(np.bitwise_or.reduce(words << self._shifts, axis=-1))

    def unpack(self, words: Array) -> Array:
        """Return the element bit patterns, [..., rows, cols], of registers [..., 32, registers]."""
        words = np.asarray(words, dtype=self._word)
        mask = self._word.type((1 << self.bits) - 1)
        row, col = np.moveaxis(_table(self), -1, 0)
        matrix = np.empty((*words.shape[:-2], self.rows, self.cols), self._word)
        matrix[..., row, col] = (words[..., np.newaxis] >> self._shifts) & mask
        return matrix

    @property
    def _word(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.register_bits // 8}")

    @property
    def _shifts(self) -> Array:
        return (np.arange(self.elements_per_register) * self.bits).astype(self._word)


@cache
def _table(layout: FragmentLayout) -> npt.NDArray[np.int64]:
    lanes = np.arange(LANES)[:, np.newaxis, np.newaxis]
    registers = np.arange(layout.registers_per_lane)[:, np.newaxis]
    elements = np.arange(layout.elements_per_register)
    table = np.stack(np.broadcast_arrays(*layout.element(lanes, registers, elements)), axis=-1)
    table.flags.writeable = False
    return table
