"""Arithmetic on two values in one register, and on f32 with 16-bit factors or terms.

PTX ISA: the .u16x2 and .s16x2 forms of "Integer Arithmetic Instructions: add, min, max", the .f32x2
forms of "Floating-Point Instructions: add, sub, mul, fma", and "Mixed Precision Floating-Point
Instructions". 16-bit numbers are exact in f32, so a mixed operation rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.emulator.operations.floating import (
    RND,
    floating,
    subtract_f32,
    with_flush,
    with_saturation,
)
from ptxlab.emulator.operations.integer import integer
from ptxlab.emulator.prepare.row import Array
from ptxlab.numbers import floats
from ptxlab.numbers.rounding import by_block

Compute = Callable[..., Array]


def in_parts(compute: Compute, part: np.dtype[np.generic], whole: np.dtype[np.generic]) -> Compute:
    """Return ``compute``, which takes and returns arrays of ``part``, applied to packed words."""

    def both(*inputs: Array) -> Array:
        lanes = max(len(x) for x in inputs)
        spread = (np.ascontiguousarray(np.broadcast_to(x, (lanes,))).view(part) for x in inputs)
        return np.ascontiguousarray(compute(*spread)).view(whole)

    return both


# ---- integers -------------------------------------------------------------------------------

_INTEGER = "sm_90 8.0"

for _T, _part in (("u16x2", np.dtype(np.uint16)), ("s16x2", np.dtype(np.int16))):
    for _opcode, _function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        _work = 1 if _opcode == "add" else 0
        _halves = in_parts(_function, _part, np.dtype(np.uint32))
        integer(f"{_opcode}.{_T}", f"{_T} {_T} -> {_T}", _halves, work=_work, needs=_INTEGER)


def _not_negative(choose: np.ufunc) -> Compute:
    return lambda a, b: np.maximum(choose(a, b), np.int16(0))


for _opcode, _function in (("min", np.minimum), ("max", np.maximum)):
    _halves = in_parts(_not_negative(_function), np.dtype(np.int16), np.dtype(np.uint32))
    integer(_opcode + ".relu.s16x2", "s16x2 s16x2 -> s16x2", _halves, needs=_INTEGER)


# ---- pairs of f32 ---------------------------------------------------------------------------

_BLACKWELL = "sm_100 8.6"


def _fma_f32(a: Array, b: Array, c: Array, mode: str) -> Array:
    return floats.fma_f32_nearest(a, b, c) if mode == "rn" else floats.fma_f32(a, b, c, mode)


def _pair(single: Compute, rnd: str, ftz: str) -> Compute:
    mode = rnd or "rn"
    compute: Compute = lambda *inputs: by_block(lambda *x: single(*x, mode), *inputs)  # noqa: E731
    if ftz:
        compute = with_flush(compute)
    return in_parts(compute, np.dtype(np.float32), np.dtype(np.uint64))


for _opcode, _sum in (
    ("add", floats.add_f32),
    ("sub", subtract_f32),
    ("mul", floats.mul_f32),
):
    floating(
        _opcode + "{.<rnd>}{.ftz}.f32x2",
        "f32x2 f32x2 -> f32x2",
        make=partial(_pair, _sum),
        work=1,
        needs=_BLACKWELL,
        rnd=RND,
    )
floating(
    "fma.<rnd>{.ftz}.f32x2",
    "f32x2 f32x2 f32x2 -> f32x2",
    make=partial(_pair, _fma_f32),
    work=2,
    needs=_BLACKWELL,
    rnd=RND,
)


# ---- mixed precision ------------------------------------------------------------------------


def _mixed(single: Compute, rnd: str, sat: str, A: str) -> Compute:
    """Return an operation on f32 whose factors, or first term, are of ``A``."""
    mode = rnd or "rn"

    def block(*inputs: Array) -> Array:
        return single(*(x.astype(np.float32) for x in inputs), mode)

    def compute(*inputs: Array) -> Array:
        return by_block(block, *inputs)

    return with_saturation(compute) if sat else compute


for _opcode, _sum in (("add", floats.add_f32), ("sub", subtract_f32)):
    floating(
        _opcode + "{.<rnd>}{.sat}.f32.<A>",
        "A f32 -> f32",
        make=partial(_mixed, _sum),
        work=1,
        needs=_BLACKWELL,
        rnd=RND,
        A="f16 bf16",
    )
floating(
    "fma.<rnd>{.sat}.f32.<A>",
    "A A f32 -> f32",
    make=partial(_mixed, _fma_f32),
    work=2,
    needs=_BLACKWELL,
    rnd=RND,
    A="f16 bf16",
)
