"""Instructions of the machine that bring a value into a register: from others, constants, special registers."""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import SassConstant, SassName
from ptxlab.machine.registers import Registers, moved
from ptxlab.machine.row import rows, two_words_unless_32
from ptxlab.machine.values import Where
from ptxlab.machine.words import U64


def _move(r: Registers, i: DecodedInstruction, where: Where) -> None:
    r.write(i, where, r.source(i, i.sources[0], where), count=2 if i.has("64") else 1)


def _special_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    name = i.sources[0].text if isinstance(i.sources[0], SassName) else ""
    value = r.special(name, where)
    count = i.written
    if value is None:
        r.forget(i, where)
    else:
        r.write(i, where, value.astype(U64) if count == 2 else value, count=count)


def _load_constant(r: Registers, i: DecodedInstruction, where: Where) -> None:
    source = i.sources[0]
    if i.dest is None or not isinstance(source, SassConstant):
        r.forget(i, where)
        return
    places = range(i.written)
    r.write_row(i.dest, where, [r.constant(moved(source, 4 * n), where) for n in places])


def _granted(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """USETMAXREG: registers that are asked for are there."""
    for predicate in i.outs:
        r.tell(predicate, where, np.ones(len(np.arange(r.threads)[where]), bool))


ROWS = (
    *rows("MOV", "alu", _move, pairs=True, slot=1),
    *rows("UMOV", "uniform", _move, pairs=True, latency="move"),
    *rows("R2UR", "lsu", _move, scoreboard="special", latency="r2ur"),
    *rows("S2R S2UR", "lsu", _special_register, scoreboard="special"),
    *rows("CS2R", "alu", _special_register, writes=two_words_unless_32, latency="pair"),
    *rows("CS2UR", "uniform", _special_register, writes=two_words_unless_32),
    *rows("LDC LDCU", "lsu", _load_constant, pairs=True, scoreboard="constant"),
    *rows("ULDC", "uniform", _load_constant, pairs=True, latency="constant"),
    *rows("USETMAXREG", "control", _granted),
    *rows("BMOV", "control", scoreboard="special"),
    *rows("LEPC", "control", words=2, latency="pair"),
)
