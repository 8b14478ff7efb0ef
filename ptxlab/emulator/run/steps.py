"""The steps all instruction families share: a computation on registers, a guard, several in turn."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.program import Action, Lowered, ReadClock
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.code import Participants, Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame

NARROW = 2048
"""In waves of so many threads, numpy's bookkeeping for a shared operand costs as much as the rest."""

Read = tuple[int, np.dtype[Any], Callable[[Array], Array] | None]
"""What ``Source.read`` needs."""


def register_step(
    compute: Callable[..., Any],
    destinations: Sequence[Destination],
    sources: Sequence[Source],
    temporary: Container[int] = (),
) -> Step:
    """Compute registers from registers; only when threads are few are operands compressed to them.

    Those that are ``temporary`` no other thread needs as they were, whoever does not watch.
    """
    # Plain tuples: where threads are few, a step takes as long as its Python does.
    reads = [(source.slot, source.dtype, source.convert) for source in sources]
    lone = len(destinations) == 1
    writes = [(destination.slot, destination.widen) for destination in destinations]
    keeps = any(destination.slot not in temporary for destination in destinations)

    def run(frame: Frame, threads: Threads) -> None:
        registers = frame.registers
        values, shared = [], 0
        for source, dtype, convert in reads:
            value = registers[source]
            if convert is not None:
                value = convert(value)
            elif value.dtype is not dtype:
                value = value.view(dtype)
            values.append(value)
            shared += len(value) == 1
        if not (threads.full or threads.everyone):
            sparse = threads.sparse
            if sparse:
                values = [threads.pick(value) for value in values]
            results = compute(*values)
            put = threads.spread if sparse else threads.merge
            kept = keeps or frame.wave.watched
            write(frame, put, destinations, (results,) if lone else results, keeps=kept)
            return
        if 0 < shared < len(values) and threads.width <= NARROW:
            values = _evened(frame, reads, values)
        results = compute(*values)
        for (slot, widen), result in zip(writes, (results,) if lone else results, strict=True):
            registers[slot] = result if widen is None else result.astype(widen)

    return run


def _evened(frame: Frame, reads: Sequence[Read], values: list[Array]) -> list[Array]:
    """Repeat what all threads share beside what each has for itself: numpy pairs the like faster."""
    for at, (slot, dtype, convert) in enumerate(reads):
        if len(values[at]) == 1:
            value = frame.repeated(slot)
            values[at] = value.view(dtype) if convert is None else convert(value)
    return values


def write(
    frame: Frame,
    put: Callable[[Array | None, Array], Array],
    destinations: Sequence[Destination],
    results: Iterable[Array],
    *,
    keeps: bool = True,
) -> None:
    """Write ``results``, which ``put`` makes new values of, with the old ones if it ``keeps`` these."""
    registers = frame.registers
    for destination, result in zip(destinations, results, strict=True):
        slot = destination.slot
        registers[slot] = put(registers[slot] if keeps else None, destination.extended(result))


def in_turn(steps: Sequence[Step]) -> Step:
    """Return the step of an instruction that is made of several."""

    def run(frame: Frame, threads: Threads) -> None:
        for step in steps:
            step(frame, threads)

    return run


def settle(touched: frozenset[int]) -> Step:
    """Return the step that has products done which write registers that are about to be touched."""

    def run(frame: Frame, threads: Threads) -> None:
        frame.wave.products.settle(threads, touched)
        frame.leave_sums(touched)

    return run


class Passing:
    """The ``participants`` of a guarded operation: those who are held back by their guard go on."""

    def __init__(self, participants: Participants, predicate: Source) -> None:
        self._participants, self._predicate = participants, predicate
        self.where, self.gives_up = participants.where, participants.gives_up
        self.missing = participants.missing  # none of the waiting is held back

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of threads that wait for nobody."""
        passing = threads.where(self._predicate.read(frame.registers))
        if passing is None:
            return threads.mask
        return self._participants(frame, passing, alive) | (threads.mask & ~passing.mask)


def guarded(step: Step, predicate: Source) -> Step:
    """Return the step that runs ``step`` only for the threads whose predicate holds."""

    def run(frame: Frame, threads: Threads) -> None:
        passing = threads.where(predicate.read(frame.registers))
        if passing is not None:
            step(frame, passing)

    return run


def step_of(
    action: Action, guard: Source | None = None, temporary: Container[int] = frozenset()
) -> Step:
    """Return the step that does what an instruction does, for threads whose predicate holds.

    No thread that stands elsewhere needs the registers that are ``temporary``.
    """
    if isinstance(action, ReadClock):
        step = read_clock(action)
    elif not isinstance(action, Lowered):
        step = action
    elif action.step is not None:
        step = action.step
    else:
        assert action.compute is not None
        others = temporary if guard is None else ()  # threads that it holds back have theirs
        step = register_step(action.compute, action.destinations, action.sources, others)
    return step if guard is None else guarded(step, guard)


def read_clock(clock: ReadClock) -> Step:
    slot, dtype, lowest, before = clock.slot, clock.dtype, np.uint64(clock.lowest), clock.before

    def run(frame: Frame, threads: Threads) -> None:
        now = np.array([frame.wave.clock + before], np.uint64) >> lowest
        frame.registers[slot] = now.astype(dtype)

    return run


@dataclass(slots=True)
class Drop:
    """Forget registers that nobody reads again."""

    slots: Sequence[int]

    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Drop them if these threads are all that lives."""
        if threads.full:
            registers = frame.registers
            initial = cast(Sequence[Array], frame.layout.initial)  # constants are never dropped
            for slot in self.slots:
                registers[slot] = initial[slot]
