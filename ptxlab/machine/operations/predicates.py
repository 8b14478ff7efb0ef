"""Instructions of the machine about predicates: comparisons, choices, logic, and predicates as bits of a word."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import rows

_predicates = partial(rows, lifted=True)

ROWS = (
    *_predicates("ISETP", "alu", uniform=True, of_pairs=("64", "S64", "U64")),
    *_predicates("SEL", "alu", uniform=True),
    *_predicates("PLOP3", "alu", uniform=True, operands="predicates first"),
    *_predicates("P2R", "alu", every_predicate="read"),
    *_predicates(
        "R2P",
        "alu",
        every_predicate="written",
        operands="predicates first",
        latency="r2p",
    ),
    *_predicates("UP2UR", "uniform", every_predicate="read"),
    *_predicates("UR2UP", "uniform", every_predicate="written", operands="predicates first"),
)
