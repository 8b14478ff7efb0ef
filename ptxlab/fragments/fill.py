"""What goes into A, B and C so that the registers tell which element they hold.

``numbered`` and ``ones`` put a zero in C. ``addressing`` makes A * B equal to 8 * m + n and numbers
C too, so every element of C, and every element of D, is a different small integer.
All values are exact in every 16-bit type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ptxlab.isa import TYPES, FragmentLayout, MatrixInstruction

Array = npt.NDArray[Any]
Fill = Literal["numbered", "ones", "addressing"]

NUMBERED: Fill = "numbered"
ONES: Fill = "ones"
ADDRESSING: Fill = "addressing"


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The matrices of one launch: ``a`` m x k, ``b`` k x n, ``c`` m x n, in the operands' dtypes."""

    fill: Fill
    a: Array
    b: Array
    c: Array


def inputs(instruction: MatrixInstruction, fill: Fill) -> Inputs:
    """Return the matrices ``fill`` means for ``instruction``."""
    a, b, c = (instruction.operand(name) for name in "ABC")
    match fill:
        case "numbered":
            return Inputs(fill, _numbered(a), _numbered(b), _zeros(c))
        case "ones":
            return Inputs(
                fill, _zeros(a) + dtype(a).type(1), _zeros(b) + dtype(b).type(1), _zeros(c)
            )
        case "addressing":
            # [8m, 1, 0 ...] x [1 ...; n ...; 0 ...] is 8m + n.
            left, right = _zeros(a), _zeros(b)
            left[:, 0] = 8 * np.arange(a.rows)
            left[:, 1] = 1
            right[0, :] = 1
            right[1, :] = np.arange(b.cols)
            return Inputs(fill, left, right, _numbered(c))


def dtype(layout: FragmentLayout) -> np.dtype[Any]:
    """Return the numpy dtype of the operand's elements."""
    return TYPES[layout.dtype].dtype


def _numbered(layout: FragmentLayout) -> Array:
    shape = layout.rows, layout.cols
    return np.arange(layout.rows * layout.cols).reshape(shape).astype(dtype(layout))


def _zeros(layout: FragmentLayout) -> Array:
    return np.zeros((layout.rows, layout.cols), dtype(layout))
