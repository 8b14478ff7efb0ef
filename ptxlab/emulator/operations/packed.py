"""Arithmetic on several numbers in one register, and on f32 with 16-bit factors or terms.

PTX ISA: the .f32x2 forms of "Floating-Point Instructions: add, sub, mul, fma", "Mixed Precision
Floating-Point Instructions", and those of four numbers of 8, 6 or 4 bits. 16-bit numbers are exact in f32, and
sums and products of smaller ones in float64, so each operation rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array, looked_up
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
from ptxlab.emulator.prepare.forms import refuse
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.rounding import flush, narrow
from ptxlab.numbers.types import TYPES, joined, packing, unpacked

_blackwell = partial(floating, needs="sm_100 8.6", rnd=RND)
_rubin = partial(floating, needs="sm_107f 9.4")


def _mixed(operation: FormatOperation, rnd: str, sat: str, A: str) -> Compute:
    """Return an operation on f32 whose factors, or first term, are of ``A``."""
    compute = operation("f32", rnd or "rn")

    def widened(*inputs: Array) -> Array:
        return compute(*(x.astype(np.float32) for x in inputs))

    return modified(widened, "f32", sat=sat)


def _mixed_pairs(operation: FormatOperation, A: str, rnd: str = "") -> Compute:
    """Return an operation on pairs of f32 whose first operand is a pair of 16-bit numbers."""
    single = _mixed(operation, rnd, "", packing(A)[0])

    def compute(first: Array, *others: Array) -> Array:
        pairs = zip(unpacked(A, first), unpacked("f32x2", *others), strict=True)
        halves = (single(*short, *wide) for short, wide in pairs)
        return joined(*halves, dtype=TYPES["f32x2"].dtype)

    return compute


def _narrowed_pairs(operation: FormatOperation, D: str, ftz: str = "") -> Compute:
    """Return an operation on pairs of f32 that is cut off to 16 bits: twice, which is as good as once."""
    fmt, compute = FORMATS[packing(D)[0]], operation("f32", "rz")

    def narrowed(a: Array, b: Array) -> Array:
        if ftz:
            return flush(narrow(compute(flush(a), flush(b)), fmt, "rz"), fmt)
        return narrow(compute(a, b), fmt, "rz")

    def both(*words: Array) -> Array:
        return joined(*(narrowed(*each) for each in unpacked("f32x2", *words)), dtype=np.uint32)

    return both


for _opcode, _operation in (("add", add), ("sub", sub), ("mul", mul)):
    _make = partial(arithmetic, _operation)
    _blackwell(_opcode + "{.<rnd>}{.ftz}.<T>", "T T -> T", make=_make, work=1, T="f32x2")
    _cut = partial(_narrowed_pairs, _operation)
    _rubin(f"{_opcode}.rz.<D>.f32x2.f32x2", "f32x2 f32x2 -> D", make=_cut, work=1, D="bf16x2")
    _rubin(  # what .ftz is about, f32 or f16, the PTX ISA leaves open: here both
        f"{_opcode}.rz.<ftz>.<D>.f32x2.f32x2",
        "f32x2 f32x2 -> D",
        make=_cut,
        work=1,
        fidelity="unverified",
        ftz="ftz",
        D="f16x2",
    )
_make = partial(arithmetic, fma)
_blackwell("fma.<rnd>{.ftz}.<T>", "T T T -> T", make=_make, work=2, T="f32x2")
for _opcode, _operation in (("add", add), ("sub", sub)):
    _make = partial(_mixed, _operation)
    _blackwell(_opcode + "{.<rnd>}{.sat}.f32.<A>", "A f32 -> f32", make=_make, work=1, A="f16 bf16")
    _rubin(
        f"{_opcode}{{.<rnd>}}.f32x2.<A>.f32x2",
        "A f32x2 -> f32x2",
        make=partial(_mixed_pairs, _operation),
        work=1,
        rnd=RND,
        A="f16x2 bf16x2",
    )
_make = partial(_mixed, fma)
_blackwell("fma.<rnd>{.sat}.f32.<A>", "A A f32 -> f32", make=_make, work=2, A="f16 bf16")
_rubin(
    "fma.<rnd>.f32x2.<A>.f32x2.f32x2",
    "A f32x2 f32x2 -> f32x2",
    make=partial(_mixed_pairs, fma),
    work=2,
    rnd=RND,
    A="f16x2 bf16x2",
)
for _T in ("bf16x2.bf16x2.f16x2", "f16x2.f16x2.bf16x2"):
    refuse(f"mul.{_T}", "the PTX ISA leaves open how the second factor is rounded")
for _opcode in ("add", "sub"):
    for _T in ("bf16x2", "ftz.f16x2"):
        refuse(f"{_opcode}.{_T}.f32x2.f32x2", "the PTX ISA has it with .rz, though ptxas takes it")


# ---- four numbers of 8, 6 or 4 bits ---------------------------------------------------------

_NARROW = "e2m1x4"
"""The type of four numbers that take 16 bits; with four bits above each of them they are e2m1p4x4."""
_WIDE = "e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1p4x4 ue8m0x4"


def _decoded(T: str, word: Array) -> list[Array]:
    """Return four numbers as float64, from the lowest bits on."""
    fmt, cell = FORMATS[T[:-2].removesuffix("p4")], 4 if T == _NARROW else 8
    values = fmt.decode(np.arange(256, dtype=np.uint8))[0].view(np.uint64)
    codes = (word >> word.dtype.type(cell * at) for at in range(4))
    mask = word.dtype.type((1 << fmt.bits) - 1)
    return [looked_up(code & mask, values).view(np.float64) for code in codes]


def _four(
    exact: Callable[..., Array],
    D: str,
    A: str,
    B: str = "",
    c: str = "D",
    rnd: str = "",
    satfinite: str = "",
) -> Compute:
    """Return an operation on four numbers of A, of B where there is one, and, if it adds ``c``, of D."""
    fmt, types = FORMATS[D[:-2]], [T for T in (A, B, D if c else "") if T]

    def compute(*words: Array) -> Array:
        each = zip(*map(_decoded, types, words), strict=True)
        codes = (narrow(exact(*four), fmt, rnd or "rn", finite=bool(satfinite)) for four in each)
        return joined(*(code.view(fmt.word) for code in codes), dtype=np.uint32)

    return compute


_four_of = partial(
    floating,
    needs="sm_100a sm_103a 9.4",
    fidelity="unverified",
    rnd="rn",
    D="e4m3x4 e5m2x4",
)
for _first, _A in (("b16", _NARROW), ("b32", _WIDE)):
    for _opcode, _exact in (("add", np.add), ("sub", np.subtract)):
        _start, _make = f"{_opcode}{{.<rnd>}}{{.satfinite}}", partial(_four, _exact)
        _four_of(f"{_start}.<D>.<A>", f"{_first} b32 -> b32", make=_make, work=1, A=_A)
    for _second, _B in (("b16", _NARROW), ("b32", _WIDE)):
        _factors = partial(_four_of, A=_A, B=_B)
        _factors(
            "mul{.<rnd>}{.satfinite}.<D>.<A>.<B>",
            f"{_first} {_second} -> b32",
            make=partial(_four, np.multiply, c=""),
            work=1,
        )
        _factors(
            "fma{.<rnd>}{.satfinite}.<D>.<A>.<B>",
            f"{_first} {_second} b32 -> b32",
            make=partial(_four, lambda a, b, c: a * b + c),
            work=2,
        )
