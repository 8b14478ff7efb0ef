"""Instructions of the machine that bring a value into a register: from others, constants, special registers."""

from __future__ import annotations

from ptxlab.machine.row import rows, two_words_unless_32

ROWS = (
    *rows("MOV", "alu", lifted=True, slot=1),
    *rows("UMOV", "uniform", lifted=True, latency="move"),
    *rows("R2UR", "lsu", lifted=True, for_all=True, scoreboard="special", latency="r2ur"),
    *rows("S2R S2UR", "lsu", lifted=True, scoreboard="special"),
    *rows("CS2R", "alu", lifted=True, writes=two_words_unless_32, latency="pair"),
    *rows("CS2UR", "uniform", lifted=True, writes=two_words_unless_32),
    *rows("LDC LDCU", "lsu", lifted=True, scoreboard="constant"),
    *rows("ULDC", "uniform", lifted=True, latency="constant"),
    *rows("USETMAXREG", "control", lifted=True),
    *rows("BMOV", "control", scoreboard="special"),
    *rows("LEPC", "control", words=2, latency="pair"),
)
