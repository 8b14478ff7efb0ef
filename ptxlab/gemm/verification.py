"""Whether D is what it should be: judged once, for every kernel, library and baseline.

The reference in float64 takes far longer on the CPU than a large D on a GPU. What is timed is
therefore compared by a sample: of each of ``ROWS`` even bands of rows one is drawn, and their reference
is made once for all kernels. An error in any tile of D, of whatever size, is then among the elements
that are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.stopwatch import StreamWork
from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.problem import DeviceOperands, Inputs, Problem
from ptxlab.gemm.reference import (
    TF32_CONVERSION,
    Comparison,
    ExpectedPart,
    compare,
    epilogue_of,
    error_bound,
    factors_of,
    reference,
)
from ptxlab.isa.targets import DotProduct

ROWS = 1024

NAN = 0xFF
"""Memory full of this byte holds no number of any floating-point type."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether D is right: its ``worst`` element is within ``tolerance``, and D is all that was written.

    Both are relative to (|A| |B|)_ij, or to what the epilogue makes of it, as
    ``ptxlab.gemm.reference`` explains. ``strays`` counts elements written between the rows of D.
    """

    worst: Comparison
    tolerance: float
    strays: int = 0

    @property
    def error(self) -> float:
        return self.worst.error

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance and not self.strays


class Verification:
    """What D of one problem should be: all of it or, ``sampled``, some rows, whose reference is kept."""

    def __init__(self, problem: Problem, inputs: Inputs, *, sampled: bool = False) -> None:
        self.problem = problem
        self._a, self._b = factors_of(problem, inputs)
        self._scaled = inputs.scaled
        self._rows = drawn(problem.m, problem.seed) if sampled else slice(None)
        epilogue = epilogue_of(problem, inputs)
        old = None if epilogue.old is None else epilogue.old[self._rows]
        self._epilogue = replace(epilogue, old=old)
        self._kept = list(self._made()) if sampled else []
        self._begun: Iterable[ExpectedPart] = ()

    def begin(self, beside: Executor) -> None:
        """Have the first part of the reference made at once: BLAS needs a processor, and no Python."""
        parts = iter(self._made())
        first = beside.submit(list, islice(parts, 1))

        def all_parts() -> Iterator[ExpectedPart]:
            yield from first.result()
            yield from parts

        self._begun = all_parts()

    def expected(self) -> Iterable[ExpectedPart]:
        """Return the reference of the rows that are compared, part by part."""
        begun, self._begun = self._begun, ()
        return begun or self._kept or self._made()

    def _made(self) -> Iterable[ExpectedPart]:
        return reference(self._a[self._rows], self._b, self._epilogue)

    def verdict(self, d: Array, method: Method, arithmetic: DotProduct, strays: int = 0) -> Verdict:
        """Judge D; an element anywhere that is not a number makes it wrong."""
        dtype = self.problem.dtype
        conversion = TF32_CONVERSION if (method, dtype) == ("any", "tf32") else 0.0
        bound = error_bound(
            method,
            arithmetic,
            self._a,
            self._b,
            self.problem.acc,
            self._epilogue,
            conversion,
            self._scaled,
        )
        worst = compare(d[self._rows], self.expected(), bound)
        error = np.inf if np.isnan(d).any() else worst.error
        return Verdict(replace(worst, error=error), bound.coefficient, strays)


def checked(
    device: CudaDevice,
    operands: DeviceOperands,
    work: StreamWork,
    verification: Verification,
    method: Method,
) -> Verdict:
    """Do ``work`` once on a D full of NaN, which no kernel before it has left there, and judge D."""
    problem, d = verification.problem, operands.d
    device.fill(d.address, d.nbytes, NAN)
    device.timed("compute D", work)
    product = d.numpy().reshape(problem.m, problem.n)
    return verification.verdict(product, method, device.target.dot16)


def drawn(rows: int, seed: int) -> Array:
    """Return the rows to compare: all, or one of each of ``ROWS`` bands of a larger matrix."""
    if rows <= ROWS:
        return np.arange(rows)
    edges = np.arange(ROWS + 1) * rows // ROWS
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])
