"""Scalar video instructions: vadd vsub vabsdiff vmin vmax vshl vshr vmad vset.

PTX ISA, "Scalar Video Instructions". A part of a source (a byte, a half, the word) is extended to
any width; the result, optionally clamped, goes to a part of the destination or into a second
operation with c, whose sign is that of the destination type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, step
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.emulator.prepare.steps import alu_step
from ptxlab.syntax.tree import Instruction, Name, Negated, Operand

Selected = Sequence[str]
"""The selectors of an instruction's operands, destination first; "" where there is none."""

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
OPCODES = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
_PARTS = {
    **{f"b{i}": (8 * i, 8) for i in range(4)},
    **{f"h{i}": (16 * i, 16) for i in range(2)},
    "": (0, 32),
}
_SECOND: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_PRIMARY: dict[str, Callable[[Array, Array], Array]] = {
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


def part(x: Array, selector: str, signed: bool) -> Array:
    """Return the selected part of 32-bit words as int64, extended as the type says."""
    place, bits = _PARTS[selector]
    return extended(x >> np.uint32(place), bits, signed)


def _check(selectors: Selected) -> None:
    for selector in selectors:
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


def _is_signed(m: Modifiers) -> bool:
    return m.type("u32", "s32").name == "s32"


def build(opcode: str, m: Modifiers, selectors: Selected) -> Alu:
    """Build vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr or vset for the given selectors.

    vop.dtype.atype.btype{.sat}{.op2} d{.dsel}, a{.asel}, b{.bsel}{, c}.
    """
    _check(selectors)
    compare = COMPARE[m.one_of(*COMPARE)] if opcode == "vset" else None
    d_signed = False if compare else _is_signed(m)
    a_signed = _is_signed(m)
    if opcode in ("vshl", "vshr"):
        m.type("u32")
        primary, b_signed = _shift(opcode, m.one_of("clamp", "wrap")), False
    else:
        b_signed = _is_signed(m)
        primary = _PRIMARY[opcode] if compare is None else compare
    saturate = compare is None and m.take("sat")
    second = _SECOND.get(m.one_of(*_SECOND, default=""))
    d_part, a_part, b_part = selectors[:3]
    if d_part and second:
        raise UnknownForm("takes a part of the destination or a second operation, not both")
    place, bits = _PARTS[d_part]
    mask = np.uint32(((1 << bits) - 1) << place)

    def first(a: Array, b: Array) -> Array:
        r = primary(part(a, a_part, a_signed), part(b, b_part, b_signed)).astype(np.int64)
        return clamp(r, bits, d_signed) if saturate else r

    def combined(a: Array, b: Array, c: Array) -> Array:
        r = first(a, b)
        if second is not None:
            return low_word(second(r, extended(c, 32, d_signed)))
        return ((low_word(r) << np.uint32(place)) & mask) | (c & ~mask)

    if second is None and not d_part:
        return Alu(("b32",), ("b32", "b32"), lambda a, b: low_word(first(a, b)))
    return Alu(("b32",), ("b32", "b32", "b32"), combined)


def _shift(opcode: str, mode: str) -> Callable[[Array, Array], Array]:
    """Shift numbers of at most 33 bits by up to 32, or modulo 32."""

    def right(a: Array, count: Array) -> Array:
        return a >> count

    def left(a: Array, count: Array) -> Array:
        """Shift by 32 in two steps, between them a clamp that no result can show."""
        near = a << np.minimum(count, 31)
        return np.where(count == 32, np.clip(near, -(1 << 61), 1 << 61) * 2, near)

    move = left if opcode == "vshl" else right
    return lambda a, b: move(a, np.minimum(b, 32) if mode == "clamp" else b & 31)


def build_vmad(m: Modifiers, selectors: Selected, negated: Sequence[bool]) -> Alu:
    """``vmad.dtype.atype.btype{.po}{.sat}{.scale} d, {-}a{.asel}, {-}b{.bsel}, {-}c``.

    ``negated`` says which of a, b and c have a minus sign.
    """
    _check(selectors)
    _is_signed(m)  # the destination's type does not enter
    a_signed, b_signed = _is_signed(m), _is_signed(m)
    plus_one, saturate = m.take("po"), m.take("sat")
    scale = int(m.one_of("shr7", "shr15", default="shr0")[3:])
    product_negated = negated[0] != negated[1]
    if any(selectors[i] for i in (0, 3)):
        raise UnknownForm("takes no part of its destination or of c")
    if (product_negated and negated[2]) or (plus_one and any(negated)):
        raise UnknownForm("takes -a, -b or -c alone, and none with .po")
    signed = a_signed or b_signed or product_negated or negated[2]

    def compute(a: Array, b: Array, c: Array) -> Array:
        x, y = part(a, selectors[1], a_signed), part(b, selectors[2], b_signed)
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
        total = bottom + addend + int(plus_one or flip or negated[2])
        return total & 0xFFFFFFFF, top + (total >> 32)

    def _scaled(low: Array, high: Array) -> Array:
        """Shift right by the scale and keep, or clamp to, 32 bits."""
        word = ((low >> scale) | (high << (32 - scale))) & 0xFFFFFFFF
        if not saturate:
            return low_word(word)
        rest = high >> scale
        if signed:
            fits = rest == np.where(word >> 31 & 1, -1, 0)
            limit = np.where(rest < 0, 0x80000000, 0x7FFFFFFF)
        else:
            fits, limit = rest == 0, np.array([0xFFFFFFFF])
        return low_word(np.where(fits, word, limit))

    return Alu(("b32",), ("b32", "b32", "b32"), compute)


def _upper(x: Array, y: Array, product: Array) -> Array:
    """Return bits 32 and up of a product, exact though the product of two u32 wraps in int64."""
    both_large = (x > 0) & (y > 0)
    return np.where(
        both_large, (product.view(np.uint64) >> np.uint64(32)).view(np.int64), product >> 32
    )


@step(*OPCODES)
def scalar_video(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """vop.dtype.atype.btype{.sat}{.op2}: arithmetic on bytes, halves and words."""
    operands, selectors = _split(instruction)
    operation = build(instruction.opcode, modifiers, selectors)
    return alu_step(context, replace(instruction, operands=operands), operation)


@step("vmad")
def multiply_add(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """vmad.dtype.atype.btype{.po}{.sat}{.shr7, .shr15}: a * b + c of bytes, halves and words."""
    plain = tuple(
        operand.operand if isinstance(operand, Negated) else operand
        for operand in instruction.operands
    )
    negated = [isinstance(operand, Negated) for operand in instruction.operands[1:]]
    operands, selectors = _split(replace(instruction, operands=plain))
    if len(operands) != 4:
        context.reject(f"{instruction.name} takes 3 source operands")
    operation = build_vmad(modifiers, selectors, negated)
    return alu_step(context, replace(instruction, operands=operands), operation)


def _split(instruction: Instruction) -> tuple[tuple[Operand, ...], list[str]]:
    pairs = [split_selector(operand) for operand in instruction.operands]
    return tuple(operand for operand, _ in pairs), [selector for _, selector in pairs] + [""] * 4
