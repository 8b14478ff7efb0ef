"""Correct rounding in numpy: what PTX floating-point results are made of.

A result is computed in float64, exactly or as a sum ``high + low`` of two float64 numbers, and is
then rounded once to its format. A pair is folded into one number by rounding to odd (the last bit
remembers that something was lost), after which any further rounding to at most 51 bits is the
rounding of the exact value (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
proved algorithms using rounding to odd").

NaN: PTX leaves the NaN of a single- or half-precision result open and NVIDIA's hardware returns
one pattern, all ones but the sign. Double precision keeps payloads (PTX ISA, "Floating-Point
Instructions"): here the first NaN operand, made quiet, and CUDA's default NaN where an operation
has no NaN operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]

QUIET_BIT = np.uint64(1 << 51)
DEFAULT_NAN_F64 = np.uint64(0xFFF8000000000000)


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: numpy ``dtype``, the unsigned ``word`` as wide, and landmarks.

    ``nan`` is the bit pattern of the NaN operations return, ``min_normal`` and ``max_finite`` are
    values; ``fraction`` counts the explicit significand bits.
    """

    name: str
    dtype: np.dtype[Any]
    word: np.dtype[Any]
    fraction: int
    nan: int
    min_normal: float
    max_finite: float

    @property
    def nan_value(self) -> Any:
        """The NaN that operations return, as a scalar of ``dtype``."""
        return np.array([self.nan], self.word).view(self.dtype)[0]


F16 = Format("f16", np.dtype(np.float16), np.dtype("u2"), 10, 0x7FFF, 2.0**-14, 65504.0)
BF16 = Format(
    "bf16", np.dtype(ml_dtypes.bfloat16), np.dtype("u2"), 7, 0x7FFF, 2.0**-126, 255 * 2.0**120
)
F32 = Format(
    "f32",
    np.dtype(np.float32),
    np.dtype("u4"),
    23,
    0x7FFFFFFF,
    2.0**-126,
    float(np.finfo(np.float32).max),
)
FORMATS = {fmt.name: fmt for fmt in (F16, BF16, F32)}

MIN_NORMAL = np.float32(F32.min_normal)
NAN_F32 = F32.nan_value

# Lanes at a time where float64 temporaries are many: they stay in the cache, and below the size
# that the allocator takes from and gives back to the operating system each time.
BLOCK = 8192

_TIE = np.int32(-(1 << 31))


def has_nan(x: Array) -> bool:
    """Say whether a float32 or float64 array holds a NaN.

    Squares never cancel, so a dot product is NaN only then, and it is the cheapest pass over an
    array that numpy has. In blocks, because BLAS starts threads for long ones.
    """
    flat = x.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        total = part.dot(part)
        if total != total:
            return True
    return False


def settle(r: Array) -> Array:
    """Give every NaN of a float32 result the hardware's one pattern."""
    return np.where(r == r, r, NAN_F32) if has_nan(r) else r


def settle_f64(r: Array, *operands: Array) -> Array:
    """Give every NaN of a float64 result the payload of the first NaN operand, or the default."""
    if not has_nan(r):
        return r
    nan: Array = np.full(r.shape, DEFAULT_NAN_F64)
    for operand in reversed(operands):
        nan = np.where(operand != operand, operand.view(np.uint64) | QUIET_BIT, nan)
    return np.where(r == r, r.view(np.uint64), nan).view(np.float64)


def flush(x: Array, fmt: Format = F32) -> Array:
    """Replace subnormal numbers by zero of the same sign (``.ftz``)."""
    bound = fmt.dtype.type(fmt.min_normal)
    small = np.abs(x) < bound
    if not small.any():
        return x
    small &= x != 0
    if not small.any():
        return x
    sign = fmt.word.type(1 << (8 * fmt.word.itemsize - 1))
    return np.where(small, x.view(fmt.word) & sign, x.view(fmt.word)).view(fmt.dtype)


def saturate(x: Array) -> Array:
    """Clamp to [+0, 1], NaN to +0 (``.sat``)."""
    clamped: Array = np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    return clamped


def relu(x: Array, fmt: Format) -> Array:
    """Clamp negative numbers to +0 and make NaN canonical (``.relu``)."""
    kept = np.where(x > 0, x, fmt.dtype.type(0))
    return np.where(x != x, fmt.nan_value, kept).astype(fmt.dtype, copy=False)


def two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """Return ``a + b`` rounded and its error; exact barring overflow (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def to_odd(high: F64, low: F64) -> F64:
    """Round ``high + low`` to odd, where ``high`` and ``low`` are what `two_sum` returned."""
    bits = high.view(np.int64)
    even_and_inexact = ((low > 0) | (low < 0)) & ((bits & 1) == 0)
    outward = ((low > 0) == (high > 0)).astype(np.int64) * 2 - 1
    odd: F64 = (bits + outward * even_and_inexact).view(np.float64)
    return odd


def wide_f32_to_bf16(high: F64, low: F64 | None = None) -> Array:
    """Round float64 (or a pair) to the nearest bfloat16 by way of float32, without rounding twice.

    float32 has the same exponents, so a bfloat16 tie is a float32 number whose low half is 0x8000;
    only those need to know on which side of it the exact value lies.
    """
    r = high.astype(np.float32)
    tie = (r.view(np.uint32) & np.uint32(0xFFFF)) == 0x8000
    if tie.any():
        at = np.nonzero(tie)
        rest = high[at] - r[at].astype(np.float64)
        if low is not None:
            rest = rest + low[at]
        outward = np.sign(rest) * np.sign(r[at])
        bits = r[at].view(np.int32) + np.nan_to_num(outward).astype(np.int32)
        r[at] = bits.view(np.float32)
    return r.astype(ml_dtypes.bfloat16)


def nearest(x: F64, fmt: Format) -> Array:
    """Round float64 to nearest even in ``fmt``."""
    if fmt is BF16:
        return wide_f32_to_bf16(x)
    return x.astype(fmt.dtype)


def narrow(x: F64, fmt: Format, mode: str) -> Array:
    """Round float64 to ``fmt`` under ``mode`` (rn, rz, rm or rp); NaN becomes the canonical one."""
    r = nearest(x, fmt)
    if mode != "rn":
        r = _direct(r, x, mode, fmt)
    bad = x != x
    if bad.any():
        r = np.where(bad, fmt.nan_value, r).astype(fmt.dtype, copy=False)
    return r


def _direct(r: Array, x: F64, mode: str, fmt: Format) -> Array:
    """Step the nearest value ``r`` back to the side of the exact value ``x`` that ``mode`` asks for."""
    back = r.astype(np.float64)
    outward = 1 - 2 * np.signbit(back).astype(np.int64)  # the step in bits that goes up
    if mode == "rz":
        step = -(np.abs(back) > np.abs(x)).astype(np.int64)
    elif mode == "rm":
        step = -outward * (back > x)
    else:
        step = outward * (back < x)
    moved: Array = (r.view(fmt.word) + step.astype(fmt.word)).view(fmt.dtype)
    return moved


def by_block(compute: Callable[..., Array], *inputs: Array) -> Array:
    """Return ``compute(*inputs)``, block by block when there are many lanes."""
    lanes = max(len(x) for x in inputs)
    if lanes <= BLOCK:
        return compute(*inputs)
    parts = [
        compute(*(x if len(x) == 1 else x[start : start + BLOCK] for x in inputs))
        for start in range(0, lanes, BLOCK)
    ]
    return np.concatenate(parts)


def double(x: Array) -> F64:
    """Return ``x`` as float64, exactly."""
    return x.astype(np.float64)


def sum_to_odd(a: F64, b: F64) -> F64:
    """Return ``a + b`` rounded to odd in float64."""
    return to_odd(*two_sum(a, b))


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
