"""mov: of a register, and between a register and a vector of its parts.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, UnknownForm, row
from ptxlab.emulator.prepare.steps import AluStep, alu_step
from ptxlab.emulator.run.registers import Array
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Instruction, Vector


def move(context: Context, instruction: Instruction, form: Form) -> Step:
    """Build ``mov``, of registers or, with a vector operand, of the parts of one."""
    if any(isinstance(operand, Vector) for operand in instruction.operands):
        return move_vector(context, instruction, form)
    return alu_step(context, instruction, form)


def move_vector(context: Context, instruction: Instruction, form: Form) -> Step:
    """Build ``mov.b32 {lo, hi}, d`` or ``mov.b32 d, {lo, hi}``: the first element is the low bits.

    b16 has two parts of 8 bits, b32 two or four, b64 two or four, b128 two or four.
    """
    [name] = form.results
    whole = TYPES[name]
    if whole.kind != "bits":
        raise UnknownForm(f"does not take type .{name} with a vector")
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


_TYPES = "u16 u32 u64 s16 s32 s64 b16 b32 b64 f32 f64 pred"
row("mov.<T>", "T -> T", lambda a: a, step=move, mix="move", T=_TYPES)
row("mov.b128", "b128 -> b128", lambda a: a, step=move, mix="move", needs="sm_75 8.3")
