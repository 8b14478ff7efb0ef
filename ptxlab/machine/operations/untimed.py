"""Instructions of the machine of which nobody says how long they take: their registers alone are known.

There are few of them in a program, if any.
"""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import Modifiers, matrices, pairs, rows

_untimed = partial(rows, pipe="")


def _stored_matrices(modifiers: Modifiers, source: int) -> int:
    return matrices(modifiers) if source else 1


ROWS = (
    *_untimed("STSM", reads=_stored_matrices, scoreboard="shared", latency="agu"),
    *_untimed("MATCH", operands="a predicate first", of_pairs=("U64",), scoreboard="adu", words=1),
    *_untimed("QSPC", operands="a predicate first", reads=pairs, scoreboard="adu"),
    *_untimed("B2R", scoreboard="adu"),
    *_untimed("FMNMX3 VIMNMX3", latency="alu"),
    *_untimed("BPT ARRIVES ACQBULK", operands="nothing out"),
)
