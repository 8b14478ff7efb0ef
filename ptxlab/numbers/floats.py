"""Single-precision arithmetic with one rounding, in any direction (see ``rounding``)."""

from __future__ import annotations

import numpy as np

from ptxlab.numbers.formats import F32, Array
from ptxlab.numbers.rounding import double, narrow, settle, sum_to_odd, to_odd, two_sum

MIN_NORMAL = np.float32(F32.min_normal)
_TIE = np.int32(-(1 << 31))


def add_f32(a: Array, b: Array, mode: str) -> Array:
    """Add float32 under ``mode``."""
    if mode == "rn":
        return settle(a + b)
    if mode == "rm":  # so that an exact zero sum comes out as -0
        return settle(-narrow(sum_to_odd(-double(a), -double(b)), F32, "rp"))
    return narrow(sum_to_odd(double(a), double(b)), F32, mode)


def mul_f32(a: Array, b: Array, mode: str) -> Array:
    """Multiply float32 under ``mode``; a product of two fits float64 exactly."""
    if mode == "rn":
        return settle(a * b)
    return narrow(double(a) * double(b), F32, mode)


def fma_f32(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Fused multiply-add of float32 under a directed ``mode``."""
    if mode == "rm":
        return settle(-narrow(sum_to_odd(-double(a) * double(b), -double(c)), F32, "rp"))
    return narrow(sum_to_odd(double(a) * double(b), double(c)), F32, mode)


def fma_f32_nearest(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of float32, to nearest even.

    The float64 sum of the exact product and ``c`` is rounded to float32. Two roundings differ from
    one only where the float64 sum lies on a float32 tie: for normal results a pattern of the low 29
    bits, for subnormal ones anything. Only there the error of the sum is computed.
    """
    total = double(a) * double(b) + double(c)
    r = total.astype(np.float32)
    low = total.view(np.int64).astype(np.int32) << 3  # the low 29 bits: the lowest number on a tie
    if low.min() == _TIE:
        _round_again(r, np.flatnonzero(low == _TIE), a, b, c)
    size = np.abs(r)
    if size.min() > MIN_NORMAL:
        return r
    tiny = (size <= MIN_NORMAL) & (total != 0)  # sums that round up to MIN_NORMAL too
    if tiny.any():
        _round_again(r, np.flatnonzero(tiny), a, b, c)
    return settle(r)


def _round_again(r: Array, at: Array, *operands: Array) -> None:
    """Give ``r`` at the places ``at`` the sum of float64 and its error, rounded once."""
    a, b, c = (double(np.broadcast_to(x, r.shape)[at]) for x in operands)
    high, low = two_sum(a * b, c)
    if low.any():
        r[at] = to_odd(high, low).astype(np.float32)
