"""Comparison and selection: setp, set, selp, slct.

PTX ISA, "Comparison and Selection Instructions" and "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, alu
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.isa.types import TYPES, ScalarType
from ptxlab.numbers.floats import BF16, F16, F32, Format, flush

Compare = Callable[[Array, Array], Array]

_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _less_or_greater(a: Array, b: Array) -> Array:
    return (a < b) | (a > b)


# On floats: the u forms hold when an operand is NaN, the others do not.
_FLOAT: dict[str, Compare] = _ORDERED | {
    "ne": _less_or_greater,
    "equ": lambda a, b: ~_less_or_greater(a, b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_SIGNED: dict[str, Compare] = _ORDERED | {"ne": np.not_equal}
_UNSIGNED: dict[str, Compare] = _SIGNED | {
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BITS: dict[str, Compare] = {"eq": np.equal, "ne": np.not_equal}

_COMPARES = {"float": _FLOAT, "signed": _SIGNED, "unsigned": _UNSIGNED, "bits": _BITS}
_OPERATORS = tuple(sorted({*_FLOAT, *_UNSIGNED}))
_COMBINE: dict[str, Compare] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_SOURCES = (*(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)), "f32", "f64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_FLUSHED: dict[str, Format] = {"f32": F32, "f16": F16, "f16x2": F16}


def _comparison(operator: str, kind: ScalarType, ftz: bool) -> Compare:
    """Return the comparison of two arrays of ``kind``; packed ones come as two columns."""
    family = "float" if kind.kind == "packed" else kind.kind
    if operator not in _COMPARES[family]:
        raise UnknownForm(f"does not compare .{operator} with type .{kind.name}")
    compare = _COMPARES[family][operator]
    if ftz:
        if kind.name not in _FLUSHED:
            raise UnknownForm(f"does not take .ftz with type .{kind.name}")
        fmt, exact = _FLUSHED[kind.name], compare
        compare = lambda a, b: exact(flush(a, fmt), flush(b, fmt))  # noqa: E731
    if kind.bits == 16 and family == "float":
        return _through_f32(compare, kind) if not ftz else compare
    return compare


def _through_f32(compare: Compare, kind: ScalarType) -> Compare:
    return lambda a, b: compare(a.astype(np.float32), b.astype(np.float32))


def _halves(word: Array, name: str) -> Array:
    fmt = F16 if name == "f16x2" else BF16
    return np.ascontiguousarray(word).view(fmt.dtype).reshape(-1, 2)


@alu("setp")
def _setp(m: Modifiers) -> Alu:
    """``setp.CmpOp{.BoolOp}{.ftz}.type p|q, a, b, c``: p = t op c, q = !t op c.

    The second result may be left out by the instruction. For packed types p and q are the results
    for the lower and the upper half; f16 and bf16 have p alone.
    """
    operator = m.one_of(*_OPERATORS)
    combine = m.one_of(*_COMBINE, default="")
    ftz = m.take("ftz")
    kind = m.type(*_SOURCES, *_HALVES)
    compare = _comparison(operator, kind, ftz)
    if kind.kind == "packed":
        return _setp_packed(kind.name, compare, combine)
    if kind.name in _HALVES:
        return _setp_half(kind.name, compare, combine)
    if not combine:

        def plain(a: Array, b: Array) -> tuple[Array, Array]:
            t = compare(a, b)
            return t, ~t

        return Alu(("pred", "pred"), (kind.name, kind.name), plain)
    both = _COMBINE[combine]

    def combined(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        t = compare(a, b)
        return both(t, c), both(~t, c)

    return Alu(("pred", "pred"), (kind.name, kind.name, "pred"), combined)


def _setp_half(name: str, compare: Compare, combine: str) -> Alu:
    """Build the scalar 16-bit float forms, which have no second result."""
    if not combine:
        return Alu(("pred",), (name, name), compare)
    both = _COMBINE[combine]
    return Alu(("pred",), (name, name, "pred"), lambda a, b, c: both(compare(a, b), c))


def _setp_packed(name: str, compare: Compare, combine: str) -> Alu:
    def test(a: Array, b: Array) -> tuple[Array, Array]:
        t = compare(_halves(a, name), _halves(b, name))
        return np.ascontiguousarray(t[:, 0]), np.ascontiguousarray(t[:, 1])

    if not combine:
        return Alu(("pred", "pred"), (name, name), test)
    both = _COMBINE[combine]

    def combined(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        low, high = test(a, b)
        return both(low, c), both(high, c)

    return Alu(("pred", "pred"), (name, name, "pred"), combined)


# What `set` writes for true: 1.0 for floating-point results, all ones for integers.
_TRUE: dict[str, int] = {
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
}
_SET_RESULTS: dict[str, tuple[str, ...]] = dict.fromkeys(
    _SOURCES, ("u32", "s32", "f32", "f16", "bf16")
) | {
    "f16": ("u16", "s16", "u32", "s32", "f16", "bf16"),
    "bf16": ("u16", "s16", "u32", "s32", "bf16"),
    "f16x2": ("u32", "s32", "f16x2"),
    "bf16x2": ("u32", "s32", "bf16x2"),
}


@alu("set")
def _set(m: Modifiers) -> Alu:
    """``set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b, c``."""
    operator = m.one_of(*_OPERATORS)
    combine = m.one_of(*_COMBINE, default="")
    ftz = m.take("ftz")
    result = m.type(*_TRUE, "f16x2", "bf16x2").name
    kind = m.type(*_SOURCES, *_HALVES)
    if result not in _SET_RESULTS[kind.name]:
        raise UnknownForm(f"does not give .{result} from .{kind.name}")
    if ftz and result == "bf16":
        raise UnknownForm("does not take .ftz with a result of type .bf16")
    compare = _comparison(operator, kind, ftz)
    if kind.kind == "packed":
        return _set_packed(result, kind.name, compare, combine)
    dtype = TYPES[result].dtype
    word = f"u{dtype.itemsize}"
    true, false = np.array([_TRUE[result]], word), np.zeros(1, word)

    def plain(a: Array, b: Array) -> Array:
        return np.where(compare(a, b), true, false).view(dtype)

    if not combine:
        return Alu((result,), (kind.name, kind.name), plain)
    both = _COMBINE[combine]

    def combined(a: Array, b: Array, c: Array) -> Array:
        return np.where(both(compare(a, b), c), true, false).view(dtype)

    return Alu((result,), (kind.name, kind.name, "pred"), combined)


def _set_packed(result: str, name: str, compare: Compare, combine: str) -> Alu:
    """Build the forms that write each half: 1.0, or for integer results all ones."""
    true = np.uint16(_TRUE[result.removesuffix("x2")] & 0xFFFF)
    dtype = TYPES[result].dtype

    def test(a: Array, b: Array) -> Array:
        return compare(_halves(a, name), _halves(b, name))

    def words(t: Array) -> Array:
        return np.where(t, true, np.uint16(0)).view(dtype).reshape(-1)

    if not combine:
        return Alu((result,), (name, name), lambda a, b: words(test(a, b)))
    both = _COMBINE[combine]
    return Alu((result,), (name, name, "pred"), lambda a, b, c: words(both(test(a, b), c[:, None])))


@alu("selp")
def _selp(m: Modifiers) -> Alu:
    """``selp.type d, a, b, c``: a where c holds, else b.

    Selecting by bits takes the same time whatever c is; np.where is slow when c is irregular.
    """
    kind = m.type(*_SOURCES)
    word = np.dtype(f"i{kind.bytes}")

    def compute(a: Array, b: Array, c: Array) -> Array:
        if c.size == 1:
            return a if c[0] else b
        x, y = a.view(word), b.view(word)
        selected: Array = y ^ ((x ^ y) & -c.astype(word))
        return selected.view(kind.dtype)

    return Alu((kind.name,), (kind.name, kind.name, "pred"), compute)


@alu("slct")
def _slct(m: Modifiers) -> Alu:
    """``slct.dtype.s32``, ``slct{.ftz}.dtype.f32``: a where c >= 0, else b (b for NaN)."""
    ftz = m.take("ftz")
    kind = m.type(*_SOURCES)
    control = m.type("s32", "f32")
    if ftz and control.name == "s32":
        raise UnknownForm("takes .ftz only with a control of type .f32")
    zero = control.dtype.type(0)

    def compute(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if ftz else c) >= zero, a, b)

    return Alu((kind.name,), (kind.name, kind.name, control.name), compute)
