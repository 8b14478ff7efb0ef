"""What came of running an SM: time, and what it was spent on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

PARTITIONS = 4
"""Sub-partitions of an SM, each with warps of its own."""

OF_SM = ("lsu", "l2", "stores", "tma")
"""What an SM has one of, and not one in each sub-partition."""


@dataclass(slots=True)
class Run:
    """What came of it: ``cycles``, and by instruction and reason the cycles that warps spent waiting.

    ``issued`` are instructions of warps, ``busy`` the cycles that each pipe was held. ``sectors`` of global memory are
    ``asked`` of L1 by loads that it may have, ``missed`` there, and ``loaded`` from beyond the SM in all.
    """

    cycles: float
    issued: float
    stalls: dict[tuple[int, str], float]
    busy: dict[str, float]
    sectors: dict[str, float] = field(default_factory=dict)

    def held(self, pipe: str) -> float:
        """Return for how many cycles a pipe was held, of all that there are of it."""
        return self.busy.get(pipe, 0.0) / (1 if pipe in OF_SM else PARTITIONS)

    def steady(self) -> Run:
        """Return what it is if others follow: who ends before what it stored has left the SM leaves them the pipe held."""
        return replace(self, cycles=max(self.cycles, *map(self.held, self.busy), 0.0))

    @classmethod
    def summed(cls, parts: Sequence[tuple[float, Run]]) -> Run:
        """Return runs added up, each so many times; what they wait or hold a pipe for is never less than none."""
        stalls: dict[tuple[int, str], float] = defaultdict(float)
        busy: dict[str, float] = defaultdict(float)
        sectors: dict[str, float] = defaultdict(float)
        for times, run in parts:
            for why, cycles in run.stalls.items():
                stalls[why] += times * cycles
            for pipe, cycles in run.busy.items():
                busy[pipe] += times * cycles
            for what, count in run.sectors.items():
                sectors[what] += times * count
        return cls(
            sum(times * run.cycles for times, run in parts),
            sum(times * run.issued for times, run in parts),
            {why: max(cycles, 0.0) for why, cycles in stalls.items()},
            {pipe: max(cycles, 0.0) for pipe, cycles in busy.items()},
            {what: max(count, 0.0) for what, count in sectors.items()},
        )
