"""How each opcode of the machine becomes PTX, by opcode without modifiers."""

from __future__ import annotations

from ptxlab.machine.lift.operations import (
    asynchronous,
    bulk,
    control,
    conversions,
    floating,
    half,
    integer,
    memory,
    moves,
    products,
    tensor_memory,
    warpgroup,
)
from ptxlab.machine.lift.rule import Rule

_FAMILIES = (
    integer,
    moves,
    floating,
    conversions,
    half,
    memory,
    products,
    warpgroup,
    asynchronous,
    bulk,
    tensor_memory,
    control,
)


def _table() -> dict[str, Rule]:
    table: dict[str, Rule] = {}
    for family in _FAMILIES:
        for opcode, rule in family.RULES.items():
            assert opcode not in table, opcode
            table[opcode] = rule
    return table


RULES = _table()
