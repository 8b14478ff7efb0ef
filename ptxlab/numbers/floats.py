"""Single-precision arithmetic with one rounding, in any direction (see ``rounding``).

Where ``mode`` is an argument it is a directed one: to nearest, sums, products, quotients and roots are numpy's.

Source: IEEE 754, "Rounding-direction attributes"; PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.arrays import Array, intrinsic, some
from ptxlab.numbers.formats import BF16, F32, alone
from ptxlab.numbers.rounding import (
    canonical_nan,
    double,
    has_nan,
    narrow,
    sum_to_odd,
    to_odd,
    two_sum,
    wide_f32_to_bf16,
)

MIN_NORMAL = np.float32(F32.min_normal)
_TIE = -(1 << 63)
_UPPER = alone(35, np.int64)


def add_f32(a: Array, b: Array, mode: str) -> Array:
    return fma_f32(a, np.ones(1), b, mode)


def subtract_f32(a: Array, b: Array, mode: str) -> Array:
    return add_f32(a, -b, mode)


def fma_f32(a: Array, b: Array, c: Array, mode: str) -> Array:
    if mode == "rm":  # so that an exact zero sum comes out as -0
        return canonical_nan(-narrow(sum_to_odd(-double(a) * double(b), -double(c)), F32, "rp"))
    return narrow(sum_to_odd(double(a) * double(b), double(c)), F32, mode)


def by_way_of_double(function: np.ufunc) -> Callable[..., Array]:
    """Return a product, quotient or root of float32 under a directed mode, which comes last.

    A product fits float64. A quotient or root that float32 cannot hold is so far from all numbers of
    float32 that float64 still has it on the right side of them.
    """
    return lambda *inputs: narrow(function(*map(double, inputs[:-1])), F32, inputs[-1])


@intrinsic
def fma_f32_nearest(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of float32, to nearest even.

    The float64 sum of the exact product and ``c`` is rounded to float32. Two roundings differ from
    one only where the float64 sum lies on a float32 tie: for normal results a pattern of the low 29
    bits, for subnormal ones anything. Only there the error of the sum is computed.
    """
    total = double(a) * double(b) + double(c)
    r = total.astype(np.float32)
    low = total.view(np.int64) << _UPPER  # the low 29 bits: the lowest number on a tie
    if low.item(low.argmin()) == _TIE:
        _round_again(r, np.flatnonzero(low == _TIE), a, b, c)
    size = np.abs(r)
    if size[size.argmin()] > MIN_NORMAL:
        return r
    tiny = (size <= MIN_NORMAL) & (total != 0)  # sums that round up to MIN_NORMAL too
    if some(tiny):
        _round_again(r, np.flatnonzero(tiny), a, b, c)
    return canonical_nan(r)


def _round_again(r: Array, at: Array, *operands: Array) -> None:
    """Give ``r`` at the places ``at`` the sum of float64 and its error, rounded once."""
    a, b, c = (double(x if len(x) == 1 else x[at]) for x in operands)
    high, low = two_sum(a * b, c)
    if some(low != 0):
        r[at] = to_odd(high, low).astype(np.float32)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of bfloat16 in float64, where products are exact; what the sum loses decides ties."""
    high, low = two_sum(double(a) * double(b), double(c))
    r = wide_f32_to_bf16(high, low)
    return np.where(high == high, r, BF16.nan_value) if has_nan(high) else r


def extremum(largest: bool, propagate: bool) -> Callable[[Array, Array], Array]:
    """Return min or max of f32 or f64: see ``extreme``."""
    return lambda a, b: extreme(a, b, largest, propagate)


@intrinsic
def extreme(a: Array, b: Array, largest: bool, propagate: bool) -> Array:
    """Return the smaller or larger number: -0 is below +0; NaN loses, or wins if ``propagate``.

    NaN results are left for the caller to make canonical.
    """
    r: Array = np.maximum(a, b) if largest else np.minimum(a, b)
    if not propagate and has_nan(r):
        # Not numpy's fmin: to that, a signalling NaN is at times more than a NaN.
        r = np.where(np.isnan(a), b, np.where(np.isnan(b), a, r))
    zero = r == 0
    if not some(zero):
        return r
    word, combine = f"u{r.dtype.itemsize}", np.bitwise_and if largest else np.bitwise_or
    return np.where(zero & (a == b), combine(a.view(word), b.view(word)).view(r.dtype), r)
