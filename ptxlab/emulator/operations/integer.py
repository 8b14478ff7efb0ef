"""Integer arithmetic: add to mad, their carry forms, division, 24-bit and dot products.

PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic
Instructions". Everything wraps. Division by zero is unspecified there; here quotient and remainder
are all ones, which is what the code that ptxas generates for 32 and 64 bits returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, UnknownForm, alu
from ptxlab.isa.types import TYPES, ScalarType

INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def binary(kind: ScalarType, compute: Callable[[Array, Array], Array]) -> Alu:
    """Return the Alu of ``d = compute(a, b)`` on one type."""
    return Alu((kind.name,), (kind.name, kind.name), compute)


def unary(kind: ScalarType, compute: Callable[[Array], Array]) -> Alu:
    """Return the Alu of ``d = compute(a)`` on one type."""
    return Alu((kind.name,), (kind.name,), compute)


def add(m: Modifiers) -> Alu:
    """``add{.sat}.type``, ``add{.cc}.type``."""
    return _add_or_sub(m, np.add, _add_carry)


def sub(m: Modifiers) -> Alu:
    """``sub{.sat}.type``, ``sub{.cc}.type``."""
    return _add_or_sub(m, np.subtract, _sub_borrow)


Carry = Callable[[Array, Array, Array], tuple[Array, Array]]
_NO_CARRY = np.zeros(1, bool)


def _add_or_sub(m: Modifiers, compute: np.ufunc, carry: Carry) -> Alu:
    if m.take("cc"):
        kind = m.type("u32", "s32", "u64", "s64")
        return Alu((kind.name, "cc"), (kind.name, kind.name), lambda a, b: carry(a, b, _NO_CARRY))
    if m.take("sat"):
        kind = m.type("s32")
        return binary(kind, lambda a, b: _clamp_s32(compute(a, b, dtype=np.int64)))
    return binary(m.type(*INTEGERS), compute)


def _clamp_s32(wide: Array) -> Array:
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


def _unsigned(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def _add_carry(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    x, y = _unsigned(a), _unsigned(b)
    part = x + y
    total = part + carry
    return total.view(a.dtype), (part < x) | (total < part)


def _sub_borrow(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    x, y = _unsigned(a), _unsigned(b)
    part = x - y
    return (part - borrow).view(a.dtype), (x < y) | (part < borrow)


def _chained(compute: Carry) -> Callable[[Modifiers], Alu]:
    def build(m: Modifiers) -> Alu:
        out = m.take("cc")
        name = m.type("u32", "s32", "u64", "s64").name
        if out:
            return Alu((name, "cc"), (name, name, "cc"), compute)
        return Alu((name,), (name, name, "cc"), lambda a, b, carry: compute(a, b, carry)[0])

    return build


alu("addc")(_chained(_add_carry))
alu("subc")(_chained(_sub_borrow))


def _wide_dtype(kind: ScalarType) -> np.dtype[np.generic]:
    return TYPES[f"{kind.name[0]}{2 * kind.bits}"].dtype


def product_high(kind: ScalarType) -> Callable[[Array, Array], Array]:
    """Return the function giving the upper half of the double-width product."""
    if kind.bits < 64:
        wide, bits = _wide_dtype(kind), kind.bits
        return lambda a, b: ((a.astype(wide) * b) >> bits).astype(kind.dtype)
    if kind.kind == "unsigned":
        return _high_u64
    return _high_s64


def _high_u64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW_32, a >> _32, b & _LOW_32, b >> _32
    cross = a1 * b0 + ((a0 * b0) >> _32)
    middle = (cross & _LOW_32) + a0 * b1
    high: Array = a1 * b1 + (cross >> _32) + (middle >> _32)
    return high


def _high_s64(a: Array, b: Array) -> Array:
    high = _high_u64(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
    return high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def mul(m: Modifiers) -> Alu:
    """``mul{.lo, .hi, .wide}.type``."""
    mode = m.one_of("lo", "hi", "wide")
    if mode == "wide":
        kind = m.type("u16", "s16", "u32", "s32")
        wide = _wide_dtype(kind)
        return Alu(
            (f"{kind.name[0]}{2 * kind.bits}",),
            (kind.name, kind.name),
            lambda a, b: a.astype(wide) * b,
        )
    kind = m.type(*INTEGERS)
    return binary(kind, np.multiply if mode == "lo" else product_high(kind))


def mad(m: Modifiers) -> Alu:
    """``mad{.lo, .hi, .wide}.type``, ``mad.hi.sat.s32`` and ``mad{.lo, .hi}.cc.type``."""
    mode = m.one_of("lo", "hi", "wide")
    if m.take("cc"):
        return _mad_carry(m, mode, carry_in=False, carry_out=True)
    saturate = m.take("sat")
    kind = m.type(*(("s32",) if saturate else INTEGERS))
    operands = (kind.name, kind.name, kind.name)
    if saturate and mode != "hi":
        raise UnknownForm("takes .sat only with .hi")
    if mode == "wide":
        return _mad_wide(kind)
    if mode == "lo":
        return Alu((kind.name,), operands, lambda a, b, c: a * b + c)
    high = product_high(kind)
    if saturate:
        return Alu(
            (kind.name,), operands, lambda a, b, c: _clamp_s32(high(a, b).astype(np.int64) + c)
        )
    return Alu((kind.name,), operands, lambda a, b, c: high(a, b) + c)


def _mad_wide(kind: ScalarType) -> Alu:
    if kind.bits == 64:
        raise UnknownForm(f"does not take type .{kind.name} with .wide")
    wide = TYPES[f"{kind.name[0]}{2 * kind.bits}"]
    return Alu(
        (wide.name,),
        (kind.name, kind.name, wide.name),
        lambda a, b, c: a.astype(wide.dtype) * b + c,
    )


def _mad_carry(m: Modifiers, mode: str, *, carry_in: bool, carry_out: bool) -> Alu:
    kind = m.type("u32", "s32", "u64", "s64")
    if mode == "wide":
        raise UnknownForm("takes .lo or .hi with a carry")
    product = np.multiply if mode == "lo" else product_high(kind)
    name = kind.name
    operands = (name, name, name, "cc") if carry_in else (name, name, name)

    def compute(a: Array, b: Array, c: Array, carry: Array = _NO_CARRY) -> object:
        both = _add_carry(product(a, b), c, carry)
        return both if carry_out else both[0]

    return Alu((name, "cc") if carry_out else (name,), operands, compute)


@alu("madc")
def _madc(m: Modifiers) -> Alu:
    mode = m.one_of("lo", "hi")
    return _mad_carry(m, mode, carry_in=True, carry_out=m.take("cc"))


def div(m: Modifiers) -> Alu:
    """``div.type``: truncating; all ones for a zero divisor; INT_MIN / -1 wraps."""
    kind = m.type(*INTEGERS)
    return binary(kind, _div_signed if kind.kind == "signed" else _div_unsigned)


def _div_unsigned(a: Array, b: Array) -> Array:
    return _unless_zero(b, a // b)


def _div_signed(a: Array, b: Array) -> Array:
    return _unless_zero(b, (a - np.fmod(a, b)) // b)


def _unless_zero(divisor: Array, result: Array) -> Array:
    if divisor.all():
        return result
    return np.where(divisor == 0, ~np.zeros(1, result.dtype), result)


@alu("rem")
def _rem(m: Modifiers) -> Alu:
    """``rem.type``: the sign of the dividend; all ones for a zero divisor."""
    return binary(m.type(*INTEGERS), lambda a, b: _unless_zero(b, np.fmod(a, b)))


def neg(m: Modifiers) -> Alu:
    """``neg.type``."""
    return unary(m.type("s16", "s32", "s64"), np.negative)


def absolute(m: Modifiers) -> Alu:
    """``abs.type``; abs of the smallest number is itself."""
    return unary(m.type("s16", "s32", "s64"), np.abs)


def minimum(m: Modifiers) -> Alu:
    """``min{.relu}.type``."""
    return _extremum(m, np.minimum)


def maximum(m: Modifiers) -> Alu:
    """``max{.relu}.type``."""
    return _extremum(m, np.maximum)


def _extremum(m: Modifiers, choose: np.ufunc) -> Alu:
    if m.take("relu"):
        return binary(m.type("s32"), lambda a, b: np.maximum(choose(a, b), np.int32(0)))
    return binary(m.type(*INTEGERS), choose)


@alu("sad")
def _sad(m: Modifiers) -> Alu:
    """``sad.type``: c + |a - b|."""
    kind = m.type(*INTEGERS)
    return Alu(
        (kind.name,),
        (kind.name, kind.name, kind.name),
        lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
    )


@alu("mul24")
def _mul24(m: Modifiers) -> Alu:
    """``mul24{.lo, .hi}.type``: bits 31..0 or 47..16 of the 48-bit product of the low 24 bits."""
    mode = m.one_of("lo", "hi")
    kind = m.type("u32", "s32")
    return binary(kind, lambda a, b: _product24(a, b, mode))


def _product24(a: Array, b: Array, mode: str) -> Array:
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    product = ((a << 8) >> 8).astype(wide) * ((b << 8) >> 8)
    return (product if mode == "lo" else product >> 16).astype(a.dtype)


@alu("mad24")
def _mad24(m: Modifiers) -> Alu:
    """``mad24{.lo, .hi}.type`` and ``mad24.hi.sat.s32``."""
    mode = m.one_of("lo", "hi")
    saturate = mode == "hi" and m.take("sat")
    kind = m.type(*(("s32",) if saturate else ("u32", "s32")))
    if saturate:
        return Alu(
            ("s32",),
            ("s32", "s32", "s32"),
            lambda a, b, c: _clamp_s32(_product24(a, b, mode).astype(np.int64) + c),
        )
    return Alu(
        (kind.name,),
        (kind.name, kind.name, kind.name),
        lambda a, b, c: _product24(a, b, mode) + c,
    )


def _dot_types(m: Modifiers) -> tuple[str, str, str]:
    a, b = m.type("u32", "s32").name, m.type("u32", "s32").name
    return a, b, "u32" if (a, b) == ("u32", "u32") else "s32"


def _part(word: Array, bits: int, index: int) -> Array:
    """Return part ``index`` of ``bits`` bits of each 32-bit word, extended as its type says."""
    return (word << (32 - bits * (index + 1))) >> (32 - bits)


def _dot(a: Array, b: Array, c: Array, parts: Sequence[tuple[int, int]], a_bits: int) -> Array:
    """Add the products of the given pairs of parts, bytes of b, to c; everything modulo 2**32."""
    total = c
    for left, right in parts:
        product = _part(a, a_bits, left).view(c.dtype) * _part(b, 8, right).view(c.dtype)
        total = total + product
    return total


@alu("dp4a")
def _dp4a(m: Modifiers) -> Alu:
    """``dp4a.atype.btype``: the dot product of four bytes, added to c."""
    a_type, b_type, c_type = _dot_types(m)
    parts = [(i, i) for i in range(4)]
    return Alu((c_type,), (a_type, b_type, c_type), lambda a, b, c: _dot(a, b, c, parts, 8))


@alu("dp2a")
def _dp2a(m: Modifiers) -> Alu:
    """``dp2a{.lo, .hi}.atype.btype``: two 16-bit parts of a times the lower or upper bytes of b."""
    parts = [(0, 0), (1, 1)] if m.one_of("lo", "hi") == "lo" else [(0, 2), (1, 3)]
    a_type, b_type, c_type = _dot_types(m)
    return Alu((c_type,), (a_type, b_type, c_type), lambda a, b, c: _dot(a, b, c, parts, 16))
