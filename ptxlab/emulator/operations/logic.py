"""Bitwise logic and shifts: and or xor not cnot lop3 shl shr shf.

PTX ISA, "Logic and Shift Instructions".
numpy's shifts give zero, or the sign, for counts from the width on, which is PTX's clamping.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.bits import COUNTS, MODES, bits
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.numbers.types import TYPES

WORDS = "b16 b32 b64"

_logic = partial(bits, effects=Effects(passes="bits"))
for _opcode, _function in (
    ("and", np.bitwise_and),
    ("or", np.bitwise_or),
    ("xor", np.bitwise_xor),
):
    _logic(f"{_opcode}.<T>", "T T -> T", _function, T=f"{WORDS} pred")
_logic("not.<T>", "T -> T", np.bitwise_not, T=f"{WORDS} pred")
bits("cnot.<T>", "T -> T", lambda a: (a == 0).astype(a.dtype), T=WORDS)


# ---- shifts ---------------------------------------------------------------------------------


def shift(move: np.ufunc, T: str) -> Callable[[Array, Array], Array]:
    """Return the shift of one type by counts of 32 bits."""
    kind = TYPES[T]
    dtype, width = kind.dtype, np.uint32(kind.bits)
    if kind.bits == 16:  # a count need not fit 16 bits
        return lambda a, count: move(a, np.minimum(count, width).astype(dtype))
    if dtype != np.uint32:
        return lambda a, count: move(a, count.astype(dtype))
    return move


def _funnel(way: str, mode: str) -> Callable[[Array, Array, Array], Array]:
    """Return 32 bits out of b:a, shifted left or right."""
    limited = COUNTS[mode]

    def compute(a: Array, b: Array, c: Array) -> Array:
        count = limited(c).astype(np.uint64)
        both = (b.astype(np.uint64) << 32) | a
        moved = (both << count) >> 32 if way == "l" else both >> count
        return moved.astype(np.uint32)

    return compute


_SHIFTED = f"{WORDS} u16 u32 u64 s16 s32 s64"
_moved = partial(bits, operands="T u32 -> T", effects=Effects(passes="shifted"))
_moved("shl.<T>", make=partial(shift, np.left_shift), T=WORDS)
_moved("shr.<T>", make=partial(shift, np.right_shift), T=_SHIFTED)
_both = partial(_moved, operands="b32 b32 u32 -> b32", make=_funnel)
_both("shf.<way>.<mode>.b32", way="l r", mode=MODES)


# ---- lop3 -----------------------------------------------------------------------------------

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


def _lop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    return lookup3(int(table[0]) & 0xFF)(a, b, c)


def _lop3_and_predicate(boolean: str) -> Callable[..., tuple[Array, Array]]:
    both = np.bitwise_and if boolean == "and" else np.bitwise_or

    def compute(a: Array, b: Array, c: Array, table: Array, q: Array) -> tuple[Array, Array]:
        d = _lop3(a, b, c, table)
        return d, both(d != 0, q)

    return compute


_logic("lop3.b32", "b32 b32 b32 #u32 -> b32", _lop3)
bits(
    "lop3.<boolean>.b32",
    "b32 b32 b32 #u32 pred -> b32?|pred",
    make=_lop3_and_predicate,
    needs="sm_70 8.2",
    boolean="and or",
)
