"""SIMD video instructions: vadd vsub vavrg vabsdiff vmin vmax vset of 2 halves and of 4 bytes.

PTX ISA, "SIMD Video Instructions". Each lane of a source is any of the halves (bytes) of a and b;
results replace parts of c, or are added up and on to c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptxlab.emulator.operations.video import (
    COMPARE,
    Selected,
    clamp,
    extended,
    low_word,
    split_selector,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, step
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.emulator.prepare.steps import alu_step
from ptxlab.syntax.tree import Instruction


def _average(a: Array, b: Array) -> Array:
    """Halve the sum, rounding ties away from zero."""
    total = a + b
    return (total + (total >= 0)) >> 1


_PRIMARY: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": _average,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
OPCODES = tuple(f"{name}{lanes}" for name in (*_PRIMARY, "vset") for lanes in (2, 4))


def _chosen(selector: str, lanes: int, default: range) -> list[int]:
    """Return which part of b:a each lane reads; ``.h32`` and ``.b7654`` name the upper lane first."""
    if not selector:
        return list(default)
    letter, digits = selector[0], selector[1:]
    known = len(digits) == lanes and all(digit in "01234567"[: 2 * lanes] for digit in digits)
    if letter != _LETTER[lanes] or not known:
        raise UnknownForm(f"does not take .{selector} as a source selector")
    return [int(digit) for digit in reversed(digits)]


_LETTER = {2: "h", 4: "b"}


def _mask(selector: str, lanes: int) -> list[int]:
    """Return the lanes that the destination's mask names, ``.h10`` or ``.b3210`` by default."""
    if not selector:
        return list(range(lanes))
    places = [int(digit) for digit in reversed(selector[1:]) if digit.isdigit()]
    ordered = places == sorted(set(places)) and places and places[-1] < lanes
    if selector[0] != _LETTER[lanes] or not ordered or len(places) != len(selector) - 1:
        raise UnknownForm(f"does not take .{selector} as a mask")
    return places


def build(opcode: str, m: Modifiers, selectors: Selected) -> Alu:
    """Build vop2 or vop4 with .dtype.atype.btype{.sat, .add} for the given mask and selectors."""
    name, lanes = opcode[:-1], int(opcode[-1])
    bits = 32 // lanes
    compare = COMPARE[m.one_of(*COMPARE)] if name == "vset" else None
    signs = [m.type("u32", "s32").name == "s32" for _ in range(2 if compare else 3)]
    d_signed = False if compare else signs[0]
    a_signed, b_signed = signs[-2:]
    primary = _PRIMARY[name] if compare is None else compare
    saturate = compare is None and m.take("sat")
    accumulate = m.take("add")
    if saturate and accumulate:
        raise UnknownForm("takes .sat or .add, not both")
    mask = _mask(selectors[0], lanes)
    from_a = _chosen(selectors[1], lanes, range(lanes))
    from_b = _chosen(selectors[2], lanes, range(lanes, 2 * lanes))

    def pick(a: Array, b: Array, place: int, signed: bool) -> Array:
        word = a if place < lanes else b
        return extended(word >> np.uint32(bits * (place % lanes)), bits, signed)

    def compute(a: Array, b: Array, c: Array) -> Array:
        total = c
        for lane in mask:
            x = pick(a, b, from_a[lane], a_signed)
            y = pick(a, b, from_b[lane], b_signed)
            r = primary(x, y).astype(np.int64)
            if accumulate:
                total = total + low_word(r)
                continue
            field = np.uint32(((1 << bits) - 1) << (bits * lane))
            placed = low_word(clamp(r, bits, d_signed) if saturate else r) << np.uint32(bits * lane)
            total = (total & ~field) | (placed & field)
        return total

    return Alu(("b32",), ("b32", "b32", "b32"), compute)


@step(*OPCODES)
def simd_video(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """vop2 and vop4 .dtype.atype.btype{.sat, .add}: arithmetic on halves and bytes in parallel."""
    pairs = [split_selector(operand) for operand in instruction.operands]
    selectors = [selector for _, selector in pairs] + [""] * 3
    operation = build(instruction.opcode, modifiers, selectors)
    operands = tuple(operand for operand, _ in pairs)
    return alu_step(context, replace(instruction, operands=operands), operation)
