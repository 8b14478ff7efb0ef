"""Video instructions: vadd vsub vabsdiff vmin vmax vset of a word, 2 halves or 4 bytes; vshl vshr vmad, vavrg.

PTX ISA, "Scalar Video Instructions" and "SIMD Video Instructions". Parts of the sources (bytes, halves,
the word) are extended to any width; each result, optionally clamped, goes to a part of c, or into a
second operation with c, whose sign is that of the destination type. A scalar instruction is one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.bits import COUNTS, MODES
from ptxlab.emulator.operations.compare import SIGNED
from ptxlab.emulator.prepare.computation import computation
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.row import Alu, Binary, RowForm, UnknownForm, row
from ptxlab.syntax.tree import Name, Negated, Operand

Parts = Sequence[str]
"""The selectors of an instruction's operands, destination first; "" where there is none."""
BitRange = tuple[int, int]
"""The place of a part in a word, and its bits."""
Lane = tuple[tuple[int, BitRange], tuple[int, BitRange], BitRange]
"""Two sources, each a part of a (0) or of b (1), and where the result goes."""

_PARTS: dict[str, BitRange] = {
    **{f"b{i}": (8 * i, 8) for i in range(4)},
    **{f"h{i}": (16 * i, 16) for i in range(2)},
    "": (0, 32),
}
_WORD = _PARTS[""]
_WHOLE = ("",) * 4


def _part(x: Array, field: BitRange, T: str) -> Array:
    """Return a part of 32-bit words as int64, extended as the type says."""
    start, bits = field
    unused = np.uint32(32 - bits)
    top = (x >> np.uint32(start)) << unused
    wide: Array = ((top.view(np.int32) if T == "s32" else top) >> unused).astype(np.int64)
    return wide


def _clamp(x: Array, bits: int, T: str) -> Array:
    """Clamp int64 numbers to as many bits of an integer type."""
    low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if T == "s32" else (0, (1 << bits) - 1)
    return np.clip(x, low, high)


def _low_word(x: Array) -> Array:
    return x.astype(np.uint32)


def _put(x: Array, field: BitRange, word: Array) -> Array:
    """Put the low bits of int64 numbers into a part of ``word``."""
    start, bits = field
    if field == _WORD:
        return _low_word(x)
    mask = np.uint32(((1 << bits) - 1) << start)
    return ((_low_word(x) << np.uint32(start)) & mask) | (word & ~mask)


# ---- which parts ----------------------------------------------------------------------------


def _lanes(count: int, parts: Parts) -> list[Lane]:
    if count == 1:
        _check(parts)
        d, a, b = (_PARTS[selector] for selector in parts[:3])
        return [((0, a), (1, b), d)]
    bits = 32 // count
    fields = [(bits * i, bits) for i in range(count)]
    sources = [(word, field) for word in (0, 1) for field in fields]
    mask = _mask(parts[0], count)
    left = _chosen(parts[1], count, range(count))
    right = _chosen(parts[2], count, range(count, 2 * count))
    return [(sources[left[i]], sources[right[i]], fields[i]) for i in mask]


def _check(parts: Parts) -> None:
    for selector in parts:
        if selector not in _PARTS:
            raise UnknownForm(f"has no part .{selector}")


_LETTER = {2: "h", 4: "b"}


def _places(selector: str, count: int, parts: int) -> list[int]:
    """Return which of so many parts ``.h10`` or ``.b3210`` names, the lower lane's first; [] if it cannot."""
    known = selector[0] == _LETTER[count] and set(selector[1:]) <= set("01234567"[:parts])
    return [int(digit) for digit in reversed(selector[1:])] if known else []


def _chosen(selector: str, count: int, default: range) -> Sequence[int]:
    """Return which part of b:a each lane reads."""
    places = _places(selector, count, 2 * count) if selector else default
    if len(places) != count:
        raise UnknownForm(f"does not take .{selector} as a source selector")
    return places


def _mask(selector: str, count: int) -> Sequence[int]:
    """Return the lanes that the destination's mask names, all by default."""
    places = _places(selector, count, count) if selector else range(count)
    if not places or list(places) != sorted(set(places)):
        raise UnknownForm(f"does not take .{selector} as a mask")
    return places


# ---- vadd to vset ---------------------------------------------------------------------------


_SECOND: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_PRIMARY: dict[str, Binary] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def _by_lane(
    primary: Binary,
    count: int,
    A: str,
    B: str = "u32",
    D: str = "u32",
    sat: str = "",
    op2: str = "",
    parts: Parts = _WHOLE,
) -> Callable[..., Array]:
    """Return ``vop.D.A.B{.sat}{.op2} d{.dsel}, a{.asel}, b{.bsel}{, c}`` for the given selectors."""
    lanes = _lanes(count, parts)
    if count == 1 and parts[0] and op2:
        raise UnknownForm("takes a part of the destination or a second operation, not both")

    def results(*words: Array) -> Iterator[tuple[Array, BitRange]]:
        for (left, x), (right, y), field in lanes:
            r = primary(_part(words[left], x, A), _part(words[right], y, B))
            r = r.astype(np.int64, copy=False)
            yield (_clamp(r, field[1], D) if sat else r), field

    def placed(a: Array, b: Array, c: Array | None = None) -> Array:
        d = a if c is None else c
        for r, field in results(a, b):
            d = _put(r, field, d)
        return d

    def combined(a: Array, b: Array, c: Array) -> Array:
        total = _part(c, _WORD, D)
        for r, _ in results(a, b):
            total = _SECOND[op2](r, total)
        return _low_word(total)

    return combined if op2 else placed


def _compared(
    count: int, cmp: str, A: str, B: str, op2: str = "", parts: Parts = _WHOLE
) -> Callable[..., Array]:
    return _by_lane(SIGNED[cmp], count, A, B, op2=op2, parts=parts)


def _shifted(
    move: Binary, D: str, A: str, mode: str, sat: str, op2: str = "", parts: Parts = _WHOLE
) -> Callable[..., Array]:
    """Return a shift of numbers of at most 33 bits by up to 32, or modulo 32."""

    limited = COUNTS[mode]
    return _by_lane(
        lambda a, count: move(a, limited(count)), 1, A, D=D, sat=sat, op2=op2, parts=parts
    )


def _left(a: Array, count: Array) -> Array:
    """Shift by 32 in two steps, between them a clamp that no result can show."""
    near = a << np.minimum(count, 31)
    return np.where(count == 32, np.clip(near, -(1 << 61), 1 << 61) * 2, near)


def _average(a: Array, b: Array) -> Array:
    """Halve the sum, rounding ties away from zero."""
    total = a + b
    return (total + (total >= 0)) >> 1


# ---- vmad -----------------------------------------------------------------------------------

_MASK = 0xFFFFFFFF


def _multiply_add(
    D: str,
    A: str,
    B: str,
    po: str,
    sat: str,
    scale: str,
    parts: Parts = _WHOLE,
    negated: Sequence[bool] = (False,) * 3,
) -> Callable[..., Array]:
    """Return ``vmad.D.A.B{.po}{.sat}{.scale} d, {-}a{.asel}, {-}b{.bsel}, {-}c``.

    ``negated`` says which of a, b and c have a minus sign. The destination's type does not enter.
    """
    _check(parts)
    shift = int(scale.removeprefix("shr") or 0)
    flip = negated[0] != negated[1]
    if parts[0] or parts[3]:
        raise UnknownForm("takes no part of its destination or of c")
    if (flip and negated[2]) or (po and any(negated)):
        raise UnknownForm("takes -a, -b or -c alone, and none with .po")
    signed = "s32" in (A, B) or flip or negated[2]
    x_field, y_field = _PARTS[parts[1]], _PARTS[parts[2]]
    # Minus is the complement plus one.
    plus_one = int(bool(po) or flip or negated[2])

    def compute(a: Array, b: Array, c: Array) -> Array:
        product = _part(a, x_field, A) * _part(b, y_field, B)
        # Of two u32 it has 64 bits without a sign.
        high = (product.view(np.uint64) if A == B == "u32" else product) >> 32
        high = high.view(np.int64)
        low = product & _MASK
        if flip:
            low, high = low ^ _MASK, ~high
        low = low + _part(~c if negated[2] else c, _WORD, "s32" if signed else "u32") + plus_one
        return scaled(low & _MASK, high + (low >> 32))

    def scaled(low: Array, high: Array) -> Array:
        """Shift right by the scale and keep, or clamp to, 32 bits."""
        word = ((low >> shift) | (high << (32 - shift))) & _MASK
        if not sat:
            return _low_word(word)
        rest = high >> shift
        if signed:
            limit = np.where(rest < 0, 0x80000000, 0x7FFFFFFF)
            return _low_word(np.where(rest == -(word >> 31), word, limit))
        return _low_word(np.where(rest == 0, word, _MASK))

    return compute


# ---- operands with selectors ----------------------------------------------------------------


def chosen(form: RowForm, parts: Parts, sources: int = 3, **more: object) -> Alu:
    """Return what ``form`` does with the selected parts; c is kept where they leave some of it.

    Of the ``sources`` it is the third, which may be left out elsewhere.
    """
    return Alu(("b32",), ("b32",) * (3 if parts[0] else sources), form.made(parts=parts, **more))


def video_step(context: Context, form: RowForm) -> Lowered:
    """Build a video instruction: arithmetic on bytes, halves and words."""
    operands, parts = _split(context.instruction.operands)
    return computation(context, chosen(form, parts, len(operands) - 1), operands)


def _multiply_add_step(context: Context, form: RowForm) -> Lowered:
    given = context.instruction.operands
    operands, parts = _split([x.operand if isinstance(x, Negated) else x for x in given])
    negated = [isinstance(x, Negated) for x in given[1:]]
    return computation(context, chosen(form, parts, negated=negated), operands)


def _split(operands: Sequence[Operand]) -> tuple[tuple[Operand, ...], list[str]]:
    """Split ``r1.h0`` into the register and the selector, "" where there is none."""
    plain, parts = [], []
    for operand in operands:
        name, selector = operand, ""
        if isinstance(operand, Name) and not operand.text.startswith("."):
            text, _, selector = operand.text.partition(".")
            name = replace(operand, text=text)
        plain.append(name)
        parts.append(selector)
    return tuple(plain), parts + [""] * 4


_SIGNS, _OPS, _CMPS = "u32 s32", " ".join(_SECOND), "eq ne lt le gt ge"
_video = partial(row, mix="integer", step=video_step, A=_SIGNS)
_two = partial(_video, operands="^b32 ^b32 ^b32? -> ^b32")
_three = partial(_video, operands="^b32 ^b32 ^b32 -> ^b32")

for _name, _primary in _PRIMARY.items():
    _columns = {"make": partial(_by_lane, _primary, 1), "D": _SIGNS, "B": _SIGNS}
    _two(_name + ".<D>.<A>.<B>{.sat}", **_columns)
    _three(_name + ".<D>.<A>.<B>{.sat}.<op2>", **_columns, op2=_OPS)
for _name, _move in (("vshl", _left), ("vshr", np.right_shift)):
    _columns = {"make": partial(_shifted, _move), "D": _SIGNS, "mode": MODES}
    _two(_name + ".<D>.<A>.u32{.sat}.<mode>", **_columns)
    _three(_name + ".<D>.<A>.u32{.sat}.<mode>.<op2>", **_columns, op2=_OPS)
_columns = {"make": partial(_compared, 1), "B": _SIGNS, "cmp": _CMPS}
_two("vset.<A>.<B>.<cmp>", **_columns)
_three("vset.<A>.<B>.<cmp>.<op2>", **_columns, op2=_OPS)
row(
    "vmad.<D>.<A>.<B>{.po}{.sat}{.<scale>}",
    "^b32 ^b32 ^b32 -> ^b32",
    make=_multiply_add,
    step=_multiply_add_step,
    mix="integer",
    D=_SIGNS,
    A=_SIGNS,
    B=_SIGNS,
    scale="shr7 shr15",
)
for _count in (2, 4):
    for _name, _primary in (*_PRIMARY.items(), ("vavrg", _average)):
        _row = partial(_three, make=partial(_by_lane, _primary, _count), D=_SIGNS, B=_SIGNS)
        _row(f"{_name}{_count}.<D>.<A>.<B>{{.sat}}")
        _row(f"{_name}{_count}.<D>.<A>.<B>.<op2>", op2="add")
    _make = partial(_compared, _count)
    _three(f"vset{_count}.<A>.<B>.<cmp>{{.<op2>}}", make=_make, B=_SIGNS, cmp=_CMPS, op2="add")
