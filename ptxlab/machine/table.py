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
    tensor_memory,
    untimed,
    warp,
)
from ptxlab.machine.row import Row

_FAMILIES = (
    integer, predicates, moves, warp, floating, memory, control, products, tensor_memory, untimed,
)  # fmt: skip


def _table() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for family in _FAMILIES:
        for row in family.ROWS:
            assert row.opcode not in rows, row.opcode
            rows[row.opcode] = row
    return rows


ROWS = _table()
