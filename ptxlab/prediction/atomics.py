"""Atomics of global memory that meet at an address, which the L2 cache carries out one by one.

Source: NVIDIA Kepler GK110 Architecture, "Atomic Operations": one a clock at a common address. That this holds since is
assumed; that a lane counts for one, too, as nobody says whether lanes of a warp are combined.
"""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.prediction.issue_order import IssueOrder
from ptxlab.prediction.requests import Request

CYCLES = 1
"""Of an operation at an address that others come to."""


def meets(i: DecodedInstruction) -> bool:
    """Say whether an instruction is an atomic of global memory."""
    return i.row is not None and i.row.atomic and i.row.space in ("global", "generic")


def operations_at_one_address(steps: IssueOrder, launch: Launch, followed: int) -> float:
    """Return how many atomic operations a launch carries out at the address that most are at.

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
    return float(everywhere.max())
