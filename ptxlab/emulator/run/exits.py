"""The exits that any block may have: to the next line, by a branch, back from a function, or to the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.code import Converged, Ended, Exit, Onward
from ptxlab.emulator.run.threads import Threads

ExitBlocks = tuple[Exit, tuple[int, ...]]
"""An exit, and the blocks that it may lead to."""


def by_value(group: Converged, value: Array) -> list[tuple[int, Threads]]:
    """Return (value, threads) for every value of ``value`` among the group's threads."""
    parts = []
    for number in np.unique(group.threads.pick(value)):
        threads = group.threads.where(value == number)
        assert threads is not None
        parts.append((int(number), threads))
    return parts


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at another block: a branch everyone takes, or the next line."""

    target: int

    def __call__(self, group: Converged) -> Sequence[Onward]:
        group.block = self.target
        return (group,)


@dataclass(frozen=True, slots=True)
class Guarded:
    """Do ``then`` for the threads whose predicate holds; the others go on to ``following``."""

    predicate: Source
    then: Exit
    following: int

    def __call__(self, group: Converged) -> Sequence[Onward]:
        value = self.predicate.read(group.frame.registers)
        chosen = group.threads.where(value)
        if chosen is None:
            group.block = self.following
            return (group,)
        if chosen is group.threads:
            return self.then(group)
        rest = group.threads.where(~value)
        assert rest is not None
        return *self.then(group.part(chosen)), group.part(rest, self.following)


def end(group: Converged) -> Sequence[Onward]:
    return (Ended(group.threads),)


def go_back(group: Converged) -> Sequence[Onward]:
    """Go back to the caller with the results, after the call; threads of a kernel end."""
    frame, threads, caller = group.frame, group.threads, group.activation.caller
    if caller is None:
        return end(group)
    registers = caller.activation.frame.registers
    for result, mine in zip(caller.results, frame.layout.results, strict=True):
        slot, value = result.slot, result.value(frame.registers[mine])
        registers[slot] = threads.merge(registers[slot], value)
    return (Converged(caller.activation, caller.following, threads, group.ran),)
