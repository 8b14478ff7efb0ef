"""How far off numbers may be that a right kernel computes: a bound that follows from its types and its sums.

A reference is computed once, in float64, on numbers that carry a bound of their own (``Bounded``): how far from
the value a kernel may be that computes the same in any order. A result of one operation may be off by

    what its operands are off by, carried through the operation
    a rounding to f32, unit |result| + tiny, and, where it is an operand again, one to the type of the
    arguments, in which a kernel may keep it
    for a sum of n terms whose magnitudes add up to M, in f32 and in any order, the bound of
    ``ptxlab.gemm.reference``: ``fma`` for factors of f32, ``any`` for those that tensor cores take

So a kernel that adds up in a narrower type than f32 is outside, one that uses another order, fused operations
or a tensor core is inside, and so is one of a library. Functions are off by as many units more as CUDA's own
are at most, the fast ones too: CUDA C++ Programming Guide, "Mathematical Functions Appendix".
Source of the rules for sums and products: N. Higham, "Accuracy and Stability of Numerical Algorithms", 3.1, 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.reference import SMALLEST_NORMAL, error_bound
from ptxlab.isa.targets import Target
from ptxlab.numbers.formats import BF16, E4M3, E5M2, F16, F32

FORMATS = {fmt.dtype: fmt for fmt in (F32, F16, BF16, E4M3, E5M2)}
"""The types that are rounded to; integers are exact."""

F64_UNIT, F64_TINY = 2.0**-53, 2.0**-1074
F32_TINY = 2.0**-149
_OWN = 4 * F64_UNIT
"""What the reference itself may be off by in an operation."""

FUNCTION_UNITS = {
    "exp": 2, "exp2": 2, "expm1": 2, "log": 2, "log2": 2, "log10": 3, "log1p": 2, "tanh": 3, "sinh": 3, "cosh": 3,
    "erf": 2, "sin": 2, "cos": 2, "tan": 4, "arctan": 2, "sqrt": 1, "rsqrt": 2, "power": 9,
    "sigmoid": 6, "arcsin": 4, "arccos": 3, "arcsinh": 3, "arctanh": 3, "arccosh": 4, "cbrt": 1, "divide": 2,
}  # fmt: skip
"""Units in the last place that CUDA's f32 functions are off by at most."""

FAST_ABSOLUTE = {
    "sin": 2.0**-21.41, "cos": 2.0**-21.19, "log": 2.0**-21.41, "log2": 2.0**-22, "log10": 2.0**-21.41,
    **dict.fromkeys(("tanh", "sinh", "expm1", "log1p"), 2.0**-21),
}  # fmt: skip
"""What the fast ones are off by at most, however small the result; of log between 0.5 and 2. The last are near 0 those that
are made of the exponential or the logarithm: 1 - 2 / (1 + exp(2 x)), exp(x) - 1, log(1 + x)."""

FAST_ARGUMENT = {"exp": 1.173, "exp2": 0.0, "sigmoid": 1.173, "tanh": 1.173, "expm1": 1.173}
"""Units more for each unit of the argument's magnitude that the fast exponential is off by."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Numbers, float64, and how far from each a right kernel's may be; ``dtype`` of those that are arguments."""

    value: Any
    error: Any
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rules for kernels of a ``target`` whose arguments are of ``dtype``; ``xp`` is numpy or torch."""

    target: Target
    dtype: np.dtype[Any]
    xp: Any = np

    @property
    def _wide(self) -> bool:
        return self.dtype == np.float64

    @property
    def _unit(self) -> float:
        return F64_UNIT if self._wide else F32.unit / 2

    def rounded(self, value: Any, error: Any, units: float = 1.0) -> Bounded:
        """Return a result that is rounded once, by a rounding that may be some units off."""
        unit, tiny = units * self._unit + _OWN, F64_TINY if self._wide else F32_TINY
        return Bounded(value, error + unit * (abs(value) + error) + tiny)

    def stored(self, number: Bounded, dtype: np.dtype[Any]) -> Bounded:
        """Return numbers rounded to a type, such as that of the array that they end up in."""
        kept = FORMATS.get(dtype)
        if kept is None or kept is F32 or number.dtype == dtype:
            return number
        error = number.error + kept.unit / 2 * (abs(number.value) + number.error)
        return Bounded(number.value, error + 2.0 ** -(kept.bias + kept.fraction_bits))

    def _operand(self, number: Bounded) -> Bounded:
        """Return what an operation takes: a result that may have been kept in the type of the arguments."""
        return number if number.dtype is not None else self.stored(number, self.dtype)

    def constant(self, value: Any) -> Bounded:
        """Return a number that the reference has by itself, which a kernel has rounded to f32."""
        if self._wide:
            return Bounded(value, 0.0 * value, self.dtype)
        with np.errstate(all="ignore"):
            off = abs(value - np.float64(np.float32(value)))
        return Bounded(value, np.where(np.isfinite(value), off, 0.0), self.dtype)

    # ---- operations on elements ----

    def add(self, a: Bounded, b: Bounded, sign: float = 1.0) -> Bounded:
        a, b = self._operand(a), self._operand(b)
        return self.rounded(a.value + sign * b.value, a.error + b.error)

    def multiply(self, a: Bounded, b: Bounded) -> Bounded:
        a, b = self._operand(a), self._operand(b)
        error = abs(a.value) * b.error + abs(b.value) * a.error + a.error * b.error
        return self.rounded(a.value * b.value, error)

    def divide(self, a: Bounded, b: Bounded) -> Bounded:
        a, b = self._operand(a), self._operand(b)
        with np.errstate(all="ignore"):
            value, least = a.value / b.value, abs(b.value) - b.error
            error = (a.error + abs(value) * b.error) / least
        error = self.xp.where(least > 0, error, math.inf)
        return self.rounded(value, error, FUNCTION_UNITS["divide"])

    def choose(self, f: Callable[..., Any], *numbers: Bounded) -> Bounded:
        """Return what a function chooses among numbers, or 0: max, min, abs, relu, clamp, sort, pooling by max."""
        errors = [number.error for number in numbers]
        error = errors[0]
        for other in errors[1:]:
            error = self.xp.maximum(*self._alike(error, other))
        return Bounded(f(*(number.value for number in numbers)), error)

    def _alike(self, a: Any, b: Any) -> tuple[Any, Any]:
        return (
            tuple(self.xp.broadcast_arrays(a, b))
            if self.xp is np
            else tuple(self.xp.broadcast_tensors(a, b))
        )

    def move(self, f: Callable[..., Any], *numbers: Bounded) -> Bounded:
        """Return numbers moved, repeated, or added to zeros: what touches no value."""
        dtypes = {number.dtype for number in numbers}
        kept = dtypes.pop() if len(dtypes) == 1 else None
        return Bounded(f(*(n.value for n in numbers)), f(*(n.error for n in numbers)), kept)

    def function(
        self, name: str, f: Callable[[Any], Any], x: Bounded, slope: float | None = None
    ) -> Bounded:
        """Return a function of numbers, which is monotone, or has a ``slope`` of at most so much."""
        x = self._operand(x)
        with np.errstate(all="ignore"):
            value = f(x.value)
            if slope is None:
                above, below = abs(f(x.value + x.error) - value), abs(f(x.value - x.error) - value)
                error = self.xp.maximum(above, below)
                error = self.xp.where(self.xp.isnan(error) & ~self.xp.isnan(value), math.inf, error)
                error = self.xp.where(x.error == 0, 0.0 * error, error)
                error = self.xp.where(self.xp.isnan(error), 0.0, error)
            else:
                error = slope * x.error
        if self._wide:
            return self.rounded(value, error, FUNCTION_UNITS[name])
        f32 = (
            F32.unit
            * (FUNCTION_UNITS[name] + FAST_ARGUMENT.get(name, 0.0) * abs(x.value))
            * abs(value)
        )
        error = (
            error + self.xp.where(self.xp.isfinite(f32), f32, 0.0) + FAST_ABSOLUTE.get(name, 0.0)
        )
        return self.rounded(value, error)

    # ---- sums ----

    def total(self, f: Callable[[Any], Any], x: Bounded, terms: int) -> Bounded:
        """Return sums of so many terms, or means: a function that is linear, with no negative factors."""
        x = self._operand(x)
        error = f(x.error)
        off = math.expm1(max(terms, 1) * math.log1p(self._unit)) + terms * _OWN
        return self.rounded(f(x.value), error + off * (f(abs(x.value)) + error))

    def product(self, f: Callable[[Any, Any], Any], a: Bounded, b: Bounded, terms: int) -> Bounded:
        """Return sums of so many products: what is linear in both, a matrix product or a convolution."""
        a, b = self._operand(a), self._operand(b)
        error = f(abs(a.value), b.error) + f(a.error, abs(b.value)) + f(a.error, b.error)
        relative, floor = self._products(a, b, max(terms, 1))
        return self.rounded(
            f(a.value, b.value), error + relative * (f(abs(a.value), abs(b.value)) + error) + floor
        )

    def _products(self, a: Bounded, b: Bounded, terms: int) -> tuple[float, float]:
        if self._wide:
            return math.expm1(2 * terms * math.log1p(F64_UNIT)), 0.0
        if self.dtype not in SMALLEST_NORMAL:
            raise Unsupported(f"sums of products of {self.dtype} have no bound here")
        factors = [
            np.full(shape, min(_largest(number.value), FORMATS[self.dtype].max_finite), self.dtype)
            for number, shape in ((a, (1, terms)), (b, (terms, 1)))
        ]
        method: Method = "fma" if self.dtype == np.float32 else "any"
        bound = error_bound(method, self.target.dot16, factors[0], factors[1], "f32")
        return bound.coefficient, bound.floor


def _largest(value: Any) -> float:
    array = np.abs(np.asarray(value))
    return float(array[np.isfinite(array)].max(initial=0.0))
