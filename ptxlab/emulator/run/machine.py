"""Who runs next: groups of threads that stand at the same block, split and merged as they branch.

The group in the deepest call, and there the one furthest up in the text, runs first: threads that
left a loop or a branch early wait further down until the others reach them, and go on as one group.
Threads that wait for others (at a barrier, or for the rest of their warp) are set aside; when
nobody can run and somebody waits, that is a deadlock, and it is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ptxlab.emulator.prepare.program import Array, Block, Function
from ptxlab.emulator.run.barriers import Arrival, Barriers
from ptxlab.emulator.run.group import Group
from ptxlab.emulator.run.lanes import Lanes, union
from ptxlab.emulator.run.wave import Wave
from ptxlab.errors import LaunchError

# When this many blocks have been run while others could run too, whoever has not had a turn for the
# longest gets one: threads that wait for another thread's store must not starve it, be they one
# group or several that take turns. A block that looks at what others do costs as much as POLL.
PATIENCE = 4096
POLL = 128


class Machine:
    """Runs one wave to its end."""

    def __init__(self, wave: Wave, entry: Function, check: Callable[[], None]) -> None:
        self.wave = wave
        self._check = check
        self._ready = [Group(wave.frame(entry, None, 0), 0, wave.alive, ran=0)]
        self._barriers = Barriers(wave)
        self._parked: list[Group] = []
        self._alive = wave.alive.mask.copy()
        self._turns = 0
        self._patience = PATIENCE
        self.instructions = 0

    def run(self) -> None:
        """Run until every thread has ended. Raise LaunchError for a fault or a deadlock."""
        while self._ready:
            fair = self._patience <= 0
            if fair:
                self._patience = PATIENCE
            group = min(self._ready, key=_longest_ago if fair else _priority)
            self._ready.remove(group)
            self._turns += 1
            group.ran = self._turns
            self._run(group, self._met if fair else self._passed)
        if self._barriers.waiting or self._parked:
            raise self._deadlock()

    def _run(self, group: Group, reached: Callable[[Group], bool]) -> None:
        """Run ``group`` until it ends, waits, splits, has ``reached`` others, or patience is over."""
        current: Group | None = group
        while current is not None:
            try:
                self._check()
            except TimeoutError as error:
                raise self._stopped(current, str(error)) from None
            block = current.frame.function.blocks[current.block]
            if block.participants is not None:
                current = self._gathered(current, block)
                if current is None:
                    return
            current.lanes.full = self.alone()
            for step in block.steps:
                step.run(current.frame, current.lanes)
            self.instructions += current.lanes.size * block.instructions
            self.wave.clock += block.instructions
            if self._ready:
                self._patience -= POLL if block.polls else 1
            else:
                self._patience = PATIENCE
            current = block.exit.leave(self, current)
            if current is not None and self._ready and (self._patience <= 0 or reached(current)):
                self.resume(current)
                return

    def _passed(self, group: Group) -> bool:
        return min(map(_priority, self._ready)) <= group.priority

    def _met(self, group: Group) -> bool:
        return any(other.at(group) for other in self._ready)

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
                    self._ready.append(_joined(group, other))
                    return
        self._ready.append(group)

    def arrive(self, arrival: Arrival) -> None:
        """Note an arrival at a barrier, and let those go on whose barrier is complete."""
        self._barriers.arrive(arrival)
        self._release()

    def end(self, lanes: Lanes) -> None:
        """End threads. Barriers and their warps no longer expect them."""
        self._alive &= ~lanes.mask
        if self.wave.watched:
            self.wave.watcher.ended(lanes)
        parked, self._parked = self._parked, []
        for group in parked:
            self.resume(group)
        self._release()

    def _release(self) -> None:
        for group in self._barriers.complete(self._alive):
            self.resume(group)

    # ---- warps ----

    def _gathered(self, group: Group, block: Block) -> Group | None:
        """Return the part of ``group`` that waits for no other thread of its warp; park the rest."""
        assert block.participants is not None
        for other in [parked for parked in self._parked if parked.at(group)]:
            self._parked.remove(other)
            group = _joined(group, other)
        ready: Array = block.participants(group.frame, group.lanes, self._alive)
        going = group.lanes.where(ready)
        if going is group.lanes:
            return group
        parked = group.lanes.where(~ready)
        assert parked is not None
        self._parked.append(group.part(parked))
        return None if going is None else group.part(going)

    # ---- deadlock, and no end ----

    def _stopped(self, group: Group, reason: str) -> LaunchError:
        """Describe who was running when whoever watches the time had enough."""
        line = group.frame.function.blocks[group.block].first_line
        first = self.wave.thread(int(group.lanes.index[0]))
        return LaunchError(
            f"stopped, {reason}: {group.lanes.size} threads run here, the first is {first}",
            location=self.wave.program.locate(line),
            hint="an endless loop stands here or around here; --timeout gives a long run more time",
        )

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
            kind="deadlock",
        )


def _priority(group: Group) -> tuple[int, int]:
    return group.priority


def _longest_ago(group: Group) -> int:
    return group.ran


def _joined(group: Group, other: Group) -> Group:
    """Return both as one; its turn is due when the earlier one's was."""
    joined = group.part(union(group.lanes, other.lanes))
    joined.ran = min(group.ran, other.ran)
    return joined
