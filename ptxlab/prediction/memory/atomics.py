"""Atomics of global memory that meet at an address, or near it, which the L2 cache carries out one after the other.

One a clock at a common address: NVIDIA Kepler GK110 Architecture, "Atomic Operations". Histograms that
R100001/Programming-Massively-Parallel-Processors measured say that it holds since, and that a lane counts for one: all
in one bin, 0.95 to 1 a clock on seven GPUs, TU117 to GA102; in all of 512 bins, one behind the other, 24.3 to 26.4 a clock
on all seven, whatever their size, so that it is not all of the L2 cache that has them. These are 3 sectors a clock, each with
eight lanes of a warp: a sector takes as long for one lane, as says a histogram of 256 bins of random numbers on H100, which
takes 276 ms for 2^30 of them (yencal/gpu-histogram-optimization). That a quarter of the bins takes a quarter of it is assumed.
"""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.following.issue_order import IssueOrder
from ptxlab.prediction.sm.requests import SECTOR, WORDS, Request

_BLOCK, _OF_BLOCK = 512, 0.77
"""So many sectors of warps a clock, in so many bytes that lie together."""


def meets(i: DecodedInstruction) -> bool:
    """Say whether an instruction is an atomic of global memory."""
    return i.row is not None and i.row.atomic and i.row.space in ("global", "generic")


def cycles(steps: IssueOrder, launch: Launch, followed: int) -> float:
    """Return how many cycles a launch takes for its atomic operations where most meet.

    ``steps`` are those of CTAs that were ``followed``, some of all, with what their atomics asked for: what two of them come to, all do.
    """
    at_words, in_sectors = _Meeting(followed, launch), _Meeting(followed, launch)
    every = launch.warps * followed
    for step, request in steps.requests.items():
        assert isinstance(request, Request)
        words, warps = request.words
        count = 1.0 if steps.times is None else float(steps.times[step])
        at_words.add(words, warps, count)
        sectors, warps = np.divmod(np.unique(words // WORDS * every + warps), every)
        in_sectors.add(sectors, warps, count)
    _, words_told = at_words.everywhere
    sectors, told = in_sectors.everywhere
    if not len(sectors):
        return 0.0
    _, block = np.unique(sectors // (_BLOCK // SECTOR), return_inverse=True)
    return float(max(words_told.max(), np.bincount(block, told).max() / _OF_BLOCK))


class _Meeting:
    """How often CTAs that were ``followed``, some of a ``launch``, come to places."""

    def __init__(self, followed: int, launch: Launch) -> None:
        self._followed, self._launch = followed, launch
        self._places, self._ctas = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._counts = [np.zeros(0)]

    def add(self, places: Array, warps: Array, count: float) -> None:
        """Have each of some ``warps`` come to a place so often."""
        self._places.append(places)
        self._ctas.append(warps // self._launch.warps)
        self._counts.append(np.full(len(places), count))

    @property
    def everywhere(self) -> tuple[Array, Array]:
        """The places, and how often the whole launch comes there: where two of its CTAs do, all do."""
        places, nth = np.unique(np.concatenate(self._places), return_inverse=True)
        of_cta = np.zeros((len(places), self._followed))
        np.add.at(of_cta, (nth, np.concatenate(self._ctas)), np.concatenate(self._counts))
        shared = (of_cta > 0).sum(axis=1) > 1
        return places, of_cta.sum(axis=1) * np.where(shared, self._launch.ctas / self._followed, 1)
