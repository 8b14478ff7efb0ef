"""Where threads go next: branches, calls, ends and barriers, as the exits of blocks.

Source: PTX ISA, "Control Flow Instructions" and "Parallel Synchronization and Communication
Instructions: bar, barrier".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.program import (
    Activation,
    Arrival,
    Caller,
    Converged,
    Ended,
    Reduction,
    Routine,
)
from ptxlab.emulator.run.barriers import BARRIERS
from ptxlab.emulator.run.memory import pitched
from ptxlab.emulator.run.registers import Array, CallResult, Source
from ptxlab.errors import LaunchError

Onward = Converged | Ended | Arrival
"""What becomes of threads that leave a block."""

MOST_LOCAL_BYTES = 512 * 1024
"""Local memory of a thread. Source: CUDA C++ Programming Guide, "Technical Specifications"."""

MOST_CALLS = 4096
RECURSION_BYTES = 64 * 1024
"""Activations on top of each other, and their local memory: a GPU has 1 KiB unless it is asked for more."""


def _stack_bytes(functions: Mapping[str, Routine]) -> int:
    """Return how much local memory a thread may use: each function's once, and some for recursion."""
    each = sum(function.frame.local_bytes for function in functions.values())
    return min(each + RECURSION_BYTES, MOST_LOCAL_BYTES)


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at another block: a branch everyone takes, or the next line."""

    target: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Move the whole group."""
        group.block = self.target
        return (group,)


@dataclass(frozen=True, slots=True)
class Branch:
    """Go to ``target`` where the predicate holds, on to ``following`` where it does not."""

    predicate: Source
    target: int
    following: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Move the group, or split it."""
        value = self.predicate.read(group.frame.registers)
        taken = group.threads.where(value)
        if taken is None:
            group.block = self.following
            return (group,)
        if taken is group.threads:
            group.block = self.target
            return (group,)
        rest = group.threads.where(~value)
        assert rest is not None
        return group.part(taken, self.target), group.part(rest, self.following)


@dataclass(frozen=True, slots=True)
class BranchTable:
    """brx.idx: go to the block that the index chooses."""

    index: Source
    targets: tuple[int, ...]
    line: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Move the group, or split it. Raise LaunchError for an index outside the table."""
        parts: list[Onward] = []
        wave = group.frame.wave
        for index, threads in by_value(group, self.index.read(group.frame.registers)):
            if index >= len(self.targets):
                thread = wave.thread(int(threads.index[0]))
                raise LaunchError(
                    f"brx.idx with index {index} of {len(self.targets)} targets in {thread}",
                    location=wave.locate(self.line),
                    hint="the behaviour of a GPU is undefined here",
                )
            parts.append(group.part(threads, self.targets[index]))
        return parts


def by_value(group: Converged, value: Array) -> list[tuple[int, Any]]:
    """Return (value, lanes) for every value of ``value`` among the group's lanes."""
    found = []
    for one in np.unique(group.threads.pick(value)):
        threads = group.threads.where(value == one)
        assert threads is not None
        found.append((int(one), threads))
    return found


@dataclass(frozen=True, slots=True)
class End:
    """End the threads (``exit``, or ``ret`` of a kernel)."""

    def leave(self, group: Converged) -> Sequence[Onward]:
        """End the whole group."""
        return (Ended(group.threads),)


@dataclass(frozen=True, slots=True)
class Return:
    """Go back to the caller with the results."""

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Move the group to its caller's frame, at the block after the call."""
        frame, threads, caller = group.frame, group.threads, group.activation.caller
        assert caller is not None
        registers = caller.activation.frame.registers
        for result, mine in zip(caller.results, frame.layout.results, strict=True):
            slot, value = result.slot, result.value(frame.registers[mine])
            registers[slot] = threads.merge(registers[slot], value)
        return (Converged(caller.activation, caller.following, threads, group.ran),)


@dataclass(frozen=True, slots=True)
class Call:
    """Call one of ``functions``: ``arguments`` are registers of the caller, as ``results`` are."""

    functions: Mapping[str, Routine]
    function: str
    arguments: tuple[int, ...]
    results: tuple[CallResult, ...]
    following: int
    line: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Move the group into a new activation of the function. Raise LaunchError without a stack."""
        function, frame, wave = self.functions[self.function], group.frame, group.frame.wave
        base = pitched(frame.local_base + frame.layout.local_bytes)
        top, depth = base + function.frame.local_bytes, group.activation.depth
        if depth >= MOST_CALLS or top > _stack_bytes(self.functions):
            raise LaunchError(
                f"stack overflow: {depth + 1} calls deep and {base} bytes of local memory in "
                f"use, in {wave.thread(group.first)}",
                location=wave.locate(self.line),
                hint=f"'{self.function}' calls itself without end, or its local variables are large",
            )
        caller = Caller(group.activation, self.following, self.results)
        inner = Activation.of(function, wave, base, caller)
        for mine, theirs in zip(function.frame.parameters, self.arguments, strict=True):
            inner.frame.registers[mine] = frame.registers[theirs]
        return (Converged(inner, 0, group.threads, group.ran),)


@dataclass(frozen=True, slots=True)
class IndirectCall:
    """Call the function whose address a register holds, which may differ from thread to thread.

    ``names`` are those of all functions by address.
    """

    functions: Mapping[str, Routine]
    names: Mapping[int, str]
    address: Source
    arguments: tuple[int, ...]
    results: tuple[CallResult, ...]
    following: int
    line: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Send each thread into its function. Raise LaunchError where the address is of none."""
        parts: list[Onward] = []
        wave, arguments = group.frame.wave, self.arguments
        for address, threads in by_value(group, self.address.read(group.frame.registers)):
            name = self.names.get(address, "")
            function = self.functions.get(name)
            if function is None or len(function.frame.parameters) != len(arguments):
                raise LaunchError(
                    f"call of address {address:#x}, which is no function with these parameters, in "
                    f"{wave.thread(int(threads.index[0]))}",
                    location=wave.locate(self.line),
                    hint="the register must hold the address of a function of this module",
                )
            call = Call(self.functions, name, arguments, self.results, self.following, self.line)
            parts += call.leave(group.part(threads))
        return parts


@dataclass(frozen=True, slots=True)
class Barrier:
    """Arrive at barrier ``number`` of the CTA and, if it ``waits``, stay until all have arrived.

    The barrier is for ``count`` threads of the CTA; None means all of them.
    """

    number: Source
    count: Source | None
    waits: bool
    reduction: Reduction | None
    following: int
    line: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Pass if everyone is here; otherwise wait."""
        group.block = self.following
        registers = group.frame.registers
        numbers = self.number.read(registers)
        plain = self.count is None and self.reduction is None
        here = group.threads.pick(numbers)
        if group.threads.full and plain and here.min() == here.max() < BARRIERS:
            if group.frame.wave.watched:
                group.frame.wave.watcher.synchronize(group.threads.mask, group.threads.mask)
            return (group,)
        parts: list[Onward] = []
        for number, chosen in by_value(group, numbers):
            part = group.part(chosen)
            counts: list[tuple[int | None, Any]] = [(None, chosen)]
            if self.count is not None:
                counts = [*by_value(part, self.count.read(registers))]
            for count, threads in counts:
                arrived = part.part(threads)
                parts.append(Arrival(arrived, number, count, self.line, self.waits, self.reduction))
        return parts if self.waits else [*parts, group]


@dataclass(frozen=True, slots=True)
class GuardedExit:
    """Do ``then`` for the threads whose predicate holds; the others go on to ``following``."""

    predicate: Source
    then: Jump | BranchTable | End | Return | Call | IndirectCall | Barrier
    following: int

    def leave(self, group: Converged) -> Sequence[Onward]:
        """Split the group."""
        value = self.predicate.read(group.frame.registers)
        chosen = group.threads.where(value)
        if chosen is None:
            group.block = self.following
            return (group,)
        if chosen is group.threads:
            return self.then.leave(group)
        rest = group.threads.where(~value)
        assert rest is not None
        return group.part(rest, self.following), *self.then.leave(group.part(chosen))
