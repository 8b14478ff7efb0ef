"""What the registers and D of the handwritten programs must hold, from the tables and NumPy alone.

Nothing here knows how a program computes addresses: registers are the host matrices seen through
the layouts of ``ptxlab.isa``, and D is a product in float64.
"""

from __future__ import annotations

import numpy as np

from ptxlab.fragments.fill import Fill, Inputs, inputs
from ptxlab.fragments.numbers import Array, decode
from ptxlab.isa.types import TYPES
from ptxlab.matrix.multiplication import MatrixInstruction


def bits(matrix: Array) -> Array:
    """Return the bit patterns of ``matrix`` as unsigned integers of the same width."""
    return np.ascontiguousarray(matrix).view(f"u{matrix.dtype.itemsize}")


def product(instruction: MatrixInstruction, given: Inputs) -> Array:
    """Return A * B + C in the type of D, m x n, bit for bit.

    The fills are small integers: every sum is exact in float64, and partial sums along k are exact
    in the type of D up to its range, so the one rounding at the end is that of every target however
    many products it fuses in a step. Past the range of f16 it gives an infinity.
    """
    a, b, c = (
        decode(instruction.operand(name), matrix).astype(np.float64)
        for name, matrix in zip("ABC", (given.a, given.b, given.c), strict=True)
    )
    with np.errstate(over="ignore"):
        return np.asarray((a @ b + c).astype(TYPES[instruction.d_type].dtype))


def matrices(instruction: MatrixInstruction, fill: Fill) -> dict[str, Array]:
    """Return the expected bit patterns of each operand's matrix by name, D after the instruction."""
    given = inputs(instruction, fill)
    d = bits(product(instruction, given))
    return {"A": given.a, "B": given.b, "C": given.c, "D": d}
