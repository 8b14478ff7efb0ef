"""Instructions of the machine of which nobody says how long they take: their registers alone are known.

There are few of them in a program, if any.
"""

from __future__ import annotations

from functools import partial

from ptxlab.machine.operations.memory import box, in_a_row
from ptxlab.machine.row import Modifiers, pairs, rows

_untimed = partial(rows, pipe="")


def _uniform_value(modifiers: Modifiers, source: int) -> int:
    """Return the uniform registers of an address, or of the value that is stored or added there."""
    return 1 if source and "64" not in modifiers else 2


_late = partial(_untimed, operands="nothing out", scoreboard="global", reads_late=True)

ROWS = (
    *_untimed("FHADD FHFMA", latency="fma"),
    *_untimed("I2I F2IP", latency="alu"),
    *_untimed("REDAS", operands="nothing out", scoreboard="shared", latency="agu"),
    *_late("UBLKRED", reads=in_a_row),
    *_late("UTMAREDG", reads=partial(box, 1)),
    *_late("USTGR UREDGR", reads=_uniform_value),
    *_late("UMEMSETS", reads=lambda modifiers, source: 1),
    *_late("UTCSHIFT"),
    *_untimed("MATCH", operands="a predicate first", of_pairs=("U64",), scoreboard="adu", words=1),
    *_untimed("QSPC", operands="a predicate first", reads=pairs, scoreboard="adu"),
    *_untimed("B2R", scoreboard="adu"),
    *_untimed("RPCMOV"),
    *_untimed("BPT", operands="nothing out", does="trap"),
    *_untimed("ARRIVES", operands="nothing out"),
)
