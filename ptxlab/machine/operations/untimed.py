"""Instructions of the machine of which nobody says how long they take: their registers alone are known.

Those of Blackwell's tensor cores, and some of which there are few.
"""

from __future__ import annotations

import re
from functools import partial

from ptxlab.machine.row import Modifiers, matrices, rows

_untimed = partial(rows, pipe="")
_late = partial(_untimed, scoreboard="tensor memory", operands="nothing out", reads_late=True)

_REPEATED = re.compile(r"x(\d+)$")
_OF_A_SHAPE = {"16dp128bit": 2, "16dp256bit": 4}
"""Registers of a lane for each time a shape is repeated, where that is not one."""


def _of_tensor_memory(modifiers: Modifiers) -> int:
    """Return the registers of a lane that LDTM loads: ``LDTM.16dp256bit.x4``, ``LDTM.x32``."""
    times = next((int(match[1]) for match in map(_REPEATED.match, modifiers) if match), 1)
    return times * next((_OF_A_SHAPE[name] for name in modifiers if name in _OF_A_SHAPE), 1)


def _stored(modifiers: Modifiers, source: int) -> int:
    """Return the registers that STTM stores, behind the address."""
    return _of_tensor_memory(modifiers) if source else 1


def _stored_matrices(modifiers: Modifiers, source: int) -> int:
    return matrices(modifiers) if source else 1


ROWS = (
    *_untimed("LDTM", writes=_of_tensor_memory, scoreboard="tensor memory"),
    *_untimed("STTM", reads=_stored, scoreboard="tensor memory"),
    *_late("UTCHMMA UTCQMMA UTCIMMA UTCOMMA UTCBAR UTCCP"),
    *_untimed(
        "UTCATOMSWS", operands="a predicate first", scoreboard="tensor memory", reads_late=True
    ),
    *_untimed("STSM", reads=_stored_matrices, scoreboard="shared", latency="agu"),
    *_untimed("STAS", scoreboard="shared", latency="agu"),
    *_untimed("MATCH", operands="a predicate first", of_pairs=("U64",), scoreboard="adu", words=1),
    *_untimed("FMNMX3", latency="alu"),
    *_untimed("UVIRTCOUNT BPT ARRIVES UGETNEXTWORKID ACQBULK", operands="nothing out"),
)
