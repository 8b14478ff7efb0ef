"""Double-precision arithmetic with one rounding, in any direction: fma, + x / sqrt, matrix products.

Nothing wider than float64 is at hand, so a fused multiply-add is put together from error-free
transformations (Dekker's product, Knuth's sum) and one rounding to odd, as proved by Boldo and
Melquiond. They hold while nothing overflows or underflows on the way; the lanes where that could
happen, and directed quotients and roots, go one by one through exact integers. All but the fused
multiply-add are for directed modes: to nearest they are numpy's.
"""

from __future__ import annotations

import math

import numpy as np

from ptxlab.arrays import Array, Doubles, intrinsic
from ptxlab.numbers.rounding import propagate_nan_f64, to_odd, two_sum

_SPLITTER = 2.0**27 + 1
_LARGE, _SMALL = 2.0**990, 2.0**-900


def _halves(x: Doubles) -> tuple[Doubles, Doubles]:
    """Split into two numbers of at most 26 bits each (Veltkamp)."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def _two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


@intrinsic
def fma_f64(a: Doubles, b: Doubles, c: Doubles, mode: str) -> Doubles:
    """Fused multiply-add under ``mode`` (rn, rz, rm or rp)."""
    # Negated both ways for rm, so that an exact zero sum comes out as -0.
    r = -_fma(-a, b, -c, "rp") if mode == "rm" else _fma(a, b, c, mode)
    return propagate_nan_f64(r, *np.broadcast_arrays(a, b, c))


def _fma(a: Doubles, b: Doubles, c: Doubles, mode: str) -> Doubles:
    product, error = _two_product(a, b)
    high, low = two_sum(c, error)
    top, rest = two_sum(product, high)
    tail = to_odd(*two_sum(low, rest))
    r, lost = two_sum(top, tail)
    if mode != "rn":
        r = toward(r, lost, mode)
    r = np.where(r == 0, product + c, r)
    size = np.abs(product)
    safe = (
        ((size >= _SMALL) | (a == 0) | (b == 0))
        & (size <= _LARGE)
        & (np.abs(a) <= _LARGE)
        & (np.abs(b) <= _LARGE)
        & (np.abs(c) <= _LARGE)
    )
    return r if safe.all() else _fma_repair(r, safe, a, b, c, mode)


def toward(r: Doubles, lost: Doubles, mode: str) -> Doubles:
    """Step from ``r``, the nearest number to ``r + lost``, to the side that a directed ``mode`` asks for."""
    if mode == "rz":
        wrong, target = (lost < 0) == (r > 0), 0.0
    else:
        wrong, target = (lost < 0, -np.inf) if mode == "rm" else (lost > 0, np.inf)
    return np.where(wrong & (lost != 0), np.nextafter(r, target), r)


def _fma_repair(r: Doubles, safe: Array, a: Doubles, b: Doubles, c: Doubles, mode: str) -> Doubles:
    a, b, c = np.broadcast_arrays(a, b, c)
    finite_product = np.isfinite(a) & np.isfinite(b)
    special = ~(finite_product & np.isfinite(c))
    r = np.where(special, np.where(finite_product, c, a * b + c), r)
    for at in np.flatnonzero(~(safe | special)):
        r[at] = _fma_exactly(float(a[at]), float(b[at]), float(c[at]), mode)
    return r


def add_f64(a: Doubles, b: Doubles, mode: str) -> Doubles:
    return fma_f64(a, np.ones(1), b, mode)


def subtract_f64(a: Doubles, b: Doubles, mode: str) -> Doubles:
    return propagate_nan_f64(add_f64(a, -b, mode), a, b)


def mul_f64(a: Doubles, b: Doubles, mode: str) -> Doubles:
    return propagate_nan_f64(fma_f64(a, b, np.copysign(0.0, a * b), mode), a, b)


def div_f64(a: Doubles, b: Doubles, mode: str) -> Doubles:
    """Divide under a directed ``mode``, lane by lane."""
    quotient: Doubles = a / b
    a, b = np.broadcast_arrays(a, b)
    for at in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)):
        top, top_unit = float(a[at]).as_integer_ratio()
        low, low_unit = float(b[at]).as_integer_ratio()
        quotient[at] = _round_ratio(top * low_unit, low * top_unit, mode)
    return propagate_nan_f64(quotient, a, b)


def rcp_f64(a: Doubles, mode: str) -> Doubles:
    return div_f64(np.ones(1), a, mode)


def sqrt_f64(a: Doubles, mode: str) -> Doubles:
    """Take the square root under a directed ``mode``, lane by lane."""
    root: Doubles = np.sqrt(a)
    for at in np.flatnonzero((a > 0) & np.isfinite(a)):
        root[at] = _round_root(*float(a[at]).as_integer_ratio(), mode)
    return propagate_nan_f64(root, a)


def multiply_add_double(a: Array, b: Array, c: Array, *, rounding: str = "rn") -> Array:
    """Compute D = A*B + C in float64 for a batch of warps; ``rounding`` is rn, rz, rm or rp.

    It is a chain of fused multiply-adds in increasing k, each rounded once.

    ``a`` is [m, k, warps], ``b`` [k, n, warps], ``c`` and the result [m, n, warps], all of uint64.

    Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" (rounding of .f64); MMA-Sim, arXiv
    2511.10909 (order). Which NaN comes out is not specified: here as from fma.f64.
    """
    left, right = a.view(np.float64), b.view(np.float64)
    total = np.array(c, order="C").view(np.float64).ravel()
    with np.errstate(all="ignore"):
        for k in range(b.shape[0]):
            x, y = np.broadcast_arrays(left[:, k, None], right[None, k])
            total = fma_f64(x.ravel(), y.ravel(), total, rounding)
    return total.view(np.uint64).reshape(c.shape)


def _fma_exactly(a: float, b: float, c: float, mode: str) -> float:
    (a_top, a_unit), (b_top, b_unit), (c_top, c_unit) = (x.as_integer_ratio() for x in (a, b, c))
    total = a_top * b_top * c_unit + c_top * a_unit * b_unit
    if total == 0:
        return (
            math.copysign(0.0, math.copysign(1.0, a) * math.copysign(1.0, b)) + c if c == 0 else 0.0
        )
    return _round_ratio(total, a_unit * b_unit * c_unit, mode)


def _round_ratio(top: int, low: int, mode: str) -> float:
    """Round ``top / low``, not zero, to float64."""
    negative = (top < 0) != (low < 0)
    top, low = abs(top), abs(low)
    shift = 56 - (top.bit_length() - low.bit_length())
    digits, rest = divmod(top << max(shift, 0), low << max(-shift, 0))
    return _round_digits(digits, rest != 0, -shift, negative, mode)


def _round_root(top: int, unit: int, mode: str) -> float:
    """Round the square root of ``top / unit``, positive, to float64."""
    shift = 1200  # enough digits for the smallest subnormal
    scaled, rest = divmod(top << 2 * shift, unit)
    digits = math.isqrt(scaled)
    return _round_digits(digits, rest != 0 or digits * digits != scaled, -shift, False, mode)


def _round_digits(digits: int, sticky: bool, exponent: int, negative: bool, mode: str) -> float:
    """Round ``(digits + something below one if sticky) * 2**exponent``; digits has over 54 bits."""
    unit = max(digits.bit_length() + exponent - 53, -1074)
    drop = unit - exponent
    away = {"rn": True, "rz": False, "rm": negative, "rp": not negative}[mode]
    kept, rest = digits >> drop, digits & ((1 << drop) - 1)
    if mode == "rn":
        half = 1 << (drop - 1)
        up = rest > half or (rest == half and (sticky or bool(kept & 1)))
    else:
        up = (rest != 0 or sticky) and away
    try:
        size = math.ldexp(kept + up, unit)
    except OverflowError:
        size = math.inf if away else math.nextafter(math.inf, 0)
    return -size if negative else size
