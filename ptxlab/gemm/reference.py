"""The float64 reference, and how far from it a right kernel may be: a bound that is proven, not tuned.

An element D_ij is a sum of products, and the natural measure of its error is what the products
would add up to without their signs: M = (|A| |B|)_ij. Every method below stays within

    |found - expected|  <=  coefficient * M + floor

``fma``, a chain of k fused multiply-adds in f32. Each rounds once, to nearest: relative error at most
u = 2^-24. A product passes through at most k roundings, so coefficient = (1 + u)^k - 1.

``mma``, ceil(k / L) steps of a tensor core, each of which adds L products to the accumulator c (see
``ptxlab.isa.targets.DotProduct``). With X = |c| + the step's part of M, a step errs twice:

  truncation  all L + 1 terms are cut at 2^(E - F), where 2^E <= the largest term <= X:
              (L + 1) 2^-F X
  rounding    of the sum, which truncation has not made larger than X: 2^-23 X toward zero to f32,
              2^-11 X to nearest in f16

Toward zero, c never exceeds M, so X <= M. To nearest it may grow by 1 + 2^-11 a step, so
X <= (1 + 2^-11)^steps M. The coefficient is the sum over all steps; steps beyond k add exact zeros.

``floor`` is for the bottom of the number range, where errors are absolute: half the smallest subnormal
(all of it toward zero) for each rounding, and for each truncation a 2^(E - F) that no term reaches,
because E is that of a zero or of a product with a subnormal factor, which is not normalised.

The reference itself adds up in float64: k 2^-53 more, for D as for M. Where M is 0 there is nothing
to round, and D must be 0. An infinity is right only where M is large enough for a sum to overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.gemm.algorithms import Method
from ptxlab.isa.targets import DotProduct

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

BLOCK = 1024
"""Rows and columns of D that are looked at together."""

LARGEST = {"f32": (2 - 2.0**-23) * 2.0**127, "f16": 65504.0}
"""The largest finite number of D's type."""

SMALLEST_NORMAL = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""The smallest normal number of A's and B's type, by numpy's name for it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How far an element may be off (see the module's text), and the largest finite value of D."""

    coefficient: float
    floor: float
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The worst element of D: its error in units of M + floor / coefficient, where it is,
    what should be there and what is; all None for an empty D.
    """

    error: float
    place: tuple[int, int] | None
    expected: float | None
    found: float | None


def error_bound(method: Method, arithmetic: DotProduct, a: Array, b: Array, acc: str) -> Bound:
    """Return the bound for D = A * B, with A and B as the kernel gets them."""
    k = a.shape[1]
    if method == "fma":
        relative = math.expm1(k * math.log1p(2.0**-24))
        floor = k * 2.0**-150
    else:
        relative, floor = _tensor_core(arithmetic, a, b, acc)
    of_reference = k * 2.0**-53
    coefficient = (relative + of_reference) * (1 + 2 * of_reference)
    return Bound(coefficient, floor, LARGEST[acc])


def _tensor_core(arithmetic: DotProduct, a: Array, b: Array, acc: str) -> tuple[float, float]:
    steps = math.ceil(a.shape[1] / arithmetic.chunk)
    if acc == "f32":
        rounding, growth, tiny = 2.0**-23, 1.0, 2.0**-149
        zero_exponent = arithmetic.zero_exponent_f32
    else:
        rounding, tiny = 2.0**-11, 2.0**-25
        growth = (1 + rounding) ** steps
        zero_exponent = arithmetic.zero_exponent_f16
    terms = arithmetic.chunk + 1
    truncation = terms * 2.0**-arithmetic.fraction_bits
    # The exponent of a product with a subnormal factor: that of the type times the other factor's.
    smallest = SMALLEST_NORMAL[a.dtype.name]
    factor = max((float(np.abs(matrix).max(initial=0)) for matrix in (a, b)), default=0.0)
    cut = truncation * max(2.0**zero_exponent, smallest * factor)
    return steps * (truncation + rounding) * growth, steps * (cut + tiny) * growth


def compare(found: Array, a: Array, b: Array, bound: Bound) -> Comparison:
    """Find the element of ``found`` that is furthest from A * B, in units of what it may be off.

    D is right if and only if the error found is at most ``bound.coefficient``. ``a`` and ``b`` are
    finite; an element that is infinite or NaN without a reason has an infinite error.
    """
    worst = Comparison(0.0, None, None, None)
    for rows, columns, expected, magnitude in reference(a, b):
        block = found[rows, columns].astype(np.float64)
        error = _error(block, expected, magnitude, bound)
        at = np.unravel_index(np.argmax(error), error.shape)
        if worst.place is None or error[at] > worst.error:
            place = (rows.start + int(at[0]), columns.start + int(at[1]))
            worst = Comparison(float(error[at]), place, float(expected[at]), float(block[at]))
    return worst


def reference(a: Array, b: Array) -> Iterator[tuple[slice, slice, Doubles, Doubles]]:
    """Yield A * B and |A| * |B| in float64, block by block, with the rows and columns of each."""
    m, n = a.shape[0], b.shape[1]
    for left in range(0, n, BLOCK):
        columns = slice(left, min(left + BLOCK, n))
        b_block = b[:, columns].astype(np.float64)
        b_magnitude = np.abs(b_block)
        for top in range(0, m, BLOCK):
            rows = slice(top, min(top + BLOCK, m))
            a_block = a[rows].astype(np.float64)
            yield rows, columns, a_block @ b_block, np.abs(a_block) @ b_magnitude


def _error(found: Doubles, expected: Doubles, magnitude: Doubles, bound: Bound) -> Doubles:
    """Return the error of every element: infinite where it must not differ and does."""
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.abs(found - expected)
        unit = magnitude + bound.floor / bound.coefficient if bound.coefficient else magnitude
        error = np.where(magnitude > 0, difference / unit, np.where(difference == 0, 0.0, np.inf))
    largest_sum = magnitude * (1 + bound.coefficient) + bound.floor
    overflowed = np.isinf(found) & (largest_sum > bound.largest)
    error[overflowed] = 0.0
    error[np.isnan(error)] = np.inf
    return error
