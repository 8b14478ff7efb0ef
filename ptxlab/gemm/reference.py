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

Numbers that share scales (``ptxlab.gemm.scaled``) are multiplied with them exactly. Those of 8 bits are added up
as above, 32 in a step. Those of 4 bits first in groups of 16, exactly; the groups of a step are then cut at
2^(E - F) where E is that of the largest scales, which a small group need not reach: that is part of the floor.

Integers are added up exactly, and the sum is rounded to f32 once, to nearest: coefficient = u.

``floor`` is for the bottom of the number range, where errors are absolute: half the smallest subnormal
(all of it toward zero) for each rounding, and for each truncation a 2^(E - F) that no term reaches,
because E is that of a zero or of a product with a subnormal factor, which is not normalised.

``any``, the steps of a tensor core in an order that nobody knows. A product is then in at most k of
them, each of which errs as above, and sums meet in f32, rounded to nearest: also a step, of a smaller
error. A chain of fma in any order is within that bound too.

The epilogue makes max(0, alpha S + beta D + bias) of a sum S in f32, rounding both products and both
sums (an fma saves one): a factor of (1 + u)^4 on 1 + coefficient, and one of 1 + 2^-11 where the result is rounded to f16. M becomes
|alpha| M + |beta D| + |bias|. Without factors and bias nothing is rounded, and RELU never makes an
error larger.

The reference itself adds up in float64: k 2^-53 more, for D as for M. Where M is 0 there is nothing
to round, and D must be 0. An infinity is right only where M is large enough for a sum to overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from ptxlab.arrays import Array, Doubles
from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.problem import Inputs, Problem, to_tf32
from ptxlab.gemm.scaled import ScaledMatrix
from ptxlab.isa.targets import TARGETS, DotProduct, GroupedDotProduct
from ptxlab.numbers.formats import BF16, E4M3, E5M2, F16, F32, FORMATS, TF32

BLOCK = 1024
"""Rows and columns of D that are looked at together."""

GROUPED = cast(GroupedDotProduct, TARGETS["sm_100a"].arithmetic.grouped4)
"""How numbers of 4 bits are added up, on all chips that have them."""

SMALLEST_NORMAL = {fmt.dtype: fmt.min_normal for fmt in (F32, BF16, F16, E4M3, E5M2)}
"""The smallest normal number of A's and B's type."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of the sums: max(0, alpha * sum + beta * old + bias), without the max unless relu.

    ``old`` is D before, m x n, or None where beta is 0; ``bias`` has n elements or is None.
    """

    alpha: float = 1.0
    beta: float = 0.0
    old: Array | None = None
    bias: Array | None = None
    relu: bool = False

    @property
    def rounds(self) -> bool:
        return self.alpha != 1 or self.old is not None or self.bias is not None


PLAIN = Epilogue()

TF32_CONVERSION = (1 + TF32.unit) ** 2 - 1
"""How far apart products are of the same f32 made tf32 in any two ways, which differ by an ulp."""


def epilogue_of(problem: Problem, inputs: Inputs) -> Epilogue:
    old = inputs.d if problem.beta else None
    return Epilogue(problem.alpha, problem.beta, old, inputs.bias, "relu" in problem.epilogue)


def factors_of(problem: Problem, inputs: Inputs) -> tuple[Array, Array]:
    """Return A and B as they are multiplied: rounded, where the problem's type is tf32."""
    if problem.dtype == "tf32":
        return to_tf32(inputs.a), to_tf32(inputs.b)
    return inputs.a, inputs.b


@dataclass(frozen=True, slots=True)
class ErrorBound:
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
    index: tuple[int, int] | None
    expected: float | None
    actual: float | None


@dataclass(frozen=True, slots=True)
class ExpectedPart:
    """A part of D: where it is, what should be there, M of it, and M of the sums it is made of."""

    rows: slice
    columns: slice
    expected: Doubles
    magnitude: Doubles
    of_sums: Doubles


def error_bound(
    method: Method,
    arithmetic: DotProduct,
    a: Array,
    b: Array,
    acc: str,
    epilogue: Epilogue = PLAIN,
    conversion: float = 0.0,
    scaled: tuple[ScaledMatrix, ScaledMatrix] | None = None,
) -> ErrorBound:
    """Return the bound for D made of A * B, with A and B as the kernel multiplies them.

    ``scaled`` are their numbers and scales apart, where they have some. ``conversion`` is how far off a product may be that was made of other factors than these.
    """
    k = a.shape[1]
    if method == "fma":
        relative = math.expm1(k * math.log1p(2.0**-24))
        floor = k * 2.0**-150
    elif a.dtype.kind == "i":
        relative, floor = 2.0**-24, 0.0
    elif scaled is None:
        smallest, bits = SMALLEST_NORMAL[a.dtype], 8 * a.dtype.itemsize
        relative, floor = _tensor_core(method, arithmetic, a, b, acc, smallest, bits)
    else:
        relative, floor = _scaled(arithmetic, a, b, *scaled)
    relative += conversion * (1 + relative)
    of_reference = k * 2.0**-53
    if epilogue.rounds:
        relative, floor = _finished(method, relative, abs(epilogue.alpha) * floor, acc)
        of_reference += 4 * 2.0**-53
    coefficient = (relative + of_reference) * (1 + 2 * of_reference)
    return ErrorBound(coefficient, floor, FORMATS[acc].max_finite)


def _tensor_core(
    method: Method,
    arithmetic: DotProduct,
    a: Array,
    b: Array,
    acc: str,
    smallest: float,
    bits: int,
) -> tuple[float, float]:
    """Return both parts of a bound for factors of ``bits``, of which ``smallest`` is a normal number."""
    k = a.shape[1]
    chunk = 16 * arithmetic.chunk // bits
    steps = k if method == "any" else math.ceil(k / chunk)
    if acc == "f32":
        rounding, tiny = 2.0**-23, 2.0**-149
        growth = (1 + 2.0**-24) ** steps if method == "any" else 1.0
        zero_exponent = arithmetic.zero_exponent_f32
    else:
        rounding, tiny = 2.0**-11, 2.0**-25
        growth = (1 + rounding) ** steps
        zero_exponent = arithmetic.zero_exponent_f16
    terms = chunk + 1
    truncation = terms * 2.0**-arithmetic.fraction_bits
    # The exponent of a product with a subnormal factor: that of the type times the other factor's.
    as_f32 = (matrix.astype(np.float32) for matrix in (a, b))  # numpy is slow in types of ml_dtypes
    factor = max(float(np.abs(matrix).max(initial=0)) for matrix in as_f32)
    cut = truncation * max(2.0**zero_exponent, smallest * factor)
    return steps * (truncation + rounding) * growth, steps * (cut + tiny) * growth


def _scaled(
    arithmetic: DotProduct, a: Array, b: Array, left: ScaledMatrix, right: ScaledMatrix
) -> tuple[float, float]:
    """Return both parts of a bound for sums in f32 of numbers that share scales."""
    kind, largest = left.kind, (left.largest_scale, right.largest_scale)
    if kind.bits == 8:
        smallest = kind.element.min_normal * max(largest)
        return _tensor_core("tcgen05", arithmetic, a, b, "f32", smallest, kind.bits)
    steps = math.ceil(a.shape[1] / GROUPED.chunk)
    truncation = (GROUPED.chunk // GROUPED.group + 1) * 2.0**-GROUPED.fraction_bits
    cut = truncation * max(2.0**GROUPED.zero_exponent, math.prod(largest))
    return steps * (truncation + 2.0**-23), steps * (cut + 2.0**-149)


def _finished(method: Method, relative: float, floor: float, acc: str) -> tuple[float, float]:
    """Return both parts of a bound after the roundings of an epilogue.

    A library finishes sums of f16 in f16, and its factors are f16 too.
    """
    to_f32, to_f16 = (2.0**-24, 2.0**-150), (2.0**-11, 2.0**-25)
    steps = [to_f16] * 5 if (method, acc) == ("any", "f16") else [to_f32] * 4
    if acc == "f16":
        steps.append(to_f16)
    for rounding, tiny in steps:
        relative += rounding + relative * rounding
        floor = floor * (1 + rounding) + tiny
    return relative, floor


def compare(computed: Array, parts: Iterable[ExpectedPart], bound: ErrorBound) -> Comparison:
    """Find the element of ``computed`` furthest from the ``parts`` of its reference, in units of what it may be.

    D is right if and only if the error found is at most ``bound.coefficient``. A and B are finite; an
    element that is infinite or NaN without a reason has an infinite error.
    """
    worst = Comparison(0.0, None, None, None)
    for part in parts:
        block = computed[part.rows, part.columns].astype(np.float64)
        error = _error(block, part, bound)
        at = np.unravel_index(np.argmax(error), error.shape)
        if worst.index is None or error[at] > worst.error:
            index = (part.rows.start + int(at[0]), part.columns.start + int(at[1]))
            worst = Comparison(float(error[at]), index, float(part.expected[at]), float(block[at]))
    return worst


def reference(a: Array, b: Array, epilogue: Epilogue = PLAIN) -> Iterator[ExpectedPart]:
    """Yield what D should be and how large its terms are, in float64, block by block."""
    m, n = a.shape[0], b.shape[1]
    for left in range(0, n, BLOCK):
        columns = slice(left, min(left + BLOCK, n))
        b_block = b[:, columns].astype(np.float64)
        b_magnitude = np.abs(b_block)
        for top in range(0, m, BLOCK):
            rows = slice(top, min(top + BLOCK, m))
            a_block = a[rows].astype(np.float64)
            sums, of_sums = a_block @ b_block, np.abs(a_block) @ b_magnitude
            expected, magnitude = _finish(sums, of_sums, rows, columns, epilogue)
            yield ExpectedPart(rows, columns, expected, magnitude, of_sums)


def _finish(
    sums: Doubles, of_sums: Doubles, rows: slice, columns: slice, epilogue: Epilogue
) -> tuple[Doubles, Doubles]:
    """Return what the epilogue makes of a block's sums, and the magnitude of that."""
    expected, magnitude = epilogue.alpha * sums, abs(epilogue.alpha) * of_sums
    if epilogue.old is not None:
        old = epilogue.beta * epilogue.old[rows, columns].astype(np.float64)
        expected, magnitude = expected + old, magnitude + np.abs(old)
    if epilogue.bias is not None:
        bias = epilogue.bias[columns].astype(np.float64)
        expected, magnitude = expected + bias, magnitude + np.abs(bias)
    return np.maximum(expected, 0) if epilogue.relu else expected, magnitude


def _error(computed: Doubles, part: ExpectedPart, bound: ErrorBound) -> Doubles:
    """Return the error of every element: infinite where it must not differ and does."""
    magnitude = part.magnitude
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.abs(computed - part.expected)
        unit = magnitude + bound.floor / bound.coefficient if bound.coefficient else magnitude
        error = np.where(magnitude > 0, difference / unit, np.where(difference == 0, 0.0, np.inf))
    largest = np.maximum(magnitude, part.of_sums) * (1 + bound.coefficient) + bound.floor
    error[np.isinf(computed) & (largest > bound.largest)] = 0.0
    error[np.isnan(error)] = np.inf
    return error
