"""Instructions of the machine by which lanes of a warp tell each other: votes, shuffles, sums, and who is chosen."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import Modifiers, rows

_lanes = partial(rows, lifted=True)


def _moved(modifiers: Modifiers) -> int:
    """Return the registers of a matrix: two where its numbers of 4 bits become bytes."""
    return 2 if "U4TO8" in modifiers else 1


ROWS = (
    *_lanes("VOTE VOTEU", "alu", operands="one predicate out", latency="vote"),
    *_lanes("REDUX", "adu", scoreboard="adu"),
    *_lanes("CREDUX", "alu"),
    *_lanes("SHFL", "lsu", operands="a predicate first", scoreboard="special", latency="agu"),
    *_lanes("ELECT", "control", operands="a predicate first", latency="elect"),
    *rows("MOVM", "lsu", writes=_moved, scoreboard="special", latency="agu"),
)
