"""Integer instructions of the machine: sums, products, logic, shifts, bits."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import one_word, rows

_integer = partial(rows, lifted=True)

ROWS = (
    *_integer("IMAD", "fmaheavy", uniform=True, sums_pairs=("WIDE", "HI")),
    *_integer("IDP", "fmaheavy"),
    *_integer("IADD3", "alu", uniform=True),
    *_integer("IADD", "alu"),
    *_integer("VIADD", "alu", latency="fma"),
    *_integer("LEA", "alu", uniform=True),
    *_integer("LOP3", "alu", uniform=True, operands="a predicate first"),
    *_integer("IMNMX VIADDMNMX VIMNMX3", "alu"),
    *_integer("VABSDIFF VABSDIFF4", "alu"),
    *_integer("VIMNMX", "alu", uniform=True),
    *_integer("IABS", "alu", slot=1),
    *_integer("PRMT", "alu", uniform=True),
    *_integer("BMSK", "alu", uniform=True),
    *_integer("SGXT", "alu", uniform=True),
    *_integer("SHF", "alu", uniform=True, writes=one_word),
    *_integer("POPC", "xu", uniform=True, scoreboard="xu", slot=1),
    *_integer("FLO", "xu", uniform=True, scoreboard="xu", slot=1),
    *_integer("BREV", "xu", uniform=True, scoreboard="xu", slot=1),
)
