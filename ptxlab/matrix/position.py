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
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

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
Index = int | npt.NDArray[np.int64]

OUTER_IS_COLUMNS = ("b", "accumulator.trans", "quad b.row", "quad b.col")
_ONE_LINE_A_LANE = ("quad a.row", "quad b.col", "quad accumulator")
_HALVES = "tmem 16x32bx2"


def elements_per_register(bits: int) -> int:
    """Return how many elements of ``bits`` share one register: 32-bit ones, or one of 64 bits."""
    return max(1, 32 // bits)


def matrices(kind: FragmentKind) -> int:
    """Return how many independent matrices of the kind a warp holds."""
    return 2 if kind == _HALVES else QUAD_PAIRS if kind.startswith("quad") else 1


def matrix(kind: FragmentKind, thread: Index) -> Index:
    """Return which of them the elements of ``thread`` belong to."""
    return thread % WARP // 16 if kind == _HALVES else thread // 4 % matrices(kind)


def position(
    kind: FragmentKind, outer_size: int, bits: int, thread: Index, register: Index, element: Index
) -> tuple[Index, Index]:
    """Return (outer, inner) of an element: the one function all fragment layouts come from.

    ``outer_size`` is the number of rows (of columns for B) that each warp holds. Arrays broadcast
    against each other.
    """
    packed = elements_per_register(bits)
    warp, lane = divmod(thread, WARP)
    if kind.startswith("tmem"):
        outer, inner = _TENSOR_MEMORY[kind](lane, register)
        inner = packed * inner + element
    elif kind.startswith("quad"):
        outer, inner = _quad_position(kind, bits, lane, register * packed + element)
    else:
        run = 2 if kind.startswith("accumulator") else packed
        step, within = divmod(register * packed + element, run)
        inward, outward = divmod(step, outer_size // 8)
        outer, inner = lane // 4 + 8 * outward, run * (lane % 4 + 4 * inward) + within
    return outer_size * warp + outer, inner


def _quad_position(kind: FragmentKind, bits: int, lane: Any, i: Any) -> tuple[Index, Index]:
    """Return (outer, inner) of element ``i`` of a lane, in the 8-line matrix of its quad-pair."""
    in_quad, lower_half = lane % 4, 4 * (lane // 16)
    if kind == "quad accumulator" and bits == 32:
        return (in_quad & 1) + (i & 2) + lower_half, (i & 4) + (in_quad & 2) + (i & 1)
    if kind in _ONE_LINE_A_LANE:
        return in_quad + lower_half, i
    return i + lower_half, in_quad


_TENSOR_MEMORY: dict[str, Callable[[Any, Any], tuple[Index, Index]]] = {
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
