"""Instructions of the machine by which lanes of a warp tell each other: votes, shuffles, sums, and who is chosen."""

from __future__ import annotations

import numpy as np

from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import TRUE_PREDICATE, Predicate
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import Modifiers, rows
from ptxlab.machine.values import Where

U32, U64 = np.uint32, np.uint64

_REDUCTIONS = {
    "SUM": (np.add, 0),
    "MIN": (np.minimum, 2**63 - 1),
    "MAX": (np.maximum, -(2**63)),
    "OR": (np.bitwise_or, 0),
    "XOR": (np.bitwise_xor, 0),
    "AND": (np.bitwise_and, -1),
}
"""What joins the words of a warp, and the word that changes nothing."""


def _reduce(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """Join the words of the lanes that are there: where it does not say how, to the bits that all have."""
    value = r.value(i.sources[0], where)
    if value is None or i.has("F32"):
        r.forget(i, where)
        return
    join, nothing = next(
        (_REDUCTIONS[modifier] for modifier in i.sass.modifiers if modifier in _REDUCTIONS),
        _REDUCTIONS["AND"],
    )
    words = np.full(r.threads, nothing, np.int64)
    words[where] = np.asarray(value).view(np.int32) if i.has("S32") else value
    joined = join.reduce(words.reshape(-1, WARP), axis=1)
    r.write(i, where, np.repeat(joined.astype(U32), WARP)[where])


def _vote(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """Count what holds for the lanes of a warp."""
    value = r.predicate((i.ins or (Predicate(TRUE_PREDICATE),))[-1], where)
    if value is None:
        r.forget(i, where)
        return
    held, here = np.zeros((2, r.threads), bool)
    held[where], here[where] = value, True
    by_warp, present = held.reshape(-1, WARP), here.reshape(-1, WARP)
    lanes = U64(1) << np.arange(WARP, dtype=U64)
    ballot = np.repeat((by_warp * lanes).sum(axis=1).astype(U32), WARP)[where]
    r.write(i, where, ballot)
    every = (by_warp | ~present).all(axis=1) if i.has("ALL") else by_warp.any(axis=1)
    for predicate in i.outs:
        r.tell(predicate, where, np.repeat(every, WARP)[where])


def _shuffle(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """Take the word of another lane; a lane that is not there is answered with one's own."""
    a, lane, clamp = (r.value(source, where) for source in i.sources)
    if a is None or lane is None or clamp is None:
        r.forget(i, where)
        return
    mine = np.arange(WARP)
    every = [np.zeros(r.threads, np.int64) for _ in range(3)]
    for whole, part in zip(every, (a, lane, clamp), strict=True):
        whole[where] = part
    words, by, limits = (whole.reshape(-1, WARP) for whole in every)
    segment = limits >> 8 & 31
    top = mine & segment | limits & 31 & ~segment
    if i.has("IDX"):
        source = mine & segment | by & 31 & ~segment
    else:
        source = {"UP": mine - by, "DOWN": mine + by, "BFLY": mine ^ by}[i.sass.modifiers[0]]
    inside = source >= top if i.has("UP") else source <= top
    taken = np.take_along_axis(words, np.where(inside, source, mine) % WARP, axis=1)
    r.write(i, where, taken.reshape(-1)[where].astype(U32))
    for predicate in i.outs:
        r.tell(predicate, where, inside.reshape(-1)[where])


def _elect(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """Choose the lowest of the lanes that are there."""
    here = np.zeros(r.threads, bool)
    here[where] = True
    lowest = np.repeat(here.reshape(-1, WARP).argmax(axis=1), WARP)
    chosen = (lowest == np.arange(r.threads) % WARP)[where]
    r.write(i, where, lowest[where].astype(U32))
    for predicate in i.outs[:1]:
        r.tell(predicate, where, chosen)


def _moved(modifiers: Modifiers) -> int:
    """Return the registers of a matrix: two where its numbers of 4 bits become bytes."""
    return 2 if "U4TO8" in modifiers else 1


ROWS = (
    *rows("VOTE VOTEU", "alu", _vote, operands="one predicate out", latency="vote"),
    *rows("REDUX", "adu", _reduce, scoreboard="adu"),
    *rows("CREDUX", "alu", _reduce),
    *rows(
        "SHFL", "lsu", _shuffle, operands="a predicate first", scoreboard="special", latency="agu"
    ),
    *rows("ELECT", "control", _elect, operands="a predicate first", latency="elect"),
    *rows("MOVM", "lsu", writes=_moved, scoreboard="special", latency="agu"),
)
