"""A grid whose CTAs differ: some that are typical are run, and what the others take follows from what they issue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.machine.values import Array
from ptxlab.prediction.memory.l2 import Reuse
from ptxlab.prediction.memory.touched import Touched
from ptxlab.prediction.placement import makespan
from ptxlab.prediction.resident import Followed, ResidentModel
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.survey import Survey

_LITTLE = 1 / 3
"""Beside those of a group that issue most, those are run that issue so much of it."""

_NEARLY = 0.8
"""Where none of a group issues less than so much of that, one in the middle stands for all."""


@dataclass(frozen=True, slots=True)
class Uneven:
    """What is said of CTAs that differ.

    ``followed`` CTAs issue from ``least`` to ``most`` instructions each; ``busy`` is the part of the time in which an
    SM, of all on average, has as many as it can.
    """

    followed: int
    least: int
    most: int
    busy: float


@dataclass(frozen=True, slots=True)
class _Kind:
    """CTAs that were followed together, how much the first has ``issued``, and the ``members`` of the survey like it.

    As many turns are added to those that are run as the first has more: the others count as if they did the same.
    """

    followed: Followed
    issued: float
    members: Array


class UnevenGrid:
    """A grid of which a ``survey`` says how CTAs differ; ``together`` fit into each of ``sms``."""

    def __init__(self, model: ResidentModel, survey: Survey, together: int, sms: int) -> None:
        self._model, self._survey = model, survey
        self._together, self._sms = together, sms
        self._groups = [self._kinds(np.array(group)) for group in survey.groups]

    @property
    def touched(self) -> Touched:
        """What all CTAs touch, once for each of them."""
        survey = self._survey
        return Touched.summed(
            [
                self._model.touched(
                    kind.followed,
                    survey.each * float(survey.issued[kind.members].sum()) / kind.issued,
                )
                for kinds in self._groups
                for kind in kinds
            ]
        )

    def run(self, reuse: Reuse) -> tuple[Run, Uneven]:
        """Run what is typical; return what all SMs do on average, and how uneven it is."""
        survey = self._survey
        costs, alone = (np.zeros(len(survey.ctas)) for _ in range(2))
        parts = []
        for kinds in self._groups:
            runs = [self._model.run(kind.followed, reuse, self._sms) for kind in kinds]
            members = np.concatenate([kind.members for kind in kinds])
            costs[members] = _costs(
                survey.issued[members],
                [kind.issued for kind in kinds],
                [run.cycles / self._together for run in runs],
            )
            alone[members] = costs[members] * self._alone(kinds[-1], reuse, costs)
            parts += [
                (survey.each * float(costs[kind.members].sum()) / run.cycles / self._sms, run)
                for kind, run in zip(kinds, runs, strict=True)
            ]
        cycles = makespan(costs[survey.like], alone[survey.like], self._sms, self._together)
        total = Run.summed(parts)
        followed, least, most = len(survey.ctas), int(survey.issued.min()), int(survey.issued.max())
        return replace(total, cycles=cycles), Uneven(followed, least, most, total.cycles / cycles)

    def _alone(self, kind: _Kind, reuse: Reuse, costs: Array) -> float:
        """Return how many times as long as its part of a full SM a CTA takes that has the SM to itself."""
        if self._together == 1:
            return 1.0
        most = int(kind.members[-1])
        followed = self._model.followed([int(self._survey.ctas[most])])
        return self._model.run(followed, reuse, self._sms).cycles / float(costs[most])

    def _kinds(self, group: Array) -> list[_Kind]:
        """Follow those of a group that issue most and, unless all issue nearly as much, some that issue less, which come first."""
        issued = self._survey.issued[group]
        typical = [int(np.searchsorted(issued, _LITTLE * issued[-1])), len(group) - 1]
        if issued[0] >= _NEARLY * issued[-1]:
            typical = [len(group) // 2]
        elif issued[typical[0]] == issued[-1]:
            del typical[0]
        nearest = np.abs(issued[:, None] - issued[typical]).argmin(axis=1)
        return [
            self._followed(group, index, group[nearest == n]) for n, index in enumerate(typical)
        ]

    def _followed(self, group: Array, index: int, members: Array) -> _Kind:
        """Follow one of a group, and those on its SM that issue most nearly as much."""
        issued = self._survey.issued[group]
        near = np.argsort(np.abs(issued - issued[index]), kind="stable")[: self._together]
        ctas = self._survey.ctas[group[np.resize(near, self._together)]].tolist()
        return _Kind(self._model.followed(ctas), float(issued[index]), members)


def _costs(issued: Array, known: Sequence[float], costs: Sequence[float]) -> Array:
    """Return what CTAs take that have ``issued`` so much, of which ``costs`` are ``known`` for one amount or for two.

    It goes on evenly with what is issued, and falls no faster than that.
    """
    least: Array = issued * (costs[0] / known[0])
    if len(known) == 1 or known[0] == known[-1]:
        return least
    slope = (costs[-1] - costs[0]) / (known[-1] - known[0])
    even: Array = np.maximum(costs[0] + slope * (issued - known[0]), least * (issued < known[0]))
    return even
