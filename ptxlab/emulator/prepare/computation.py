"""Computations on registers: the operands of an instruction bound to what its row computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.prepare.row import CARRY, Alu, RowForm
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Operand, Pair


def row_computation(context: Context, form: RowForm) -> Lowered:
    """Bind an operation on registers to the operands of the instruction in hand."""
    return computation(context, form, context.instruction.operands)


def computation(context: Context, operation: Alu | RowForm, operands: Sequence[Operand]) -> Lowered:
    name = context.instruction.name
    if not operands:
        context.reject(f"{name} needs operands")
    wanted = sum(kind != CARRY for kind in operation.operands)
    destinations = destinations_of(context, operation, operands[0])
    if wanted != len(operands) - 1:
        context.reject(f"{name} takes {wanted} source operands, found {len(operands) - 1}")
    sources = sources_of(context, operation, operands[1:])
    return Lowered(sources, destinations, operation.compute)


def destinations_of(
    context: Context, operation: Alu | RowForm, operand: Operand
) -> list[Destination]:
    """Return the registers of an operation's results, of which ``operand`` may name two."""
    targets = [operand.first, operand.second] if isinstance(operand, Pair) else [operand]
    if len(targets) > sum(kind != CARRY for kind in operation.results):
        context.reject(f"{context.instruction.name} has one result", operand)
    destinations = []
    for kind in operation.results:
        if kind == CARRY:
            destinations.append(Destination(_carry_slot(context)))
        elif targets:
            destinations.append(context.destination(targets.pop(0), kind))
        else:
            destinations.append(Destination(context.unread_slot(TYPES[kind])))
    return destinations


def sources_of(
    context: Context, operation: Alu | RowForm, operands: Sequence[Operand]
) -> list[Source]:
    """Return how to read an operation's source operands, as many as it has."""
    left = iter(operands)
    return [
        Source(_carry_slot(context), np.dtype(bool))
        if kind == CARRY
        else context.source(next(left), kind)
        for kind in operation.operands
    ]


def _carry_slot(context: Context) -> int:
    """Return the register that stands for the carry flag of the thread."""
    return context.constant(np.zeros(1, bool), (CARRY,))
