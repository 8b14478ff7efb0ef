"""Single- and double-precision arithmetic with one rounding.

PTX ISA, "Floating-Point Instructions": add, sub, mul, fma, div, rcp, sqrt, neg, abs, min, max,
copysign, testp. What is only approximate is in ``approximate``. Without a rounding modifier results are rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.refused import refuse
from ptxlab.emulator.prepare.row import Array, row
from ptxlab.numbers import doubles, floats
from ptxlab.numbers.formats import (
    F32,
    Format,
)
from ptxlab.numbers.rounding import (
    by_block,
    double,
    flush,
    saturate,
    settle,
    settle_f64,
)
from ptxlab.numbers.types import TYPES

ROUNDINGS = ("rn", "rz", "rm", "rp")
RND = " ".join(ROUNDINGS)
Compute = Callable[..., Array]

_SIGN: dict[str, Any] = {"f32": np.uint32(1 << 31), "f64": np.uint64(1 << 63)}

floating = partial(row, mix="floating point")
special = partial(row, mix="special function")


def with_flush(compute: Compute, fmt: Format = F32) -> Compute:
    """Return ``compute`` with subnormal inputs and results replaced by zero (``.ftz``)."""
    return lambda *inputs: flush(compute(*(flush(x, fmt) for x in inputs)), fmt)


def with_saturation(compute: Compute) -> Compute:
    """Return ``compute`` with its result clamped to [0, 1] (``.sat``)."""
    return lambda *inputs: saturate(compute(*inputs))


def rounded(compute: Compute, rnd: str = "") -> Compute:
    """Return ``compute``, which takes the rounding mode last, under ``rnd``: to nearest without."""
    mode = rnd or "rn"
    if mode == "rn" and compute in _NEAREST:
        return _NEAREST[compute]
    return lambda *inputs: by_block(lambda *block: compute(*block, mode), *inputs)


def _single(compute: Compute, rnd: str = "", ftz: str = "", sat: str = "") -> Compute:
    found = rounded(compute, rnd)
    if ftz:
        found = with_flush(found)
    return with_saturation(found) if sat else found


# ---- add, sub, mul, fma ---------------------------------------------------------------------


def subtract_f32(a: Array, b: Array, mode: str) -> Array:
    """Subtract under ``mode``."""
    return floats.add_f32(a, -b, mode)


def _sub_f64(a: Array, b: Array, mode: str) -> Array:
    return settle_f64(doubles.add_f64(a, -b, mode), a, b)


# The commonest forms, without the detour of a mode.
_NEAREST: dict[Compute, Compute] = {
    floats.fma_f32: floats.fma_f32_nearest,
    floats.add_f32: lambda a, b: settle(a + b),
    subtract_f32: lambda a, b: settle(a - b),
    floats.mul_f32: lambda a, b: settle(a * b),
    doubles.add_f64: lambda a, b: settle_f64(a + b, a, b),
    doubles.mul_f64: lambda a, b: settle_f64(a * b, a, b),
    _sub_f64: lambda a, b: settle_f64(a - b, a, b),
}


for _opcode, _f32, _f64 in (
    ("add", floats.add_f32, doubles.add_f64),
    ("sub", subtract_f32, _sub_f64),
    ("mul", floats.mul_f32, doubles.mul_f64),
):
    _row = partial(floating, work=1, rnd=RND)
    _row(_opcode + "{.<rnd>}{.ftz}{.sat}.f32", "f32 f32 -> f32", make=partial(_single, _f32))
    _row(_opcode + "{.<rnd>}.f64", "f64 f64 -> f64", make=partial(rounded, _f64))
for _opcode in ("fma", "mad"):
    _row = partial(floating, work=2, rnd=RND)
    _fused = partial(_single, floats.fma_f32)
    _row(_opcode + ".<rnd>{.ftz}{.sat}.f32", "f32 f32 f32 -> f32", make=_fused)
    _row(_opcode + ".<rnd>.f64", "f64 f64 f64 -> f64", make=partial(rounded, doubles.fma_f64))


# ---- div, rcp, sqrt -------------------------------------------------------------------------


def _quotient_f32(a: Array, b: Array, mode: str) -> Array:
    """Divide under ``mode``: the remainder of the nearest quotient says where the exact one lies."""
    r: Array = a / b
    if mode != "rn":
        back = double(r) * double(b)
        excess = np.sign(back - double(a)) * np.sign(b)
        r = _step_back(r, np.where(np.isfinite(a) & np.isfinite(b) & (b != 0), excess, 0), mode)
    return settle(r)


def _root_f32(a: Array, mode: str) -> Array:
    r: Array = np.sqrt(a)
    if mode != "rn":
        excess = np.sign(double(r) * double(r) - double(a))
        r = _step_back(r, np.where(np.isfinite(a), excess, 0), mode)
    return settle(r)


def _step_back(r: Array, excess: Array, mode: str) -> Array:
    """Move ``r``, whose difference to the exact value has the sign ``excess``, to ``mode``'s side."""
    if mode == "rz":
        wrong, target = np.sign(r) * excess > 0, np.float32(0)
    elif mode == "rm":
        wrong, target = excess > 0, np.float32(-np.inf)
    else:
        wrong, target = excess < 0, np.float32(np.inf)
    return np.where(wrong, np.nextafter(r, target), r)


def _div_approx(a: Array, b: Array) -> Array:
    """Divide as ``div.approx``: for |b| above 2**126 the reciprocal is 0 (PTX ISA, "div")."""
    r = settle(a / b)
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    if not huge.any():
        return r
    return settle(np.where(huge, a * np.copysign(np.float32(0), b), r))


def _div_full(a: Array, b: Array) -> Array:
    """Divide as ``div.full``: the correctly rounded quotient is within its 2 ulp."""
    return settle(a / b)


def _inexact_quotient(mode: str, ftz: str) -> Compute:
    compute = _div_approx if mode == "approx" else _div_full
    return with_flush(compute) if ftz else compute


_ONE_F32, _ONE_F64 = np.ones(1, np.float32), np.ones(1)


def _reciprocal_f32(a: Array, mode: str) -> Array:
    return _quotient_f32(_ONE_F32, a, mode)


def _reciprocal_f64(a: Array, mode: str) -> Array:
    return doubles.div_f64(_ONE_F64, a, mode)


_quotient = partial(_single, _quotient_f32)
floating("div.<rnd>{.ftz}.f32", "f32 f32 -> f32", make=_quotient, rnd=RND)
floating("div.<rnd>.f64", "f64 f64 -> f64", make=partial(rounded, doubles.div_f64), rnd=RND)
floating(
    "div.<mode>{.ftz}.f32",
    "f32 f32 -> f32",
    make=_inexact_quotient,
    fidelity="model",
    mode="approx full",
)
for _opcode, _one_f32, _one_f64 in (
    ("rcp", _reciprocal_f32, _reciprocal_f64),
    ("sqrt", _root_f32, doubles.sqrt_f64),
):
    special(_opcode + ".<rnd>{.ftz}.f32", "f32 -> f32", make=partial(_single, _one_f32), rnd=RND)
    special(_opcode + ".<rnd>.f64", "f64 -> f64", make=partial(rounded, _one_f64), rnd=RND)
for _rnd in ROUNDINGS:
    refuse(f"rcp.{_rnd}.ftz.f64", "not in the PTX ISA, though ptxas takes it")


# ---- signs ----------------------------------------------------------------------------------


def _on_sign(change: Callable[[Array, Any], Array], T: str, ftz: str = "") -> Compute:
    """Return ``neg`` or ``abs``, which act on the sign bit alone, of NaN too."""
    sign = _SIGN[T]

    def compute(a: Array) -> Array:
        return change(a.view(sign.dtype), sign).view(a.dtype)

    return with_flush(compute) if ftz else compute


def _copysign(T: str) -> Compute:
    """Return the sign of a on the magnitude of b."""
    dtype, sign = TYPES[T].dtype, _SIGN[T]

    def compute(a: Array, b: Array) -> Array:
        word = sign.dtype
        bits: Array = (a.view(word) & sign) | (b.view(word) & ~sign)
        return bits.view(dtype)

    return compute


for _opcode, _change in (("neg", np.bitwise_xor), ("abs", lambda bits, sign: bits & ~sign)):
    floating(_opcode + "{.ftz}.<T>", "T -> T", make=partial(_on_sign, _change), T="f32")
    floating(_opcode + ".<T>", "T -> T", make=partial(_on_sign, _change), T="f64")
floating("copysign.<T>", "T T -> T", make=_copysign, T="f32 f64")


# ---- min, max -------------------------------------------------------------------------------


def extremum(largest: bool, propagate: bool) -> Compute:
    """Return min or max of f32 or f64: -0 is below +0; NaN loses, or wins if ``propagate``.

    NaN results are left for the caller to make canonical.
    """
    chooser = np.maximum if largest else np.minimum
    combine = np.bitwise_and if largest else np.bitwise_or

    def compute(a: Array, b: Array) -> Array:
        r: Array = chooser(a, b)
        if not propagate and np.isnan(r).any():
            # Not numpy's fmin: to that, a signalling NaN is at times more than a NaN.
            r = np.where(np.isnan(a), b, np.where(np.isnan(b), a, r))
        zero = r == 0
        if not zero.any():
            return r
        word = f"u{r.dtype.itemsize}"
        return np.where(zero & (a == b), combine(a.view(word), b.view(word)).view(r.dtype), r)

    return compute


def with_xorsign(compute: Compute) -> Compute:
    """Return ``compute`` on magnitudes, with the product's sign on its result (``.xorsign.abs``)."""

    def signed(a: Array, b: Array) -> Array:
        sign = np.signbit(a) ^ np.signbit(b)
        r = compute(np.abs(a), np.abs(b))
        return np.where(sign, -r, r)

    return signed


def _extremum_f32(largest: bool, ftz: str, NaN: str, xorsign: str = "") -> Compute:
    choose = extremum(largest, bool(NaN))
    if xorsign:
        choose = with_xorsign(choose)

    def compute(a: Array, b: Array) -> Array:
        return settle(choose(a, b))

    return with_flush(compute) if ftz else compute


def _extremum_f64(largest: bool) -> Compute:
    choose = extremum(largest, propagate=False)
    return lambda a, b: settle_f64(choose(a, b), a, b)


def _extremum_of_three(largest: bool, ftz: str, NaN: str, abs: str) -> Compute:
    """Return the form with three sources, whose ``.abs`` drops all three signs."""
    choose = extremum(largest, bool(NaN))

    def compute(*inputs: Array) -> Array:
        a, b, c = (np.abs(x) for x in inputs) if abs else inputs
        return settle(choose(choose(a, b), c))

    return with_flush(compute) if ftz else compute


for _opcode, _largest in (("min", False), ("max", True)):
    _two = partial(_extremum_f32, _largest)
    floating(_opcode + "{.ftz}{.NaN}.f32", "f32 f32 -> f32", make=_two, needs={"NaN": "sm_80 7.0"})
    floating(
        _opcode + "{.ftz}{.NaN}.xorsign.abs.f32",
        "f32 f32 -> f32",
        make=partial(_two, xorsign="xorsign"),
        needs="sm_86 7.2",
    )
    floating(
        _opcode + "{.ftz}{.NaN}{.abs}.f32",
        "f32 f32 f32 -> f32",
        make=partial(_extremum_of_three, _largest),
        needs="sm_100 8.8",
    )
    floating(_opcode + ".f64", "f64 f64 -> f64", _extremum_f64(_largest))


# ---- testp ----------------------------------------------------------------------------------


def _is_subnormal(x: Array) -> Array:
    small: Array = np.abs(x) < np.finfo(x.dtype).tiny
    nonzero: Array = x != 0
    return small & nonzero


# Zero counts as normal.
_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: x == x,
    "notanumber": lambda x: x != x,
    "normal": lambda x: np.isfinite(x) & ~_is_subnormal(x),
    "subnormal": _is_subnormal,
}

for _test, _function in _TESTS.items():
    floating(f"testp.{_test}.<T>", "T -> pred", _function, T="f32 f64")
