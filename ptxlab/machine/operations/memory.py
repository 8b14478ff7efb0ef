"""Instructions of the machine that access memory, or have it copied."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import Modifiers, matrices, rows


def box(before: int, modifiers: Modifiers, source: int) -> int:
    """Return the uniform registers of a copy with a tensor map: ``before`` the coordinates, then where the map is.

    Behind them may stand a word, and how to cache it.
    """
    dimensions = next((int(name[:-1]) for name in modifiers if name[:-1].isdigit()), 0)
    return (before + dimensions, 2, 1, 1)[source]


def in_a_row(modifiers: Modifiers, source: int) -> int:
    """Return the uniform registers of a copy of bytes in a row: its addresses, of L2 alone there is one, and how many."""
    return (2, 1, 2)[source] if "L2" in modifiers else (2, 2, 1, 2)[source]


def _stored_matrices(modifiers: Modifiers, source: int) -> int:
    return matrices(modifiers) if source else 1


_of_lsu = partial(rows, pipe="lsu")
_accessing = partial(_of_lsu, latency="agu")
_shared = partial(_accessing, space="shared", scoreboard="shared")
_global = partial(_accessing, space="global", scoreboard="global")
_generic = partial(_accessing, space="generic", scoreboard="global")
_local = partial(_accessing, space="local", scoreboard="global")
_prefetch = partial(_of_lsu, operands="nothing out", scoreboard="global", reads_late=True)

ROWS = (
    *_shared("LDS", loads=True),
    *_shared("LDSM", loads=True, matrix=True, writes=matrices),
    *_shared("STS", stores=True),
    *_shared("STSM", stores=True, matrix=True, reads=_stored_matrices),
    # To another CTA of the cluster, whose mbarrier it tells; what is followed is the first.
    *_of_lsu("STAS", scoreboard="shared", latency="agu"),
    *_shared("ATOMS", loads=True, stores=True, atomic=True),
    *_global("LDG", loads=True),
    *_global("STG", stores=True),
    *_global("ATOM ATOMG", operands="a predicate first", loads=True, stores=True, atomic=True),
    # Nothing comes back of these: the names of before Hopper and since.
    *_global("RED REDG", stores=True, atomic=True),
    *_generic("LD", loads=True),
    *_generic("ST", stores=True),
    *_local("LDL", loads=True),
    *_local("STL", stores=True),
    *_accessing("LDGSTS", space="copy", scoreboard="global", loads=True),
    *_of_lsu("SYNCS", space="mbarrier", scoreboard="shared", words=2, does="phase"),
    # Into the L2 cache: what is loaded from there is counted where it is.
    *_prefetch("UBLKPF", reads=in_a_row),
    *_prefetch("UTMAPF", reads=partial(box, 0)),
    *_of_lsu(
        "UTMALDG",
        space="tensor map",
        scoreboard="global",
        operands="nothing out",
        does="bulk copy",
        loads=True,
        boxes=True,
        reads=partial(box, 2),
        reads_late=True,
    ),
    *_of_lsu(
        "UTMASTG",
        space="tensor map",
        scoreboard="global",
        operands="nothing out",
        does="bulk copy",
        stores=True,
        boxes=True,
        reads=partial(box, 1),
        reads_late=True,
    ),
    *_of_lsu(
        "UGETNEXTWORKID",
        space="mbarrier",
        scoreboard="global",
        operands="nothing out",
        does="next cluster",
        stores=True,
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
        reads=in_a_row,
        reads_late=True,
    ),
)
