"""Atomics of global memory that meet at an address, or near it, which the L2 cache carries out one after the other.

One a clock at a common address: NVIDIA Kepler GK110 Architecture, "Atomic Operations". Histograms that
R100001/Programming-Massively-Parallel-Processors measured say that it holds since, and that a lane counts for one: all
in one bin, 0.95 to 1 a clock on seven GPUs, TU117 to GA102; in all of 512 bins, one behind the other, 24.3 to 26.4 a clock
on all seven, whatever their size, so that it is not all of the L2 cache that has them. That a quarter of them takes a
quarter of it is assumed.
"""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.prediction.issue_order import IssueOrder
from ptxlab.prediction.requests import Request

_BLOCK, _OF_BLOCK = 128, 6.15
"""So many operations a clock in so many words that lie together."""


def meets(i: DecodedInstruction) -> bool:
    """Say whether an instruction is an atomic of global memory."""
    return i.row is not None and i.row.atomic and i.row.space in ("global", "generic")


def cycles(steps: IssueOrder, launch: Launch, followed: int) -> float:
    """Return how many cycles a launch takes for its atomic operations where most meet.

    ``steps`` are those of CTAs that were ``followed``, some of all, with what their atomics asked for: what two of them come to, all do.
    """
    times = steps.times
    words, warps, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for step, request in steps.requests.items():
        assert isinstance(request, Request)
        at, of_warp = request.words
        words.append(at)
        warps.append(of_warp)
        counts.append(np.full(len(at), 1.0 if times is None else float(times[step])))
    every, nth = np.unique(np.concatenate(words), return_inverse=True)
    if not len(every):
        return 0.0
    of_cta = np.zeros((len(every), followed))
    np.add.at(of_cta, (nth, np.concatenate(warps) // launch.warps), np.concatenate(counts))
    shared = (of_cta > 0).sum(axis=1) > 1
    everywhere = of_cta.sum(axis=1) * np.where(shared, launch.ctas / followed, 1)
    _, block = np.unique(every // _BLOCK, return_inverse=True)
    return float(max(everywhere.max(), np.bincount(block, everywhere).max() / _OF_BLOCK))
