"""Scalar video instructions: vadd vsub vabsdiff vmin vmax vshl vshr vmad vset.

PTX ISA, "Scalar Video Instructions". A part of a source (a byte, a half, the word) is extended to
any width; the result, optionally clamped, goes to a part of the destination or into a second
operation with c, whose sign is that of the destination type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Alu, Array, Form, UnknownForm, row
from ptxlab.emulator.prepare.steps import alu_step
from ptxlab.syntax.tree import Instruction, Name, Negated, Operand

Parts = Sequence[str]
"""The selectors of an instruction's operands, destination first; "" where there is none."""

WHOLE = ("",) * 4

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_PARTS = {
    **{f"b{i}": (8 * i, 8) for i in range(4)},
    **{f"h{i}": (16 * i, 16) for i in range(2)},
    "": (0, 32),
}
_SECOND: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
PRIMARY: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def split_selector(operand: Operand) -> tuple[Operand, str]:
    """Split ``r1.h0`` into the register and the selector."""
    if not isinstance(operand, Name) or operand.text.startswith("."):
        return operand, ""
    name, _, selector = operand.text.partition(".")
    return replace(operand, text=name), selector


def part(x: Array, selector: str, T: str) -> Array:
    """Return the selected part of 32-bit words as int64, extended as the type says."""
    place, bits = _PARTS[selector]
    return extended(x >> np.uint32(place), bits, T == "s32")


def _check(parts: Parts) -> None:
    for selector in parts:
        if selector not in _PARTS:
            raise UnknownForm(f"has no part .{selector}")


def extended(x: Array, bits: int, signed: bool) -> Array:
    """Extend the low ``bits`` of 32-bit words to int64."""
    unused = np.uint32(32 - bits)
    top = x << unused
    wide: Array = ((top.view(np.int32) if signed else top) >> unused).astype(np.int64)
    return wide


def clamp(x: Array, bits: int, signed: bool) -> Array:
    """Clamp int64 numbers to an integer type."""
    low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return np.clip(x, low, high)


def low_word(x: Array) -> Array:
    """Return the low 32 bits of int64 numbers."""
    return x.astype(np.uint32)


# ---- vadd to vset ---------------------------------------------------------------------------


def _two(
    primary: Callable[[Array, Array], Array],
    A: str,
    B: str = "u32",
    D: str = "u32",
    sat: str = "",
    op2: str = "",
    parts: Parts = WHOLE,
) -> Callable[..., Array]:
    """Return ``vop.D.A.B{.sat}{.op2} d{.dsel}, a{.asel}, b{.bsel}{, c}`` for the given parts."""
    _check(parts)
    second = _SECOND.get(op2)
    d_part, a_part, b_part = parts[:3]
    if d_part and second:
        raise UnknownForm("takes a part of the destination or a second operation, not both")
    place, bits = _PARTS[d_part]
    mask = np.uint32(((1 << bits) - 1) << place)

    def first(a: Array, b: Array) -> Array:
        r = primary(part(a, a_part, A), part(b, b_part, B)).astype(np.int64)
        return clamp(r, bits, D == "s32") if sat else r

    def combined(a: Array, b: Array, c: Array) -> Array:
        r = first(a, b)
        if second is not None:
            return low_word(second(r, extended(c, 32, D == "s32")))
        return ((low_word(r) << np.uint32(place)) & mask) | (c & ~mask)

    if second is None and not d_part:
        return lambda a, b: low_word(first(a, b))
    return combined


def _compared(
    cmp: str, A: str, B: str, op2: str = "", parts: Parts = WHOLE
) -> Callable[..., Array]:
    return _two(COMPARE[cmp], A, B, op2=op2, parts=parts)


def _shifted(
    move: Callable[[Array, Array], Array],
    D: str,
    A: str,
    mode: str,
    sat: str,
    op2: str = "",
    parts: Parts = WHOLE,
) -> Callable[..., Array]:
    """Return a shift of numbers of at most 33 bits by up to 32, or modulo 32."""

    def primary(a: Array, count: Array) -> Array:
        return move(a, np.minimum(count, 32) if mode == "clamp" else count & 31)

    return _two(primary, A, D=D, sat=sat, op2=op2, parts=parts)


def _left(a: Array, count: Array) -> Array:
    """Shift by 32 in two steps, between them a clamp that no result can show."""
    near = a << np.minimum(count, 31)
    return np.where(count == 32, np.clip(near, -(1 << 61), 1 << 61) * 2, near)


# ---- vmad -----------------------------------------------------------------------------------


def _multiply_add(
    D: str,
    A: str,
    B: str,
    po: str,
    sat: str,
    scale: str,
    parts: Parts = WHOLE,
    negated: Sequence[bool] = (False,) * 3,
) -> Callable[..., Array]:
    """Return ``vmad.D.A.B{.po}{.sat}{.scale} d, {-}a{.asel}, {-}b{.bsel}, {-}c``.

    ``negated`` says which of a, b and c have a minus sign. The destination's type does not enter.
    """
    _check(parts)
    shift = int(scale.removeprefix("shr") or 0)
    product_negated = negated[0] != negated[1]
    if any(parts[i] for i in (0, 3)):
        raise UnknownForm("takes no part of its destination or of c")
    if (product_negated and negated[2]) or (po and any(negated)):
        raise UnknownForm("takes -a, -b or -c alone, and none with .po")
    signed = "s32" in (A, B) or product_negated or negated[2]

    def compute(a: Array, b: Array, c: Array) -> Array:
        x, y = part(a, parts[1], A), part(b, parts[2], B)
        low, high = _sum(x, y, c, product_negated)
        return _scaled(low, high)

    def _sum(x: Array, y: Array, c: Array, flip: bool) -> tuple[Array, Array]:
        """Return product and addend as the sum's low 32 bits and all bits above them."""
        flipped = low_word(~extended(c, 32, True)) if negated[2] else c
        addend = extended(flipped, 32, signed)
        product = (x.view(np.uint64) * y.view(np.uint64)).view(np.int64)
        top = _upper(x, y, product)
        bottom = product & 0xFFFFFFFF
        if flip:
            bottom, top = bottom ^ 0xFFFFFFFF, ~top
        total = bottom + addend + int(bool(po) or flip or negated[2])
        return total & 0xFFFFFFFF, top + (total >> 32)

    def _scaled(low: Array, high: Array) -> Array:
        """Shift right by the scale and keep, or clamp to, 32 bits."""
        word = ((low >> shift) | (high << (32 - shift))) & 0xFFFFFFFF
        if not sat:
            return low_word(word)
        rest = high >> shift
        if signed:
            fits = rest == np.where(word >> 31 & 1, -1, 0)
            limit = np.where(rest < 0, 0x80000000, 0x7FFFFFFF)
        else:
            fits, limit = rest == 0, np.array([0xFFFFFFFF])
        return low_word(np.where(fits, word, limit))

    return compute


def _upper(x: Array, y: Array, product: Array) -> Array:
    """Return bits 32 and up of a product, exact though the product of two u32 wraps in int64."""
    both_large = (x > 0) & (y > 0)
    return np.where(
        both_large, (product.view(np.uint64) >> np.uint64(32)).view(np.int64), product >> 32
    )


# ---- operands with selectors ----------------------------------------------------------------


def chosen(form: Form, parts: Parts, **more: object) -> Alu:
    """Return what ``form`` does with the selected parts; c is kept where they leave some of it."""
    return Alu(
        ("b32",), ("b32",) * (3 if parts[0] else form.sources), form.made(parts=parts, **more)
    )


def video_step(context: Context, instruction: Instruction, form: Form) -> Step:
    """Build a video instruction: arithmetic on bytes, halves and words."""
    operands, parts = _split(instruction)
    return alu_step(context, replace(instruction, operands=operands), chosen(form, parts))


def _multiply_add_step(context: Context, instruction: Instruction, form: Form) -> Step:
    plain = tuple(
        operand.operand if isinstance(operand, Negated) else operand
        for operand in instruction.operands
    )
    negated = [isinstance(operand, Negated) for operand in instruction.operands[1:]]
    operands, parts = _split(replace(instruction, operands=plain))
    if len(operands) != 4:
        context.reject(f"{instruction.name} takes 3 source operands")
    operation = chosen(form, parts, negated=negated)
    return alu_step(context, replace(instruction, operands=operands), operation)


def _split(instruction: Instruction) -> tuple[tuple[Operand, ...], list[str]]:
    pairs = [split_selector(operand) for operand in instruction.operands]
    return tuple(operand for operand, _ in pairs), [selector for _, selector in pairs] + [""] * 4


video = partial(row, mix="integer", step=video_step)
SIGNS = "u32 s32"
TWO, THREE = "b32 b32 -> b32", "b32 b32 b32 -> b32"

_ops = " ".join(_SECOND)
for _name, _primary in PRIMARY.items():
    _row = partial(video, make=partial(_two, _primary), D=SIGNS, A=SIGNS, B=SIGNS)
    _row(_name + ".<D>.<A>.<B>{.sat}", TWO)
    _row(_name + ".<D>.<A>.<B>{.sat}.<op2>", THREE, op2=_ops)
for _name, _move in (("vshl", _left), ("vshr", np.right_shift)):
    _row = partial(video, make=partial(_shifted, _move), D=SIGNS, A=SIGNS, mode="clamp wrap")
    _row(_name + ".<D>.<A>.u32{.sat}.<mode>", TWO)
    _row(_name + ".<D>.<A>.u32{.sat}.<mode>.<op2>", THREE, op2=_ops)
_row = partial(video, make=_compared, A=SIGNS, B=SIGNS, cmp=" ".join(COMPARE))
_row("vset.<A>.<B>.<cmp>", TWO)
_row("vset.<A>.<B>.<cmp>.<op2>", THREE, op2=_ops)
row(
    "vmad.<D>.<A>.<B>{.po}{.sat}{.<scale>}",
    THREE,
    make=_multiply_add,
    step=_multiply_add_step,
    mix="integer",
    D=SIGNS,
    A=SIGNS,
    B=SIGNS,
    scale="shr7 shr15",
)
