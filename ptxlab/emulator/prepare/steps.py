"""The steps all instruction families share: a computation on registers, a guard, several in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Participants, Step
from ptxlab.emulator.prepare.row import CARRY, Alu, Form
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.syntax.tree import Instruction, Operand, Pair


@dataclass(slots=True)
class AluStep:
    """Compute registers from registers."""

    compute: Callable[..., Any]
    destinations: Sequence[Destination]
    sources: Sequence[Source]

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for ``threads``; only when they are few are the operands compressed to them first."""
        registers = frame.registers
        values = [source.read(registers) for source in self.sources]
        sparse = threads.sparse
        if sparse:
            values = [threads.pick(value) for value in values]
        results = self.compute(*values)
        if len(self.destinations) == 1:
            results = (results,)
        put = threads.spread if sparse else threads.merge
        for destination, result in zip(self.destinations, results, strict=True):
            slot = destination.slot
            registers[slot] = put(registers[slot], destination.extended(result))


@dataclass(slots=True)
class InTurn:
    """Several steps that one instruction is made of; the last may need threads to arrive together."""

    steps: Sequence[Step]

    @property
    def participants(self) -> Participants | None:
        """Who takes part in the last step."""
        return getattr(self.steps[-1], "participants", None)

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run them for the same threads."""
        for step in self.steps:
            step.run(frame, threads)


@dataclass(slots=True)
class Passing:
    """Which threads may go on at a guarded operation among a warp: those held back by their guard do."""

    participants: Participants
    predicate: Source

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of threads that wait for nobody."""
        passing = threads.where(self.predicate.read(frame.registers))
        if passing is None:
            return threads.mask
        ready = self.participants(frame, passing, alive)
        return ready | (threads.mask & ~passing.mask)

    def expected(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return whom the first of them is to go on with: none of the waiting is held back."""
        return self.participants.expected(frame, threads, alive)


@dataclass(slots=True)
class Guarded:
    """Run a step only for the threads whose predicate holds."""

    step: Step
    predicate: Source

    @property
    def participants(self) -> Participants | None:
        """Who takes part in the step, where its threads must arrive together."""
        inner = getattr(self.step, "participants", None)
        return None if inner is None else Passing(inner, self.predicate)

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run the step for the threads that pass, or not at all."""
        passing = threads.where(self.predicate.read(frame.registers))
        if passing is not None:
            self.step.run(frame, passing)


def alu_step(context: Context, instruction: Instruction, operation: Alu | Form) -> AluStep:
    """Bind an operation to the operands of ``instruction``."""
    visible = [name for name in operation.results if name != CARRY]
    first, *rest = instruction.operands or (None,)
    if first is None:
        context.reject(f"{instruction.name} needs operands")
    targets: list[Operand | None] = [first]
    if isinstance(first, Pair):
        targets = [first.first, first.second]
    if len(targets) > len(visible):
        context.reject(f"{instruction.name} has one result", first)
    targets += [None] * (len(visible) - len(targets))
    destinations = _destinations(context, operation, targets)
    return AluStep(operation.compute, destinations, _sources(context, instruction, operation, rest))


def _destinations(
    context: Context, operation: Alu | Form, targets: list[Operand | None]
) -> list[Destination]:
    left = iter(targets)
    found = []
    for name in operation.results:
        if name == CARRY:
            found.append(Destination(carry_slot(context)))
            continue
        target = next(left)
        if target is None:
            found.append(Destination(context.constant(np.zeros(1, bool), ("unused", name))))
        else:
            found.append(context.destination(target, name, wider=_takes_wider(operation)))
    return found


def _sources(
    context: Context,
    instruction: Instruction,
    operation: Alu | Form,
    operands: Sequence[Operand],
) -> list[Source]:
    wanted = sum(name != CARRY for name in operation.operands)
    if wanted != len(operands):
        context.reject(f"{instruction.name} takes {wanted} source operands, found {len(operands)}")
    left = iter(operands)
    return [
        Source(carry_slot(context), np.dtype(bool))
        if name == CARRY
        else context.source(next(left), name, wider=_takes_wider(operation))
        for name in operation.operands
    ]


def _takes_wider(operation: Alu | Form) -> bool:
    return isinstance(operation, Form) and operation.row.wider


def carry_slot(context: Context) -> int:
    """Return the register that stands for the carry flag of the thread."""
    return context.constant(np.zeros(1, bool), (CARRY,))
