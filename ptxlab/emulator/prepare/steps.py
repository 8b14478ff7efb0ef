"""The steps all instruction families share: a computation on registers, a guard, several in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Lowered, Participants, Step
from ptxlab.emulator.prepare.row import CARRY, Alu, RowForm
from ptxlab.emulator.run.registers import Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Operand, Pair

NARROW = 2048
"""In waves of so many threads, numpy's bookkeeping for a shared operand costs as much as the rest."""

Read = tuple[int, np.dtype[Any], Callable[[Array], Array] | None]
"""What ``Source.read`` needs."""


def register_step(
    compute: Callable[..., Any], destinations: Sequence[Destination], sources: Sequence[Source]
) -> Step:
    """Compute registers from registers; only when threads are few are operands compressed to them."""
    # Plain tuples: where threads are few, a step takes as long as its Python does.
    reads = [(source.slot, source.dtype, source.convert) for source in sources]
    lone = len(destinations) == 1
    writes = [(destination.slot, destination.widen) for destination in destinations]

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
            write(frame, put, destinations, (results,) if lone else results)
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
    put: Callable[[Array, Array], Array],
    destinations: Sequence[Destination],
    results: Iterable[Array],
) -> None:
    """Write ``results``, which ``put`` makes new values of, with the old ones."""
    registers = frame.registers
    for destination, result in zip(destinations, results, strict=True):
        slot = destination.slot
        registers[slot] = put(registers[slot], destination.extended(result))


def in_turn(steps: Sequence[Step]) -> Step:
    """Return the step of an instruction that is made of several."""

    def run(frame: Frame, threads: Threads) -> None:
        for step in steps:
            step(frame, threads)

    return run


def settle(touched: frozenset[int]) -> Step:
    """Return the step that has products done which write registers that are about to be touched."""
    return lambda frame, threads: frame.wave.products.settle(threads, touched)


class Passing:
    """The ``participants`` of a guarded operation: those who are held back by their guard go on."""

    def __init__(self, participants: Participants, predicate: Source) -> None:
        self._participants, self._predicate = participants, predicate
        self.place, self.gives_up = participants.place, participants.gives_up
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


def alu_step(context: Context, form: RowForm) -> Step:
    """Bind an operation on registers to the operands of the instruction in hand."""
    return computation(context, form, context.instruction.operands)


def computation(context: Context, operation: Alu | RowForm, operands: Sequence[Operand]) -> Step:
    name = context.instruction.name
    if not operands:
        context.reject(f"{name} needs operands")
    wanted = sum(kind != CARRY for kind in operation.operands)
    destinations = destinations_of(context, operation, operands[0])
    if wanted != len(operands) - 1:
        context.reject(f"{name} takes {wanted} source operands, found {len(operands) - 1}")
    sources = sources_of(context, operation, operands[1:])
    return computed(context, operation.compute, destinations, sources)


def computed(
    context: Context,
    compute: Callable[..., Any],
    destinations: Sequence[Destination],
    sources: Sequence[Source],
) -> Step:
    """Build the instruction that is a function of its sources, also for whoever makes machine code of it."""
    context.lowered = Lowered(sources, destinations, compute)
    return register_step(compute, destinations, sources)


def destinations_of(
    context: Context, operation: Alu | RowForm, operand: Operand
) -> list[Destination]:
    """Return the registers of an operation's results, of which ``operand`` may name two."""
    targets = [operand.first, operand.second] if isinstance(operand, Pair) else [operand]
    if len(targets) > sum(kind != CARRY for kind in operation.results):
        context.reject(f"{context.instruction.name} has one result", operand)
    found = []
    for kind in operation.results:
        if kind == CARRY:
            found.append(Destination(_carry_slot(context)))
        elif targets:
            found.append(context.destination(targets.pop(0), kind))
        else:
            found.append(Destination(context.unread_slot(TYPES[kind])))
    return found


def sources_of(
    context: Context, operation: Alu | RowForm, operands: Sequence[Operand]
) -> list[Source]:
    """Return how to read an operation's source operands, as many as it has."""
    left = iter(operands)
    return [
        Source(_carry_slot(context), np.dtype(bool))
        if kind == CARRY
        else context.source(next(left), kind)
        for kind in operation.operands
    ]


def _carry_slot(context: Context) -> int:
    """Return the register that stands for the carry flag of the thread."""
    return context.constant(np.zeros(1, bool), (CARRY,))
