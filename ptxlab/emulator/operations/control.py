"""Where threads go next: branches, calls, ends and barriers, as the exits of blocks.

Source: PTX ISA, "Control Flow Instructions" and "Parallel Synchronization and Communication
Instructions: bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.program import Array, Program, Source
from ptxlab.emulator.run.barriers import BARRIERS, Arrival, Reduction
from ptxlab.emulator.run.group import Group
from ptxlab.emulator.run.machine import Machine
from ptxlab.emulator.run.memory import pitched
from ptxlab.errors import LaunchError

MOST_LOCAL_BYTES = 512 * 1024
"""Local memory of a thread. Source: CUDA C++ Programming Guide, "Technical Specifications"."""

MOST_CALLS = 4096
RECURSION_BYTES = 64 * 1024
"""Activations on top of each other, and their local memory: a GPU has 1 KiB unless it is asked for more."""


def _stack_bytes(program: Program) -> int:
    """Return how much local memory a thread may use: each function's once, and some for recursion."""
    each = sum(function.local_bytes for function in program.functions.values())
    return min(each + RECURSION_BYTES, MOST_LOCAL_BYTES)


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at another block: a branch everyone takes, or the next line."""

    target: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Move the whole group."""
        group.block = self.target
        return group


@dataclass(frozen=True, slots=True)
class Branch:
    """Go to ``target`` where the predicate holds, on to ``following`` where it does not."""

    predicate: Source
    target: int
    following: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Move the group, or split it."""
        value = self.predicate.read(group.frame.registers)
        taken = group.lanes.where(value)
        if taken is None:
            group.block = self.following
            return group
        if taken is group.lanes:
            group.block = self.target
            return group
        rest = group.lanes.where(~value)
        assert rest is not None
        machine.resume(group.part(taken, self.target))
        machine.resume(group.part(rest, self.following))
        return None


@dataclass(frozen=True, slots=True)
class BranchTable:
    """brx.idx: go to the block that the index chooses."""

    index: Source
    targets: tuple[int, ...]
    line: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Move the group, or split it. Raise LaunchError for an index outside the table."""
        value = self.index.read(group.frame.registers)
        for index, lanes in by_value(group, value):
            if index >= len(self.targets):
                thread = machine.wave.thread(int(lanes.index[0]))
                raise LaunchError(
                    f"brx.idx with index {index} of {len(self.targets)} targets in {thread}",
                    location=machine.wave.program.locate(self.line),
                    hint="the behaviour of a GPU is undefined here",
                )
            machine.resume(group.part(lanes, self.targets[index]))
        return None


def by_value(group: Group, value: Array) -> list[tuple[int, Any]]:
    """Return (value, lanes) for every value of ``value`` among the group's lanes."""
    found = []
    for one in np.unique(group.lanes.pick(value)):
        lanes = group.lanes.where(value == one)
        assert lanes is not None
        found.append((int(one), lanes))
    return found


@dataclass(frozen=True, slots=True)
class End:
    """End the threads (``exit``, or ``ret`` of a kernel)."""

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """End the whole group."""
        machine.end(group.lanes)
        return None


@dataclass(frozen=True, slots=True)
class Return:
    """Go back to the caller with the results."""

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Move the group to its caller's frame, at the block after the call."""
        frame, lanes = group.frame, group.lanes
        parent, call = frame.parent, frame.call
        assert parent is not None
        assert call is not None
        for result, mine in zip(call.results, frame.function.results, strict=True):
            slot, value = result.slot, result.value(frame.registers[mine])
            parent.registers[slot] = lanes.merge(parent.registers[slot], value)
        return Group(parent, call.following, lanes, group.ran)


@dataclass(frozen=True, slots=True)
class CallResult:
    """A caller's register for a result; ``dtype`` is set where the callee gives it as bytes."""

    slot: int
    dtype: np.dtype[Any] | None = None

    def value(self, given: Array) -> Array:
        """Return what the callee gave as the caller's register holds it."""
        if self.dtype is None:
            return given
        scalar: Array = np.ascontiguousarray(given).view(self.dtype)[:, 0]
        return scalar


@dataclass(frozen=True, slots=True)
class Call:
    """Call a device function: ``arguments`` are registers of the caller, as ``results`` are."""

    function: str
    arguments: tuple[int, ...]
    results: tuple[CallResult, ...]
    following: int
    line: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Move the group into a new activation of the function. Raise LaunchError without a stack."""
        wave, frame = machine.wave, group.frame
        function = wave.program.functions[self.function]
        base = pitched(frame.local_base + frame.function.local_bytes)
        if frame.depth >= MOST_CALLS or base + function.local_bytes > _stack_bytes(wave.program):
            raise LaunchError(
                f"stack overflow: {frame.depth + 1} calls deep and {base} bytes of local memory in "
                f"use, in {wave.thread(int(group.lanes.index[0]))}",
                location=wave.program.locate(self.line),
                hint=f"'{self.function}' calls itself without end, or its local variables are large",
            )
        inner = wave.frame(function, frame, base)
        inner.call = self
        for mine, theirs in zip(function.parameters, self.arguments, strict=True):
            inner.registers[mine] = frame.registers[theirs]
        return Group(inner, 0, group.lanes, group.ran)


@dataclass(frozen=True, slots=True)
class IndirectCall:
    """Call the function whose address a register holds, which may differ from thread to thread."""

    address: Source
    arguments: tuple[int, ...]
    results: tuple[CallResult, ...]
    following: int
    line: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Send each thread into its function. Raise LaunchError where the address is of none."""
        program = machine.wave.program
        names = {address: name for name, address in program.function_addresses.items()}
        for address, lanes in by_value(group, self.address.read(group.frame.registers)):
            function = program.functions.get(names.get(address, ""))
            if function is None or len(function.parameters) != len(self.arguments):
                raise LaunchError(
                    f"call of address {address:#x}, which is no function with these parameters, in "
                    f"{machine.wave.thread(int(lanes.index[0]))}",
                    location=program.locate(self.line),
                    hint="the register must hold the address of a function of this module",
                )
            call = Call(function.name, self.arguments, self.results, self.following, self.line)
            inner = call.leave(machine, group.part(lanes))
            assert inner is not None
            machine.resume(inner)
        return None


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

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Pass if everyone is here; otherwise wait."""
        alone = machine.alone()
        group.block = self.following
        registers = group.frame.registers
        numbers = self.number.read(registers)
        plain = self.count is None and self.reduction is None
        here = group.lanes.pick(numbers)
        if alone and plain and here.min() == here.max() < BARRIERS:
            if machine.wave.watched:
                machine.wave.watcher.synchronize(group.lanes.mask, group.lanes.mask)
            return group
        for number, chosen in by_value(group, numbers):
            part = group.part(chosen)
            counts: list[tuple[int | None, Any]] = [(None, chosen)]
            if self.count is not None:
                counts = [*by_value(part, self.count.read(registers))]
            for count, lanes in counts:
                machine.arrive(
                    Arrival(part.part(lanes), number, count, self.line, self.waits, self.reduction)
                )
        return None if self.waits else group


@dataclass(frozen=True, slots=True)
class GuardedExit:
    """Do ``then`` for the threads whose predicate holds; the others go on to ``following``."""

    predicate: Source
    then: Jump | BranchTable | End | Return | Call | IndirectCall | Barrier
    following: int

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Split the group; the ones that stay are put aside first."""
        value = self.predicate.read(group.frame.registers)
        chosen = group.lanes.where(value)
        if chosen is None:
            group.block = self.following
            return group
        if chosen is group.lanes:
            return self.then.leave(machine, group)
        rest = group.lanes.where(~value)
        assert rest is not None
        machine.resume(group.part(rest, self.following))
        moved = self.then.leave(machine, group.part(chosen))
        if moved is not None:
            machine.resume(moved)
        return None
