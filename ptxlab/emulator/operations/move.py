"""mov between a register and a vector of its parts. Source: PTX ISA, "mov" (pack and unpack)."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.program import Array, Step
from ptxlab.emulator.prepare.steps import AluStep
from ptxlab.syntax.tree import Instruction, Vector


def is_pack(instruction: Instruction) -> bool:
    """Say whether a ``mov`` has a vector operand."""
    return any(isinstance(operand, Vector) for operand in instruction.operands)


def move_vector(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """mov.b32 {lo, hi}, d and mov.b32 d, {lo, hi}: the first element is the low bits.

    b16 has two parts of 8 bits, b32 two or four, b64 two or four, b128 two or four.
    """
    whole = modifiers.type("b16", "b32", "b64", "b128")
    target, value = instruction.operands
    if isinstance(target, Vector):
        part = f"b{whole.bits // len(target.elements)}"
        destinations = [context.destination(e, part) for e in target.elements]
        dtype = np.dtype(f"u{whole.bits // len(target.elements) // 8}")
        count = len(destinations)

        def unpack(bits: Array) -> tuple[Array, ...]:
            table = np.ascontiguousarray(bits).view(dtype).reshape(-1, count)
            return tuple(np.ascontiguousarray(table[:, i]) for i in range(count))

        return AluStep(unpack, destinations, [context.source(value, whole.name)])
    if not isinstance(value, Vector):
        context.reject(f"{instruction.name} takes one vector operand")
    part = f"b{whole.bits // len(value.elements)}"
    sources = [context.source(e, part) for e in value.elements]

    def pack(*parts: Array) -> Array:
        rows = max(element.shape[0] for element in parts)
        table = np.empty((rows, len(parts)), parts[0].dtype)
        for i, element in enumerate(parts):
            table[:, i] = element
        return table.view(whole.dtype)[:, 0]

    return AluStep(pack, [context.destination(target, whole.name)], sources)
