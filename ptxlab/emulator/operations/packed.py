"""Arithmetic on two f32 in one register, and on f32 with 16-bit factors or terms.

PTX ISA: the .f32x2 forms of "Floating-Point Instructions: add, sub, mul, fma", and "Mixed Precision
Floating-Point Instructions". 16-bit numbers are exact in f32, so a mixed operation rounds once.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.floating import (
    RND,
    Compute,
    FormatOperation,
    add,
    arithmetic,
    floating,
    fma,
    modified,
    mul,
    sub,
)

_blackwell = partial(floating, needs="sm_100 8.6", rnd=RND)


def _mixed(operation: FormatOperation, rnd: str, sat: str, A: str) -> Compute:
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
