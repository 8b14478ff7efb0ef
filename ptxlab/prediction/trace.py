"""What each warp issues, with the turns of the hottest loop that are like the ones before left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.prediction.machine import IssueOrder
from ptxlab.prediction.values import Array

FEW_TURNS = 4
MANY_TURNS = 16
FEW_TILES = 3
"""Tiles of a persistent kernel that are run: the first, and two that show what all cost."""

ENOUGH = 24_000
"""Instructions of all warps in the turns that are kept, if those are not too few or too many."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps that one warp issues, by number in ``Steps``: those of the ``kept`` turns of a loop.

    ``left_out`` turns are missing.
    """

    steps: Array
    left_out: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Turns of a loop in what a warp issues: each ``turn`` is (first, end), ``runs`` of them in a row."""

    head: int
    runs: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def instructions(self) -> int:
        return sum(end - first for run in self.runs for first, end in run)

    @property
    def turns(self) -> int:
        return sum(map(len, self.runs))


def of_warps(steps: IssueOrder, warps: int) -> list[Array]:
    """Return the steps of each warp, by number; warps that issue the same share one array."""
    issued = np.ones((len(steps.first), warps), bool)
    for row, some in enumerate(steps.warps):
        if some is not None:
            issued[row] = False
            issued[row, some] = True
    kinds, kind_of = np.unique(issued, axis=1, return_inverse=True)
    every, lengths = np.arange(steps.count), steps.lengths
    of_kinds = [every[np.repeat(kind, lengths)] for kind in kinds.T]
    return [of_kinds[kind] for kind in kind_of.tolist()]


def hottest(numbers: Array, returns: Array) -> Loop | None:
    """Find the loop that most of a warp's instructions are turns of, by the instructions it issues.

    Who goes back by one of the instructions ``returns`` begins no turn.
    """
    back = np.flatnonzero((numbers[1:] <= numbers[:-1]) & ~np.isin(numbers[:-1], returns))
    turns: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    for last in back.tolist():
        head = int(numbers[last + 1])
        first = begun.get(head)
        if first is not None and (numbers[first : last + 1] >= head).all():
            turns[head].append((first, last + 1))
        else:
            entered = np.flatnonzero(numbers[: last + 1] == head)
            if len(entered):
                turns[head].append((int(entered[-1]), last + 1))
        begun[head] = last + 1
    loops = [Loop(head, _runs(of_head)) for head, of_head in turns.items()]
    return max(loops, key=_left_out, default=None)


def kept_turns(loop: Loop | None, warps: int) -> int:
    """Return how many turns of each run show what all cost."""
    if loop is None:
        return MANY_TURNS
    body = loop.instructions / loop.turns
    return int(np.clip(ENOUGH / (body * warps), FEW_TURNS, MANY_TURNS))


def tiles(of_warps: Sequence[Array], numbers: Array, returns: Array) -> dict[int, list[int]] | None:
    """Return where each tile of a persistent kernel begins for its warps, which are told by ``id``.

    A tile is a run of the hottest loop. None where the warps that work do not run through equally many,
    or through too few.
    """
    found = {}
    for issued in {id(one): one for one in of_warps}.values():
        loop = hottest(numbers[issued], returns)
        if loop is not None:
            found[id(issued)] = [run[0][0] for run in loop.runs]
    counts = {len(begun) for begun in found.values()}
    few = len(counts) != 1 or max(counts) < FEW_TILES + 2
    return None if few else found


def cut(steps: Array, loop: Loop | None, turns: int) -> Trace:
    """Leave out the turns of a loop after the first ``turns`` of each run."""
    if loop is None:
        return Trace(steps, 0)
    kept = np.ones(len(steps), bool)
    left_out = 0
    for run in loop.runs:
        for first, end in run[turns:]:
            kept[first:end] = False
            left_out += 1
    return Trace(steps[kept], left_out)


def _runs(turns: Sequence[tuple[int, int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    runs: list[list[tuple[int, int]]] = []
    for turn in turns:
        if runs and runs[-1][-1][1] == turn[0]:
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return tuple(map(tuple, runs))


def _left_out(loop: Loop) -> int:
    return sum(end - first for run in loop.runs for first, end in run[FEW_TURNS:])
