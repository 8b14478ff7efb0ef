"""What each warp issues, with the turns of its loops that are like the ones before left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.machine.values import Array
from ptxlab.prediction.following.issue_order import IssueOrder

FEW_TURNS = 4
MANY_TURNS = 16
FEW_TILES = 3
"""Tiles of a persistent kernel that are run: the first, and two that show what all cost."""

ENOUGH, LESS = 60_000, 24_000
"""Instructions of all warps in the turns that are kept, if those are not too few or too many; less where several loops lose turns, for each of which another run is made."""

LONG = 50_000
"""Instructions of all warps in a turn of which half as many show what all cost."""

MANY = 500_000
"""Instructions of all warps in tiles that differ, which are run clock by clock."""

MOST = 100_000
"""Instructions of all warps that are run clock by clock: of what issues more, other loops lose turns too."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Turns of a loop in what a warp issues: each ``turn`` is (first, end), ``runs`` of them in a row.

    ``more`` are the turns of each run that were not followed.
    """

    head: int
    runs: tuple[tuple[tuple[int, int], ...], ...]
    more: tuple[int, ...] = ()

    @property
    def turns(self) -> int:
        return sum(map(len, self.runs)) + sum(self.more)

    def turns_of(self, run: int) -> int:
        return len(self.runs[run]) + (self.more[run] if self.more else 0)

    def after(self, turns: int) -> Iterator[tuple[int, int]]:
        """Yield the turns of each run behind the first ``turns``."""
        return (turn for run in self.runs for turn in run[turns:])


@dataclass(frozen=True, slots=True)
class SampledLoop:
    """A loop of which ``few`` turns of each run, and as many more, show what all cost."""

    loop: Loop
    few: int

    @property
    def left_out(self) -> int:
        """How many turns are not run, those of turns of other loops that are not run among them."""
        return sum(1 for _ in self.loop.after(2 * self.few)) + sum(self.loop.more)


def of_warps(steps: IssueOrder, warps: int) -> tuple[list[Array], list[int]]:
    """Return the steps of each kind of warps, by number, and of which kind each warp is."""
    issued = np.ones((len(steps.first), warps), bool)
    for row, some in enumerate(steps.warps):
        if some is not None:
            issued[row] = False
            issued[row, some] = True
    kinds, kind_of = np.unique(issued, axis=1, return_inverse=True)
    every, lengths = np.arange(steps.count, dtype=np.int32), steps.lengths
    return [every[np.repeat(kind, lengths)] for kind in kinds.T], kind_of.tolist()


def sampled(
    numbers: Array, returns: Array, warps: int, times: Array | None = None
) -> list[SampledLoop]:
    """Return the loops to leave turns out of, by the instructions that one of so many warps issues, each so many ``times``.

    The hottest comes first, and others until what is left is little enough to be run.
    """
    every = loops(numbers, returns, times)
    chosen = _sampled(every, len(numbers), warps, ENOUGH)
    return chosen if len(chosen) < 2 else _sampled(every, len(numbers), warps, LESS)


def _sampled(every: Sequence[Loop], length: int, warps: int, enough: int) -> list[SampledLoop]:
    left, rest = np.ones(length, bool), list(every)
    hot = hottest(rest)
    chosen: list[SampledLoop] = []
    while hot is not None:
        chosen.append(_shortened(hot, left, warps, enough))
        rest.remove(hot)
        left = kept(length, chosen)
        if np.count_nonzero(left) * warps <= MOST:
            break
        gains = {
            loop.head: _instructions(
                loop.after(2 * _shortened(loop, left, warps, enough).few), left
            )
            for loop in rest
        }
        gaining = (loop for loop in rest if gains[loop.head])
        hot = max(gaining, key=lambda loop: gains[loop.head], default=None)
    return chosen


def _shortened(loop: Loop, left: Array, warps: int, enough: int) -> SampledLoop:
    """Return a loop with as many turns of each run as show what all cost, ``enough`` instructions of those that are ``left``."""
    body = max(_instructions(loop.after(0), left), 1) / max(turns_in(loop, left), 1)
    least = FEW_TURNS // 2 if body * warps > LONG else FEW_TURNS
    return SampledLoop(loop, int(np.clip(enough / (body * warps), least, MANY_TURNS)))


def alike(
    chosen: Sequence[SampledLoop], numbers: Array, returns: Array, times: Array | None = None
) -> list[SampledLoop]:
    """Return the same loops in what another warp issues, as far as it runs through them."""
    own = {loop.head: loop for loop in loops(numbers, returns, times)}
    return [
        SampledLoop(own[sampled.loop.head], sampled.few)
        for sampled in chosen
        if sampled.loop.head in own
    ]


def loops(numbers: Array, returns: Array, times: Array | None = None) -> list[Loop]:
    """Find the loops of which a warp goes through more than a turn, by the instructions it issues, each so many ``times``.

    Who goes back by one of the instructions ``returns`` begins no turn.
    """
    back = np.flatnonzero((numbers[1:] <= numbers[:-1]) & ~np.isin(numbers[:-1], returns))
    turns: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    for last in back.tolist():
        head = int(numbers[last + 1])
        first = begun.get(head, 0)
        if head in begun and (numbers[first : last + 1] >= head).all():
            turns[head].append((first, last + 1))
        else:
            entered = np.flatnonzero(numbers[first : last + 1] == head)
            if len(entered):
                turns[head].append((first + int(entered[-1]), last + 1))
        begun[head] = last + 1
    followed = [Loop(head, _runs(of_head)) for head, of_head in turns.items()]
    if times is None:
        return followed
    return [
        replace(
            loop, more=tuple(sum(int(times[first]) - 1 for first, _ in run) for run in loop.runs)
        )
        for loop in followed
    ]


def hottest(candidates: Sequence[Loop]) -> Loop | None:
    """Return the loop that most of a warp's instructions are turns of."""
    return max(candidates, key=_left_out, default=None)


def tiles(
    kinds: Sequence[Array], numbers: Array, returns: Array, times: Array | None = None
) -> dict[int, list[int]] | None:
    """Return where each tile of a persistent kernel begins, by kind of warps, of those that have any; each step is issued so many ``times``.

    A tile is a run of the hottest loop. None where the warps that work do not run through equally many,
    or through too few.
    """
    tiles = {}
    for kind, issued in enumerate(kinds):
        each = None if times is None else times[issued]
        loop = hottest(loops(numbers[issued], returns, each))
        if loop is not None:
            tiles[kind] = [run[0][0] for run in loop.runs]
    counts = {len(begun) for begun in tiles.values()}
    few = len(counts) != 1 or max(counts) < FEW_TILES + 2
    return None if few else tiles


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tiles that are run of a persistent kernel: what a ``kind`` of warps does from ``begin`` to ``end`` costs as much as what comes behind.

    ``rest`` is how many times as much that is. Of kinds so many steps are ``kept`` that nobody waits in vain until then.
    """

    kind: int
    begin: int
    end: int
    kept: Mapping[int, int]
    rest: float


def stretch(
    kinds: Sequence[Array],
    kind_of: Sequence[int],
    numbers: Array,
    returns: Array,
    times: Array | None = None,
) -> Stretch | None:
    """Return which tiles of a persistent kernel show what all cost, None where all have to be run.

    Where all are alike those are FEW_TILES, else the first, of MANY instructions of all warps.
    """
    if alike := tiles(kinds, numbers, returns, times):
        kept = {kind: begun[FEW_TILES + 1] for kind, begun in alike.items()}
        longest = max(alike, key=lambda kind: kept[kind])
        begun = alike[longest]
        rest = (len(begun) - FEW_TILES) / (FEW_TILES - 1)
        return Stretch(longest, begun[1], begun[FEW_TILES], kept, rest)
    longest = max(range(len(kinds)), key=lambda kind: len(kinds[kind]))
    steps = kinds[longest]
    each = np.ones(len(steps), np.int64) if times is None else times[steps]
    loop = hottest(loops(numbers[steps], returns, None if times is None else each))
    if loop is None:
        return None
    begun = max([run[0][0] for run in loop.runs], [first for first, _ in loop.runs[0]], key=len)
    warps = np.bincount(kind_of, minlength=len(kinds))
    before = [np.searchsorted(of_kind, steps[begun]) for of_kind in kinds]
    last = int(np.searchsorted(warps @ np.array(before), MANY))
    if last < FEW_TILES or last + 2 > len(begun):
        return None
    shown, behind = (
        int(each[a:b].sum()) for a, b in ((begun[1], begun[last]), (begun[last], None))
    )
    kept = {kind: int(until[last + 1]) for kind, until in enumerate(before)}
    return Stretch(longest, begun[1], begun[last], kept, behind / shown)


def kept(length: int, chosen: Sequence[SampledLoop], shortened: int = -1) -> Array:
    """Say which of ``length`` instructions are left: twice as many turns as few, or few, by a loop's head."""
    left = np.ones(length, bool)
    for sampled in chosen:
        for first, end in sampled.loop.after(
            sampled.few * (1 if sampled.loop.head == shortened else 2)
        ):
            left[first:end] = False
    return left


@dataclass(frozen=True, slots=True)
class Gap:
    """Where ``turns`` of a run are left out, before the instruction at ``position`` of those that are left.

    The turns before it begin at ``first`` and, ``apart`` turns later, at ``last``, of ``length`` instructions.
    """

    position: int
    turns: int
    first: int
    last: int
    apart: int
    length: int


def gaps(chosen: Sequence[SampledLoop], left: Array) -> Iterator[Gap]:
    """Yield where turns are left out of runs of which some are ``left``."""
    places = np.cumsum(left)
    for sampled in chosen:
        for number, run in enumerate(sampled.loop.runs):
            (begun, _), there = run[0], [turn for turn in run if left[turn[0]]]
            if 1 < len(there) < len(run):
                last, end = there[-1]
                yield Gap(
                    int(places[end - 1]),
                    sampled.loop.turns_of(number) - len(there),
                    begun,
                    last,
                    len(there) - 1,
                    end - last,
                )


def turns_in(loop: Loop, left: Array) -> int:
    """Return how many turns of a loop have begun among the instructions that are ``left``."""
    return sum(bool(left[first]) for first, _ in loop.after(0))


def _runs(turns: Sequence[tuple[int, int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    runs: list[list[tuple[int, int]]] = []
    for turn in turns:
        if runs and runs[-1][-1][1] == turn[0]:
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return tuple(map(tuple, runs))


def _left_out(loop: Loop) -> int:
    followed = sum(end - first for first, end in loop.after(FEW_TURNS))
    return followed + sum(
        turns * (run[-1][1] - run[-1][0]) for turns, run in zip(loop.more, loop.runs, strict=False)
    )


def _instructions(turns: Iterable[tuple[int, int]], left: Array) -> int:
    """Count the instructions of some turns that are ``left``."""
    return sum(int(np.count_nonzero(left[first:end])) for first, end in turns)
