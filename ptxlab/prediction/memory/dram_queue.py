"""How much longer loads wait for DRAM behind what is stored: the more of the time it is used, which follows from how long they wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ptxlab.prediction.chip import Chip
from ptxlab.prediction.memory.l2 import Reuse

LEAST, MOST = 20e-9, 5e-6
"""Seconds: what is waited less is left out, and a launch whose loads would have to wait more is bound by DRAM."""

_RUNS, _HALVINGS = 5, 40


@dataclass(frozen=True, slots=True)
class DramQueue:
    """What DRAM moves for a launch takes it ``seconds``; a load waits ``each`` longer where it is used for 62 % of the time."""

    seconds: float
    each: float

    @classmethod
    def of(cls, chip: Chip, reuse: Reuse) -> DramQueue:
        """Return the queue of a ``chip`` of which a launch asks what the L2 cache has not."""
        seconds = chip.dram_seconds(reuse.loaded, reuse.stored, reuse.pieces)
        return cls(seconds, chip.memory.queue * chip.mixed(reuse.loaded, reuse.stored) / 1e9)

    def wait(self, launch: float) -> float:
        """Return how many seconds longer a load waits if the ``launch`` takes so many."""
        used = self.seconds / launch
        return self.each * used / math.sqrt(1 - used) if used < 1 else math.inf

    def settled(self, took: Callable[[float], float], without: float) -> float:
        """Return how long loads wait of a launch which ``took`` so many seconds if they waited so many, and roughly so many ``without``."""
        known = {0.0: without}
        if not self.each or self.wait(without) < LEAST:
            return 0.0
        last, wait = 0.0, min(self.wait(max(without, 1.1 * self.seconds)), MOST)
        for _ in range(_RUNS):
            known[wait] = took(wait)
            last, wait = wait, self._meeting(known)
            if abs(wait - last) <= max(LEAST, wait / 20):
                break
        return last

    def _meeting(self, known: Mapping[float, float]) -> float:
        """Return how long loads wait if that is what the launch leaves them, whose time is ``known`` of some waits and even between."""
        waits = sorted(known)
        times = [known[wait] for wait in waits]
        steepest = max(0.0, (times[-1] - times[-2]) / (waits[-1] - waits[-2]))
        waits, times = [*waits, 2 * MOST], [*times, times[-1] + steepest * (2 * MOST - waits[-1])]
        least, most = 0.0, MOST
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            if self.wait(float(np.interp(middle, waits, times))) > middle:
                least = middle
            else:
                most = middle
        return least
