"""mov: of a register, and between a register and a vector of its parts.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

from functools import partial

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.computation import row_computation
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.numbers.types import TYPES, joined, split
from ptxlab.syntax.tree import Vector


def move(context: Context, form: RowForm) -> Lowered:
    """Build ``mov``, of registers or, with a vector operand, of the parts of one.

    Of b16 there are two parts of 8 bits; of b32, b64 and b128 two or four. One stands for the whole.
    """
    operands = [context.in_braces(operand) for operand in context.instruction.operands]
    if not any(isinstance(operand, Vector) for operand in operands):
        return row_computation(context, form)
    whole = TYPES[form.results[0]]
    if whole.kind != "bits":
        raise UnknownForm(f"does not take type .{whole.name} with a vector")
    context.operands(2)
    target, value = operands
    vector = target if isinstance(target, Vector) else value
    if not isinstance(vector, Vector) or (target is vector and isinstance(value, Vector)):
        context.reject(f"{context.instruction.name} takes one vector operand")
    count = len(vector.elements)
    part = TYPES.get(f"b{whole.bits // count}")
    if part is None:
        context.reject(f"{context.instruction.name} has no {count} parts", vector)
    if vector is target:
        destinations = [context.destination(e, part.name) for e in vector.elements]
        source = context.source(value, whole.name)
        return Lowered(
            [source], destinations, lambda bits: as_they_are(*split(bits, part.dtype, count))
        )
    sources = [context.source(e, part.name) for e in vector.elements]
    destination = context.destination(target, whole.name)
    return Lowered(sources, [destination], partial(joined, dtype=whole.dtype))


def move_vector(context: Context, form: RowForm) -> Lowered:
    """Move the elements of a vector, of 128 bits at most."""
    count, kind = int(form["vec"][1:]), TYPES[form["T"]]
    if count * kind.bits > 128:
        context.reject(f"{context.instruction.name} is larger than 128 bits")
    target, value = context.operands(2)
    destinations = context.destinations(target, kind.name)
    sources = context.sources(value, kind.name)
    return Lowered(sources, destinations, as_they_are)


def as_they_are(*elements: Array) -> Array | tuple[Array, ...]:
    return elements if len(elements) > 1 else elements[0]


_TYPES = "u16 u32 u64 s16 s32 s64 b16 b32 b64 f32 f64 pred"
row("mov.<T>", "$T -> $T", lambda a: a, step=move, mix="move", T=_TYPES)
_ELEMENTS = _TYPES.removesuffix(" pred")
row("mov.<vec>.<T>", "T*vec -> T*vec", step=move_vector, mix="move", vec="v2 v4", T=_ELEMENTS)
row("mov.b128", "$b128 -> $b128", lambda a: a, step=move, mix="move", needs="sm_70 8.3")
