"""Double-precision matrix multiply-add: a chain of IEEE fused multiply-adds in increasing k.

Each of them rounds once, in the instruction's direction; to nearest even where it names none.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" (rounding of .f64); MMA-Sim, arXiv
2511.10909 (order). Which NaN comes out is not specified: here as from fma.f64.
"""

from __future__ import annotations

import numpy as np

from ptxlab.numbers.doubles import fma_f64
from ptxlab.numbers.formats import Array


def multiply_add_double(a: Array, b: Array, c: Array, *, rounding: str = "rn") -> Array:
    """Compute D = A*B + C in float64 for a batch of warps; ``rounding`` is rn, rz, rm or rp.

    ``a`` is [m, k, warps], ``b`` [k, n, warps], ``c`` and the result [m, n, warps], all of uint64.
    """
    left, right = a.view(np.float64), b.view(np.float64)
    total = np.array(c, order="C").view(np.float64).ravel()
    with np.errstate(all="ignore"):
        for k in range(b.shape[0]):
            x, y = np.broadcast_arrays(left[:, k, None], right[None, k])
            total = fma_f64(x.ravel(), y.ravel(), total, rounding)
    return total.view(np.uint64).reshape(c.shape)
