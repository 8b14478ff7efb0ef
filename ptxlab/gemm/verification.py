"""Whether a kernel that is about to be timed, or just was, computes what it should.

The reference in float64 takes far longer on the CPU than D on the GPU, so it is made once for all
kernels, and of a large D for a part of the rows: one drawn from each of ``ROWS`` even bands. An error
in any tile of D, of whatever size, is then among the elements that are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.stopwatch import Work
from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.problem import Array, Inputs, Problem
from ptxlab.gemm.reference import (
    TF32_CONVERSION,
    compare_parts,
    epilogue_of,
    error_bound,
    factors_of,
    reference,
)
from ptxlab.gemm.storage import Operands
from ptxlab.isa.targets import DotProduct

ROWS = 1024

NAN = 0xFF
"""Memory full of this byte holds no number of any floating-point type."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether D is right: its largest ``error`` is within ``tolerance``, in units of (|A| |B|)."""

    passed: bool
    error: float
    tolerance: float


class Verification:
    """What D of one problem should be."""

    def __init__(self, problem: Problem, inputs: Inputs) -> None:
        self.problem = problem
        self._a, self._b = factors_of(problem, inputs)
        self._epilogue = epilogue_of(problem, inputs)
        self.rows = drawn(problem.m, problem.seed)
        old = self._epilogue.old
        epilogue = replace(self._epilogue, old=None if old is None else old[self.rows])
        self._parts = list(reference(self._a[self.rows], self._b, epilogue))

    def verdict(self, d: Array, method: Method, arithmetic: DotProduct) -> Verdict:
        """Judge D; an element anywhere that is not a number makes it wrong."""
        dtype = self.problem.dtype
        conversion = TF32_CONVERSION if (method, dtype) == ("any", "tf32") else 0.0
        bound = error_bound(
            method, arithmetic, self._a, self._b, self.problem.acc, self._epilogue, conversion
        )
        worst = compare_parts(d[self.rows], self._parts, bound)
        error = np.inf if np.isnan(d).any() else worst.error
        return Verdict(error <= bound.coefficient, error, bound.coefficient)


def checked(
    device: CudaDevice,
    operands: Operands,
    work: Work,
    verification: Verification,
    method: Method,
) -> Verdict:
    """Do ``work`` once on a D full of NaN, which no kernel before it has left there, and judge D."""
    problem, d = verification.problem, operands.d
    device.fill(d.address, d.nbytes, NAN)
    device.timed("compute D", work)
    found = d.numpy().reshape(problem.m, problem.n)
    return verification.verdict(found, method, device.target.dot16)


def drawn(rows: int, seed: int) -> Array:
    """Return the rows to compare: all, or one of each of ``ROWS`` bands of a larger matrix."""
    if rows <= ROWS:
        return np.arange(rows)
    edges = np.arange(ROWS + 1) * rows // ROWS
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])
