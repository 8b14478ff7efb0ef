"""Instructions of the machine that bring a value into a register: from others, constants, special registers."""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import SassName
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import rows, two_words_unless_32
from ptxlab.machine.values import Where


def _to_uniform(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """R2UR: uniform registers are held by each thread."""
    r.write(i, where, r.value(i.sources[0], where))


def _special_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    name = i.sources[0].text if isinstance(i.sources[0], SassName) else ""
    value = r.special(name, where)
    if value is None or i.dest is None:
        r.forget(i, where)
    else:
        r.write_row(i.dest, where, [value, 0 * value][: i.written])


def _granted(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """USETMAXREG: registers that are asked for are there."""
    for predicate in i.outs:
        r.tell(predicate, where, np.ones(len(np.arange(r.threads)[where]), bool))


ROWS = (
    *rows("MOV", "alu", lifted=True, slot=1),
    *rows("UMOV", "uniform", lifted=True, latency="move"),
    *rows("R2UR", "lsu", _to_uniform, scoreboard="special", latency="r2ur"),
    *rows("S2R S2UR", "lsu", _special_register, scoreboard="special"),
    *rows("CS2R", "alu", _special_register, writes=two_words_unless_32, latency="pair"),
    *rows("CS2UR", "uniform", _special_register, writes=two_words_unless_32),
    *rows("LDC LDCU", "lsu", lifted=True, scoreboard="constant"),
    *rows("ULDC", "uniform", lifted=True, latency="constant"),
    *rows("USETMAXREG", "control", _granted),
    *rows("BMOV", "control", scoreboard="special"),
    *rows("LEPC", "control", words=2, latency="pair"),
)
