"""One rounder for every format and direction, and what PTX does to results besides.

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
from typing import Any

import numpy as np

from ptxlab.arrays import Array, Doubles, Symbolic, intrinsic, some
from ptxlab.numbers.formats import BF16, F16, F32, F64, Format

QUIET_BIT = np.uint64(1 << F64.fraction_bits - 1)
DEFAULT_NAN_F64 = np.uint64((1 << 64) - int(QUIET_BIT))

# Threads at a time where float64 temporaries are many: they stay in the cache, and below the size
# that the allocator takes from and gives back to the operating system each time.
BLOCK = 8192

NAN_F32 = F32.nan_value


# ---- NaN, subnormals, ranges ----------------------------------------------------------------


def has_nan(x: Array) -> bool:
    """Say whether a float32 or float64 array holds a NaN.

    Squares never cancel, so a dot product is NaN only then, and it is the cheapest pass over an
    array that numpy has. In blocks, because BLAS starts threads for long ones.
    """
    if isinstance(x, Symbolic):
        return True
    flat = x.reshape(-1)
    if flat.size <= BLOCK:
        total = flat.dot(flat)
        return bool(total != total)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        total = part.dot(part)
        if total != total:
            return True
    return False


@intrinsic
def canonical_nan(r: Array) -> Array:
    """Give every NaN of a float32 result the hardware's one pattern."""
    return np.where(r == r, r, NAN_F32) if has_nan(r) else r


def propagate_nan_f64(r: Array, *operands: Array) -> Array:
    """Give every NaN of a float64 result the payload of the first NaN operand, or the default."""
    if not has_nan(r):
        return r
    nan: Array = np.array([DEFAULT_NAN_F64])
    for operand in reversed(operands):
        nan = np.where(operand != operand, operand.view(np.uint64) | QUIET_BIT, nan)
    return np.where(r == r, r.view(np.uint64), nan).view(np.float64)


@intrinsic
def flush(x: Array, fmt: Format = F32) -> Array:
    """Replace subnormal numbers by zero of the same sign (``.ftz``)."""
    bound = fmt.dtype.type(fmt.min_normal)
    size = np.abs(x)
    if size.item(size.argmin()) >= fmt.min_normal:
        return x
    small = (size < bound) & (x != 0)
    if not some(small):
        return x
    sign = fmt.word.type(1 << (8 * fmt.word.itemsize - 1))
    return np.where(small, x.view(fmt.word) & sign, x.view(fmt.word)).view(fmt.dtype)


def saturate(x: Array) -> Array:
    """Clamp to [+0, 1], NaN to +0 (``.sat``)."""
    clamped: Array = np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    return clamped


def relu(x: Array, fmt: Format) -> Array:
    """Replace what is negative by +0 (``.relu``); a NaN is canonical already, and stays."""
    words = x.view(fmt.word)
    kept: Array = np.where(words > fmt.nan_word, fmt.word.type(0), words)
    return kept.view(fmt.dtype)


def positive_zero(x: Array, fmt: Format) -> Array:
    """Replace -0 by +0 (``.pzo``)."""
    words = x.view(fmt.word)
    kept: Array = np.where(
        words == fmt.word.type(1 << fmt.sign_bit + fmt.low_bit), fmt.word.type(0), words
    )
    return kept.view(fmt.dtype)


# ---- exact sums -----------------------------------------------------------------------------


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return ``a + b`` rounded and its error; exact barring overflow (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def to_odd(high: Doubles, low: Doubles) -> Doubles:
    """Round ``high + low`` to odd, where ``high`` and ``low`` are what `two_sum` returned."""
    bits = high.view(np.int64)
    even_and_inexact = ((low > 0) | (low < 0)) & ((bits & 1) == 0)
    outward = ((low > 0) == (high > 0)).astype(np.int64) * 2 - 1
    odd: Doubles = (bits + outward * even_and_inexact).view(np.float64)
    return odd


def sum_to_odd(a: Doubles, b: Doubles) -> Doubles:
    return to_odd(*two_sum(a, b))


# ---- the rounder ----------------------------------------------------------------------------

Rounding = Callable[[Doubles, Doubles], Doubles]
"""Rounds sizes, in units of the last place, to whole ones; the numbers themselves tell the sign."""

ROUNDINGS: dict[str, Rounding] = {
    "rn": lambda units, x: np.rint(units),
    "rna": lambda units, x: _up_from(units, 0.5),
    "rz": lambda units, x: np.floor(units),
    "rm": lambda units, x: np.where(x < 0, np.ceil(units), np.floor(units)),
    "rp": lambda units, x: np.where(x < 0, np.floor(units), np.ceil(units)),
}
"""The roundings of PTX: to nearest, a tie to even or away from zero, toward zero, down and up."""

_TO_LARGEST: dict[str, Callable[[Doubles], Array]] = {
    "rz": np.isfinite,
    "rm": lambda x: np.isfinite(x) & (x > 0),
    "rp": lambda x: np.isfinite(x) & (x < 0),
}
"""Which numbers that are too large become the largest finite one and not infinity."""


def at_random(random: Array, bits: int) -> Rounding:
    """Round away from zero by chance: ``bits`` of ``random`` are added below the last bit kept (``.rs``).

    What lies below the random bits counts in full.
    """
    least = 1 - (random & np.uint32((1 << bits) - 1)) / float(1 << bits)
    return lambda units, x: _up_from(units, least)


def _up_from(units: Doubles, least: Doubles | float) -> Doubles:
    kept = np.floor(units)
    return kept + (units - kept >= least)


def magnitudes(x: Doubles, fmt: Format, rounding: Rounding) -> Array:
    """Round the sizes of finite numbers to codes of ``fmt`` (int64), as if there were no largest.

    What comes of others is undefined. ``fmt`` has at most 51 bits, and a smaller range than float64.
    """
    size = np.abs(x)
    lowest, highest = fmt.lowest_exponent + F64.bias, 2 * F64.bias
    field = np.minimum(np.maximum(size.view(np.int64) >> F64.fraction_bits, lowest), highest)
    unit = (highest + fmt.fraction_bits - field) << F64.fraction_bits
    units = size * unit.view(np.float64)
    with np.errstate(invalid="ignore"):
        whole = rounding(units, x).astype(np.int64)
    # One binade further is one more in the exponent field; a carry out of the fraction is too.
    codes: Array = whole + ((field - lowest) << fmt.fraction_bits)
    return codes


def round_exactly(x: Doubles, fmt: Format, rounding: str | Rounding) -> Array:
    """Round float64 to words of ``fmt`` as ``narrow`` does, but always the long way."""
    codes = magnitudes(x, fmt, ROUNDINGS[rounding] if isinstance(rounding, str) else rounding)
    limited = ~(np.abs(x) <= fmt.max_finite) | (codes > fmt.largest)
    if some(limited):
        infinity: Any = np.int64(fmt.nan if fmt.infinity is None else fmt.infinity)
        over = infinity
        if isinstance(rounding, str) and rounding in _TO_LARGEST:
            over = np.where(_TO_LARGEST[rounding](x), np.int64(fmt.largest), infinity)
        codes = np.where(limited & (codes > fmt.largest), over, codes)
        codes = np.where(np.isinf(x), infinity, codes)
        codes = np.where(np.isnan(x), fmt.nan, codes)
    negative = (np.signbit(x) & (x == x)).astype(np.int64)
    words: Array = ((codes | negative << fmt.sign_bit) << fmt.low_bit).astype(fmt.word)
    return words


def narrow(
    x: Array, fmt: Format, rounding: str | Rounding = "rn", *, finite: bool = False
) -> Array:
    """Round float32 or float64 to ``fmt``, as values of its dtype; NaN becomes the canonical one.

    What is too large becomes infinity, or NaN where there is no infinity; the largest number where there is
    neither, where ``rounding`` leads away from infinity, or with ``finite`` (``.satfinite``).
    """
    if finite:
        most = x.dtype.type(fmt.max_finite)
        x = np.clip(x, -most, most)
    r = _quickly(x, fmt, rounding, finite)
    if r is None:
        r = round_exactly(double(x), fmt, rounding).view(fmt.dtype)
    return np.where(x == x, r, fmt.nan_value) if has_nan(x) else r


def _quickly(x: Array, fmt: Format, rounding: str | Rounding, finite: bool) -> Array | None:
    """Round with what numpy has for the format; None where it has nothing. A NaN is left to the caller."""
    if not isinstance(rounding, str):
        return None
    single = x.dtype == np.float32
    if fmt in _BY_NUMPY:
        by_way_of_f32 = fmt is BF16 and not single
        r = wide_f32_to_bf16(x) if by_way_of_f32 else x.astype(fmt.dtype, copy=False)
        return r if r is x or rounding == "rn" else _step_back(r, double(x), rounding, fmt)
    if single and fmt.exponent_bits == F32.exponent_bits and rounding in _ADDED:
        return _cut(x, fmt, rounding)
    has_cast = fmt.dtype != fmt.word and (fmt.infinity is not None or finite)
    if single and rounding == "rn" and has_cast and not isinstance(x, Symbolic):
        return x.astype(fmt.dtype)
    return None


_BY_NUMPY = (F16, BF16, F32)


def _step_back(r: Array, x: Doubles, rounding: str, fmt: Format) -> Array:
    """Step the nearest value ``r`` back to the side of the exact value ``x`` that ``rounding`` asks for."""
    back = r.astype(np.float64)
    outward = 1 - 2 * np.signbit(back).astype(np.int64)  # the step in bits that goes up
    if rounding == "rz":
        step = -(np.abs(back) > np.abs(x)).astype(np.int64)
    elif rounding == "rm":
        step = -outward * (back > x)
    else:
        step = outward * (back < x)
    moved: Array = (r.view(fmt.word) + step.astype(fmt.word)).view(fmt.dtype)
    return moved


_ADDED: dict[str, Callable[[Array, int], Array]] = {
    "rn": lambda bits, drop: (
        bits + (np.uint32((1 << (drop - 1)) - 1) + ((bits >> np.uint32(drop)) & np.uint32(1)))
    ),
    "rna": lambda bits, drop: bits + np.uint32(1 << (drop - 1)),
    "rz": lambda bits, drop: bits,
}


def _cut(x: Array, fmt: Format, rounding: str) -> Array:
    """Round float32 to a format with its exponents: an addition to its bits, the last of them cut off."""
    drop = F32.fraction_bits - fmt.fraction_bits
    bits = _ADDED[rounding](x.view(np.uint32), drop)
    return (bits & np.uint32((1 << 32) - (1 << drop))).view(np.float32)


@intrinsic
def wide_f32_to_bf16(high: Doubles, low: Doubles | None = None) -> Array:
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
    return r.astype(BF16.dtype)


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


def double(x: Array) -> Doubles:
    return x.astype(np.float64)
