"""Integer arithmetic: add to mad, their carry forms, pairs of 16 bits, division, 24-bit and dot products.

PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic
Instructions". Everything wraps. Division by zero is unspecified there; here quotient and remainder
are all ones, which is what the code that ptxas generates for 32 and 64 bits returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ptxlab.arrays import Array, intrinsic, some
from ptxlab.emulator.prepare.forms import refuse
from ptxlab.emulator.prepare.row import Binary, row
from ptxlab.numbers.types import TYPES, limits, packed, packing

INTEGERS = "u16 u32 u64 s16 s32 s64"
SIGNED = "s16 s32 s64"
CARRIED = "u32 u64 s32 s64"
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


integer = partial(row, mix="integer")


def clamp_s32(wide: Array) -> Array:
    """Clamp int64 numbers to the range of s32."""
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


# ---- add, sub -------------------------------------------------------------------------------


BYTES = "sm_107f sm_120f 9.2"
"""What has four numbers of 8 bits in a register, and with them sums that saturate."""


def _saturated(function: np.ufunc, T: str) -> Binary:
    """Return ``function``, whose results are clamped to what an integer type has."""
    dtype, (least, most) = TYPES[T].dtype, limits(T)
    return lambda a, b: np.clip(function(a, b, dtype=np.int64), least, most).astype(dtype)


for _opcode, _function in (("add", np.add), ("sub", np.subtract)):
    _sum = partial(integer, operands="T T -> T", work=1)
    _sum(_opcode + ".<T>", compute=_function, T=INTEGERS)
    _sum(_opcode + ".sat.<T>", make=partial(_saturated, _function), T="s32")
integer("add.sat.u32", "u32 u32 -> u32", _saturated(np.add, "u32"), work=1, needs=BYTES)


# ---- carries --------------------------------------------------------------------------------

Carrying = Callable[..., tuple[Array, Array]]

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


def _without_flag(compute: Carrying) -> Callable[..., Array]:
    return lambda *inputs: compute(*inputs)[0]


for _opcode, _carrying in (("add", add_carry), ("sub", subtract_carry)):
    _row = partial(integer, work=1, T=CARRIED)
    _row(_opcode + ".cc.<T>", "T T -> T cc", _carrying)
    _row(_opcode + "c.<T>", "T T cc -> T", _without_flag(_carrying))
    _row(_opcode + "c.cc.<T>", "T T cc -> T cc", _carrying)


# ---- mul, mad -------------------------------------------------------------------------------

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def _product(half: str, T: str) -> Binary:
    """Return the function giving a half of the double-width product."""
    if half == "lo":
        return low_product if TYPES[T].bits == 64 else np.multiply
    if T not in WIDER:
        return _high_u64 if T == "u64" else _high_s64
    whole, kind = _whole_product(T), TYPES[T]
    return lambda a, b: (whole(a, b) >> kind.bits).astype(kind.dtype)


@intrinsic
def low_product(a: Array, b: Array) -> Array:
    """Return the low half of the products of words of 64 bits."""
    product: Array = a * b
    return product


def _whole_product(T: str) -> Binary:
    dtype = TYPES[WIDER[T]].dtype
    return lambda a, b: a.astype(dtype) * b


def _high_u64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW_32, a >> _32, b & _LOW_32, b >> _32
    cross = a1 * b0 + ((a0 * b0) >> _32)
    middle = (cross & _LOW_32) + a0 * b1
    high: Array = a1 * b1 + (cross >> _32) + (middle >> _32)
    return high


def _high_s64(a: Array, b: Array) -> Array:
    high = _high_u64(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
    return high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def _plus(product: Binary) -> Callable[..., Array]:
    return lambda a, b, c: product(a, b) + c


def _plus_saturated(product: Binary) -> Callable[..., Array]:
    return lambda a, b, c: clamp_s32(product(a, b).astype(np.int64) + c)


def _mad(half: str, T: str) -> Callable[..., Array]:
    return _plus(_product(half, T))


def _mad_carry(half: str, T: str) -> Carrying:
    product = _product(half, T)
    return lambda a, b, c, carry=_NO_CARRY: add_carry(product(a, b), c, carry)


def _mad_carry_in(half: str, T: str) -> Callable[..., Array]:
    return _without_flag(_mad_carry(half, T))


for _half in ("lo", "hi"):
    _times = partial(integer, operands="T T -> T", work=1)
    _times(f"mul.{_half}.<T>", make=partial(_product, _half), T=INTEGERS)
    _plus_too = partial(integer, work=2)
    _plus_too(f"mad.{_half}.<T>", "T T T -> T", make=partial(_mad, _half), T=INTEGERS)
_high_plus = _plus_saturated(_product("hi", "s32"))
integer("mad.hi.sat.s32", "s32 s32 s32 -> s32", _high_plus, work=2)
for _T, _W in WIDER.items():
    _whole = _whole_product(_T)
    _times = partial(integer, work=1)
    _times(f"mul.wide.{_T}", f"{_T} {_T} -> {_W}", _whole)
    _plus_too = partial(integer, work=2)
    _plus_too(f"mad.wide.{_T}", f"{_T} {_T} {_W} -> {_W}", _plus(_whole))

carried = partial(integer, work=2, half="lo hi", T=CARRIED)
carried("mad.<half>.cc.<T>", "T T T -> T cc", make=_mad_carry)
carried("madc.<half>.<T>", "T T T cc -> T", make=_mad_carry_in)
carried("madc.<half>.cc.<T>", "T T T cc -> T cc", make=_mad_carry)

for _opcode in ("addc", "subc", "madc.lo", "madc.hi"):
    for _T in ("u16", "s16"):
        refuse(f"{_opcode}.{_T}", "not in the PTX ISA, though ptxas takes it")


# ---- without carries -------------------------------------------------------------------------


def _carryless(half: str, a: Array, b: Array, c: Array) -> Array:
    """Return half of the product of polynomials over GF(2), of which bits are the coefficients, plus c."""
    total = c
    for bit in range(64) if half == "lo" else range(1, 64):
        times = a << bit if half == "lo" else a >> (64 - bit)
        total = total ^ (times & np.negative(b >> bit & 1))
    return total


for _half in ("lo", "hi"):
    _polynomials = partial(_carryless, _half)
    integer(f"clmad.{_half}.u64", "u64 u64 u64 -> u64", _polynomials, work=2, needs="sm_80 9.3")


# ---- division -------------------------------------------------------------------------------


def _unless_zero(divisor: Array, result: Array) -> Array:
    zero = divisor == 0
    if not some(zero):
        return result
    return np.where(zero, ~np.zeros(1, result.dtype), result)


def quotient(a: Array, b: Array) -> Array:
    """Divide unsigned numbers; all ones for a zero divisor."""
    return _unless_zero(b, a // b)


@intrinsic
def quotient_signed(a: Array, b: Array) -> Array:
    """Divide and truncate; all ones for a zero divisor; INT_MIN / -1 wraps."""
    return _unless_zero(b, (a - np.fmod(a, b)) // b)


def remainder(a: Array, b: Array) -> Array:
    """Return what is left, with the sign of the dividend; all ones for a zero divisor."""
    return _unless_zero(b, np.fmod(a, b))


_divided = partial(integer, operands="T T -> T")
_divided("div.<T>", compute=quotient, T="u16 u32 u64")
_divided("div.<T>", compute=quotient_signed, T=SIGNED)
integer("rem.<T>", "T T -> T", remainder, T=INTEGERS)


# ---- neg, abs, min, max, sad ----------------------------------------------------------------


def _not_negative(choose: Binary) -> Binary:
    """Return ``choose`` with what is negative replaced by 0 (``.relu``)."""
    return lambda a, b: np.maximum(choose(a, b), 0)


def _sad(a: Array, b: Array, c: Array) -> Array:
    """Return c + |a - b|."""
    return np.maximum(a, b) - np.minimum(a, b) + c


integer("neg.<T>", "T -> T", np.negative, T=SIGNED)
integer("abs.<T>", "T -> T", np.abs, T=SIGNED)
for _opcode, _choose in (("min", np.minimum), ("max", np.maximum)):
    integer(f"{_opcode}.<T>", "T T -> T", _choose, T=INTEGERS)
    integer(f"{_opcode}.relu.s32", "s32 s32 -> s32", _not_negative(_choose), needs="sm_90 8.0")


def _packed_saturated(function: np.ufunc, T: str) -> Callable[..., Array]:
    return packed(_saturated(function, packing(T)[0]), T)


_pairs = partial(integer, operands="T T -> T", needs="sm_90 8.0")
_bytes = partial(integer, operands="T T -> T", needs=BYTES)
_pairs("add.<T>", make=partial(packed, np.add), work=1, T="u16x2 s16x2")
_bytes("add.sat.<T>", make=partial(_packed_saturated, np.add), work=1, T="u16x2 s16x2")
for _opcode, _function in (("add", np.add), ("sub", np.subtract)):
    _bytes(_opcode + ".<T>", make=partial(packed, _function), work=1, T="u8x4 s8x4")
    _saturating = partial(_packed_saturated, _function)
    _bytes(_opcode + ".sat.<T>", make=_saturating, work=1, T="u8x4 s8x4")
for _opcode, _choose in (("min", np.minimum), ("max", np.maximum)):
    for _several, _without, _with_sign in ((_pairs, "u16x2", "s16x2"), (_bytes, "u8x4", "s8x4")):
        _several(_opcode + ".<T>", make=partial(packed, _choose), T=f"{_without} {_with_sign}")
        _relu = partial(packed, _not_negative(_choose))
        _several(_opcode + ".relu.<T>", make=_relu, T=_with_sign)
integer("neg.<T>", "T -> T", make=partial(packed, np.negative), needs=BYTES, T="s8x4")
integer("sad.<T>", "T T T -> T", _sad, T=INTEGERS)


# ---- 24 bits, dot products ------------------------------------------------------------------


def product24(a: Array, b: Array, shift: int) -> Array:
    """Return 32 bits, from bit ``shift`` on, of the 48-bit product of the low 24 bits."""
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    product = ((a << 8) >> 8).astype(wide) * ((b << 8) >> 8)
    return (product >> shift if shift else product).astype(a.dtype)


for _half, _shift in (("lo", 0), ("hi", 16)):
    _product24 = partial(product24, shift=_shift)
    integer(f"mul24.{_half}.<T>", "T T -> T", _product24, work=1, T="u32 s32")
    integer(f"mad24.{_half}.<T>", "T T T -> T", _plus(_product24), work=2, T="u32 s32")
_high_plus = _plus_saturated(partial(product24, shift=16))
integer("mad24.hi.sat.s32", "s32 s32 s32 -> s32", _high_plus, work=2)


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
