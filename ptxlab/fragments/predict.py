"""What the registers and D must hold, from the instruction tables and NumPy alone.

Nothing here knows how a program computes addresses: registers are the host matrices seen through
the layouts of ``ptxlab.isa``, and D is a product in float64.
"""

from __future__ import annotations

import numpy as np

from ptxlab.fragments.fill import Array, Inputs, dtype
from ptxlab.isa import MatrixInstruction


def bits(matrix: Array) -> Array:
    """Return the bit patterns of ``matrix`` as unsigned integers of the same width."""
    return np.ascontiguousarray(matrix).view(f"u{matrix.dtype.itemsize}")


def product(instruction: MatrixInstruction, inputs: Inputs) -> Array:
    """Return A * B + C in the type of D, m x n, bit for bit.

    The fills are small integers: every sum is exact in float64, and partial sums along k are exact
    in the type of D up to its range, so the one rounding at the end is that of every target however
    many products it fuses in a step. Past the range of f16 it gives an infinity.
    """
    total = inputs.a.astype(np.float64) @ inputs.b.astype(np.float64) + inputs.c.astype(np.float64)
    with np.errstate(over="ignore"):
        return total.astype(dtype(instruction.operand("D")))


def matrices(instruction: MatrixInstruction, inputs: Inputs) -> dict[str, Array]:
    """Return the expected bit patterns of each operand's matrix by name, D after the instruction."""
    d = product(instruction, inputs)
    return {"A": bits(inputs.a), "B": bits(inputs.b), "C": bits(inputs.c), "D": bits(d)}
