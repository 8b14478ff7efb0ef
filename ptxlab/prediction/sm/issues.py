"""When each warp of a CTA issues what, clock by clock: a prediction to be looked at instruction by instruction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ptxlab.machine.sass import SassInstruction
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.warps import Warp


@dataclass(frozen=True, slots=True)
class Issue:
    """An instruction, by its ``number`` in the code, that a warp of the CTA issues at a ``cycle``.

    It might have been issued ``waited`` cycles earlier but for ``reason``, the longest of several, in Nsight Compute's
    words.
    """

    warp: int
    number: int
    cycle: int
    waited: int
    reason: str


@dataclass(frozen=True, slots=True)
class PredictedIssues:
    """What the warps of the first CTA issue on a GPU that is not here, in the order of time.

    ``together`` CTAs share its SM. ``left_out`` are instructions in turns of loops that go on alike, of which no time was
    spent here, and those behind the last that was asked for.
    """

    gpu: str
    arch: str
    clock_mhz: int
    together: int
    code: tuple[SassInstruction, ...]
    issues: tuple[Issue, ...]
    left_out: int


class RecordingSm(Sm):
    """An SM that keeps what the warps of its first CTA issue."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.recorded: list[Issue] = []

    def _account(self, warp: Warp, number: int, now: float) -> None:
        if warp.cta:
            super()._account(warp, number, now)
            return
        every, self.stalls = self.stalls, defaultdict(float)
        super()._account(warp, number, now)
        waits = {why: cycles for (_, why), cycles in self.stalls.items()}
        for key, cycles in self.stalls.items():
            every[key] += cycles
        self.stalls = every
        reason = max(waits, key=lambda why: waits[why], default="")
        waited = round(sum(waits.values()))
        self.recorded.append(Issue(warp.number, number, round(now), waited, reason))
