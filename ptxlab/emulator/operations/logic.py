"""Bitwise logic and shifts: and or xor not cnot lop3 shl shr shf, and mov.

PTX ISA, "Logic and Shift Instructions" and "Data Movement and Conversion Instructions: mov".
numpy's shifts give zero, or the sign, for counts from the width on, which is PTX's clamping.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, alu

_WORDS = ("b16", "b32", "b64")


def _register(opcode: str, compute: np.ufunc) -> None:
    @alu(opcode)
    def build(m: Modifiers) -> Alu:
        name = m.type("pred", *_WORDS).name
        return Alu((name,), (name,) * compute.nin, compute)


_register("and", np.bitwise_and)
_register("or", np.bitwise_or)
_register("xor", np.bitwise_xor)
_register("not", np.bitwise_not)


@alu("cnot")
def _cnot(m: Modifiers) -> Alu:
    """``cnot.type``: 1 for zero, else 0."""
    kind = m.type(*_WORDS)
    return Alu((kind.name,), (kind.name,), lambda a: (a == 0).astype(kind.dtype))


def _shift(m: Modifiers, compute: np.ufunc, *types: str) -> Alu:
    kind = m.type(*types)
    dtype, width = kind.dtype, np.uint32(kind.bits)
    shift: Callable[[Array, Array], Array] = compute
    if kind.bits == 16:  # a count need not fit 16 bits
        shift = lambda a, count: compute(a, np.minimum(count, width).astype(dtype))  # noqa: E731
    elif dtype != np.uint32:
        shift = lambda a, count: compute(a, count.astype(dtype))  # noqa: E731
    return Alu((kind.name,), (kind.name, "u32"), shift)


@alu("shl")
def _shl(m: Modifiers) -> Alu:
    """``shl.type``: zero for counts from the width on."""
    return _shift(m, np.left_shift, *_WORDS)


@alu("shr")
def _shr(m: Modifiers) -> Alu:
    """``shr.type``: zero, or the sign of signed types, for counts from the width on."""
    signs = (f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
    return _shift(m, np.right_shift, *_WORDS, *signs)


@alu("shf")
def _shf(m: Modifiers) -> Alu:
    """``shf{.l, .r}{.clamp, .wrap}.b32``: 32 bits out of b:a shifted left or right."""
    left = m.one_of("l", "r") == "l"
    clamp = m.one_of("clamp", "wrap") == "clamp"
    m.type("b32")

    def compute(a: Array, b: Array, c: Array) -> Array:
        count = np.minimum(c, np.uint32(32)) if clamp else c & np.uint32(31)
        both = (b.astype(np.uint64) << 32) | a
        moved = (both << count.astype(np.uint64)) >> 32 if left else both >> count
        return moved.astype(np.uint32)

    return Alu(("b32",), ("b32", "b32", "u32"), compute)


_Two = Callable[[Array, Array], Array]
_ZERO, _ONES = np.zeros(1, np.uint32), np.full(1, 0xFFFFFFFF, np.uint32)

# The sixteen functions of two bits; bit 2b + c of the index is the value at (b, c).
_TWO_INPUTS: tuple[_Two, ...] = (
    lambda b, c: _ZERO,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: _ONES,
)


@cache
def lookup3(table: int) -> Callable[[Array, Array, Array], Array]:
    """Return the bitwise function of three words with the 8-bit truth table ``table``.

    It is f(0, b, c) ^ (a & (f(0, b, c) ^ f(1, b, c))), each part a function of two words.
    """
    low, high = table & 15, table >> 4
    base, change = _TWO_INPUTS[low], _TWO_INPUTS[low ^ high]
    if low == high:
        return lambda a, b, c: base(b, c)
    if low == 0:
        return lambda a, b, c: a & change(b, c)
    return lambda a, b, c: base(b, c) ^ (a & change(b, c))


@alu("lop3")
def _lop3(m: Modifiers) -> Alu:
    """``lop3.b32 d, a, b, c, immLut``; ``lop3{.or, .and}.b32 d|p, a, b, c, immLut, q``."""
    combine = m.one_of("or", "and", default="")
    m.type("b32")

    def plain(a: Array, b: Array, c: Array, table: Array) -> Array:
        return lookup3(int(table[0]) & 0xFF)(a, b, c)

    operands = ("b32", "b32", "b32", "u32")
    if not combine:
        return Alu(("b32",), operands, plain)
    both = np.bitwise_and if combine == "and" else np.bitwise_or

    def with_predicate(a: Array, b: Array, c: Array, table: Array, q: Array) -> tuple[Array, Array]:
        d = plain(a, b, c, table)
        return d, both(d != 0, q)

    return Alu(("b32", "pred"), (*operands, "pred"), with_predicate)


@alu("mov")
def _mov(m: Modifiers) -> Alu:
    """``mov.type d, a`` of scalars."""
    kinds = [f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)]
    name = m.type("pred", *kinds, "f32", "f64", "b128").name
    return Alu((name,), (name,), lambda a: a)
