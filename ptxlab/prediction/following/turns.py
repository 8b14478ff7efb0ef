"""Turns of loops that are run clock by clock, and what the others cost.

The turns of a hot loop are alike: some are run, and what they cost while all warps are in it is what the rest
costs, for each instruction. What the CTAs of an SM take until the last has ended says less: the youngest are served first, and by how much they
are ahead then differs with every turn. What issues very much loses turns of other loops, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ptxlab.machine.values import Array
from ptxlab.prediction.following import trace
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.warps import Asked, Skipped, Window

Requests = Mapping[int, Request | Asked]
"""What the steps ask memory for that are run."""


@dataclass(frozen=True, slots=True)
class Issued:
    """What warps issue: the steps of each kind of them, ``numbers`` the instructions of all steps.

    ``times`` is how often each step is issued, None for once.
    """

    numbers: Array
    kinds: Sequence[Array]
    kind_of: Sequence[int]
    times: Array | None = None

    def executions(self) -> Array:
        """Return how many warps issue each instruction, by number."""
        return self._summed(self.kinds, self.times)

    def followed(self, steps: Sequence[Array]) -> Array:
        """Return the same of some steps of each kind, each once."""
        return self._summed(steps, None)

    def _summed(self, steps: Sequence[Array], times: Array | None) -> Array:
        warps = np.bincount(self.kind_of, minlength=len(self.kinds))
        most = int(self.numbers.max()) + 1
        counts: Array = sum(
            each
            * np.bincount(
                self.numbers[of_kind], None if times is None else times[of_kind], minlength=most
            )
            for each, of_kind in zip(warps, steps, strict=True)
        )
        return counts

    def count(self, steps: Array) -> int:
        """Return how many instructions a warp issues in some steps."""
        return len(steps) if self.times is None else int(self.times[steps].sum())

    def times_of(self, steps: Array) -> Array | None:
        return None if self.times is None else self.times[steps]


@dataclass(frozen=True, slots=True)
class Part:
    """The ``steps`` that are run of one kind of warps, and what is ``skipped`` before some of them.

    At the steps ``marks``, by place, a warp of the kind is asked what came of it until then; where it ``ends``, all does.
    """

    steps: Array
    skipped: Mapping[int, Sequence[Skipped]] = field(default_factory=dict)
    marks: Sequence[int] = ()
    ends: int | None = None


Passed = Mapping[tuple[int, int], Run]
"""What came of it until kinds of warps had come to a place."""


class Ran(Protocol):
    """Runs parts, each of a kind of warps, and returns what came of it until they passed their marks, and in all.

    A ``window`` hears of the marks of all warps.
    """

    def __call__(
        self, parts: Sequence[Part], window: Window | None = None
    ) -> tuple[Passed, Run]: ...


class Turns:
    """Some turns of each of some loops, as a ``kind`` of warps runs through them."""

    def __init__(
        self, issued: Issued, loops: Sequence[trace.SampledLoop], returns: Array, kind: int
    ) -> None:
        self._issued, self._loops, self._kind = issued, loops, kind
        self._own = [
            trace.alike(loops, issued.numbers[of_kind], returns, issued.times_of(of_kind))
            for of_kind in issued.kinds
        ]
        self._more = self._left()
        self._marks = [self._window(kind) for kind in range(len(issued.kinds))]
        self.kept = [
            of_kind[there] for of_kind, there in zip(issued.kinds, self._more, strict=True)
        ]

    def _left(self, shortened: int = -1) -> list[Array]:
        return [
            trace.kept(len(issued), own, shortened)
            for issued, own in zip(self._issued.kinds, self._own, strict=True)
        ]

    def run(self, run: Ran, requests: Requests) -> Run:
        """Run these turns: the time in which all warps are in the hottest loop says what its others cost.

        Of every other loop, and where warps are too far ahead of each other for that, fewer turns are run too, and the difference says it.
        """

        def ran(left: Sequence[Array], window: Window | None = None) -> Run:
            parts = [
                Part(
                    issued[there],
                    self._skipped(issued, trace.gaps(own, there), requests)
                    if len(self._loops) > 1
                    else {},
                    marks if window else (),
                )
                for issued, own, there, marks in zip(
                    self._issued.kinds, self._own, left, self._marks, strict=True
                )
            ]
            return run(parts, window)[1]

        window = Window(len(self._issued.kind_of)) if all(self._marks) else None
        many = ran(self._more, window)
        parts = [(1.0, many)]
        for sampled in self._loops:
            if sampled is self._loops[0] and window and window.between:
                opened, closed = window.between
                rest = self._instructions_left_out() / (closed.issued - opened.issued)
                parts += [(rest, closed), (-rest, opened)]
                continue
            fewer = self._left(sampled.loop.head)
            shown = trace.turns_in(sampled.loop, self._more[self._kind]) - trace.turns_in(
                sampled.loop, fewer[self._kind]
            )
            if shown:
                rest = sampled.left_out / shown
                parts += [(rest, many), (-rest, ran(fewer))]
        return Run.summed(parts)

    def _window(self, kind: int) -> tuple[int, ...]:
        """Return at which instructions, of those that are left, a kind of warps begins a turn of the hottest loop and has ended those that are left.

        Nothing where they do not run through it once, or all turns are left.
        """
        hot = self._hottest(kind)
        if hot is None or len(hot.loop.runs) != 1 or not hot.left_out:
            return ()
        (turns,), few = hot.loop.runs, hot.few
        places = np.cumsum(self._more[kind]) - 1
        return int(places[turns[few // 2][0]]), int(places[turns[2 * few - 1][1] - 1])

    def _hottest(self, kind: int) -> trace.SampledLoop | None:
        """Return the hottest loop as a kind of warps runs through it, None where it does not."""
        head = self._loops[0].loop.head if self._loops else -1
        return next((own for own in self._own[kind] if own.loop.head == head), None)

    def _instructions_left_out(self) -> float:
        """Return how many instructions all warps issue in the turns of the hottest loop that are left out, as short as the others are."""
        every = 0.0
        for kind, warps in enumerate(np.bincount(self._issued.kind_of).tolist()):
            hot = self._hottest(kind)
            assert hot is not None
            shown = hot.loop.runs[0][: 2 * hot.few]
            issued = np.count_nonzero(self._more[kind][shown[0][0] : shown[-1][1]])
            every += warps * issued / len(shown) * hot.left_out
        return every

    def _skipped(
        self, issued: Array, gaps: Iterable[trace.Gap], requests: Requests
    ) -> dict[int, list[Skipped]]:
        """Return what the turns would load that are left out, by the place behind them."""
        skipped: dict[int, list[Skipped]] = defaultdict(list)
        numbers = self._issued.numbers
        for gap in gaps:
            for n in range(gap.length):
                step, later = int(issued[gap.first + n]), int(issued[gap.last + n])
                number = int(numbers[step])
                request, other = requests.get(step), requests.get(later)
                alike = number == numbers[later]
                if alike and isinstance(request, Request) and isinstance(other, Request):
                    skipped[gap.position].append(
                        Skipped(number, gap.turns, gap.apart, request, other)
                    )
        return skipped


@dataclass(frozen=True, slots=True)
class _Period:
    """A period behind others that were not followed: a ``kind`` of warps is at these places then, all at ``step`` when it ends."""

    kind: int
    begin: int
    end: int
    step: int
    times: int

    def costs(self, passed: Passed) -> list[tuple[float, Run]]:
        """Return what those that were not followed cost, as parts of a sum; nothing where all was over before."""
        begun, ended = (passed.get((self.kind, mark)) for mark in (self.begin, self.end))
        return [(self.times, ended), (-self.times, begun)] if begun and ended else []


class Tiles:
    """All that was followed, or of a persistent kernel some ``tiles``: warps that wait for each other lose turns together.

    ``more`` are periods that were not followed, as ``IssueOrder`` has them: each takes as long as the one behind them.
    """

    def __init__(
        self,
        issued: Issued,
        tiles: trace.Stretch | None,
        more: Mapping[tuple[int, int], int],
    ) -> None:
        self.kept = list(issued.kinds)
        self._tiles = tiles
        for kind, count in tiles.kept.items() if tiles else ():
            self.kept[kind] = self.kept[kind][:count]
        self._longest = max(range(len(self.kept)), key=lambda kind: len(self.kept[kind]))
        self._periods = [self._period(first, end, times) for (first, end), times in more.items()]

    def _period(self, first: int, end: int, times: int) -> _Period:
        """Return the period behind those that were not followed, when what was before the loop is over.

        The warps that issue most tell of it, or those that issue most of it where they have no part in it.
        """
        last = 2 * end - first
        places = [np.searchsorted(steps, (end, last)).tolist() for steps in self.kept]
        own = [ended - begun for begun, ended in places]
        kind = self._longest if own[self._longest] else own.index(max(own))
        begun, ended = places[kind]
        return _Period(kind, begun, ended, last, times)

    def run(self, run: Ran, requests: Requests) -> Run:
        marks: list[set[int]] = [set() for _ in self.kept]
        for period in self._periods:
            marks[period.kind] |= {period.begin, period.end}
        tiles = self._tiles
        if tiles:
            marks[tiles.kind] |= {tiles.begin, tiles.end}
        passed, whole = run([
            Part(steps, marks=sorted(places), ends=tiles.end if tiles and kind == tiles.kind else None)
            for kind, (steps, places) in enumerate(zip(self.kept, marks, strict=True))
        ])  # fmt: skip
        if not tiles:
            every = [cost for period in self._periods for cost in period.costs(passed)]
            return Run.summed([(1, whole), *every])
        fewer, more = (self._until(tiles.kind, mark, passed) for mark in (tiles.begin, tiles.end))
        return Run.summed([(1, more), (tiles.rest, more), (-tiles.rest, fewer)])

    def _until(self, kind: int, mark: int, passed: Passed) -> Run:
        """Return what came of it until a kind of warps had come to a place."""
        step = self.kept[kind][mark]
        before = (period for period in self._periods if period.step <= step)
        costs = [cost for period in before for cost in period.costs(passed)]
        return Run.summed([(1, passed[kind, mark]), *costs])
