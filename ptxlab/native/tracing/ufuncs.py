"""What numpy's functions are in machine code: of values of one dtype, with the bits that numpy gives.

A NaN of f32 that one returns may be any: ``VectorValue.canonical`` keeps account of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.native.text import FunctionText
from ptxlab.native.value import VectorValue, number
from ptxlab.numbers.formats import F32

Written = Callable[..., VectorValue]
"""Given the dtype of the values, and these."""


class NotTraced(Exception):
    """What is asked of a value is known only when threads run, or has no machine code."""


def llvm_type(dtype: np.dtype[Any]) -> str:
    """Return LLVM's type for values of a dtype: of numbers of 16 bits and less their bits."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind == "f" and dtype.itemsize >= 4:
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def constant(code: FunctionText, x: Any, dtype: np.dtype[Any]) -> VectorValue:
    """Return a number as a value of a dtype."""
    array = np.asarray(x).astype(dtype)
    if array.size != 1:
        raise NotTraced
    array, kind = array.reshape(1), llvm_type(dtype)
    if kind[0] == "i":
        return number(code, kind, int(array.view(f"u{dtype.itemsize}")[0]))
    value = number(code, kind, float(array[0]))
    return any_nan(value) if np.isnan(array[0]) else value


def any_nan(value: VectorValue) -> VectorValue:
    """Return what an instruction made, of which a NaN may be any."""
    return replace(value, canonical=value.kind != "float")


# ---- arithmetic -----------------------------------------------------------------------------


def _op(integer: str, floating: str = "") -> Written:
    def write(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
        opcode = floating if dtype.kind == "f" else integer
        if not opcode:
            raise NotTraced
        return any_nan(a.apply(opcode, b))

    return write


def _called(function: str) -> Written:
    return lambda dtype, x: any_nan(x.call(function))


def _extreme(name: str) -> Written:
    condition = "ogt" if name == "max" else "olt"

    def write(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
        if dtype.kind != "f":
            return a.call(("s" if dtype.kind == "i" else "u") + name, b)
        return (a.is_(condition, b) | a.is_("uno", a)).choose(a, b)

    return write


def _root(dtype: np.dtype[Any], x: VectorValue) -> VectorValue:
    """Take the root. LLVM knows when it is a NaN, and that to it all NaNs are one: so none is made."""
    if x.kind == "double":
        return x.call("sqrt")
    negative = x.is_("ult", 0)
    words = negative.choose(0, x).call("sqrt").as_integer()
    return negative.choose(F32.nan_word, words).as_kind(x.kind)


def _divisor(b: VectorValue, *, signed: bool) -> VectorValue:
    """Return a divisor with 1 for those with which a processor would end the process."""
    none = b.is_("eq", 0)
    if signed:
        none = none | b.is_("eq", -1)
    return none.choose(1, b)


def _remainder(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
    """As ``np.fmod`` of integers, whose sign is the dividend's; 0 for what has none, as for -1."""
    if dtype.kind == "f":
        raise NotTraced
    signed = dtype.kind == "i"
    return a.apply("srem" if signed else "urem", _divisor(b, signed=signed))


def _quotient(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
    """Divide; by zero it is anything."""
    if dtype.kind != "u":
        raise NotTraced
    return a // _divisor(b, signed=False)


# ---- signs ----------------------------------------------------------------------------------


def _sign_bit(a: VectorValue) -> int:
    return 1 << a.width - 1


def _absolute(dtype: np.dtype[Any], a: VectorValue) -> VectorValue:
    if dtype.kind == "u":
        return a
    if dtype.kind == "i":
        return a.call("abs", flags="i1 false")  # of the smallest number: itself
    return (a.as_integer() & _sign_bit(a) - 1).as_kind(a.kind)


def _negative(dtype: np.dtype[Any], a: VectorValue) -> VectorValue:
    if dtype.kind != "f":
        return a.like(0) - a
    return (a.as_integer() ^ _sign_bit(a)).as_kind(a.kind)


def _copysign(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
    size = a.as_integer() & _sign_bit(a) - 1
    return (size | b.as_integer() & _sign_bit(a)).as_kind(a.kind)


# ---- bits -----------------------------------------------------------------------------------


def _shift(opcode: str) -> Written:
    """From the width on nothing is left, or the sign."""

    def write(dtype: np.dtype[Any], a: VectorValue, count: VectorValue) -> VectorValue:
        most = a.width - 1
        is_known = count.constant is not None and 0 <= count.constant <= most
        limited = count if is_known else count.call("umin", count.like(most))
        if opcode == "shr" and dtype.kind == "i":
            return a.signed_shift(limited)
        moved = a << limited if opcode == "shl" else a >> limited
        return moved if is_known else count.is_("ugt", most).choose(0, moved)

    return write


# ---- comparison -----------------------------------------------------------------------------


def _compare(condition: str, floating: str) -> Written:
    def write(dtype: np.dtype[Any], a: VectorValue, b: VectorValue) -> VectorValue:
        if dtype.kind == "f":
            return a.is_(floating, b)
        sign = "" if condition in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
        return a.is_(sign + condition, b)

    return write


def _class(condition: str) -> Written:
    return lambda dtype, a: _absolute(dtype, a).is_(condition, np.inf)


WRITTEN: dict[np.ufunc, Written] = {
    np.add: _op("add", "fadd"),
    np.subtract: _op("sub", "fsub"),
    np.multiply: _op("mul", "fmul"),
    np.divide: _op("", "fdiv"),
    np.floor_divide: _quotient,
    np.fmod: _remainder,
    np.reciprocal: lambda dtype, x: any_nan(x.like(1).apply("fdiv", x)),
    np.sqrt: _root,
    np.minimum: _extreme("min"),
    np.maximum: _extreme("max"),
    np.rint: _called("roundeven"),
    np.trunc: _called("trunc"),
    np.floor: _called("floor"),
    np.ceil: _called("ceil"),
    np.absolute: _absolute,
    np.negative: _negative,
    np.signbit: lambda dtype, a: a.as_integer().is_("slt", 0),
    np.copysign: _copysign,
    np.bitwise_and: _op("and"),
    np.bitwise_or: _op("or"),
    np.bitwise_xor: _op("xor"),
    np.invert: lambda dtype, a: a ^ -1,
    np.logical_not: lambda dtype, a: a ^ -1,
    np.left_shift: _shift("shl"),
    np.right_shift: _shift("shr"),
    np.bitwise_count: lambda dtype, a: a.call("ctpop").extended(8, signed=False),
    np.equal: _compare("eq", "oeq"),
    np.not_equal: _compare("ne", "une"),
    np.less: _compare("lt", "olt"),
    np.less_equal: _compare("le", "ole"),
    np.greater: _compare("gt", "ogt"),
    np.greater_equal: _compare("ge", "oge"),
    np.isfinite: _class("olt"),
    np.isinf: _class("oeq"),
    np.isnan: lambda dtype, a: a.is_("uno", a),
}
"""numpy's functions that have machine code with their bits; exp2 and sin are not among them: nobody promises these."""

BITWISE = (np.absolute, np.negative, np.signbit, np.copysign)
"""Those that act on the bits of numbers of 16 bits too, which else are computed with in f32."""
