"""What goes into the operands so that the registers tell which element they hold.

``numbered`` and ``ones`` put a zero in C. ``addressing`` makes A * B equal to 8 * m + n and numbers
C too, so every element of C, and every element of D, is a different small integer; it is for the
handwritten programs. Numbers start again at zero where a type has no more of them in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ptxlab.fragments.numbers import Array, numbers
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction

Fill = Literal["numbered", "ones", "addressing"]

NUMBERED: Fill = "numbered"
ONES: Fill = "ones"
ADDRESSING: Fill = "addressing"


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The matrices of one launch as bit patterns: ``a`` m x k, ``b`` k x n, ``c`` m x n."""

    a: Array
    b: Array
    c: Array


def inputs(instruction: MatrixInstruction, fill: Fill) -> Inputs:
    """Return the matrices ``fill`` means for ``instruction``, of which the warp holds one each."""
    a, b, c = (instruction.operand(name) for name in "ABC")
    if fill != ADDRESSING:
        return Inputs(*(contents(layout, fill) for layout in (a, b, c)))
    # [8m, 1, 0 ...] x [1 ...; n ...; 0 ...] is 8m + n.
    left, right = (np.zeros((layout.rows, layout.cols), np.int64) for layout in (a, b))
    left[:, 0] = 8 * np.arange(a.rows)
    left[:, 1] = 1
    right[0, :] = 1
    right[1, :] = np.arange(b.cols)
    return Inputs(_patterns(a, left), _patterns(b, right), _patterns(c, _count(c)))


def contents(layout: FragmentLayout, fill: Fill) -> Array:
    """Return the bit patterns an operand has: numbered or ones, but zeros in C."""
    return _patterns(layout, integers(layout, fill))


def indices(layout: FragmentLayout, fill: Fill) -> Array:
    """Return the same as indices of the operand's numbers."""
    counting = numbers(layout).counting
    return np.asarray(counting[integers(layout, fill) % len(counting)])


def integers(layout: FragmentLayout, fill: Fill) -> Array:
    """Return row * columns + column, of several matrices one after the other, or ones, or zeros."""
    count = _count(layout)
    if layout.operand == "C":
        return 0 * count
    return count if fill == NUMBERED else 0 * count + 1


def _count(layout: FragmentLayout) -> Array:
    several = (layout.matrices,) if layout.matrices > 1 else ()
    shape = (*several, layout.rows, layout.cols)
    return np.arange(np.prod(shape)).reshape(shape)


def _patterns(layout: FragmentLayout, integers: Array) -> Array:
    """Return integers, from 0 on, in the type of an operand and in words of its containers."""
    known = numbers(layout)
    found = known.patterns[known.counting[integers % len(known.counting)]]
    return np.asarray(found, f"u{max(8, layout.bits) // 8}")
