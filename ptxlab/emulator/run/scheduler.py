"""Who runs next: groups of threads that stand at the same block, split and merged as they branch.

The group in the deepest call, and there the one furthest up in the text, runs first: threads that
left a loop or a branch early wait further down until the others reach them, and go on as one group.
Threads that wait for others (at a barrier, or for the rest of their warp) are on the list of those
who wait. When nobody can run, asynchronous work lands; when there is none, those who wait for an
mbarrier are told that its phase is not complete; when that leads nowhere, it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxlab.emulator.run.barriers import Barriers
from ptxlab.emulator.run.code import (
    Activation,
    Arrival,
    BasicBlock,
    Converged,
    Ended,
    Routine,
    Step,
)
from ptxlab.emulator.run.engine import Engine
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.waiting import AtBarrier, WaitList, joined
from ptxlab.emulator.run.wave import NEVER, Wave
from ptxlab.errors import LaunchError

# When this many blocks have been run while others could run too, whoever has not had a turn for the
# longest gets one: threads that wait for another thread's store must not starve it, be they one
# group or several that take turns. A block that looks at what others do costs as much as POLL: of a
# spin lock four turns are enough, more are lost for each CTA that comes to hold it.
PATIENCE = 4096
POLL = 1024

# How often those who wait for an mbarrier may be told in vain that they wait still, before that is
# called a deadlock: what they do in between may be work that ends somebody's wait.
TOLD = 1000


class Scheduler:
    """Runs one wave to its end."""

    def __init__(
        self, wave: Wave, entry: Routine, check: Callable[[int], None], engine: Engine
    ) -> None:
        self.wave = wave
        self._check = check
        self._engine = engine
        self._ready = [Converged(Activation.of(entry, wave), 0, wave.alive, ran=0)]
        self._waiting = WaitList()
        self._barriers = Barriers(wave)
        self._alive = wave.alive.mask.copy()
        self._turns = 0
        self._patience = PATIENCE
        self._changes = 0
        self.instructions = 0

    def run(self) -> None:
        """Run until every thread has ended. Raise LaunchError for a fault or a deadlock."""
        try:
            while self._ready or self._idle():
                self._next()
            self.wave.finish()
        finally:
            self.wave.background.finish()

    def _next(self) -> None:
        """Run a group that can."""
        fair = self._patience <= 0
        if fair:
            self._patience = PATIENCE
            self._land()
            self._hurry()
        group = min(self._ready, key=_longest_ago if fair else _priority)
        self._ready.remove(group)
        self._turns += 1
        group.ran = self._turns
        self._run(group, self._met if fair else self._passed)

    def _idle(self) -> bool:
        """When nobody can run, have work land, or whoever may give up waiting do so. False at the end."""
        while self._waiting and not self._ready:
            if self._land():
                continue
            if self.wave.mbarriers.told == TOLD or not self._hurry():
                raise self._waiting.deadlock(self.wave, self._alive)
            self.wave.mbarriers.told += 1
        return bool(self._ready)

    def _land(self) -> bool:
        """Have one piece of work land that an mbarrier is told of. Say whether there was any."""
        if not self.wave.signals:
            return False
        self.wave.signals.land_next()
        if self.wave.changes != self._changes:
            self._free()
        return True

    def _hurry(self) -> bool:
        """Tell those who wait for an mbarrier that they wait still. Say whether there were any."""
        hurried = self._waiting.impatient(self.wave.width)
        if not hurried.any():
            return False
        self.wave.mbarriers.hurried |= hurried
        self._free()
        return True

    def _run(self, group: Converged, reached: Callable[[Converged], bool]) -> None:
        """Run ``group`` until it ends, waits, splits, has ``reached`` others, or patience is over."""
        current: Converged | None = group if self._turns > 1 else self._looped(group)
        if current is not group and self._gives_way(current, reached):
            return
        while current is not None:
            try:
                self._check(self.instructions)
            except TimeoutError as error:
                raise _stopped(current, str(error)) from None
            block, at = current.stands_at(), current.block
            if block.participants is not None:
                current = self._gathered(current, block)
                if current is None:
                    return
            frame, threads = current.frame, current.threads
            threads.full = self._alone()
            self.wave.background.go_on(block.beside)
            for step in self._steps(block, current):
                step(frame, threads)
            self.wave.background.go_on()
            self.instructions += threads.size * block.instructions
            self.wave.clock += block.instructions
            self._notice()
            if self._ready or self._waiting:
                self._patience -= POLL if block.polls else 1
            else:
                self._patience = PATIENCE
            current = self._left(current, block)
            if current is not None and current.block <= at:
                current = self._looped(current)
            if self._gives_way(current, reached):
                return

    def _gives_way(self, group: Converged | None, reached: Callable[[Converged], bool]) -> bool:
        """Put a group back that has ``reached`` others, or whose patience is over. Say whether it was."""
        if group is None or not (self._patience <= 0 or (self._ready and reached(group))):
            return False
        self._resume(group)
        return True

    def _looped(self, group: Converged) -> Converged | None:
        """Return who goes on behind what ``group`` has run at once in a loop, if it has."""
        wave = self.wave
        if wave.hot == NEVER or wave.watched or wave.signals or not self._alone():
            return group
        self.wave.background.finish()
        group.threads.full = True
        done, block = self._engine.run_loop(group)
        self.instructions += group.threads.size * done
        if block is None:
            return group
        self._notice()
        return self._left(group, block)

    def _notice(self) -> None:
        """Have work land that is due behind a block, and let those go on whose wait is over."""
        if self.wave.signals:
            self.wave.signals.land_due()
        if self.wave.changes != self._changes:
            self._changed()

    def _steps(self, block: BasicBlock, group: Converged) -> Sequence[Step]:
        """Return the steps of a block, those of an engine where one runs and nobody watches."""
        if self.wave.watched:
            return block.watched
        if self.wave.hot == NEVER:
            return block.steps
        return self._engine.steps(group)

    def _passed(self, group: Converged) -> bool:
        return min(map(_priority, self._ready)) <= group.priority

    def _met(self, group: Converged) -> bool:
        return any(other.at(group) for other in self._ready)

    def _alone(self) -> bool:
        """Say whether the running group is all that lives, and no barrier has seen it."""
        return not (self._ready or self._waiting or self._barriers.arrivals)

    def _left(self, group: Converged, block: BasicBlock) -> Converged | None:
        """Do what the exit of the block says; return who goes on, if it is one group."""
        leaving = block.exit(group)
        if len(leaving) == 1 and isinstance(leaving[0], Converged):
            return leaving[0]
        arrivals = [moved for moved in leaving if isinstance(moved, Arrival)]
        if len(arrivals) == len(leaving) and self._barriers.at_once(arrivals, self._alive):
            self.wave.mbarriers.told = 0
            return arrivals[0].group if len(arrivals) == 1 else group
        onward: list[Converged] = []
        for moved in leaving:
            if isinstance(moved, Converged):
                onward.append(moved)
            elif isinstance(moved, Ended):
                self._end(moved.threads)
            else:
                self._arrive(moved)
        if len(onward) == 1:
            return onward[0]
        for moved in onward:
            self._resume(moved)
        return None

    def _resume(self, group: Converged) -> None:
        """Let ``group`` run later, as one with a group that stands at the same place."""
        group = self._waiting.gather(group)
        for other in self._ready:
            if other.at(group):
                self._ready.remove(other)
                group = joined(group, other)
                break
        self._ready.append(group)

    # ---- those who wait ----

    def _gathered(self, group: Converged, block: BasicBlock) -> Converged | None:
        """Return the part of ``group`` that waits for no other thread of its warp."""
        assert block.participants is not None
        group = self._waiting.gather(group)
        over = block.participants(group.frame, group.threads, self._alive)
        going = group.threads.where(over)
        if going is group.threads:
            return group
        held = group.threads.where(~over)
        assert held is not None
        self._waiting.add(group.part(held), block.participants, block.first_line)
        return None if going is None else group.part(going)

    def _changed(self) -> None:
        """Let those go on whose wait a step of some threads has ended."""
        self.wave.mbarriers.told = 0
        self._free()

    def _arrive(self, arrival: Arrival) -> None:
        """Note an arrival at a barrier, and let those go on whose barrier is complete."""
        self._barriers.arrive(arrival)
        if arrival.waits:
            self._waiting.add(
                arrival.group, AtBarrier(self._barriers, arrival.number), arrival.line
            )
        self._changed()

    def _end(self, threads: Threads) -> None:
        """End threads. Barriers and their warps no longer expect them."""
        self._alive &= ~threads.mask
        if self.wave.watched:
            self.wave.watcher.ended(threads)
        self._changed()

    def _free(self) -> None:
        """Let those go on who wait no longer."""
        if self._barriers.arrivals:
            self._barriers.complete(self._alive)
        self.wave.clusters.complete(self._alive)
        self._changes = self.wave.changes
        for group in self._waiting.free(self._alive):
            self._resume(group)


def _stopped(group: Converged, reason: str) -> LaunchError:
    """Describe who was running when whoever watches the time had enough."""
    wave = group.frame.wave
    return LaunchError(
        f"stopped, {reason}: {group.threads.size} threads run here, the first is "
        f"{wave.thread(group.first)}",
        location=wave.locate(group.stands_at().first_line),
        hint="an endless loop stands here or around here; --timeout gives a long run more time",
    )


def _priority(group: Converged) -> tuple[int, int]:
    return group.priority


def _longest_ago(group: Converged) -> int:
    return group.ran
