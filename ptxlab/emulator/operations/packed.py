"""Arithmetic on two values in one register, and on f32 with 16-bit factors or terms.

PTX ISA: the .u16x2 and .s16x2 forms of "Integer Arithmetic Instructions: add, min, max", the .f32x2
forms of "Floating-Point Instructions: add, sub, mul, fma", and "Mixed Precision Floating-Point
Instructions". 16-bit numbers are exact in f32, so a mixed operation rounds once.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.emulator.operations.floating import (
    RND,
    Compute,
    Operation,
    add,
    arithmetic,
    floating,
    fma,
    modified,
    mul,
    sub,
)
from ptxlab.emulator.operations.integer import integer, not_negative
from ptxlab.emulator.prepare.row import Array
from ptxlab.numbers.types import packed

# ---- integers -------------------------------------------------------------------------------

_halves = partial(integer, operands="T T -> T", needs="sm_90 8.0")

for _opcode, _function, _work in (
    ("add", np.add, 1),
    ("min", np.minimum, 0),
    ("max", np.maximum, 0),
):
    _halves(_opcode + ".<T>", make=partial(packed, _function), work=_work, T="u16x2 s16x2")
for _opcode, _function in (("min", np.minimum), ("max", np.maximum)):
    _halves(_opcode + ".relu.<T>", make=partial(packed, not_negative(_function)), T="s16x2")


# ---- pairs of f32, mixed precision ----------------------------------------------------------

_blackwell = partial(floating, needs="sm_100 8.6", rnd=RND)


def _mixed(operation: Operation, rnd: str, sat: str, A: str) -> Compute:
    """Return an operation on f32 whose factors, or first term, are of ``A``."""
    compute = operation("f32", rnd or "rn")

    def widened(*inputs: Array) -> Array:
        return compute(*(x.astype(np.float32) for x in inputs))

    return modified(widened, "f32", sat=sat)


for _opcode, _operation in (("add", add), ("sub", sub), ("mul", mul)):
    _make = partial(arithmetic, _operation)
    _blackwell(_opcode + "{.<rnd>}{.ftz}.<T>", "T T -> T", make=_make, work=1, T="f32x2")
_make = partial(arithmetic, fma)
_blackwell("fma.<rnd>{.ftz}.<T>", "T T T -> T", make=_make, work=2, T="f32x2")
for _opcode, _operation in (("add", add), ("sub", sub)):
    _make = partial(_mixed, _operation)
    _blackwell(_opcode + "{.<rnd>}{.sat}.f32.<A>", "A f32 -> f32", make=_make, work=1, A="f16 bf16")
_make = partial(_mixed, fma)
_blackwell("fma.<rnd>{.sat}.f32.<A>", "A A f32 -> f32", make=_make, work=2, A="f16 bf16")
