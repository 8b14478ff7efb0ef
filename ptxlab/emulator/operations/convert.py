"""cvt between scalar types: integers, f16, bf16, f32, f64, and f32 to tf32.

PTX ISA, "Data Movement and Conversion Instructions: cvt". Packed and smaller formats are in
``convert_packed``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array, Doubles, some
from ptxlab.emulator.operations.floating import after
from ptxlab.emulator.prepare.row import row
from ptxlab.numbers.doubles import toward
from ptxlab.numbers.formats import FORMATS, TF32
from ptxlab.numbers.rounding import (
    flush,
    has_nan,
    narrow,
    positive_zero,
    propagate_nan_f64,
    saturate,
    to_odd,
    two_sum,
)
from ptxlab.numbers.rounding import relu as not_negative
from ptxlab.numbers.types import TYPES, limits

Unary = Callable[[Array], Array]

INTEGERS = "u8 s8 u16 u32 u64 s16 s32 s64"
WIDE_INTEGERS = "u16 u32 u64 s16 s32 s64"
RND = "rn rz rm rp"
WHOLE: dict[str, Unary] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
IRND = " ".join(WHOLE)
BF16 = "sm_90 7.8"

conversion = partial(row, mix="conversion", wider=True)


def shared_limits(D: str, S: str) -> tuple[int, int]:
    """Return the smallest and largest number that two integer types have in common."""
    (low, high), (least, most) = limits(D), limits(S)
    return max(low, least), min(high, most)


# ---- one conversion by its types ------------------------------------------------------------


def _convert(D: str, S: str, rnd: str = "", ftz: str = "", sat: str = "") -> Unary:
    """Return the conversion of numbers of type S to D; to integers it clamps but from integers."""
    if D not in FORMATS:
        return _to_integer(D, S, rnd, ftz) if S in FORMATS else _resized(D, S, sat)
    compute = (_rounded if S in FORMATS else _from_integer)(D, S, rnd)
    if ftz and S == "f32":
        compute = after(flush, compute)
    if ftz and D == "f32":
        compute = after(compute, flush)
    return after(compute, saturate) if sat else compute


def _resized(D: str, S: str, sat: str) -> Unary:
    dtype, (low, high) = TYPES[D].dtype, shared_limits(D, S)
    return lambda a: (np.clip(a, low, high) if sat else a).astype(dtype)


def _from_integer(D: str, S: str, rnd: str) -> Unary:
    fmt, wide = FORMATS[D], TYPES[S].bits == 64
    if D == "f64" and wide and rnd != "rn":
        return lambda a: toward(*two_sum(*_words(a)), rnd)
    if D == "f64" or (D == "f32" and rnd == "rn"):
        return lambda a: a.astype(fmt.dtype)
    if wide:
        return lambda a: narrow(to_odd(*two_sum(*_words(a))), fmt, rnd)
    return lambda a: narrow(a.astype(np.float64), fmt, rnd)


def _words(a: Array) -> tuple[Doubles, Doubles]:
    """Split 64-bit integers into two float64 numbers with the same sum."""
    high = (a >> 32).astype(np.float64) * 2.0**32
    return high, (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)


def _to_integer(D: str, S: str, rnd: str, ftz: str) -> Unary:
    """Round to an integer, clamp to the range; NaN as the ISA's cvt section says."""
    target, source, whole = TYPES[D], TYPES[S], WHOLE[rnd]
    least, most = limits(D)
    low, end = float(least), float(most + 1)
    nan = 1 << (target.bits - 1) if source.bits == 64 or target.bits == 64 else 0
    if target.kind == "signed":
        nan = -nan

    def compute(a: Array) -> Array:
        x: Array = whole(a if source.bits > 16 else a.astype(np.float32))
        inside = (x >= low) & (x < end)
        if not some(~inside):
            return x.astype(target.dtype)
        r = np.where(inside, x, x.dtype.type(0)).astype(target.dtype)
        for beyond, limit in ((x < low, least), (x >= end, most), (x != x, nan)):
            r = np.where(beyond, target.dtype.type(limit), r)
        return r

    return after(flush, compute) if ftz else compute


def _rounded(D: str, S: str, rnd: str) -> Unary:
    """Round a floating-point number to another format, or to an integer in its own."""
    fmt, whole = FORMATS[D], WHOLE.get(rnd)
    mode = "rn" if whole or not rnd else rnd
    wide = np.float64 if "f64" in (D, S) else np.float32

    def compute(a: Array) -> Array:
        x = a.astype(wide, copy=False)
        r = whole(x) if whole else x
        return propagate_nan_f64(r, x) if D == "f64" else narrow(r, fmt, mode)

    return compute


_between = partial(conversion, operands="S -> D", make=_convert)

_integers = partial(conversion, operands="%S -> D", make=_convert)
_integers("cvt.<D>.<S>", D=INTEGERS, S=INTEGERS)
for _D in INTEGERS.split():  # .sat only where it can make a difference
    _beyond = [S for S in INTEGERS.split() if shared_limits(_D, S) != limits(S)]
    _integers("cvt.<sat>.<D>.<S>", sat="sat", D=_D, S=" ".join(_beyond))

_between("cvt.<rnd>{.sat}.<D>.<S>", rnd=RND, D="f16 f64", S=INTEGERS)
_between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", rnd=RND, D="f32", S=INTEGERS)
_between("cvt.<rnd>.<D>.<S>", rnd=RND, D="bf16", S=WIDE_INTEGERS, needs=BF16)
_between("cvt.<rnd>{.sat}.<D>.<S>", rnd=IRND, D=INTEGERS, S="f16 f64")
_between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", rnd=IRND, D=INTEGERS, S="f32")
_between("cvt.<rnd>.<D>.<S>", rnd=IRND, D=WIDE_INTEGERS, S="bf16", needs=BF16)

for _T in ("f16", "f64"):
    _between("cvt{.<rnd>}{.sat}.<D>.<S>", rnd=IRND, D=_T, S=_T)
_between("cvt{.<rnd>}{.ftz}{.sat}.<D>.<S>", rnd=IRND, D="f32", S="f32")
_between("cvt{.<rnd>}.<D>.<S>", rnd=IRND, D="bf16", S="bf16", needs=BF16)

_between("cvt{.ftz}{.sat}.<D>.<S>", D="f32", S="f16")
_between("cvt{.sat}.<D>.<S>", D="f64", S="f16")
_between("cvt{.ftz}{.sat}.<D>.<S>", D="f64", S="f32")
_between("cvt{.<rnd>}.<D>.<S>", rnd=RND, D="f32", S="bf16", needs="sm_80 7.1")
_between("cvt{.<rnd>}.<ftz>.<D>.<S>", rnd=RND, ftz="ftz", D="f32", S="bf16", needs=BF16)
_between("cvt{.<rnd>}.<D>.<S>", rnd=RND, D="f64", S="bf16", needs=BF16)

_between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", rnd=RND, D="f32", S="f64")
_between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", rnd=RND, D="f16", S="f32")
_between("cvt.<rnd>{.sat}.<D>.<S>", rnd=RND, D="f16", S="f64")
_between("cvt.<rnd>{.ftz}.<D>.<S>", rnd=RND, D="bf16", S="f32", needs="sm_80 7.0")
_between("cvt.<rnd>.<D>.<S>", rnd=RND, D="bf16", S="f64", needs=BF16)
# Compilers leave .rn out here, which the PTX ISA does not: ptxas makes the same machine code of both.
_between("cvt{.<rnd>}.<D>.<S>", rnd=RND, D="f16", S="bf16", needs=BF16)
_between("cvt{.<rnd>}.<D>.<S>", rnd=RND, D="bf16", S="f16", needs=BF16)


# ---- f32 to less, with .relu, .satfinite and .pzo -------------------------------------------

RUBIN = "sm_107f 9.4"


def tf32_away_from_zero(a: Array, finite: bool) -> Array:
    """Convert f32 to tf32 as ptxas has every chip do it, with integers: of NaN, too, the lower bits are cut off.

    Where a NaN had only those an infinity is left; ``finite`` takes one from the last bit that is left.
    """
    r = narrow(a, TF32, "rna", finite=finite)
    if not has_nan(r):
        return r
    last = np.uint32(1 << TF32.low_bit)
    cut = (a.view(np.uint32) & ~(last - np.uint32(1))) - last * np.uint32(finite)
    return np.where(r == r, r, cut.view(np.float32))


def narrowing(D: str, rnd: str, satfinite: str = "", relu: str = "", pzo: str = "") -> Unary:
    """Return the conversion of f32 or f64 to a format under these modifiers; without a sign the magnitude's."""
    fmt, finite = FORMATS[D], bool(satfinite)
    if rnd == "rna":
        return lambda a: tf32_away_from_zero(a, finite)
    if not fmt.signed:
        return lambda a: narrow(np.abs(a), fmt, rnd, finite=finite)
    if relu:
        return lambda a: not_negative(narrow(a, fmt, rnd, finite=finite), fmt)
    if pzo:
        return lambda a: positive_zero(narrow(a, fmt, rnd, finite=finite), fmt)
    return lambda a: narrow(a, fmt, rnd, finite=finite)


_single = partial(conversion, operands="f32 -> D", make=narrowing)
_single(
    "cvt.<rnd>.<relu>{.pzo}.<D>.f32",
    rnd="rn rz",
    relu="relu",
    D="f16 bf16",
    needs={"": "sm_80 7.0", "pzo": RUBIN},
)
_single(
    "cvt.<rnd>.<satfinite>{.relu}{.pzo}.<D>.f32",
    rnd="rn rz",
    satfinite="satfinite",
    D="f16 bf16",
    needs={"": "sm_70 8.1", "relu": "sm_80 7.0", "bf16": "sm_80 7.0", "pzo": RUBIN},
)
_single("cvt.<rnd>.<pzo>.<D>.f32", rnd="rn rz", pzo="pzo", D="f16 bf16", needs=RUBIN)
_single(
    "cvt.<rnd>{.satfinite}.<D>.f32",
    rnd="rna",
    D="tf32",
    needs={"": "sm_80 7.0", "satfinite": "sm_80 8.1"},
)
_single(
    "cvt.<rnd>{.satfinite}{.relu}{.pzo}.<D>.f32",
    rnd="rn rz",
    D="tf32",
    needs={"": "sm_90 7.8", "satfinite": "sm_100 8.6", "pzo": RUBIN},
)
