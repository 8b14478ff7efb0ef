"""Who runs next: groups of threads that stand at the same block, split and merged as they branch.

The group in the deepest call, and there the one furthest up in the text, runs first: threads that
left a loop or a branch early wait further down until the others reach them, and go on as one group.
Threads that wait for others (at a barrier, or for the rest of their warp) are set aside; when
nobody can run and somebody waits, that is a deadlock, and it is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from ptxlab.emulator.barriers import Arrival, Barriers
from ptxlab.emulator.group import Group
from ptxlab.emulator.lanes import Lanes, union
from ptxlab.emulator.program import Block, Function
from ptxlab.emulator.wave import WARP, Wave
from ptxlab.errors import LaunchError

# A group that loops while others could run yields to the one furthest from its turn after this many
# blocks, so that a thread that waits for another thread's store cannot starve it.
PATIENCE = 4096


class Machine:
    """Runs one wave to its end."""

    def __init__(self, wave: Wave, entry: Function, check: Callable[[], None]) -> None:
        self.wave = wave
        self._check = check
        self._ready = [Group(wave.frame(entry, None, 0), 0, wave.alive)]
        self._barriers = Barriers(wave)
        self._parked: list[Group] = []
        self._alive = wave.alive.mask.copy()
        self.instructions = 0

    def run(self) -> None:
        """Run until every thread has ended. Raise LaunchError for a fault or a deadlock."""
        choose: Callable[..., Group] = min
        while self._ready:
            group = choose(self._ready, key=_priority)
            self._ready.remove(group)
            choose = max if self._run(group) else min
        if self._barriers.waiting or self._parked:
            raise self._deadlock()

    def _run(self, group: Group) -> bool:
        """Run ``group`` until it ends, waits, splits, or reaches or passes another group.

        Return whether it was stopped because it ran for too long while others could.
        """
        current: Group | None = group
        patience = PATIENCE
        while current is not None:
            self._check()
            block = current.frame.function.blocks[current.block]
            if block.participants is not None and not current.lanes.everyone:
                current = self._gathered(current, block)
                if current is None:
                    return False
            current.lanes.full = self.alone()
            for step in block.steps:
                step.run(current.frame, current.lanes)
            self.instructions += current.lanes.size * block.instructions
            current = block.exit.leave(self, current)
            if current is not None and self._ready:
                patience -= 1
                if patience == 0 or min(map(_priority, self._ready)) <= current.priority:
                    self.resume(current)
                    return patience == 0
        return False

    # ---- what exits ask for ----

    def alone(self) -> bool:
        """Say whether the running group is all that lives."""
        return not (self._ready or self._barriers.arrivals or self._parked)

    def resume(self, group: Group) -> None:
        """Let ``group`` run later, as one with a group that stands at the same place."""
        for others in (self._ready, self._parked):
            for other in others:
                if other.at(group):
                    others.remove(other)
                    self._ready.append(group.part(union(group.lanes, other.lanes)))
                    return
        self._ready.append(group)

    def arrive(self, arrival: Arrival) -> None:
        """Note an arrival at a barrier, and let those go on whose barrier is complete."""
        self._barriers.arrive(arrival)
        self._release()

    def end(self, lanes: Lanes) -> None:
        """End threads. Barriers no longer expect them."""
        self._alive &= ~lanes.mask
        self._release()

    def _release(self) -> None:
        for group in self._barriers.complete(self._alive):
            self.resume(group)

    # ---- warps ----

    def _gathered(self, group: Group, block: Block) -> Group | None:
        """Return the part of ``group`` whose warps have all threads they need; park the rest."""
        assert block.participants is not None
        for other in [parked for parked in self._parked if parked.at(group)]:
            self._parked.remove(other)
            group = group.part(union(group.lanes, other.lanes))
        missing = block.participants(group.frame, group.lanes) & ~group.lanes.mask
        if not missing.any():
            return group
        short = np.repeat(missing.reshape(-1, WARP).any(axis=1), WARP)
        parked, going = group.lanes.where(short), group.lanes.where(~short)
        if parked is not None:
            self._parked.append(group.part(parked))
        return None if going is None else group.part(going)

    # ---- deadlock ----

    def _deadlock(self) -> LaunchError:
        """Describe who waits where. The first waiting place gives the location."""
        places: Counter[tuple[int, str]] = Counter()
        first = self.wave.width
        for arrival in self._barriers.waiting:
            places[arrival.line, "at the barrier"] += arrival.group.lanes.size
            first = min(first, int(arrival.group.lanes.index[0]))
        for group in self._parked:
            line = group.frame.function.blocks[group.block].first_line
            places[line, "for the rest of their warp"] += group.lanes.size
            first = min(first, int(group.lanes.index[0]))
        text = "; ".join(
            f"{count} threads wait {where} on line {line}"
            for (line, where), count in sorted(places.items())
        )
        return LaunchError(
            f"deadlock: {text}; the first is {self.wave.thread(first)}",
            location=self.wave.program.locate(min(places)[0]),
            hint="every thread a barrier or warp instruction is for must reach it",
        )


def _priority(group: Group) -> tuple[int, int]:
    return group.priority
