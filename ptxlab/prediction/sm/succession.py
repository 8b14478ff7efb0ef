"""CTAs that follow each other on an SM: where one has ended another begins, so that one loads while others compute.

Who gives them out is taken to be as far away as the L2 cache, as with ``clusterlaunchcontrol``, and a CTA to have its place until
what it stored has left: so kernels of a load or a store a thread take as long as RRZE-HPC/gpu-benches (gpu-l2-stream) measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.timing import InstructionTiming
from ptxlab.prediction.sm.warps import Warp

ROUNDS, FEWEST = 6, 4
"""CTAs that are run one behind the other where one fits, or fewer of long ones: the first and the last begin or end with others, which costs more."""

FAR = 1 << 34
"""Sectors that CTAs of different rounds lie apart: what one has loaded is not what the next one does."""


class SuccessionSm(Sm):
    """An SM with ``together`` CTAs at a time, of some rounds of as many whose warps it is given."""

    def __init__(
        self,
        chip: Chip,
        timings: Mapping[int, InstructionTiming],
        warps: Sequence[Warp],
        shared: int,
        together: int,
    ) -> None:
        super().__init__(chip, timings, warps, shared)
        self._running = Counter(warp.cta for warp in warps)
        self._together, self._rounds = together, len(self._running) // together
        self._waiting: dict[int, list[Warp]] = defaultdict(list)
        for warp in chain.from_iterable(self._parts):
            if warp.cta >= together:
                self._waiting[warp.cta].append(warp)
        self._parts = [[w for w in part if w.cta < together] for part in self._parts]
        self._ended: list[Run] = []
        self._stored: dict[int, float] = defaultdict(float)

    def steady(self) -> Run:
        """Return what ``together`` CTAs cost while others begin and end beside them."""
        self.run()
        first, last = (self._ended[n * self._together - 1] for n in (1, self._rounds - 1))
        part = 1 / (self._rounds - 2)
        return Run.summed([(part, last), (-part, first)]).steady()

    def _leave(self, warp: Warp, now: float) -> None:
        super()._leave(warp, now)
        self._running[warp.cta] -= 1
        self._stored[warp.cta] = max(self._stored[warp.cta], warp.stored)
        if self._running[warp.cta]:
            return
        self._ended.append(self._until(now))
        if self._waiting:
            begins = max(now, self._stored[warp.cta]) + self._chip.latency["l2"]
            for follower in self._waiting.pop(min(self._waiting)):
                self._parts[follower.part].append(follower)
                follower.issued = follower.fixed = begins
                self._wake(follower, begins)
