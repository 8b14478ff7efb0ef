"""Reciprocals, roots and the transcendental functions.

PTX ISA: rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh. Of an ``.approx`` form the ISA only bounds the
error; the model is the exact function, evaluated in float64 and rounded once, with ``.ftz``
honoured. A GPU's last bits differ from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.operations import floating, half
from ptxlab.emulator.operations.floating import ROUNDINGS, with_flush
from ptxlab.emulator.prepare.operation import Alu, Modifiers, alu
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.numbers.floats import BF16, F16, F32, Array, Format, flush, narrow, settle_f64

_Function = Callable[[Array], Array]


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _single(m: Modifiers, function: _Function, *, may_flush: bool = True) -> Alu:
    """Build ``op.approx{.ftz}.f32``; ``approx`` is taken already."""
    ftz = may_flush and m.take("ftz")
    m.type("f32")

    def compute(a: Array) -> Array:
        return narrow(function(a.astype(np.float64)), F32, "rn")

    return Alu(("f32",), ("f32",), with_flush(compute) if ftz else compute)


_HIGH_WORD = np.uint64(0xFFFFFFFF00000000)


def _double_high_word(function: _Function) -> _Function:
    """Return the ``.approx.ftz.f64`` form: only the upper words of input and result count."""

    def compute(a: Array) -> Array:
        x = flush_f64(a)
        cut = (x.view(np.uint64) & _HIGH_WORD).view(np.float64)
        whole = np.where(x != x, np.nan, function(np.where(np.isinf(x), x, cut)))
        bits = flush_f64(whole).view(np.uint64)
        rounded = np.where(np.isfinite(whole), bits + np.uint64(1 << 31), bits) & _HIGH_WORD
        return np.where(whole != whole, _CANONICAL_F64, rounded).view(np.float64)

    return compute


_CANONICAL_F64 = np.uint64(0x7FFFFFFF00000000)
_MIN_NORMAL_F64 = np.finfo(np.float64).tiny


def flush_f64(x: Array) -> Array:
    """Replace subnormal doubles by zero of the same sign."""
    return np.where(np.abs(x) < _MIN_NORMAL_F64, np.copysign(0.0, x), x)


def _is_double(m: Modifiers) -> bool:
    return "f64" in m.rest()


@alu("rcp")
def _rcp(m: Modifiers) -> Alu:
    """``rcp.approx{.ftz}.f32``, ``rcp.rnd{.ftz}.f32``, ``rcp.rnd.f64``, ``rcp.approx.ftz.f64``."""
    mode = m.one_of("approx", *ROUNDINGS)
    if mode != "approx":
        return floating.reciprocal(m, mode)
    if not _is_double(m):
        return _single(m, np.reciprocal)
    if not m.take("ftz"):
        raise UnknownForm("needs .ftz with .approx.f64")
    m.type("f64")
    return Alu(("f64",), ("f64",), _double_high_word(np.reciprocal))


@alu("rsqrt")
def _rsqrt_builder(m: Modifiers) -> Alu:
    """``rsqrt.approx{.ftz}.f32``, ``rsqrt.approx.f64``, ``rsqrt.approx.ftz.f64``."""
    m.one_of("approx")
    if not _is_double(m):
        return _single(m, _rsqrt)
    ftz = m.take("ftz")
    m.type("f64")
    if ftz:
        return Alu(("f64",), ("f64",), _double_high_word(_rsqrt))
    return Alu(("f64",), ("f64",), lambda a: settle_f64(_rsqrt(a), a))


@alu("sqrt")
def _sqrt(m: Modifiers) -> Alu:
    """``sqrt.approx{.ftz}.f32``, ``sqrt.rnd{.ftz}.f32``, ``sqrt.rnd.f64``."""
    mode = m.one_of("approx", *ROUNDINGS)
    if mode == "approx":
        return _single(m, np.sqrt)
    return floating.root(m, mode)


def _register(opcode: str, function: _Function, halves: dict[str, tuple[Format, bool]]) -> None:
    """Register ``opcode.approx``; ``halves`` maps its 16-bit types to format and required .ftz."""

    @alu(opcode)
    def build(m: Modifiers) -> Alu:
        m.one_of("approx")
        for name, (fmt, needs_ftz) in halves.items():
            if name in m.rest():
                return _half(m, name, fmt, needs_ftz, function)
        return _single(m, function, may_flush=opcode != "tanh")


def _half(m: Modifiers, name: str, fmt: Format, needs_ftz: bool, function: _Function) -> Alu:
    if m.take("ftz") != needs_ftz:
        raise UnknownForm(f"{'needs' if needs_ftz else 'does not take'} .ftz with type .{name}")
    m.type(name)

    def compute(a: Array) -> Array:
        x = flush(a, fmt) if needs_ftz else a
        r = narrow(function(x.astype(np.float64)), fmt, "rn")
        return flush(r, fmt) if needs_ftz else r

    return half.build(name, 1, compute)


_register(
    "ex2",
    np.exp2,
    {"f16": (F16, False), "f16x2": (F16, False), "bf16": (BF16, True), "bf16x2": (BF16, True)},
)
_register(
    "tanh",
    np.tanh,
    {"f16": (F16, False), "f16x2": (F16, False), "bf16": (BF16, False), "bf16x2": (BF16, False)},
)
_register("lg2", np.log2, {})
_register("sin", np.sin, {})
_register("cos", np.cos, {})
