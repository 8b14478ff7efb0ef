"""The loops of a function: what lies between a label and a branch back to it."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.syntax.tree import Function, Instruction, Label, Name
from ptxlab.syntax.walk import statements


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of ``function`` whose numbers are in ``span``: one loop, inner ones included."""

    function: str
    span: range


def loops(function: Function) -> tuple[Loop, ...]:
    """Return the loops of ``function`` by their last instruction, in text order."""
    labels: dict[str, int] = {}
    found = []
    number = 0
    for statement in statements(function):
        if isinstance(statement, Label):
            labels[statement.name] = number
        elif isinstance(statement, Instruction):
            for name in _targets(statement):
                if name in labels:
                    found.append(Loop(function.name, range(labels[name], number + 1)))
            number += 1
    return tuple(found)


def _targets(instruction: Instruction) -> list[str]:
    if instruction.opcode != "bra":
        return []
    return [operand.text for operand in instruction.operands if isinstance(operand, Name)]
