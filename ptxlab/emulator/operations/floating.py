"""Floating-point arithmetic with one rounding, of single, double and half precision.

PTX ISA, "Floating-Point Instructions" and "Half Precision Floating-Point Instructions": add, sub, mul,
fma, div, rcp, sqrt, neg, abs, min, max, copysign, testp. What is only approximate is in ``approximate``.
Without a rounding modifier results are rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array, some
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import refuse
from ptxlab.emulator.prepare.row import row
from ptxlab.numbers import doubles, floats
from ptxlab.numbers.formats import F16, FORMATS, Format
from ptxlab.numbers.rounding import (
    by_block,
    canonical_nan,
    flush,
    narrow,
    propagate_nan_f64,
    saturate,
)
from ptxlab.numbers.rounding import relu as not_negative
from ptxlab.numbers.types import packed

ROUNDINGS = ("rn", "rz", "rm", "rp")
RND = " ".join(ROUNDINGS)
HALF, BFLOAT = "f16 f16x2", "bf16 bf16x2"
Compute = Callable[..., Array]
FormatOperation = Callable[[str, str], Compute]
"""Gives the function for a format and a rounding mode."""

floating = partial(row, mix="floating point")
special = partial(row, mix="special function")


# ---- one rounding, and what PTX does to a result besides ------------------------------------


def format_of(T: str) -> Format:
    """Return the format of a type, or of each number of a packed one."""
    return FORMATS[T.removesuffix("x2")]


def after(compute: Compute, finish: Callable[[Array], Array]) -> Compute:
    """Return ``compute`` followed by ``finish``."""
    return lambda *inputs: finish(compute(*inputs))


def modified(compute: Compute, T: str, ftz: str = "", sat: str = "", relu: str = "") -> Compute:
    """Return ``compute`` on numbers of ``T`` with these modifiers, for both parts of a packed type."""
    fmt = format_of(T)
    if ftz:
        compute = _with_flush(compute, fmt)
    if sat:
        compute = after(compute, saturate)
    if relu:
        compute = after(compute, lambda result: not_negative(result, fmt))
    if T.endswith("x2"):
        compute = packed(compute, T)
    # Numbers of 16 bits are computed with in wider types.
    return partial(by_block, compute) if fmt.bits == 16 else compute


def _with_flush(compute: Compute, fmt: Format) -> Compute:
    return lambda *inputs: flush(compute(*(flush(x, fmt) for x in inputs)), fmt)


def in_blocks(compute: Compute, mode: str) -> Compute:
    """Return ``compute``, which takes the rounding mode last and many temporaries, under ``mode``."""
    return lambda *inputs: by_block(lambda *block: compute(*block, mode), *inputs)


def in_wider(compute: Compute, fmt: Format, wide: type[np.floating[Any]]) -> Compute:
    """Return ``compute`` carried out in a wider type and then rounded to ``fmt``."""
    return lambda *inputs: narrow(compute(*(x.astype(wide) for x in inputs)), fmt)


def nearest(compute: Compute, T: str) -> Compute:
    """Return ``compute``, which rounds f32 and f64 to nearest or not at all, for a format.

    For sums and products of 16-bit numbers float32 is wide enough for the second rounding to change
    nothing.
    """
    if T == "f64":
        return lambda *inputs: propagate_nan_f64(compute(*inputs), *inputs)
    return (
        after(compute, canonical_nan) if T == "f32" else in_wider(compute, FORMATS[T], np.float32)
    )


def arithmetic(operation: FormatOperation, T: str, rnd: str = "", **modifiers: str) -> Compute:
    """Return ``operation`` on numbers of ``T`` under its modifiers."""
    return modified(operation(format_of(T).name, rnd or "rn"), T, **modifiers)


# ---- add, sub, mul, fma ---------------------------------------------------------------------


def _rounded(function: np.ufunc, f32: Compute, f64: Compute) -> FormatOperation:
    """Return what numpy rounds to nearest; ``f32`` and ``f64`` are for the directed modes."""
    directed = {"f32": f32, "f64": f64}
    return lambda name, mode: (
        nearest(function, name) if mode == "rn" else in_blocks(directed[name], mode)
    )


add = _rounded(np.add, floats.add_f32, doubles.add_f64)
sub = _rounded(np.subtract, floats.subtract_f32, doubles.subtract_f64)
mul = _rounded(np.multiply, floats.by_way_of_double(np.multiply), doubles.mul_f64)


def fma(name: str, mode: str) -> Compute:
    """Return the fused multiply-add.

    For f16 that of float64, whose product is exact and whose rounding of the sum cannot be seen: a sum
    in f16's range that needs more than 53 bits has one term too small to reach a tie.
    """
    if name == "f16":
        return in_wider(lambda a, b, c: a * b + c, F16, np.float64)
    if name == "bf16":
        return floats.fma_bf16
    if name == "f64":
        return in_blocks(doubles.fma_f64, mode)
    return floats.fma_f32_nearest if mode == "rn" else in_blocks(floats.fma_f32, mode)


for _opcode, _operation, _part in (
    ("add", add, "sum"),
    ("sub", sub, "difference"),
    ("mul", mul, "product"),
):
    _row = partial(
        floating,
        operands="T T -> T",
        make=partial(arithmetic, _operation),
        work=1,
        effects=Effects(contracts=_part),
    )
    _row(_opcode + "{.<rnd>}{.ftz}{.sat}.<T>", rnd=RND, T="f32")
    _row(_opcode + "{.<rnd>}.<T>", rnd=RND, T="f64")
    _row(_opcode + "{.<rnd>}{.ftz}{.sat}.<T>", rnd="rn", T=HALF)
    _row(_opcode + "{.<rnd>}.<T>", needs="sm_90 7.8", rnd="rn", T=BFLOAT)
_fused = partial(
    floating,
    operands="T T T -> T",
    make=partial(arithmetic, fma),
    work=2,
)
for _opcode in ("fma", "mad"):
    _fused(_opcode + ".<rnd>{.ftz}{.sat}.<T>", rnd=RND, T="f32")
    _fused(_opcode + ".<rnd>.<T>", rnd=RND, T="f64")
_fused("fma.rn{.ftz}{.sat}.<T>", T=HALF)
_fused("fma.rn{.ftz}.<relu>.<T>", needs="sm_80 7.0", relu="relu", T=HALF)
_fused("fma.rn{.relu}.<T>", needs="sm_80 7.0", T=BFLOAT)


# ---- div, rcp, sqrt -------------------------------------------------------------------------


def _div_approx(a: Array, b: Array) -> Array:
    """Divide as ``div.approx``: for |b| above 2**126 the reciprocal is 0 (PTX ISA, "div")."""
    r: Array = a / b
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return np.where(huge, a * np.copysign(np.float32(0), b), r) if some(huge) else r


# The correctly rounded quotient is within the 2 ulp of div.full.
_INEXACT: dict[str, Compute] = {"approx": _div_approx, "full": np.divide}


def _inexact_quotient(mode: str, T: str, ftz: str) -> Compute:
    return modified(nearest(_INEXACT[mode], T), T, ftz)


_two, _one = partial(floating, operands="T T -> T"), partial(special, operands="T -> T")
for _opcode, _function, _f64, _given in (
    ("div", np.divide, doubles.div_f64, _two),
    ("rcp", np.reciprocal, doubles.rcp_f64, _one),
    ("sqrt", np.sqrt, doubles.sqrt_f64, _one),
):
    _operation = _rounded(_function, floats.by_way_of_double(_function), _f64)
    _make = partial(arithmetic, _operation)
    _given(_opcode + ".<rnd>{.ftz}.<T>", make=_make, rnd=RND, T="f32")
    _given(_opcode + ".<rnd>.<T>", make=_make, rnd=RND, T="f64")
_inexact = partial(floating, make=_inexact_quotient, fidelity="model")
_inexact("div.<mode>{.ftz}.<T>", "T T -> T", mode="approx full", T="f32")


# ---- signs ----------------------------------------------------------------------------------


def _on_sign(change: Callable[[Array, Any], Array], T: str, ftz: str = "") -> Compute:
    """Return ``neg`` or ``abs``, which act on the sign bit alone, of NaN too."""
    fmt = format_of(T)
    sign = fmt.word.type(1 << fmt.sign_bit)
    return modified(lambda a: change(a.view(fmt.word), sign).view(fmt.dtype), T, ftz)


def _copysign(T: str) -> Compute:
    """Return the sign of a on the magnitude of b."""
    fmt = FORMATS[T]
    word, sign = fmt.word, fmt.word.type(1 << fmt.sign_bit)
    return lambda a, b: ((a.view(word) & sign) | (b.view(word) & ~sign)).view(fmt.dtype)


for _opcode, _change, _needs in (
    ("neg", np.bitwise_xor, ""),
    ("abs", lambda bits, sign: bits & ~sign, "sm_53 6.5"),
):
    _row = partial(floating, operands="T -> T", make=partial(_on_sign, _change))
    _row(_opcode + "{.ftz}.<T>", T="f32")
    _row(_opcode + ".<T>", T="f64")
    _row(_opcode + "{.ftz}.<T>", needs=_needs, T=HALF)
    _row(_opcode + ".<T>", needs="sm_80 7.0", T=BFLOAT)
floating("copysign.<T>", "T T -> T", make=_copysign, T="f32 f64")


# ---- min, max -------------------------------------------------------------------------------


def _with_xorsign(compute: Compute) -> Compute:
    """Return ``compute`` on magnitudes, with the product's sign on its result (``.xorsign.abs``)."""

    def signed(a: Array, b: Array) -> Array:
        sign = np.signbit(a) ^ np.signbit(b)
        r = compute(np.abs(a), np.abs(b))
        return np.where(sign, -r, r)

    return signed


def _of_two(largest: bool, T: str, ftz: str = "", NaN: str = "", xorsign: str = "") -> Compute:
    choose = floats.extremum(largest, bool(NaN))
    if xorsign:
        choose = _with_xorsign(choose)
    return modified(nearest(choose, format_of(T).name), T, ftz)


def _of_three(largest: bool, T: str, ftz: str, NaN: str, abs: str) -> Compute:
    """Return the form with three sources, whose ``.abs`` drops all three signs."""
    choose = floats.extremum(largest, bool(NaN))

    def compute(*inputs: Array) -> Array:
        a, b, c = (np.abs(x) for x in inputs) if abs else inputs
        return choose(choose(a, b), c)

    return modified(nearest(compute, T), T, ftz)


for _opcode, _largest in (("min", False), ("max", True)):
    _make = partial(_of_two, _largest)
    _row = partial(floating, operands="T T -> T", make=_make)
    _signed = partial(_row, xorsign="xorsign")
    _row(_opcode + "{.ftz}{.NaN}.<T>", needs={"NaN": "sm_80 7.0"}, T="f32")
    _signed(_opcode + "{.ftz}{.NaN}.<xorsign>.abs.<T>", needs="sm_86 7.2", T="f32")
    floating(
        _opcode + "{.ftz}{.NaN}{.abs}.<T>",
        "T T T -> T",
        make=partial(_of_three, _largest),
        needs="sm_100 8.8",
        T="f32",
    )
    _row(_opcode + ".<T>", T="f64")
    for _types, _ftz in ((HALF, "{.ftz}"), (BFLOAT, "")):
        _start = f"{_opcode}{_ftz}{{.NaN}}"
        _row(_start + ".<T>", needs="sm_80 7.0", T=_types)
        _signed(_start + ".<xorsign>.abs.<T>", needs="sm_86 7.2", T=_types)


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

for _test, _holds in _TESTS.items():
    floating(f"testp.{_test}.<T>", "T -> pred", _holds, T="f32 f64")


# ---- what ptxas takes beyond that -----------------------------------------------------------

for _rnd in ROUNDINGS:
    refuse(f"rcp.{_rnd}.ftz.f64", "not in the PTX ISA, though ptxas takes it")
refuse("fma.rn.oob", "the PTX ISA does not give the bit pattern of the NaN it looks for")
for _mode in ("rz", "rm", "rp"):
    for _T in BFLOAT.split():
        refuse(
            f"fma.{_mode}.{_T}",
            "not in the PTX ISA, though ptxas takes it, and makes f16 code of it",
        )
