"""Arithmetic on two values in one register, and on f32 with 16-bit factors or terms.

PTX ISA: the .u16x2 and .s16x2 forms of "Integer Arithmetic Instructions: add, min, max", the .f32x2
forms of "Floating-Point Instructions: add, sub, mul, fma", and "Mixed Precision Floating-Point
Instructions". 16-bit numbers are exact in f32, so a mixed operation rounds once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.operations.floating import ROUNDINGS, with_flush, with_saturation
from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.isa.types import TYPES
from ptxlab.numbers import floats

Compute = Callable[..., Array]

_HALF_WORDS = {"u16x2": np.dtype(np.uint16), "s16x2": np.dtype(np.int16)}
_SHORT = ("f16", "bf16")
TYPES_HERE = frozenset((*_HALF_WORDS, "f32x2"))


def is_mixed(m: Modifiers) -> bool:
    """Say whether a 16-bit floating-point type is among the modifiers."""
    return any(name in _SHORT for name in m.rest())


def in_parts(compute: Compute, part: np.dtype[np.generic], whole: np.dtype[np.generic]) -> Compute:
    """Return ``compute``, which takes and returns arrays of ``part``, applied to packed words."""

    def both(*inputs: Array) -> Array:
        lanes = max(len(x) for x in inputs)
        spread = (np.ascontiguousarray(np.broadcast_to(x, (lanes,))).view(part) for x in inputs)
        return np.ascontiguousarray(compute(*spread)).view(whole)

    return both


# ---- integers -------------------------------------------------------------------------------


def _half_words(m: Modifiers, compute: Compute) -> Alu:
    name = m.type(*_HALF_WORDS).name
    packed = in_parts(compute, _HALF_WORDS[name], TYPES[name].dtype)
    return Alu((name,), (name, name), packed)


def minimum(m: Modifiers) -> Alu:
    """``min.u16x2``, ``min{.relu}.s16x2``."""
    return _extremum(m, np.minimum)


def maximum(m: Modifiers) -> Alu:
    """``max.u16x2``, ``max{.relu}.s16x2``."""
    return _extremum(m, np.maximum)


def _extremum(m: Modifiers, choose: np.ufunc) -> Alu:
    if not m.take("relu"):
        return _half_words(m, choose)
    if "s16x2" not in m.rest():
        raise UnknownForm("takes .relu only with signed types")
    return _half_words(m, lambda a, b: np.maximum(choose(a, b), np.int16(0)))


# ---- pairs of f32 ---------------------------------------------------------------------------


def add(m: Modifiers) -> Alu:
    """``add{.u16x2, .s16x2}``, ``add{.rnd}{.ftz}.f32x2``."""
    if any(name in _HALF_WORDS for name in m.rest()):
        return _half_words(m, np.add)
    return _pair(m, 2, floats.add_f32, m.one_of(*ROUNDINGS, default="rn"))


def sub(m: Modifiers) -> Alu:
    """``sub{.rnd}{.ftz}.f32x2``."""
    return _pair(m, 2, _sub_f32, m.one_of(*ROUNDINGS, default="rn"))


def mul(m: Modifiers) -> Alu:
    """``mul{.rnd}{.ftz}.f32x2``."""
    return _pair(m, 2, floats.mul_f32, m.one_of(*ROUNDINGS, default="rn"))


def fma(m: Modifiers) -> Alu:
    """``fma.rnd{.ftz}.f32x2``."""
    return _pair(m, 3, _fma_f32, m.one_of(*ROUNDINGS))


def _sub_f32(a: Array, b: Array, mode: str) -> Array:
    return floats.add_f32(a, -b, mode)


def _fma_f32(a: Array, b: Array, c: Array, mode: str) -> Array:
    return floats.fma_f32_nearest(a, b, c) if mode == "rn" else floats.fma_f32(a, b, c, mode)


def _pair(m: Modifiers, count: int, single: Compute, mode: str) -> Alu:
    ftz = m.take("ftz")
    kind = m.type("f32x2")
    compute: Compute = lambda *inputs: floats.by_block(lambda *x: single(*x, mode), *inputs)  # noqa: E731
    if ftz:
        compute = with_flush(compute)
    part = np.dtype(np.float32)
    return Alu(("f32x2",), ("f32x2",) * count, in_parts(compute, part, kind.dtype))


# ---- mixed precision ------------------------------------------------------------------------


def add_mixed(m: Modifiers) -> Alu:
    """``add{.rnd}{.sat}.f32.atype d, a, c``: a of f16 or bf16."""
    return _mixed(m, 1, lambda a, c, mode: floats.add_f32(a, c, mode), default="rn")


def sub_mixed(m: Modifiers) -> Alu:
    """``sub{.rnd}{.sat}.f32.atype d, a, c``: a of f16 or bf16."""
    return _mixed(m, 1, _sub_f32, default="rn")


def fma_mixed(m: Modifiers) -> Alu:
    """``fma.rnd{.sat}.f32.abtype d, a, b, c``: a and b of f16 or bf16."""
    return _mixed(m, 2, _fma_f32, default=None)


def _mixed(m: Modifiers, short: int, single: Compute, default: str | None) -> Alu:
    mode, sat = m.one_of(*ROUNDINGS, default=default), m.take("sat")
    m.type("f32")
    name = m.type(*_SHORT).name

    def block(*inputs: Array) -> Array:
        return single(*(x.astype(np.float32) for x in inputs), mode)

    def compute(*inputs: Array) -> Array:
        return floats.by_block(block, *inputs)

    operands = (*(name,) * short, "f32")
    return Alu(("f32",), operands, with_saturation(compute) if sat else compute)
