"""All instructions of the machine that are known, by opcode without modifiers."""

from __future__ import annotations

from ptxlab.machine.operations import (
    control,
    floating,
    integer,
    memory,
    moves,
    predicates,
    products,
    warp,
)
from ptxlab.machine.row import Row

_FAMILIES = (integer, predicates, moves, warp, floating, memory, control, products)


def _table() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for family in _FAMILIES:
        for row in family.ROWS:
            assert row.opcode not in found, row.opcode
            found[row.opcode] = row
    return found


ROWS = _table()
