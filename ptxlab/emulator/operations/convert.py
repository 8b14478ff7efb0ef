"""cvt between scalar types: integers, f16, bf16, f32, f64, and f32 to tf32.

PTX ISA, "Data Movement and Conversion Instructions: cvt". Packed and smaller formats are in
``convert_packed``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.forms import refuse
from ptxlab.emulator.prepare.row import Array, row
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.rounding import (
    Doubles,
    flush,
    narrow,
    saturate,
    settle,
    settle_f64,
    to_odd,
    two_sum,
)
from ptxlab.numbers.rounding import relu as not_negative
from ptxlab.numbers.types import TYPES

Unary = Callable[[Array], Array]

INTEGERS = "u8 s8 u16 u32 u64 s16 s32 s64"
WIDE_INTEGERS = "u16 u32 u64 s16 s32 s64"
RND = "rn rz rm rp"
WHOLE: dict[str, Unary] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
IRND = " ".join(WHOLE)
BF16 = "sm_90 7.8"

conversion = partial(row, mix="conversion", wider=True)


# ---- integers -------------------------------------------------------------------------------


def limits(name: str) -> tuple[int, int]:
    """Return the smallest and largest number of an integer type."""
    bits = int(name[1:])
    return (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def shared_limits(D: str, S: str) -> tuple[int, int]:
    """Return the smallest and largest number that two integer types have in common."""
    (low, high), (least, most) = limits(D), limits(S)
    return max(low, least), min(high, most)


def _integer(D: str, S: str) -> Unary:
    dtype = TYPES[D].dtype
    return lambda a: a.astype(dtype)


def _clamped(D: str, S: str) -> Unary:
    (low, high), dtype = shared_limits(D, S), TYPES[D].dtype
    return lambda a: np.clip(a, low, high).astype(dtype)


conversion("cvt.<D>.<S>", "S -> D", make=_integer, D=INTEGERS, S=INTEGERS)
for _D in INTEGERS.split():  # .sat only where it can make a difference
    _beyond = [S for S in INTEGERS.split() if shared_limits(_D, S) != limits(S)]
    conversion("cvt.sat.<D>.<S>", "S -> D", make=_clamped, D=_D, S=" ".join(_beyond))


# ---- modifiers of floating-point numbers ----------------------------------------------------


def _modified(
    make: Callable[[str, str, str], Unary],
    D: str,
    S: str,
    rnd: str = "",
    ftz: str = "",
    sat: str = "",
) -> Unary:
    """Return the conversion that ``make`` returns for the types and the rounding, with ftz and sat."""
    compute = make(D, S, rnd)
    if ftz and S == "f32":
        compute = _after(flush, compute)
    if ftz and D == "f32":
        compute = _after(compute, flush)
    return _after(compute, saturate) if sat and D in FORMATS else compute


def _after(first: Unary, then: Unary) -> Unary:
    return lambda a: then(first(a))


def between(syntax: str, make: Callable[[str, str, str], Unary], **columns: Any) -> None:
    """Register conversions of type S to D, whose functions ``make`` returns for D, S and the rounding."""
    conversion(syntax, "S -> D", make=partial(_modified, make), **columns)


# ---- between integers and floating-point numbers --------------------------------------------


def _from_integer(D: str, S: str, rnd: str) -> Unary:
    fmt, wide = FORMATS[D], TYPES[S].bits == 64
    if D in ("f32", "f64") and rnd == "rn":
        return lambda a: a.astype(fmt.dtype)
    if D == "f64":
        return _directed_f64(rnd) if wide else lambda a: a.astype(np.float64)
    if wide:
        return lambda a: narrow(to_odd(*two_sum(*_words(a))), fmt, rnd)
    return lambda a: narrow(a.astype(np.float64), fmt, rnd)


def _words(a: Array) -> tuple[Doubles, Doubles]:
    """Split 64-bit integers into two float64 numbers with the same sum."""
    high = (a >> 32).astype(np.float64) * 2.0**32
    return high, (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)


def _directed_f64(mode: str) -> Unary:
    def compute(a: Array) -> Array:
        r, lost = two_sum(*_words(a))
        if mode == "rz":
            return np.where(r * lost < 0, np.nextafter(r, 0), r)
        wrong = lost < 0 if mode == "rm" else lost > 0
        return np.where(wrong, np.nextafter(r, -np.inf if mode == "rm" else np.inf), r)

    return compute


def _to_integer(D: str, S: str, rnd: str) -> Unary:
    """Round to an integer, clamp to the range; NaN as the ISA's cvt section says."""
    target, source, whole = TYPES[D], TYPES[S], WHOLE[rnd]
    least, most = limits(D)
    low, end = float(least), float(most + 1)
    nan = 1 << (target.bits - 1) if source.bits == 64 or target.bits == 64 else 0
    if target.kind == "signed":
        nan = -nan

    def compute(a: Array) -> Array:
        x: Array = whole(a if source.bits > 16 else a.astype(np.float32))
        if x.min() >= low and x.max() < end:
            return x.astype(target.dtype)
        r = np.where((x >= low) & (x < end), x, 0).astype(target.dtype)
        r[x < low] = least
        r[x >= end] = most
        r[x != x] = nan
        return r

    return compute


between("cvt.<rnd>{.sat}.<D>.<S>", _from_integer, rnd=RND, D="f16 f64", S=INTEGERS)
between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", _from_integer, rnd=RND, D="f32", S=INTEGERS)
between("cvt.<rnd>.<D>.<S>", _from_integer, rnd=RND, D="bf16", S=WIDE_INTEGERS, needs=BF16)
between("cvt.<rnd>{.sat}.<D>.<S>", _to_integer, rnd=IRND, D=INTEGERS, S="f16 f64")
between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", _to_integer, rnd=IRND, D=INTEGERS, S="f32")
between("cvt.<rnd>.<D>.<S>", _to_integer, rnd=IRND, D=WIDE_INTEGERS, S="bf16", needs=BF16)


# ---- between floating-point numbers ---------------------------------------------------------


def _same(D: str, S: str, rnd: str) -> Unary:
    """Round to an integer in the same format, or only settle the NaN."""
    fmt, whole = FORMATS[D], WHOLE.get(rnd)
    if D == "f64":
        return lambda a: settle_f64(whole(a) if whole else a, a)
    if D == "f32":
        return lambda a: settle(whole(a) if whole else a)

    def compute(a: Array) -> Array:
        wide = a.astype(np.float32)
        return narrow(whole(wide) if whole else wide, fmt)

    return compute


def _wider(D: str, S: str, rnd: str) -> Unary:
    if D == "f64":
        return _double
    return lambda a: settle(a.astype(np.float32))


def _double(a: Array) -> Array:
    wide = a.astype(np.float64)
    return settle_f64(wide, wide)


def _narrower(D: str, S: str, rnd: str) -> Unary:
    fmt = FORMATS[D]
    if S in ("f16", "bf16"):
        return lambda a: narrow(a.astype(np.float32), fmt, rnd)
    return lambda a: narrow(a, fmt, rnd)


for _T in ("f16", "f64"):
    between("cvt{.<rnd>}{.sat}.<D>.<S>", _same, rnd=IRND, D=_T, S=_T)
between("cvt{.<rnd>}{.ftz}{.sat}.<D>.<S>", _same, rnd=IRND, D="f32", S="f32")
between("cvt{.<rnd>}.<D>.<S>", _same, rnd=IRND, D="bf16", S="bf16", needs=BF16)

between("cvt{.ftz}{.sat}.<D>.<S>", _wider, D="f32", S="f16")
between("cvt{.sat}.<D>.<S>", _wider, D="f64", S="f16")
between("cvt{.ftz}{.sat}.<D>.<S>", _wider, D="f64", S="f32")
between("cvt{.<rnd>}.<D>.<S>", _wider, rnd=RND, D="f32", S="bf16", needs="sm_80 7.1")
between("cvt{.<rnd>}.<ftz>.<D>.<S>", _wider, rnd=RND, ftz="ftz", D="f32", S="bf16", needs=BF16)
between("cvt{.<rnd>}.<D>.<S>", _wider, rnd=RND, D="f64", S="bf16", needs=BF16)

between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", _narrower, rnd=RND, D="f32", S="f64")
between("cvt.<rnd>{.ftz}{.sat}.<D>.<S>", _narrower, rnd=RND, D="f16", S="f32")
between("cvt.<rnd>{.sat}.<D>.<S>", _narrower, rnd=RND, D="f16", S="f64")
between("cvt.<rnd>.<D>.<S>", _narrower, rnd=RND, D="f16", S="bf16", needs=BF16)
between("cvt.<rnd>{.ftz}.<D>.<S>", _narrower, rnd=RND, D="bf16", S="f32", needs="sm_80 7.0")
between("cvt.<rnd>.<D>.<S>", _narrower, rnd=RND, D="bf16", S="f16 f64", needs=BF16)
for _types in ("f16.bf16", "bf16.f16"):
    refuse(f"cvt.{_types}", "not in the PTX ISA, though ptxas takes it")


# ---- f32 to less, with .relu and .satfinite -------------------------------------------------


def narrowing(D: str, rnd: str, satfinite: str = "", relu: str = "") -> Unary:
    """Return the conversion of f32 to a format under these modifiers."""
    fmt, finite = FORMATS[D], bool(satfinite)
    if relu:
        return lambda a: not_negative(narrow(a, fmt, rnd, finite=finite), fmt)
    return lambda a: narrow(a, fmt, rnd, finite=finite)


_single = partial(conversion, operands="f32 -> D", make=narrowing)
_single("cvt.<rnd>.<relu>.<D>.f32", rnd="rn rz", relu="relu", D="f16 bf16", needs="sm_80 7.0")
_single(
    "cvt.<rnd>.<satfinite>{.relu}.<D>.f32",
    rnd="rn rz",
    satfinite="satfinite",
    D="f16 bf16",
    needs={"": "sm_75 8.1", "relu": "sm_80 7.0", "bf16": "sm_80 7.0"},
)
_single(
    "cvt.<rnd>{.satfinite}.<D>.f32",
    rnd="rna",
    D="tf32",
    needs={"": "sm_80 7.0", "satfinite": "sm_80 8.1"},
)
_single(
    "cvt.<rnd>{.satfinite}{.relu}.<D>.f32",
    rnd="rn rz",
    D="tf32",
    needs={"": "sm_90 7.8", "satfinite": "sm_100 8.6"},
)
