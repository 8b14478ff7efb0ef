"""Turns of loops that are run clock by clock, and what the others cost.

The turns of a hot loop are alike: a few are run, and again as many more, and the difference is what
each of the rest costs. What issues very much loses turns of other loops, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxlab.machine.values import Array
from ptxlab.prediction import trace
from ptxlab.prediction.requests import Request
from ptxlab.prediction.run import Run
from ptxlab.prediction.warps import Asked, Skipped

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

    def executions(self, steps: Sequence[Array]) -> Array:
        """Return how many warps issue each instruction, by number, of some steps of each kind."""
        warps = np.bincount(self.kind_of, minlength=len(self.kinds))
        most = int(self.numbers.max()) + 1
        counts: Array = sum(
            each * np.bincount(self.numbers[of_kind], self.times_of(of_kind), minlength=most)
            for each, of_kind in zip(warps, steps, strict=True)
        )
        return counts

    def times_of(self, steps: Array) -> Array | None:
        return None if self.times is None else self.times[steps]


@dataclass(frozen=True, slots=True)
class Part:
    """The ``steps`` that are run of one kind of warps, and what is ``skipped`` before some of them.

    At the steps ``marks``, by place, a warp of the kind is asked what came of it until then, and after the last all ends.
    """

    steps: Array
    skipped: Mapping[int, Sequence[Skipped]] = field(default_factory=dict)
    marks: Sequence[int] = ()


class Turns:
    """Some turns of each of some loops."""

    def __init__(self, issued: Issued, loops: Sequence[trace.SampledLoop], returns: Array) -> None:
        self._issued, self._loops = issued, loops
        self._own = [
            trace.alike(loops, issued.numbers[of_kind], returns, issued.times_of(of_kind))
            for of_kind in issued.kinds
        ]
        self._more = self._left()
        self.kept = [
            of_kind[there] for of_kind, there in zip(issued.kinds, self._more, strict=True)
        ]

    def _left(self, shortened: int = -1) -> list[Array]:
        return [
            trace.kept(len(issued), own, shortened)
            for issued, own in zip(self._issued.kinds, self._own, strict=True)
        ]

    def run(self, run: Callable[[Sequence[Part]], list[Run]], requests: Requests) -> Run:
        """Run these turns and, for each loop, fewer of it, whose difference is what the others cost."""

        def ran(left: Sequence[Array]) -> Run:
            whole = zip(self._issued.kinds, self._own, left, strict=True)
            return run(
                [
                    Part(issued[there], self._skipped(issued, trace.gaps(own, there), requests))
                    if len(self._loops) > 1
                    else Part(issued[there])
                    for issued, own, there in whole
                ]
            )[-1]

        first = self._issued.kind_of[0]
        many = ran(self._more)
        parts = [(1.0, many)]
        for sampled in self._loops:
            fewer = self._left(sampled.loop.head)
            shown = trace.turns_in(sampled.loop, self._more[first]) - trace.turns_in(
                sampled.loop, fewer[first]
            )
            if shown:
                rest = sampled.left_out / shown
                parts += [(rest, many), (-rest, ran(fewer))]
        return Run.summed(parts)

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


class Tiles:
    """All that is issued, or of a persistent kernel some ``tiles``: warps that wait for each other lose no turn."""

    def __init__(self, issued: Issued, tiles: Mapping[int, Sequence[int]] | None) -> None:
        self.kept = list(issued.kinds)
        self._tiles = tiles or {}
        for kind, begun in self._tiles.items():
            self.kept[kind] = self.kept[kind][: begun[trace.FEW_TILES + 1]]

    def run(self, run: Callable[[Sequence[Part]], list[Run]], requests: Requests) -> Run:
        parts = [Part(steps) for steps in self.kept]
        if not self._tiles:
            return run(parts)[-1]
        few = trace.FEW_TILES
        longest = max(self._tiles, key=lambda kind: len(self.kept[kind]))
        begun = self._tiles[longest]
        parts[longest] = Part(self.kept[longest], marks=(begun[1], begun[few]))
        fewer, more = run(parts)[:2]
        rest = (len(begun) - few) / (few - 1)
        return Run.summed([(1, more), (rest, more), (-rest, fewer)])
