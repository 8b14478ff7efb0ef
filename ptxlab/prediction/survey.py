"""Which CTAs of a grid do alike: some are followed, spread over all of them, and told apart by what they issue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.following import interpreter
from ptxlab.prediction.following.issue_order import IssueOrder
from ptxlab.prediction.memory import atomics

_THREADS, _FEWEST, _MOST = 1 << 15, 16, 128
"""CTAs with about so many threads are followed, but not fewer or more."""

_LONG = 500_000
"""Where the fewest issue so many instructions of warps and are alike, no more are followed; where they are not, as many as issue twice that."""

_PERIOD, _STEP = 64, 37
"""Of so many CTAs in a row each that follows lies so much further: as many are odd as even, and so with eights."""

ALIKE = 0.05
"""CTAs are alike if of what one issues the other lacks no larger part, and all of a grid are if no more differ, which have less to do."""

_GROUPS = 3
"""So many groups that take different ways are told apart, those that issue most."""


@dataclass(frozen=True, slots=True)
class Survey:
    """``ctas`` that were followed, by number, one of each part of the grid in order, and how many instructions the warps of each have ``issued``.

    ``groups`` take different ways: each has the places of its CTAs in the survey, first of those that issue least.
    ``of_all`` are the CTAs there are, whose atomics take so many ``atomic_cycles`` where most meet.
    """

    ctas: Array
    issued: Array
    groups: tuple[tuple[int, ...], ...]
    of_all: int
    atomic_cycles: float = 0.0

    @property
    def alike(self) -> bool:
        """Whether all do the same but for what is hardly anything, as those at the edges of what they share may."""
        return len(self._typical) >= (1 - ALIKE) * len(self.ctas)

    @property
    def mostly_alike(self) -> bool:
        """Whether half of all do the same, and others lack a part of it: what they share is shared alike."""
        return 2 * len(self._typical) >= len(self.ctas)

    @property
    def typical(self) -> int:
        """The CTA in the middle of those that issue most, with which a launch ends."""
        issued = self.issued[self._typical]
        most = self._typical[issued == issued.max()]
        return int(self.ctas[most[len(most) // 2]])

    @property
    def _typical(self) -> Array:
        way = np.array(sorted(self.groups[0]))
        typical: Array = way[self.issued[way] >= (1 - ALIKE) * self.issued.max()]
        return typical

    @property
    def each(self) -> float:
        """For how many CTAs each of them stands."""
        return self.of_all / len(self.ctas)

    @property
    def like(self) -> Array:
        """The place in the survey of the one that stands for each CTA of the grid."""
        like: Array = np.arange(self.of_all) * len(self.ctas) // self.of_all
        return like


def survey(code: Sequence[DecodedInstruction], launch: Launch) -> Survey:
    """Follow some CTAs of a launch. Raises Unsupported as ``interpreter.run`` does."""
    few = _followed(code, launch, _FEWEST, [i.number for i in code if atomics.meets(i)])
    issued = int(few.issued.sum())
    most = _MOST if few.alike else len(few.ctas) * 2 * _LONG // issued
    enough = min(_MOST, _THREADS // launch.threads, most)
    if enough <= _FEWEST or (few.alike and issued > _LONG):
        return few
    return replace(_followed(code, launch, enough), atomic_cycles=few.atomic_cycles)


def _followed(
    code: Sequence[DecodedInstruction], launch: Launch, count: int, meeting: Sequence[int] = ()
) -> Survey:
    """Follow so many CTAs, which say how many atomics meet at an address, where the numbers of such are given."""
    ctas = _spread(launch, count)
    steps = interpreter.run(code, launch, ctas.tolist(), meeting)
    issued = _issued(steps, launch, len(ctas), len(code))
    meet = atomics.cycles(steps, launch, len(ctas))
    return Survey(ctas, issued.sum(axis=1), _grouped(issued), launch.ctas, meet)


def _spread(launch: Launch, count: int) -> Array:
    """Return so many CTAs by number, one of each part of the grid, of each cluster the first at most."""
    clusters = launch.ctas // launch.cluster
    count = min(clusters, count)
    parts = np.arange(count)
    begin = parts * clusters // count
    period = min(_PERIOD, 1 << (clusters // count).bit_length() - 1)
    chosen: Array = (begin + (parts * _STEP - begin) % period) * launch.cluster
    return chosen


def _issued(steps: IssueOrder, launch: Launch, ctas: int, instructions: int) -> Array:
    """Return how often warps of each CTA issue each instruction."""
    segments: dict[tuple[int, int], Array] = defaultdict(lambda: np.zeros(ctas, np.int64))
    begun = np.cumsum(steps.lengths) - steps.lengths
    times = np.ones_like(begun) if steps.times is None else steps.times[begun]
    for first, end, warps, each in zip(steps.first, steps.end, steps.warps, times, strict=True):
        segments[first, end] += each * (
            launch.warps if warps is None else np.bincount(warps // launch.warps, minlength=ctas)
        )
    issued = np.zeros((ctas, instructions), np.int64)
    for (first, end), counts in segments.items():
        issued[:, first:end] += counts[:, None]
    return issued


def _grouped(issued: Array) -> tuple[tuple[int, ...], ...]:
    """Group CTAs by which instructions they issue; who does hardly anything else, or is of few, joins the most similar."""
    total = issued.sum(axis=1)
    ways: dict[bytes, list[int]] = defaultdict(list)
    for cta, counts in enumerate(issued):
        ways[(counts > 0).tobytes()].append(cta)
    groups: list[list[int]] = []
    for members in sorted(ways.values(), key=lambda members: -int(total[members].sum())):
        apart = [_apart(issued[members].mean(axis=0), issued[own].mean(axis=0)) for own in groups]
        if groups and (min(apart) <= ALIKE or len(groups) == _GROUPS):
            groups[int(np.argmin(apart))] += members
        else:
            groups.append(members)
    return tuple(tuple(sorted(own, key=lambda cta: int(total[cta]))) for own in groups)


def _apart(counts: Array, others: Array) -> float:
    """Return which part of what is issued differs."""
    return float(np.abs(counts - others).sum() / 2 / max(counts.sum(), others.sum()))
