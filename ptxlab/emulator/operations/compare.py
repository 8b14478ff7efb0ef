"""Comparison and selection: setp, set, selp, slct.

PTX ISA, "Comparison and Selection Instructions" and "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array, intrinsic
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import row
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.rounding import flush
from ptxlab.numbers.types import TYPES, joined, packed, packing, unpacked

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
SIGNED: dict[str, Compare] = _ORDERED | {"ne": np.not_equal}
_UNSIGNED: dict[str, Compare] = SIGNED | {
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BITS: dict[str, Compare] = {"eq": np.equal, "ne": np.not_equal}

_COMPARES = {"float": _FLOAT, "signed": SIGNED, "unsigned": _UNSIGNED, "bits": _BITS}
_COMBINE: dict[str, Compare] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _comparison(operator: str, T: str, ftz: str = "") -> Compare:
    """Return the comparison of two arrays of a type, of a packed one that of its parts."""
    kind, fmt = TYPES[T], FORMATS.get(T.removesuffix("x2"))
    compare = _COMPARES[kind.kind if fmt is None else "float"][operator]
    if fmt and fmt.bits == 16:
        compare = _of_changed(compare, lambda x: x.astype(np.float32))
    if fmt and ftz:
        compare = _of_changed(compare, partial(flush, fmt=fmt))
    return compare


def _of_changed(compare: Compare, change: Callable[[Array], Array]) -> Compare:
    return lambda a, b: compare(change(a), change(b))


comparison = partial(row, mix="comparison")

_BOOLEANS = " ".join(_COMBINE)
_BF16 = "sm_90 7.8"

# Types that compare alike: their operators, .ftz if they have it, the results of setp, what they need.
_COMPARED = (
    ("b16 b32 b64", _BITS, "", "pred?|pred", ""),
    ("s16 s32 s64", SIGNED, "", "pred?|pred", ""),
    ("u16 u32 u64", _UNSIGNED, "", "pred?|pred", ""),
    ("f32", _FLOAT, "{.ftz}", "pred?|pred", ""),
    ("f64", _FLOAT, "", "pred?|pred", ""),
    ("f16", _FLOAT, "{.ftz}", "pred?", ""),
    ("f16x2", _FLOAT, "{.ftz}", "pred?|pred", ""),
    ("bf16", _FLOAT, "", "pred?", _BF16),
    ("bf16x2", _FLOAT, "", "pred?|pred", _BF16),
)


# ---- setp -----------------------------------------------------------------------------------


def _setp(cmp: str, T: str, boolean: str = "", ftz: str = "") -> Callable[..., Any]:
    """``setp.CmpOp{.BoolOp} p|q, a, b, c``: p = t op c, q = !t op c.

    For packed types p and q are the results for the lower and the upper half; f16 and bf16 have p
    alone.
    """
    compare = _comparison(cmp, T, ftz)
    if T in ("f16", "bf16"):
        return _combined(compare, boolean)

    def opposite(a: Array, b: Array) -> tuple[Array, Array]:
        t = compare(a, b)
        return t, ~t

    def by_half(a: Array, b: Array) -> tuple[Array, Array]:
        lower, upper = unpacked(T, a, b)
        return compare(*lower), compare(*upper)

    two = by_half if T.endswith("x2") else opposite
    if not boolean:
        return two
    both = _COMBINE[boolean]

    def combined(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        p, q = two(a, b)
        return both(p, c), both(q, c)

    return combined


def _combined(test: Compare, boolean: str) -> Callable[..., Array]:
    """Return ``test`` of a and b, joined with c where there is a boolean operation."""
    if not boolean:
        return test
    both = _COMBINE[boolean]
    return lambda a, b, c: both(test(a, b), c)


for _types, _operators, _ftz, _results, _needs in _COMPARED:
    _setp_row = partial(
        comparison,
        make=_setp,
        needs=_needs,
        cmp=" ".join(_operators),
        T=_types,
    )
    _setp_row(f"setp.<cmp>{_ftz}.<T>", f"T T -> {_results}")
    _setp_row(f"setp.<cmp>.<boolean>{_ftz}.<T>", f"T T pred -> {_results}", boolean=_BOOLEANS)


# ---- set ------------------------------------------------------------------------------------

# Its results by what it compares, and what they need; those of bf16 take no .ftz.
_FROM_WORDS = (("u32 s32 f32 f16", ""), ("bf16", _BF16))
_SET_RESULTS = {
    "f16": (("u16 s16 u32 s32", "sm_53 6.5"), ("f16", ""), ("bf16", _BF16)),
    "bf16": (("u16 s16 u32 s32 bf16", _BF16),),
    "f16x2": (("u32 s32", "sm_53 6.5"), ("f16x2", "")),
    "bf16x2": (("u32 s32 bf16x2", _BF16),),
}


def _set(cmp: str, D: str, T: str, boolean: str = "", ftz: str = "") -> Callable[..., Array]:
    """``set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b, c``: 1.0, or for integers all ones, or zero.

    Packed types give such a result in each half.
    """
    two = T.endswith("x2")
    test, dtype = _combined(_comparison(cmp, T, ftz), boolean), TYPES[D].dtype
    part = TYPES[_HALF_OF[D] if two else D]
    word = np.dtype(f"u{part.bytes}")
    yes = np.ones(1, part.dtype) if part.kind == "float" else ~np.zeros(1, part.dtype)
    true, false = yes.view(word), np.zeros(1, word)
    if not two:
        return lambda *inputs: np.where(test(*inputs), true, false).view(dtype)

    def by_half(a: Array, b: Array, *c: Array) -> Array:
        results = (np.where(test(*each, *c), true, false) for each in unpacked(T, a, b))
        return joined(*results, dtype=dtype)

    return by_half


_HALF_OF = {"u32": "u16", "s32": "s16", "f16x2": "f16", "bf16x2": "bf16"}

for _types, _operators, _ftz, _, _ in _COMPARED:
    for _given, _needs in _SET_RESULTS.get(_types, _FROM_WORDS):
        _flush = "" if "bf16" in _given else _ftz
        _set_row = partial(
            comparison,
            make=_set,
            needs=_needs,
            cmp=" ".join(_operators),
            D=_given,
            T=_types,
        )
        _set_row(f"set.<cmp>{_flush}.<D>.<T>", "T T -> D")
        _set_row(f"set.<cmp>.<boolean>{_flush}.<D>.<T>", "T T pred -> D", boolean=_BOOLEANS)


def _set_each(cmp: str, T: str) -> Callable[..., Array]:
    """``set.CmpOp.type d, a, b`` of several integers in a register: all ones, or zero, in the place of each."""
    single, _ = packing(T)
    return packed(_set(cmp, single, single), T)


for _types, _operators in (("u8x4 u16x2", _UNSIGNED), ("s8x4 s16x2", SIGNED)):
    comparison(
        "set.<cmp>.<T>",
        "T T -> T",
        make=_set_each,
        needs="sm_107f 9.4",
        cmp=" ".join(_operators),
        T=_types,
    )


# ---- selp, slct -----------------------------------------------------------------------------

_SELECTED = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"


@intrinsic
def selected(c: Array, a: Array, b: Array) -> Array:
    """Return a where c holds, else b.

    Selecting by bits takes the same time whatever c is; np.where is slow when c is irregular.
    """
    if c.size == 1:
        return a if c[0] else b
    word = np.dtype(f"i{a.dtype.itemsize}")
    x, y = a.view(word), b.view(word)
    bits: Array = y ^ ((x ^ y) & -c.astype(word))
    return bits.view(a.dtype)


def _select(a: Array, b: Array, c: Array) -> Array:
    """``selp.type d, a, b, c``."""
    return selected(c, a, b)


def _select_by_sign(T: str, ftz: str = "") -> Callable[[Array, Array, Array], Array]:
    """``slct d, a, b, c``: a where c >= 0, else b (b for NaN)."""
    return lambda a, b, c: np.where((flush(c) if ftz else c) >= 0, a, b)


_choice = partial(comparison, effects=Effects(passes="chosen"))
_choice("selp.<T>", "T T pred -> T", _select, T=_SELECTED)
_choice("slct.<T>.s32", "T T s32 -> T", make=_select_by_sign, T=_SELECTED)
_choice("slct{.ftz}.<T>.f32", "T T f32 -> T", make=_select_by_sign, T=_SELECTED)
