"""Which thread, in which register, holds which element of a matrix operand.

The formulas are those of ``ptxlab.matrix.position``; everything else about a layout is derived from them.

Source, for which bits of a register count: PTX ISA, "Multiply-and-Accumulate Instruction: mma" (types of
four and six bits in bytes), "Alternate Floating-Point Data Formats" (tf32).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ptxlab.arrays import Array, Integers
from ptxlab.isa.targets import WARP
from ptxlab.matrix import position
from ptxlab.matrix.position import Arrangement, FragmentKind, IntOrArray
from ptxlab.numbers.formats import CONTAINED, FORMATS
from ptxlab.pictured import Pictured


class Place(NamedTuple):
    """Where one element is held: thread, register of that thread, element of that register.

    The thread is a lane of the warp; where four warps hold the matrix, a thread of their warpgroup.
    """

    lane: int
    register: int
    element: int


@dataclass(frozen=True, slots=True)
class FragmentLayout(Pictured):
    """The layout of one operand of a matrix instruction over ``threads``: the 32 lanes of a warp, or
    the 128 threads of a warpgroup.

    ``rows`` x ``cols`` is the matrix as mathematics writes it: m x k for A, k x n for B, m x n for C
    and D. ``dtype`` is the PTX type of an element and ``bits`` the width of its container. Each
    thread holds ``registers_per_lane`` registers of ``register_bits`` bits; the elements of a register
    are counted from its low bits up. What is called a lane here counts threads from 0.

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
    threads: int = WARP
    _arrangement: Arrangement = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arrangement = Arrangement(
            self.kind, self.rows, self.cols, self.bits, self.copies, self.threads
        )
        object.__setattr__(self, "_arrangement", arrangement)
        problem = position.problem(self._arrangement)
        if problem:
            raise ValueError(f"{self} {problem}")

    @property
    def holder(self) -> str:
        """What ``lane`` counts: lanes of a warp, or threads of a warpgroup."""
        return "lane" if self.threads == WARP else "thread"

    @property
    def matrices(self) -> int:
        """How many independent matrices the warp holds: one a quad-pair, or one altogether."""
        return self._arrangement.matrices

    @property
    def register_bits(self) -> int:
        """The width of one register: 64 for 64-bit elements, else 32."""
        return max(32, self.bits)

    @property
    def elements_per_register(self) -> int:
        """How many elements one register packs."""
        return self._arrangement.packed

    @property
    def registers_per_lane(self) -> int:
        """How many registers of each lane the operand takes."""
        return self.copies * self._arrangement.distinct

    def matrix(self, lane: IntOrArray) -> IntOrArray:
        """Return which of the ``matrices`` the elements of ``lane`` belong to: an int, or int64 of its shape."""
        return self._arrangement.matrix(lane)

    def element(
        self, lane: IntOrArray, register: IntOrArray, i: IntOrArray = 0
    ) -> tuple[IntOrArray, IntOrArray]:
        """Return the (row, col) that ``lane`` holds as element ``i`` of ``register``.

        Integer arrays broadcast to one shape, of int64. Raises IndexError outside the fragment.
        """
        limits = (self.threads, self.registers_per_lane, self.elements_per_register)
        for name, index, limit in zip(Place._fields, (lane, register, i), limits, strict=True):
            if not _inside(index, limit):
                raise IndexError(f"{self.operand} has no {name} {index}: 0 to {limit - 1}")
        return self._arrangement.row_col(lane, register, i)

    def registers(self, row: int, col: int) -> tuple[Place, ...]:
        """Return every place that holds the element, derived from the table: the inverse map.

        One place; several where the registers hold copies, or hold several matrices (one of each).
        Raises IndexError outside the matrix.
        """
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            raise IndexError(
                f"{self.operand} has no element {row},{col}: it is {self.rows} x {self.cols}"
            )
        order, begins = position.by_element(self._arrangement)
        number, elements = row * self.cols + col, self.elements_per_register
        places = []
        for holding in order[begins[number] : begins[number + 1]].tolist():
            held, i = divmod(holding, elements)
            lane, register = divmod(held, self.registers_per_lane)
            places.append(Place(lane, register, i))
        return tuple(places)

    def table(self) -> Integers:
        """Return (row, col) of everything, [threads, registers, elements per register, 2], read-only."""
        return position.table(self._arrangement)

    def numbers(self) -> Integers:
        """Return the number in [matrices, rows, cols] of everything, [threads, registers, elements per register]."""
        return position.numbers(self._arrangement)

    def pack(self, matrix: Array) -> Array:
        """Return the registers, [..., threads, registers], of element bit patterns [..., rows, cols].

        Where the warp holds several matrices the patterns are [..., matrices, rows, cols]. Both are unsigned
        integers, the registers of type uint32, of f64 uint64.
        """
        matrix = np.asarray(matrix)
        flat = matrix.reshape(*matrix.shape[: -self._dimensions], -1)
        words = flat[..., self.numbers()].astype(self._word)
        return np.asarray(np.bitwise_or.reduce(words << self._shifts, axis=-1))

    def unpack(self, words: Array) -> Array:
        """Return the element bit patterns of registers [..., threads, registers], shaped as ``pack``'s.

        They have the registers' type, uint32 or uint64. Where the registers hold copies, the last one counts.
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


def _inside(index: IntOrArray, limit: int) -> bool:
    if isinstance(index, int):
        return 0 <= index < limit
    return bool(np.all(np.less_equal(0, index) & np.less(index, limit)))


# What an element is in its register.


def container_bits(dtype: str, *, packed: bool = False) -> int:
    """Return how many bits an element of ``dtype`` takes in a register.

    Types of four and six bits lie in bytes, unless ``packed`` (e2m1 of the ``mxf4`` kinds).
    """
    fmt = FORMATS.get(dtype)
    if fmt is None:
        return int(dtype[1:])
    return fmt.bits if packed and fmt.word_bits == 8 else fmt.word_bits


def number_bits(dtype: str, bits: int) -> tuple[int, int]:
    """Return the lowest bit of the number in a container of ``bits``, and how many it has."""
    fmt = CONTAINED.get(dtype)
    if fmt is None or fmt.word_bits != bits:
        return 0, bits
    return fmt.low_bit, fmt.bits


@dataclass(frozen=True, slots=True)
class Slot:
    """One element of a register: its container is ``bits`` bits from ``low`` on.

    Of these, ``data_bits`` from ``data_low`` on (of the register) are the number.
    """

    low: int
    bits: int
    data_low: int
    data_bits: int


def slots(layout: FragmentLayout) -> tuple[Slot, ...]:
    """Return the slots of a register, low bits first."""
    inside, count = number_bits(layout.dtype, layout.bits)
    return tuple(
        Slot(low, layout.bits, low + inside, count)
        for low in range(0, layout.elements_per_register * layout.bits, layout.bits)
    )
