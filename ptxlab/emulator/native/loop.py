"""Loops that all threads go through together: many turns in one call of machine code.

Every block on the way round must be stretches alone, and be left by a jump, by a branch that all take
alike, or by a barrier at which nobody waits. What a turn writes is in arrays of its own: what the turn
before has written is whole until the next begins, so that a call can end before any stretch or branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.emulator.native.stretch import Made, Stretch
from ptxlab.emulator.operations.control import Barrier, Guarded, Jump
from ptxlab.emulator.prepare.program import BasicBlock, Converged, Routine, Step
from ptxlab.emulator.run.barriers import BARRIERS
from ptxlab.emulator.run.registers import Array, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.native.cores import CHECK, COPY, JOB, Operation, pool

MOST_BLOCKS = 32
"""Blocks of a loop."""

WORTH = 8
"""Turns that a call should have, and that a loop has had before the first."""

LONGEST = 1 << 16
"""Turns until a loop is tried again of which a call has not had as many: twice as many each time, up to this."""

INSTRUCTIONS = 1 << 26
"""Instructions of threads in one call, some milliseconds: as often somebody looks at the clock."""


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a loop, and the ``test`` that must be ``holds`` in all threads to stay in the loop."""

    at: int
    block: BasicBlock
    steps: Sequence[Step]
    test: Source | None = None
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a call can end: before a step of a place, which is behind the last for its branch.

    Since the loop was entered so many ``instructions`` are done then, or twice round it more. Registers
    are ``written`` by the operation, which runs what is ``made`` if it is a stretch's.
    """

    place: Place
    step: int
    instructions: int
    operation: Operation
    made: Made | None = None
    written: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loop:
    """The places on the way from a block back to it."""

    places: Sequence[Place]

    @property
    def instructions(self) -> int:
        """How many a thread executes in a turn."""
        return sum(place.block.instructions for place in self.places)

    def turns(self, group: Converged) -> tuple[int, BasicBlock | None]:
        """Make turns: return how many instructions each thread has executed, and the block to be left.

        It is None where the threads stand at the beginning of the loop.
        """
        frame, threads = group.frame, group.threads
        turns = _Turns(self, frame, threads)
        twice = turns.twice()
        if not twice:
            return 0, None
        around = 2 * self.instructions
        most = max(1, INSTRUCTIONS // (around * threads.size))
        operations = [moment.operation for moment in twice]
        whole, at = divmod(pool(frame.wave.cores).follow(operations, most), len(twice))
        for moment in [*(twice if whole else []), *twice[:at]]:
            for slot, array in moment.written.items():
                frame.registers[slot] = array
        if whole == most:
            return whole * around, None
        stopped = twice[at]
        group.block = stopped.place.at
        for step in stopped.place.steps[stopped.step :]:
            step(frame, threads)
        done = whole * around + stopped.instructions + stopped.place.block.instructions
        return done, stopped.place.block


def loop_at(routine: Routine, head: int, frame: Frame) -> Loop | None:
    """Return the loop from a block back to it, None if there is none that can be run here."""
    places: list[Place] = []
    at = head
    while len(places) < MOST_BLOCKS:
        block = routine.blocks[at]
        steps = block.native
        if (
            steps is None
            or block.participants
            or not all(isinstance(one, Stretch) for one in steps)
        ):
            return None
        test, holds, leave = None, True, block.exit
        if isinstance(leave, Guarded) and isinstance(leave.then, Jump):
            test, holds = leave.predicate, leave.then.target <= at
            following = leave.then.target if holds else leave.following
        elif isinstance(leave, Jump):
            following = leave.target
        elif isinstance(leave, Barrier) and _holds_nobody(leave, frame):
            following = leave.following
        else:
            return None
        if test is not None and test.convert is np.logical_not:
            holds = not holds
        elif test is not None and test.convert is not None:
            return None
        places.append(Place(at, block, steps, test, holds))
        at = following
        if at == head:
            return Loop(places)
        if any(place.at == at for place in places):
            return None
    return None


def _holds_nobody(barrier: Barrier, frame: Frame) -> bool:
    """Say whether all threads together go on at once, and no error is to be told."""
    number = barrier.number
    is_known = number.slot in frame.layout.literals
    return is_known and barrier.is_for_all and int(number.read(frame.registers)[0]) < BARRIERS


def make_turns(group: Converged) -> tuple[int, BasicBlock | None]:
    """Have a group that has come back to the beginning of a loop make turns of it, if that pays.

    The group is all that lives, and nothing goes on besides. Return how many instructions each thread has
    executed, and which block is to be left then, None where the group stands at the beginning of one.
    """
    head = group.stands_at()
    head.turns += 1
    if head.turns < WORTH:
        return 0, None
    loop = loop_at(group.activation.function, group.block, group.frame)
    done, left = (0, None) if loop is None else loop.turns(group)
    pays = loop is not None and done >= WORTH * loop.instructions
    head.rest = WORTH if pays else min(2 * head.rest, LONGEST)
    head.turns = WORTH if pays else -head.rest
    return done, left


class _Turns:
    """Two turns of a loop, each with arrays of its own, for the registers that a frame has now."""

    def __init__(self, loop: Loop, frame: Frame, threads: Threads) -> None:
        self.loop, self.places = loop, loop.places
        self.frame, self.threads = frame, threads
        self.kept: list[Any] = []

    def twice(self) -> list[Moment]:
        """Return all that two turns do, nothing if they cannot be made."""
        before = list(self.frame.registers)
        odd = self._turn(before, [], 0)  # as if it were the one before the first: for its arrays
        current = list(before)
        even = odd and self._turn(current, [], 0)
        if not odd or not even or [one.made for one in even] != [one.made for one in odd]:
            return []
        again = self._turn(current, odd, self.loop.instructions)
        return [*even, *again] if again and self._carried(even, before) else []

    def _carried(self, turn: Sequence[Moment], before: Sequence[Array]) -> bool:
        """Put the registers that the first turn finds where the turn before would have put them."""
        for slot in self._early() & {slot for moment in turn for slot in moment.written}:
            to, entered = before[slot], self.frame.registers[slot]
            if to.shape != entered.shape or to.itemsize != entered.itemsize:
                return False
            to[...] = entered.view(to.dtype)
        return True

    def _early(self) -> set[int]:
        """Return the registers that a turn reads before it writes them."""
        early: set[int] = set()
        written: set[int] = set()
        for place in self.places:
            for step in place.steps:
                assert isinstance(step, Stretch)
                early |= set(step.inputs) - written
                written |= step.written
            if place.test is not None:
                early |= {place.test.slot} - written
        return early

    def _turn(self, current: list[Array], like: Sequence[Moment], done: int) -> list[Moment] | None:
        """Return what a turn does, None if it cannot be made; ``current`` are the registers then.

        It writes to the arrays of a turn that it is ``like``; ``done`` are the instructions before it.
        """
        moments: list[Moment] = []
        for place in self.places:
            for number, step in enumerate(place.steps):
                assert isinstance(step, Stretch)
                found = self._stretch(step, current, like[len(moments) :][:1])
                if found is None:
                    return None
                made, operation, written = found
                moments.append(Moment(place, number, done, operation, made, written))
                for slot, source in made.written.moved:
                    # Of the register as it was: what the stretch writes is elsewhere.
                    old = current[source]
                    to = like[len(moments)].written[slot] if like else np.empty_like(old)
                    if to.nbytes != old.nbytes or not old.flags.c_contiguous:
                        return None
                    copy = (COPY, to.ctypes.data, old.ctypes.data, old.nbytes, 0)
                    moments.append(Moment(place, number + 1, done, copy, None, {slot: to}))
                    written = written | {slot: to}
                for slot, array in written.items():
                    current[slot] = array
            if place.test is not None:
                check = self._check(current[place.test.slot], place.holds)
                moments.append(Moment(place, len(place.steps), done, check))
            done += place.block.instructions
        return moments

    def _stretch(
        self, step: Stretch, current: Sequence[Array], like: Sequence[Moment]
    ) -> tuple[Made, Operation, dict[int, Array]] | None:
        """Return how a stretch is run, and the registers that it writes."""
        wave, threads = self.frame.wave, self.threads
        values = [current[slot] for slot in step.inputs]
        made = step.made_for(wave, threads, values)
        if made is None or any(one.made is not made for one in like):
            return None
        slots = [slot for slot, _, _ in made.written.outputs]
        results = [like[0].written[slot] for slot in slots] if like else made.results(wave.width)
        job = made.job(wave, threads, step.spaces, values, results)
        self.kept.append(job)
        place = np.frombuffer(job, np.uint8).ctypes.data
        return made, (JOB, place, 0, 0, 0), dict(zip(slots, results, strict=True))

    def _check(self, value: Array, holds: bool) -> Operation:
        mask = self.threads.mask if len(value) > 1 else np.ones(1, bool)
        value = np.ascontiguousarray(value)
        self.kept += [value, mask]
        return (CHECK, value.ctypes.data, len(value), int(holds), mask.ctypes.data)
