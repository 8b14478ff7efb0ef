"""Integer arithmetic: add to mad, their carry forms, division, 24-bit and dot products.

PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic
Instructions". Everything wraps. Division by zero is unspecified there; here quotient and remainder
are all ones, which is what the code that ptxas generates for 32 and 64 bits returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ptxlab.emulator.prepare.forms import refuse
from ptxlab.emulator.prepare.row import Array, row
from ptxlab.numbers.types import TYPES

INTEGERS = "u16 u32 u64 s16 s32 s64"
SIGNED = "s16 s32 s64"
CARRIED = "u32 u64 s32 s64"
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}

Binary = Callable[[Array, Array], Array]

integer = partial(row, mix="integer")


def clamp_s32(wide: Array) -> Array:
    """Clamp int64 numbers to the range of s32."""
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


# ---- add, sub -------------------------------------------------------------------------------


def add_saturated(a: Array, b: Array) -> Array:
    """Add s32 to s32, clamped."""
    return clamp_s32(np.add(a, b, dtype=np.int64))


def subtract_saturated(a: Array, b: Array) -> Array:
    """Subtract s32 from s32, clamped."""
    return clamp_s32(np.subtract(a, b, dtype=np.int64))


integer("add.<T>", "T T -> T", np.add, work=1, T=INTEGERS)
integer("add.sat.s32", "s32 s32 -> s32", add_saturated, work=1)
integer("sub.<T>", "T T -> T", np.subtract, work=1, T=INTEGERS)
integer("sub.sat.s32", "s32 s32 -> s32", subtract_saturated, work=1)


# ---- carries --------------------------------------------------------------------------------

_NO_CARRY = np.zeros(1, bool)


def _unsigned(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def add_carry(a: Array, b: Array, carry: Array = _NO_CARRY) -> tuple[Array, Array]:
    """Return a + b + carry, and the carry out of it."""
    x, y = _unsigned(a), _unsigned(b)
    part = x + y
    total = part + carry
    return total.view(a.dtype), (part < x) | (total < part)


_CARRY = np.ones(1, bool)


def subtract_carry(a: Array, b: Array, carry: Array = _CARRY) -> tuple[Array, Array]:
    """Return a + ~b + carry, and the carry out of it: as the machine subtracts, no borrow is 1.

    The PTX ISA speaks of a borrow; that the flag is this carry shows where additions and subtractions
    follow each other. ptxas makes IADD3 with -b of sub.cc, and IADD3.X with ~b of subc.
    """
    return add_carry(a, ~b, carry)


integer("add.cc.<T>", "T T -> T cc", add_carry, work=1, T=CARRIED)
integer("sub.cc.<T>", "T T -> T cc", subtract_carry, work=1, T=CARRIED)
integer("addc.<T>", "T T cc -> T", lambda a, b, c: add_carry(a, b, c)[0], work=1, T=CARRIED)
integer("addc.cc.<T>", "T T cc -> T cc", add_carry, work=1, T=CARRIED)
integer("subc.<T>", "T T cc -> T", lambda a, b, c: subtract_carry(a, b, c)[0], work=1, T=CARRIED)
integer("subc.cc.<T>", "T T cc -> T cc", subtract_carry, work=1, T=CARRIED)


# ---- mul, mad -------------------------------------------------------------------------------

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def product_wide(dtype: np.dtype[np.generic], a: Array, b: Array) -> Array:
    """Return the whole product in ``dtype``, twice as wide as a and b."""
    return a.astype(dtype) * b


def product_high(T: str) -> Binary:
    """Return the function giving the upper half of the double-width product."""
    kind = TYPES[T]
    if T in WIDER:
        wide, bits = TYPES[WIDER[T]].dtype, kind.bits
        return lambda a, b: ((a.astype(wide) * b) >> bits).astype(kind.dtype)
    return _high_u64 if T == "u64" else _high_s64


def _high_u64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW_32, a >> _32, b & _LOW_32, b >> _32
    cross = a1 * b0 + ((a0 * b0) >> _32)
    middle = (cross & _LOW_32) + a0 * b1
    high: Array = a1 * b1 + (cross >> _32) + (middle >> _32)
    return high


def _high_s64(a: Array, b: Array) -> Array:
    high = _high_u64(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
    return high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def _mad_high(T: str) -> Callable[[Array, Array, Array], Array]:
    high = product_high(T)
    return lambda a, b, c: high(a, b) + c


def _mad_wide(dtype: np.dtype[np.generic], a: Array, b: Array, c: Array) -> Array:
    return product_wide(dtype, a, b) + c


def _mad_high_saturated() -> Callable[[Array, Array, Array], Array]:
    high = product_high("s32")
    return lambda a, b, c: clamp_s32(high(a, b).astype(np.int64) + c)


def _mad_carry(half: str, T: str) -> Callable[..., tuple[Array, Array]]:
    product = _product(half, T)
    return lambda a, b, c, carry=_NO_CARRY: add_carry(product(a, b), c, carry)


def _mad_carry_in(half: str, T: str) -> Callable[..., Array]:
    product = _product(half, T)
    return lambda a, b, c, carry: add_carry(product(a, b), c, carry)[0]


def _product(half: str, T: str) -> Binary:
    return np.multiply if half == "lo" else product_high(T)


integer("mul.lo.<T>", "T T -> T", np.multiply, work=1, T=INTEGERS)
integer("mul.hi.<T>", "T T -> T", make=product_high, work=1, T=INTEGERS)
integer("mad.lo.<T>", "T T T -> T", lambda a, b, c: a * b + c, work=2, T=INTEGERS)
integer("mad.hi.<T>", "T T T -> T", make=_mad_high, work=2, T=INTEGERS)
integer("mad.hi.sat.s32", "s32 s32 s32 -> s32", make=_mad_high_saturated, work=2)
for _T, _W in WIDER.items():
    _wide = TYPES[_W].dtype
    integer(f"mul.wide.{_T}", f"{_T} {_T} -> {_W}", partial(product_wide, _wide), work=1)
    integer(f"mad.wide.{_T}", f"{_T} {_T} {_W} -> {_W}", partial(_mad_wide, _wide), work=2)

carried = partial(integer, work=2, half="lo hi", T=CARRIED)
carried("mad.<half>.cc.<T>", "T T T -> T cc", make=_mad_carry)
carried("madc.<half>.<T>", "T T T cc -> T", make=_mad_carry_in)
carried("madc.<half>.cc.<T>", "T T T cc -> T cc", make=_mad_carry)

for _opcode in ("addc", "subc", "madc.lo", "madc.hi"):
    for _T in ("u16", "s16"):
        refuse(f"{_opcode}.{_T}", "not in the PTX ISA, though ptxas takes it")


# ---- division -------------------------------------------------------------------------------


def _unless_zero(divisor: Array, result: Array) -> Array:
    if divisor.all():
        return result
    return np.where(divisor == 0, ~np.zeros(1, result.dtype), result)


def quotient(a: Array, b: Array) -> Array:
    """Divide unsigned numbers; all ones for a zero divisor."""
    return _unless_zero(b, a // b)


def quotient_signed(a: Array, b: Array) -> Array:
    """Divide and truncate; all ones for a zero divisor; INT_MIN / -1 wraps."""
    return _unless_zero(b, (a - np.fmod(a, b)) // b)


def remainder(a: Array, b: Array) -> Array:
    """Return what is left, with the sign of the dividend; all ones for a zero divisor."""
    return _unless_zero(b, np.fmod(a, b))


integer("div.<T>", "T T -> T", quotient, T="u16 u32 u64")
integer("div.<T>", "T T -> T", quotient_signed, T=SIGNED)
integer("rem.<T>", "T T -> T", remainder, T=INTEGERS)


# ---- neg, abs, min, max, sad ----------------------------------------------------------------


def not_negative(choose: Binary) -> Binary:
    """Return ``choose`` with what is negative replaced by 0 (``.relu``)."""
    return lambda a, b: np.maximum(choose(a, b), 0)


def _sad(a: Array, b: Array, c: Array) -> Array:
    """Return c + |a - b|."""
    return np.maximum(a, b) - np.minimum(a, b) + c


integer("neg.<T>", "T -> T", np.negative, T=SIGNED)
integer("abs.<T>", "T -> T", np.abs, T=SIGNED)  # of the smallest number: itself
for _opcode, _choose in (("min", np.minimum), ("max", np.maximum)):
    integer(f"{_opcode}.<T>", "T T -> T", _choose, T=INTEGERS)
    integer(f"{_opcode}.relu.s32", "s32 s32 -> s32", not_negative(_choose), needs="sm_90 8.0")
integer("sad.<T>", "T T T -> T", _sad, T=INTEGERS)


# ---- 24 bits, dot products ------------------------------------------------------------------


def product24(a: Array, b: Array, shift: int) -> Array:
    """Return 32 bits, from bit ``shift`` on, of the 48-bit product of the low 24 bits."""
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    product = ((a << 8) >> 8).astype(wide) * ((b << 8) >> 8)
    return (product >> shift if shift else product).astype(a.dtype)


def _mad24_saturated(a: Array, b: Array, c: Array) -> Array:
    return clamp_s32(product24(a, b, 16).astype(np.int64) + c)


for _half, _shift in (("lo", 0), ("hi", 16)):
    _times = partial(product24, shift=_shift)
    _plus = partial(lambda times, a, b, c: times(a, b) + c, _times)
    integer(f"mul24.{_half}.<T>", "T T -> T", _times, work=1, T="u32 s32")
    integer(f"mad24.{_half}.<T>", "T T T -> T", _plus, work=2, T="u32 s32")
integer("mad24.hi.sat.s32", "s32 s32 s32 -> s32", _mad24_saturated, work=2)


def _part(word: Array, bits: int, index: int) -> Array:
    """Return part ``index`` of ``bits`` bits of each 32-bit word, extended as its type says."""
    return (word << (32 - bits * (index + 1))) >> (32 - bits)


def dot(parts: Sequence[tuple[int, int]], a_bits: int, a: Array, b: Array, c: Array) -> Array:
    """Add the products of the given pairs of parts, bytes of b, to c; everything modulo 2**32."""
    total = c
    for left, right in parts:
        product = _part(a, a_bits, left).view(c.dtype) * _part(b, 8, right).view(c.dtype)
        total = total + product
    return total


# Two 16-bit parts of a go with the lower or the upper bytes of b.
_PAIRS = {"lo": [(0, 0), (1, 1)], "hi": [(0, 2), (1, 3)]}

_DOTS = (("u32", "u32", "u32"), ("u32", "s32", "s32"), ("s32", "u32", "s32"), ("s32", "s32", "s32"))

for _A, _B, _C in _DOTS:
    _types = f"{_A} {_B} {_C} -> {_C}"
    integer(f"dp4a.{_A}.{_B}", _types, partial(dot, [(i, i) for i in range(4)], 8), work=8)
    for _half, _parts in _PAIRS.items():
        integer(f"dp2a.{_half}.{_A}.{_B}", _types, partial(dot, _parts, 16), work=4)
