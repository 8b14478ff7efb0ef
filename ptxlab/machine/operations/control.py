"""Instructions of the machine that decide who goes on, where and when."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import pairs, rows

_control = partial(rows, pipe="control")

ROWS = (
    *_control("BRA", operands="a condition", does="branch"),
    *_control("BRX BRXU JMX JMXU", operands="nothing out", reads=pairs, does="branch"),
    *_control("CALL", does="call"),
    *_control("RET", operands="nothing out", reads=pairs, does="return"),
    *_control("EXIT", does="exit"),
    *_control("BSYNC", does="meet"),
    *_control("BSSY BREAK YIELD NOP"),
    # The last two are for the launch before and the one behind: a launch alone waits for none.
    *_control("WARPSYNC ACQBULK PREEXIT", operands="nothing out"),
    *_control("BAR", operands="nothing out", does="barrier", latency="agu"),
    *_control("UCGABAR_ARV", does="cluster arrive"),
    *_control("UCGABAR_WAIT", does="cluster wait"),
    *_control("DEPBAR", does="await group"),
    *_control("LDGDEPBAR UTMACMDFLUSH", does="close group"),
    *_control("WARPGROUP", does="await products"),
    *_control("NANOSLEEP", operands="nothing out", does="sleep"),
    *_control("MEMBAR ERRBAR CGAERRBAR FENCE CCTL UTMACCTL ENDCOLLECTIVE"),
)
