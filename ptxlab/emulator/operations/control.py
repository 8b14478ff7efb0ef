"""bra, brx, exit and the barriers of a CTA: where threads go next, as the exits of blocks.

Calls are another such: see ``call``. Source: PTX ISA, "Control Flow Instructions" and "Parallel
Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.operand_check import check_value
from ptxlab.emulator.prepare.program import Arrival, Converged, Ended, Exit, Onward, Reduction
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.barriers import BARRIERS
from ptxlab.emulator.run.registers import Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.errors import LaunchError
from ptxlab.syntax import tree

ExitBlocks = tuple[Exit, tuple[int, ...]]
"""An exit, and the blocks that it may lead to."""


def by_value(group: Converged, value: Array) -> list[tuple[int, Threads]]:
    """Return (value, threads) for every value of ``value`` among the group's threads."""
    found = []
    for one in np.unique(group.threads.pick(value)):
        threads = group.threads.where(value == one)
        assert threads is not None
        found.append((int(one), threads))
    return found


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


def build_exit(context: Context, form: RowForm, guard: Source | None, following: int) -> ExitBlocks:
    assert form.row.exit is not None
    then, onward = form.row.exit(context, form, following)
    if guard is None:
        return then, onward
    return Guarded(guard, then, following), tuple({*onward, following})


# ---- branches -------------------------------------------------------------------------------


def branch(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Go on at a label."""
    [label] = context.names(1)
    target = context.label(label)
    return Jump(target), (target,)


def table(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Go on at the label that a number chooses from a list. Outside of it is a LaunchError."""
    if len(context.instruction.operands) != 2:
        context.reject(f"{context.instruction.name} takes an index and a list of targets")
    index, name = context.instruction.operands
    labels = context.table(name.text) if isinstance(name, tree.Name) else None
    if not isinstance(labels, tree.BranchTargets):
        context.reject("the name of a .branchtargets list is needed here", name)
    targets = tuple(context.label(target) for target in labels.targets)
    check_value(context, index, "u32")
    source, line = context.source(index, "u32"), context.line

    def leave(group: Converged) -> Sequence[Onward]:
        parts = []
        wave = group.frame.wave
        for chosen, threads in by_value(group, source.read(group.frame.registers)):
            if chosen >= len(targets):
                thread = wave.thread(int(threads.index[0]))
                raise LaunchError(
                    f"brx.idx with index {chosen} of {len(targets)} targets in {thread}",
                    location=wave.locate(line),
                    hint="the behaviour of a GPU is undefined here",
                )
            parts.append(group.part(threads, targets[chosen]))
        return parts

    return leave, targets


def end(group: Converged) -> Sequence[Onward]:
    return (Ended(group.threads),)


def leave_kernel(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """End the threads."""
    return end, ()


row("bra{.uni}", "@label", exit=branch, mix="control", effects=Effects(leads="label"))
row("brx.idx{.uni}", "u32 @list", exit=table, mix="control")
row("exit", "", exit=leave_kernel, mix="control")


# ---- barriers of a CTA ----------------------------------------------------------------------


def barrier(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Arrive at a barrier of the CTA, and stay until all have arrived, or go on without waiting.

    The barrier is for a number of threads of the CTA, or for all of them.
    """
    operands = list(context.instruction.operands)
    mode = form["mode"]
    reduction = _reduction(context, form, operands) if mode == "red" else None
    sources = [context.source(operand, "u32") for operand in operands]
    count = sources[1] if len(sources) == 2 else None
    leave = Barrier(sources[0], count, reduction, mode != "arrive", context.line, following)
    return leave, (following,)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Arrive at barrier ``number``, which is for ``count`` threads or all; those who ``wait`` stay there."""

    number: Source
    count: Source | None
    reduction: Reduction | None
    waits: bool
    line: int
    following: int

    @property
    def is_for_all(self) -> bool:
        """Whether it does nothing but hold threads until all of the CTA have come."""
        return self.count is None and self.reduction is None

    def __call__(self, group: Converged) -> Sequence[Onward]:
        group.block = self.following
        registers = group.frame.registers
        numbers = self.number.read(registers)
        here = group.threads.pick(numbers)
        if group.threads.full and self.is_for_all and here.min() == here.max() < BARRIERS:
            if group.frame.wave.watched:
                group.frame.wave.watcher.synchronize(group.threads.mask, group.threads.mask)
            return (group,)
        parts: list[Onward] = []
        for one, chosen in by_value(group, numbers):
            part = group.part(chosen)
            counts: Sequence[tuple[int | None, Threads]] = [(None, chosen)]
            if self.count is not None:
                counts = by_value(part, self.count.read(registers))
            for asked, threads in counts:
                arrived = part.part(threads)
                parts.append(Arrival(arrived, one, asked, self.line, self.waits, self.reduction))
        return parts if self.waits else [*parts, group]


def _reduction(context: Context, form: RowForm, operands: list[tree.Operand]) -> Reduction:
    """Take the destination and the predicate of bar.red from the operands."""
    destination = context.destination(operands.pop(0), form["T"])
    return Reduction(form["op"], context.source(operands.pop(), "pred"), destination)


_barrier = partial(row, exit=barrier, mix="synchronization", needs={"cta": "sm_30 7.8"})
for _opcode, _aligned, _whole in (("bar", "", "aligned"), ("barrier", "{.aligned}", "<aligned>")):
    _meets = Effects(barrier="cta", meets="<mode>", aligned=_whole)
    _meet = partial(_barrier, effects=_meets)
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32<16 u32/32?", mode="sync")
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32<16 u32/32", mode="arrive")
    _reduce = partial(_meet, mode="red")
    _start = _opcode + "{.cta}.<mode>.<op>"
    _reduce(_start + _aligned + ".<T>", "u32<16 u32/32? pred -> T", op="popc", T="u32")
    _reduce(_start + _aligned + ".<T>", "u32<16 u32/32? pred -> T", op="and or", T="pred")
