"""Reciprocals, roots and the transcendental functions.

PTX ISA: rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh. Of an ``.approx`` form the ISA only bounds the
error; the model is the exact function, evaluated in float64 and rounded once, with ``.ftz``
honoured. A GPU's last bits differ from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.floating import (
    BFLOAT,
    HALF,
    Compute,
    format_of,
    in_wider,
    modified,
    nearest,
    special,
)
from ptxlab.numbers.exponential import logarithm, power_of_two
from ptxlab.numbers.formats import F64
from ptxlab.numbers.rounding import flush

_Function = Callable[[Array], Array]


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _turned(x: Array) -> Array:
    """Return what is left of an angle in turns after whole ones: at most half a turn, exactly."""
    whole = np.rint(x)
    return np.where(whole == 0, x, x - whole)


def _sine_of_turns(x: Array) -> Array:
    turn = _turned(x)
    near = np.where(np.abs(turn) > 0.25, np.copysign(0.5, turn) - turn, turn)
    return np.sin(2 * np.pi * near)


def _cosine_of_turns(x: Array) -> Array:
    return np.sin(2 * np.pi * (0.25 - np.abs(_turned(x))))


def _through_double(function: _Function, T: str, ftz: str = "") -> Compute:
    return modified(in_wider(function, format_of(T), np.float64), T, ftz)


_HIGH_WORD = np.uint64(0xFFFFFFFF00000000)
_CANONICAL_F64 = np.uint64(0x7FFFFFFF00000000)


def _high_word(function: _Function) -> _Function:
    """Return the ``.approx.ftz.f64`` form: only the upper words of input and result count."""

    def compute(a: Array) -> Array:
        cut = (flush(a, F64).view(np.uint64) & _HIGH_WORD).view(np.float64)
        whole = flush(function(cut), F64)
        rounded = (whole.view(np.uint64) + np.uint64(1 << 31)) & _HIGH_WORD
        nan = (a != a) | (whole != whole)
        return np.where(nan, _CANONICAL_F64, rounded).view(np.float64)

    return compute


approximate = partial(special, operands="T -> T", fidelity="model")

for _opcode, _function in (
    ("rcp", np.reciprocal),
    ("rsqrt", _rsqrt),
    ("sqrt", np.sqrt),
    ("ex2", power_of_two),
    ("lg2", logarithm),
    ("sin", np.sin),
    ("cos", np.cos),
):
    approximate(_opcode + ".approx{.ftz}.<T>", make=partial(_through_double, _function), T="f32")
for _opcode, _function in (("sin", _sine_of_turns), ("cos", _cosine_of_turns)):
    _turns = partial(_through_double, _function, ftz="ftz")
    approximate(_opcode + ".approx.ftz.2pi.<T>", make=_turns, needs="sm_75 9.5", T="f32")
for _opcode, _function in (("rcp", np.reciprocal), ("rsqrt", _rsqrt)):
    approximate(_opcode + ".approx.ftz.<T>", compute=_high_word(_function), T="f64")
approximate("rsqrt.approx.<T>", make=partial(nearest, _rsqrt), T="f64")

_tanh = partial(approximate, make=partial(_through_double, np.tanh))
for _types in ("f32", HALF):
    _tanh("tanh.approx.<T>", needs="sm_75 7.0", T=_types)
_tanh("tanh.approx.<T>", needs="sm_90 7.8", T=BFLOAT)
_power = partial(approximate, make=partial(_through_double, power_of_two))
_power("ex2.approx.<T>", needs="sm_75 7.0", T=HALF)
_power("ex2.approx.<ftz>.<T>", needs="sm_90 7.8", ftz="ftz", T=BFLOAT)
