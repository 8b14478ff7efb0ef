"""Atomics of global memory that meet at an address, which the L2 cache carries out one by one.

Source: NVIDIA Kepler GK110 Architecture, "Atomic Operations": one a clock at a common address. That this holds since is
assumed; that a lane counts for one, too, as nobody says whether lanes of a warp are combined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction import interpreter
from ptxlab.prediction.requests import Request
from ptxlab.prediction.warps import Asked

CYCLES = 1
"""Of an operation at an address that others come to."""

_FOLLOWED = 16
"""So many CTAs say who meets: what two of them come to all do."""


def meets(i: DecodedInstruction) -> bool:
    """Say whether an instruction is an atomic of global memory."""
    return i.row is not None and i.row.atomic and i.row.space in ("global", "generic")


def operations_at_one_address(
    code: Sequence[DecodedInstruction], launch: Launch, ctas: Array
) -> float:
    """Return how many atomic operations a launch carries out at the address that most are at.

    ``ctas`` are some of its CTAs, by number. Raises Unsupported as ``interpreter.requests`` does.
    """
    numbers = [i.number for i in code if meets(i)]
    if not numbers:
        return 0.0
    some = np.unique(ctas[:: -(-len(ctas) // _FOLLOWED)])
    steps = interpreter.run(code, launch, some.tolist(), again=True)
    asked = np.flatnonzero(np.isin(steps.numbers, numbers))
    times = np.ones(steps.count) if steps.times is None else steps.times
    words, warps, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]

    def tell(step: int, request: Request | Asked) -> None:
        if isinstance(request, Request):
            at, of_warp = request.words
            words.append(at)
            warps.append(of_warp)
            counts.append(np.full(len(at), float(times[step])))

    interpreter.requests(code, launch, some.tolist(), asked, tell, steps.more)
    every, nth = np.unique(np.concatenate(words), return_inverse=True)
    if not len(every):
        return 0.0
    of_cta = np.zeros((len(every), len(some)))
    np.add.at(of_cta, (nth, np.concatenate(warps) // launch.warps), np.concatenate(counts))
    shared = (of_cta > 0).sum(axis=1) > 1
    everywhere = of_cta.sum(axis=1) * np.where(shared, launch.ctas / len(some), 1)
    return float(everywhere.max())
