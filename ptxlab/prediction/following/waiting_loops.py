"""Loops that ask memory again until another thread has done something there: they are taken to ask once.

Whoever polls a flag, waits for the barrier of a grid, takes a lock, or tries a compare-and-swap again until nobody
was faster goes around for as long as others need, which is not followed. What they ask costs what it does once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from ptxlab.machine import uses
from ptxlab.machine.flow import moves, straight_before
from ptxlab.machine.instruction import DecodedInstruction

_SWAPS = ("CAS", "CAST")


def over_at_once(code: Sequence[DecodedInstruction]) -> dict[int, bool]:
    """Return the branches that leave such a loop, or pass it by as it was asked for before, and whether each is taken."""
    branches: dict[int, bool] = {}
    heads: dict[int, set[int]] = {}
    for i in code:
        if i.does == "branch" and i.target is not None and i.target < i.number:
            leaving = _leaving(code[i.target : i.number + 1])
            branches |= leaving
            if leaving:
                heads.setdefault(i.number + 1, set()).add(i.target)
    for i in code:
        if _chooses(i) and i.target in heads and i.target > i.number:
            behind = next((n for n in range(i.number + 1, i.target) if moves(code[n])), i.target)
            inside = any(i.number < head <= behind for head in heads[i.target])
            if inside and _hangs_on_others(straight_before(code, i.number), i):
                branches[i.number] = True
    return branches


def _leaving(turn: Sequence[DecodedInstruction]) -> dict[int, bool]:
    """Return the branch that leaves a loop when others have done what it waits for, and whether it is taken: none if it does something else."""
    if not _waits(turn):
        return {}
    at, first = next((n, i) for n, i in enumerate(turn) if moves(i))
    if not _chooses(first) or first.target is None or not _hangs_on_others(turn[:at], first):
        return {}
    inside = turn[0].number <= first.target <= turn[-1].number
    if inside and first is not turn[-1]:
        return {}
    return {first.number: not inside}


def _chooses(i: DecodedInstruction) -> bool:
    return i.does == "branch" and (i.guard is not None or bool(i.ins))


def _asks_others(i: DecodedInstruction) -> bool:
    """Say whether others may have changed what comes of it: a load that sees what they store, or a compare-and-swap."""
    row = i.known
    if row.atomic:
        return any(map(i.has, _SWAPS))
    return row.loads and bool(row.space) and i.has("STRONG")


def _waits(turn: Sequence[DecodedInstruction]) -> bool:
    """Say whether all that a loop does is to ask at the same places again."""
    if any(moves(i) and i.does != "branch" for i in turn):
        return False
    asking = [i for i in turn if _asks_others(i)]
    if not asking or any(i.known.stores and i not in asking for i in turn):
        return False
    moving = reduce(or_, map(uses.written, turn))
    for i in turn:
        if i in asking and uses.addressed(i) & moving:
            return False
        if i.known.space or i.guard is not None or uses.read(i) & moving:
            moving |= uses.written(i)
        else:
            moving &= ~uses.written(i)
    return True


def _hangs_on_others(before: Sequence[DecodedInstruction], branch: DecodedInstruction) -> bool:
    """Say whether what is asked of others in some instructions before a branch decides it."""
    theirs = 0
    for i in before:
        if _asks_others(i) or uses.read(i) & theirs:
            theirs |= uses.written(i)
        elif i.guard is None:
            theirs &= ~uses.written(i)
    return bool(uses.read(branch) & theirs)
