"""Reciprocals, roots and the transcendental functions.

PTX ISA: rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh. Of an ``.approx`` form the ISA only bounds the
error; the model is the exact function, evaluated in float64 and rounded once, with ``.ftz``
honoured. A GPU's last bits differ from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.emulator.operations.floating import Compute, special, with_flush
from ptxlab.emulator.operations.half import by_half
from ptxlab.numbers.formats import (
    F32,
    FORMATS,
    Array,
)
from ptxlab.numbers.rounding import (
    narrow,
    settle_f64,
)

_Function = Callable[[Array], Array]


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _single(function: _Function, ftz: str = "") -> Compute:
    def compute(a: Array) -> Array:
        return narrow(function(a.astype(np.float64)), F32, "rn")

    return with_flush(compute) if ftz else compute


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


def _half(function: _Function, T: str, ftz: str = "") -> Compute:
    fmt = FORMATS[T.removesuffix("x2")]

    def compute(a: Array) -> Array:
        return narrow(function(a.astype(np.float64)), fmt, "rn")

    return by_half(T, with_flush(compute, fmt) if ftz else compute)


approximate = partial(special, fidelity="model")

for _opcode, _function in (
    ("rcp", np.reciprocal),
    ("rsqrt", _rsqrt),
    ("sqrt", np.sqrt),
    ("ex2", np.exp2),
    ("lg2", np.log2),
    ("sin", np.sin),
    ("cos", np.cos),
):
    approximate(_opcode + ".approx{.ftz}.f32", "f32 -> f32", make=partial(_single, _function))
approximate("tanh.approx.f32", "f32 -> f32", _single(np.tanh), needs="sm_75 7.0")

approximate("rcp.approx.ftz.f64", "f64 -> f64", _double_high_word(np.reciprocal))
approximate("rsqrt.approx.ftz.f64", "f64 -> f64", _double_high_word(_rsqrt))
approximate("rsqrt.approx.f64", "f64 -> f64", lambda a: settle_f64(_rsqrt(a), a))

for _opcode, _exact, _flush in (("ex2", np.exp2, ".ftz"), ("tanh", np.tanh, "")):
    _make = partial(_half, _exact)
    approximate(_opcode + ".approx.<T>", "T -> T", make=_make, needs="sm_75 7.0", T="f16 f16x2")
    approximate(
        f"{_opcode}.approx{_flush}.<T>",
        "T -> T",
        make=partial(_make, ftz=_flush),
        needs="sm_90 7.8",
        T="bf16 bf16x2",
    )
