"""What numpy's functions are in LLVM's assembly: of values of one dtype, with the bits that numpy gives.

A NaN of f32 that one returns may be any: ``Value.canonical`` keeps account of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.native.code import Code, Value, number
from ptxlab.numbers.formats import F32

Written = Callable[..., Value]
"""Given the code that it adds to, the dtype of its values, and these."""


class NotTraced(Exception):
    """What is asked of a value is known only when threads run, or has no machine code."""


def llvm_type(dtype: np.dtype[Any]) -> str:
    """Return LLVM's type for values of a dtype: of numbers of 16 bits and less their bits."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind == "f" and dtype.itemsize >= 4:
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def constant(x: Any, dtype: np.dtype[Any]) -> Value:
    """Return a number as a value of a dtype."""
    array = np.asarray(x).astype(dtype)
    if array.size != 1:
        raise NotTraced
    kind = llvm_type(dtype)
    if kind in ("float", "double"):
        word = np.float64(array.reshape(1)[0]).view(np.uint64)
        found = Value(f"0x{int(word):016X}", kind, literal=True)
        return any_nan(found) if np.isnan(array).any() else found
    return number(int(array.reshape(1).view(f"u{dtype.itemsize}")[0]), kind)


def any_nan(value: Value) -> Value:
    """Return what an instruction made, of which a NaN may be any."""
    return replace(value, canonical=value.type != "float")


# ---- arithmetic -----------------------------------------------------------------------------


def _op(integer: str, floating: str = "") -> Written:
    def write(code: Code, dtype: np.dtype[Any], *values: Value) -> Value:
        opcode = floating if dtype.kind == "f" else integer
        if not opcode:
            raise NotTraced
        return any_nan(code.op(opcode, *values))

    return write


def _called(function: str) -> Written:
    return lambda code, dtype, *values: any_nan(code.call(function, *values))


def _extreme(name: str) -> Written:
    condition = "ogt" if name == "max" else "olt"

    def write(code: Code, dtype: np.dtype[Any], a: Value, b: Value) -> Value:
        if dtype.kind != "f":
            return code.call(("s" if dtype.kind == "i" else "u") + name, a, b)
        first = code.op("or", code.compare(condition, a, b), code.compare("uno", a, a))
        return code.select(first, a, b)

    return write


def _reciprocal(code: Code, dtype: np.dtype[Any], x: Value) -> Value:
    return any_nan(code.op("fdiv", constant(1, dtype), x))


def _root(code: Code, dtype: np.dtype[Any], x: Value) -> Value:
    """Take the root. LLVM knows when it is a NaN, and that to it all NaNs are one: so none is made."""
    if x.type == "double":
        return code.call("sqrt", x)
    zero = constant(0, dtype)
    negative = code.compare("ult", x, zero)
    bits = code.bits(code.call("sqrt", code.select(negative, zero, x)))
    return code.seen_as(code.select(negative, number(F32.nan_word, "i32"), bits), x.type)


def _divisor(code: Code, b: Value, *, signed: bool) -> Value:
    """Return a divisor with 1 for those with which a processor would end the process."""
    none = code.compare("eq", b, number(0, b.type))
    if signed:
        none = code.op("or", none, code.compare("eq", b, number(-1, b.type)))
    return code.select(none, number(1, b.type), b)


def _remainder(code: Code, dtype: np.dtype[Any], a: Value, b: Value) -> Value:
    """As ``np.fmod`` of integers, whose sign is the dividend's; 0 for what has none, as for -1."""
    if dtype.kind == "f":
        raise NotTraced
    signed = dtype.kind == "i"
    return code.op("srem" if signed else "urem", a, _divisor(code, b, signed=signed))


def _quotient(code: Code, dtype: np.dtype[Any], a: Value, b: Value) -> Value:
    """Divide; by zero it is anything."""
    if dtype.kind != "u":
        raise NotTraced
    return code.op("udiv", a, _divisor(code, b, signed=False))


# ---- signs ----------------------------------------------------------------------------------


def _masks(a: Value) -> tuple[Value, Value]:
    """Return the sign bit, and all others."""
    sign = 1 << a.bits - 1
    return number(sign, f"i{a.bits}"), number(sign - 1, f"i{a.bits}")


def _canonical_bits(code: Code, a: Value) -> Value:
    return code.bits(code.canonical(a))


def _absolute(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    if dtype.kind == "u":
        return a
    if dtype.kind == "i":
        return code.call("abs", a, flags="i1 false")  # of the smallest number: itself
    return code.seen_as(code.op("and", _canonical_bits(code, a), _masks(a)[1]), a.type)


def _negative(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    if dtype.kind != "f":
        return code.op("sub", number(0, a.type), a)
    return code.seen_as(code.op("xor", _canonical_bits(code, a), _masks(a)[0]), a.type)


def _sign(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    return code.compare("slt", _canonical_bits(code, a), number(0, f"i{a.bits}"))


def _copysign(code: Code, dtype: np.dtype[Any], a: Value, b: Value) -> Value:
    sign, rest = _masks(a)
    size = code.op("and", _canonical_bits(code, a), rest)
    return code.seen_as(code.op("or", size, code.op("and", _canonical_bits(code, b), sign)), a.type)


# ---- bits -----------------------------------------------------------------------------------


def _inverse(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    return code.op("xor", a, number(-1 if a.type != "i1" else 1, a.type))


def _shift(opcode: str) -> Written:
    """From the width on nothing is left, or the sign."""

    def write(code: Code, dtype: np.dtype[Any], a: Value, count: Value) -> Value:
        most = number(a.bits - 1, a.type)
        known = count.literal and 0 <= int(count.text) < a.bits
        limited = count if known else code.call("umin", count, most)
        if opcode == "shr" and dtype.kind == "i":
            return code.op("ashr", a, limited)
        moved = code.op("shl" if opcode == "shl" else "lshr", a, limited)
        if known:
            return moved
        return code.select(code.compare("ugt", count, most), number(0, a.type), moved)

    return write


def _ones(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    return code.extended(code.call("ctpop", a), 8, signed=False)


# ---- comparison -----------------------------------------------------------------------------


def _compare(condition: str, floating: str) -> Written:
    def write(code: Code, dtype: np.dtype[Any], a: Value, b: Value) -> Value:
        if dtype.kind == "f":
            return code.compare(floating, a, b)
        sign = "" if condition in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
        return code.compare(sign + condition, a, b)

    return write


def _class(condition: str) -> Written:
    def write(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
        return code.compare(condition, _absolute(code, dtype, a), constant(np.inf, dtype))

    return write


def _is_nan(code: Code, dtype: np.dtype[Any], a: Value) -> Value:
    return code.compare("uno", a, a)


WRITTEN: dict[np.ufunc, Written] = {
    np.add: _op("add", "fadd"),
    np.subtract: _op("sub", "fsub"),
    np.multiply: _op("mul", "fmul"),
    np.divide: _op("", "fdiv"),
    np.floor_divide: _quotient,
    np.fmod: _remainder,
    np.reciprocal: _reciprocal,
    np.sqrt: _root,
    np.minimum: _extreme("min"),
    np.maximum: _extreme("max"),
    np.rint: _called("roundeven"),
    np.trunc: _called("trunc"),
    np.floor: _called("floor"),
    np.ceil: _called("ceil"),
    np.absolute: _absolute,
    np.negative: _negative,
    np.signbit: _sign,
    np.copysign: _copysign,
    np.bitwise_and: _op("and"),
    np.bitwise_or: _op("or"),
    np.bitwise_xor: _op("xor"),
    np.invert: _inverse,
    np.logical_not: _inverse,
    np.left_shift: _shift("shl"),
    np.right_shift: _shift("shr"),
    np.bitwise_count: _ones,
    np.equal: _compare("eq", "oeq"),
    np.not_equal: _compare("ne", "une"),
    np.less: _compare("lt", "olt"),
    np.less_equal: _compare("le", "ole"),
    np.greater: _compare("gt", "ogt"),
    np.greater_equal: _compare("ge", "oge"),
    np.isfinite: _class("olt"),
    np.isinf: _class("oeq"),
    np.isnan: _is_nan,
}
"""numpy's functions that have machine code with their bits; exp2 and sin are not among them: nobody promises these."""

BITWISE = (np.absolute, np.negative, np.signbit, np.copysign)
"""Those that act on the bits of numbers of 16 bits too, which else are computed with in f32."""
