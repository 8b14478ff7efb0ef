"""Instructions of the machine that access memory, or have it copied."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import matrices, rows

_of_lsu = partial(rows, pipe="lsu")
_shared = partial(_of_lsu, space="shared", scoreboard="shared")
_global = partial(_of_lsu, space="global", scoreboard="global")
_generic = partial(_of_lsu, space="generic", scoreboard="global")
_local = partial(_of_lsu, space="local", scoreboard="global")

ROWS = (
    *_shared("LDS", loads=True),
    *_shared("LDSM", loads=True, matrix=True, writes=matrices),
    *_shared("STS", stores=True),
    *_shared("ATOMS", loads=True, stores=True, atomic=True),
    *_global("LDG", loads=True),
    *_global("STG", stores=True),
    *_global("ATOM ATOMG", loads=True, stores=True, atomic=True),
    # Nothing comes back of these: the names of before Hopper and since.
    *_global("RED REDG", stores=True, atomic=True),
    *_generic("LD", loads=True),
    *_generic("ST", stores=True),
    *_local("LDL", loads=True),
    *_local("STL", stores=True),
    *_of_lsu("LDGSTS", space="copy", scoreboard="global", loads=True),
    *_of_lsu("SYNCS", space="mbarrier", scoreboard="shared", words=2, does="phase"),
    *_of_lsu(
        "UTMALDG",
        space="tensor map",
        scoreboard="global",
        operands="nothing out",
        does="bulk copy",
        loads=True,
        boxes=True,
    ),
    *_of_lsu(
        "UTMASTG",
        space="tensor map",
        scoreboard="global",
        operands="nothing out",
        does="bulk copy",
        stores=True,
        boxes=True,
    ),
    # Bytes in a row: its first modifier says whether to global memory or from there.
    *_of_lsu(
        "UBLKCP",
        space="tensor map",
        scoreboard="global",
        operands="nothing out",
        does="bulk copy",
        loads=True,
        stores=True,
    ),
)
