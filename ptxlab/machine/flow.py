"""Which instruction may follow which: the paths of a thread through a kernel and what it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import TRUE_PREDICATE, UPT, Predicate

_LOCAL = ".L"
"""How labels begin at which nothing is that returns: a call of one is a branch."""


@dataclass(slots=True, eq=False)
class Block:
    """Instructions without a branch between them, as they are reached by some calls."""

    code: Sequence[DecodedInstruction]
    after: list[Block] = field(default_factory=list)


class NotFollowed(Exception):
    """Says which paths are not followed, and why."""


def moves(i: DecodedInstruction) -> bool:
    """Say whether it may move threads elsewhere, or have them wait; so may what nobody knows."""
    return i.row is None or i.row.flow


def straight_before(
    code: Sequence[DecodedInstruction], number: int
) -> Sequence[DecodedInstruction]:
    """Return the instructions before one that are run one behind the other, and then it."""
    begin = number
    while begin and not moves(code[begin - 1]):
        begin -= 1
    return code[begin:number]


ProgramPoint = tuple[tuple[int, ...], int]
"""An instruction by number, behind where the calls that led to it return to, the last one last."""


def blocks(code: Sequence[DecodedInstruction]) -> list[Block]:
    """Return the blocks that are reached from the first instruction, as they stand in the code.

    A function stands there once for each way it is called. Raises NotFollowed.
    """
    following: dict[ProgramPoint, list[ProgramPoint]] = {}
    waiting: list[ProgramPoint] = [((), 0)]
    while waiting:
        point = waiting.pop()
        if point not in following:
            following[point] = list(dict.fromkeys(_following(code, point)))
            waiting += following[point]
    return _joined(code, following)


def _joined(
    code: Sequence[DecodedInstruction], following: dict[ProgramPoint, list[ProgramPoint]]
) -> list[Block]:
    """Put instructions that only follow each other into one block."""
    entered: dict[ProgramPoint, int] = {((), 0): 2}
    for places in following.values():
        for point in places:
            entered[point] = entered.get(point, 0) + (1 if len(places) == 1 else 2)
    starts = [point for point in following if entered[point] > 1]
    starts.sort(key=lambda point: point[1])
    ends: dict[ProgramPoint, list[ProgramPoint]] = {}
    made: dict[ProgramPoint, Block] = {}
    for start in starts:
        point, numbers = start, [start[1]]
        while len(following[point]) == 1 and entered[following[point][0]] == 1:
            (point,) = following[point]
            numbers.append(point[1])
        made[start] = Block([code[number] for number in numbers])
        ends[start] = following[point]
    for start, places in ends.items():
        made[start].after = [made[point] for point in places]
    return list(made.values())


def _following(code: Sequence[DecodedInstruction], point: ProgramPoint) -> list[ProgramPoint]:
    calls, number = point
    i = code[number]
    onwards = [(calls, number + 1)] if number + 1 < len(code) else []
    stays = onwards if _is_conditional(i) else []
    if i.does == "exit":
        return stays
    if i.does == "return":
        return [*stays, *([(calls[:-1], calls[-1])] if calls else [])]
    if i.targets:
        return [*stays, *((calls, target) for target in i.targets)]
    if i.does == "branch":
        if i.target is None:
            raise NotFollowed(f"where '{i.sass.text}' goes is not told")
        return [*stays, (calls, i.target)]
    if i.does == "call" and i.target is not None:
        if (i.sass.target or "").startswith(_LOCAL):
            return [*stays, (calls, i.target)]
        if number + 1 in calls:
            raise NotFollowed(f"'{i.sass.text}' calls a function that it is called by")
        return [*stays, ((*calls, number + 1), i.target)]
    return onwards


def _is_conditional(i: DecodedInstruction) -> bool:
    """Say whether threads may come past a branch or an exit."""
    if i.guard is not None and i.guard != Predicate(TRUE_PREDICATE):
        return True
    if i.does != "branch":
        return any(
            predicate not in (Predicate(TRUE_PREDICATE), Predicate(UPT)) for predicate in i.ins
        )
    return len(i.operands) > 1  # what else stands beside the target decides
