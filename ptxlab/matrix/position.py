"""The formulas all fragment layouts come from: where a thread's elements lie.

One formula generates every operand of the warp-level ``mma`` instructions but one: dense, compressed
sparse (A with half of its columns) and, by ptxlab's own choice, ``wmma`` (see ``ptxlab.matrix.wmma``).
A warp is 8 groups of 4 lanes. Along the operand's outer dimension (the rows of A, C and D, the
columns of B) a group owns one line of every 8; along the inner dimension (k for A and B, n for C
and D) each of the 4 lanes owns a run of consecutive elements. The next elements of the same lane
are first the lines 8 further out, then the runs 4 lanes further in. The run is what fits a 32-bit
register for A and B, and two elements for an accumulator whatever its width. The four warps that
execute ``wgmma`` share the outer dimension equally, each as a warp alone would hold its part.

The exception is ``mma.m8n8k4`` with f16 inputs, which multiplies four pairs of 8 x 4 and 4 x 8
matrices at once. Each belongs to a quad-pair, lanes 4p to 4p+3 and 16+4p to 16+4p+3, and a lane of
it owns a line of the matrix, or one element of every line.

``tcgen05.ld`` and ``.st`` move columns of 32 bits of Tensor Memory, or with ``.pack::16b`` the low
halves of two neighbouring columns in one register. Here the outer dimension is the lane of Tensor
Memory and the inner one its column. Two of their shapes are those of A and of an accumulator.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "Matrix Fragments for
mma.m8n8k4 with .f16 floating point type" and their sister sections, whose cases these formulas cover,
"Register Fragments and Shared Memory Matrix Layouts" of wgmma, and for Tensor Memory "Matrix
fragments for shape .32x32b" and its sisters with CUTLASS's ``copy_traits_sm100.hpp``; the tests state
all of them separately.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from ptxlab.arrays import Integers
from ptxlab.isa.targets import WARP

QUAD_PAIRS = 4

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
    "tmem 16x64b",
    "tmem 16x128b",
    "tmem 16x256b",
    "tmem 32x32b",
    "tmem 16x32bx2",
]
IntOrArray = int | Integers

_ONE_LINE_A_LANE = ("quad a.row", "quad b.col", "quad accumulator")
_HALVES = "tmem 16x32bx2"


class Arrangement(NamedTuple):
    """What places the elements of an operand, whatever its name and type. Many operands share one."""

    kind: FragmentKind
    rows: int
    cols: int
    bits: int
    copies: int
    threads: int

    @property
    def outer_is_columns(self) -> bool:
        """Whether the outer dimension is that of the columns."""
        return self.kind in ("b", "accumulator.trans", "quad b.row", "quad b.col")

    @property
    def outer_size(self) -> int:
        """The dimension that groups of lanes divide."""
        return self.cols if self.outer_is_columns else self.rows

    @property
    def matrices(self) -> int:
        """How many independent matrices a warp holds."""
        return 2 if self.kind == _HALVES else QUAD_PAIRS if self.kind.startswith("quad") else 1

    @property
    def elements(self) -> int:
        """How many elements all matrices have."""
        return self.matrices * self.rows * self.cols

    @property
    def packed(self) -> int:
        """How many elements share one register: 32-bit ones, or one of 64 bits."""
        return max(1, 32 // self.bits)

    @property
    def distinct(self) -> int:
        """The registers of a thread before its copies begin."""
        return self.elements // (self.threads * self.packed)

    def matrix(self, thread: IntOrArray) -> IntOrArray:
        """Return which of the matrices the elements of ``thread`` belong to: an int, or int64 of its shape."""
        return thread % WARP // 16 if self.kind == _HALVES else thread // 4 % self.matrices

    def row_col(
        self, thread: IntOrArray, register: IntOrArray, element: IntOrArray
    ) -> tuple[IntOrArray, IntOrArray]:
        """Return (row, col) of an element. Arrays of int64 broadcast to one shape."""
        outer, inner = self.position(thread, register % self.distinct, element)
        return (inner, outer) if self.outer_is_columns else (outer, inner)

    def position(
        self, thread: IntOrArray, register: IntOrArray, element: IntOrArray
    ) -> tuple[IntOrArray, IntOrArray]:
        """Return (outer, inner) of an element: the one function all fragment layouts come from.

        Arrays of int64 broadcast to one shape.
        """
        held_by_a_warp = self.outer_size * WARP // self.threads
        warp, lane = divmod(thread, WARP)
        if self.kind.startswith("tmem"):
            outer, inner = _TENSOR_MEMORY[self.kind](lane, register)
            inner = self.packed * inner + element
        elif self.kind.startswith("quad"):
            i = register * self.packed + element
            outer, inner = _quad_position(self.kind, self.bits, lane, i)
        else:
            run = 2 if self.kind.startswith("accumulator") else self.packed
            step, within = divmod(register * self.packed + element, run)
            inward, outward = divmod(step, held_by_a_warp // 8)
            outer, inner = lane // 4 + 8 * outward, run * (lane % 4 + 4 * inward) + within
        return held_by_a_warp * warp + outer, inner


@cache
def table(of: Arrangement) -> Integers:
    """Return (row, col) of everything, [threads, registers, elements per register, 2]."""
    threads = np.arange(of.threads)[:, np.newaxis, np.newaxis]
    registers = np.arange(of.distinct * of.copies)[:, np.newaxis]
    places = of.row_col(threads, registers, np.arange(of.packed))
    return _read_only(np.stack(np.broadcast_arrays(*places), axis=-1))


@cache
def numbers(of: Arrangement) -> Integers:
    """Return the number in [matrices, rows, cols] of everything, [threads, registers, elements per register]."""
    row, col = np.moveaxis(table(of), -1, 0)
    matrix = of.matrix(np.arange(of.threads)[:, np.newaxis, np.newaxis])
    return _read_only(np.asarray((matrix * of.rows + row) * of.cols + col))


@cache
def by_element(of: Arrangement) -> tuple[Integers, Integers]:
    """Return the table's places, as numbers, in the order of (row, col), and where those of each element begin."""
    row, col = np.moveaxis(table(of), -1, 0)
    elements = (row * of.cols + col).ravel()
    order = elements.argsort(kind="stable")
    begins = elements[order].searchsorted(np.arange(of.rows * of.cols + 1))
    return _read_only(order), _read_only(begins)


@cache
def problem(of: Arrangement) -> str:
    """Say what is wrong with it; nothing where every element has ``copies`` places."""
    fits = max(32, of.bits) % of.bits == 0 and of.elements % (of.threads * of.packed) == 0
    if not fits or of.outer_size % (8 * of.threads // WARP):
        return "does not divide over the registers of a warp"
    row, col = np.moveaxis(table(of), -1, 0)
    inside = (row >= 0) & (row < of.rows) & (col >= 0) & (col < of.cols)
    places = np.bincount(numbers(of)[inside].ravel(), minlength=of.elements)
    if not inside.all() or (places != of.copies).any():
        return "does not hold every element once"
    return ""


def _read_only(array: Integers) -> Integers:
    array.flags.writeable = False
    return array


def _quad_position(
    kind: FragmentKind, bits: int, lane: Any, i: Any
) -> tuple[IntOrArray, IntOrArray]:
    """Return (outer, inner) of element ``i`` of a lane, in the 8-line matrix of its quad-pair."""
    in_quad, lower_half = lane % 4, 4 * (lane // 16)
    if kind == "quad accumulator" and bits == 32:
        return (in_quad & 1) + (i & 2) + lower_half, (i & 4) + (in_quad & 2) + (i & 1)
    if kind in _ONE_LINE_A_LANE:
        return in_quad + lower_half, i
    return i + lower_half, in_quad


_TENSOR_MEMORY: dict[str, Callable[[Any, Any], tuple[IntOrArray, IntOrArray]]] = {
    "tmem 16x64b": lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r),
    "tmem 16x128b": lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2)),
    "tmem 16x256b": lambda lane, r: (
        lane // 4 + 8 * (r // 2 % 2),
        2 * (lane % 4) + r % 2 + 8 * (r // 4),
    ),
    "tmem 32x32b": lambda lane, r: (lane, r),
    "tmem 16x32bx2": lambda lane, r: (lane % 16, r),
}
"""Lane and register-wide column of Tensor Memory, by shape."""
