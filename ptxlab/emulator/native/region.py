"""The blocks of a routine that a dispatch loop runs for all threads in one call: a program of tasks and choices.

It is for threads of whom no other sees what they write. A register has one shape in all of a region:
``per_lane``, one element a thread, or a single one that all share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.cutting import steps_of
from ptxlab.emulator.native.engine import BlockCode, code_of
from ptxlab.emulator.native.segment import Arrays, Segment
from ptxlab.emulator.native.warp_operation import Output, PartTask, warp_operation
from ptxlab.emulator.native.writer import FunctionShape
from ptxlab.emulator.prepare.registers import FrameLayout
from ptxlab.emulator.run.barriers import BARRIERS, Barrier
from ptxlab.emulator.run.code import BasicBlock, InstructionSteps, Routine
from ptxlab.emulator.run.exits import Guarded, Jump
from ptxlab.emulator.run.wave import Frame

BlockPart = Segment | Arrays
Kind = tuple[int, bool]

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class BranchTarget:
    """Where threads go behind a block: ``yes`` if ``slot`` holds in all, ``no`` if in none. -1 is nowhere.

    Without a slot all go to ``yes``.
    """

    yes: int
    no: int = NOWHERE
    slot: int = NOWHERE


@dataclass(frozen=True, slots=True)
class RegionBlock:
    """A block of a region: its parts, for each of these what runs it (None: arrays), and the choice behind."""

    block: BasicBlock
    parts: Sequence[BlockPart]
    work: Sequence[PartTask | None]
    choice: BranchTarget


@dataclass(slots=True, eq=False, weakref_slot=True)
class CompiledRegion:
    """Blocks of a routine, by number, and what their machine code takes registers for.

    ``kinds`` are the sizes in bytes of all registers that it reads or writes, and whether these are
    predicates; ``outputs`` those written, ``carried`` those that must not be written where they are read.
    ``awaited`` are the parts that become tasks once there is machine code for them, and it is ``stale`` once
    there is more.
    """

    per_lane: set[int]
    masked: bool
    blocks: dict[int, RegionBlock] = field(default_factory=dict)
    kinds: dict[int, Kind] = field(default_factory=dict)
    outputs: dict[int, np.dtype[Any]] = field(default_factory=dict)
    carried: set[int] = field(default_factory=set)
    awaited: set[BlockPart] = field(default_factory=set)
    stale: bool = False

    @property
    def name(self) -> tuple[bool, int]:
        """What tells it from other regions of its routine."""
        return self.masked, min(self.blocks)


def around(routine: Routine, head: int) -> list[int]:
    """Return the blocks from which threads come back to a block that they have come from."""
    onward = [block.successors for block in routine.blocks]
    back: list[list[int]] = [[] for _ in onward]
    for number, targets in enumerate(onward):
        for target in targets:
            back[target].append(number)
    return sorted(_reached(onward, head) & _reached(back, head))


def reached(routine: Routine) -> list[int]:
    """Return the blocks that threads can come to from the beginning."""
    return sorted(_reached([block.successors for block in routine.blocks], 0))


def has_machine_code(routine: Routine, number: int, frame: Frame) -> bool:
    """Say whether a part of a block is a task, or becomes one."""
    steps = (warp_operation([instruction]) for instruction in routine.blocks[number].watched)
    is_hot = code_of(routine).blocks[number].steps is not None
    return is_hot or any(step and step.ready(frame.wave) for step in steps)


def _reached(onward: Sequence[Sequence[int]], head: int) -> set[int]:
    reached, todo = {head}, [head]
    while todo:
        new = set(onward[todo.pop()]) - reached
        reached |= new
        todo += new
    return reached


@dataclass(slots=True)
class Builder:
    """Builds the region of a routine, which begins with the registers that are ``per_lane`` at least."""

    routine: Routine
    frame: Frame
    made: CompiledRegion

    def region(self, blocks: Collection[int]) -> CompiledRegion | None:
        """Return the region of some blocks; None where a register is not always of one kind."""
        parts_of = {}
        for number in blocks:
            block = self.routine.blocks[number]
            parts = _parts(block, code_of(self.routine).blocks[number], self.frame.layout)
            if parts is not None:
                parts_of[number] = block, parts
        all_parts = [part for _, parts in parts_of.values() for part in parts]
        work: dict[BlockPart, PartTask | None] = {}
        while len(work) < len(all_parts):
            self._find_per_lane(all_parts)
            work = self._functions(all_parts)
        for number, (block, parts) in parts_of.items():
            tasks = [work[part] for part in parts]
            self.made.blocks[number] = RegionBlock(block, parts, tasks, _choice(block, self.frame))
        agree = all(self._agrees(region_block) for region_block in self.made.blocks.values())
        return self.made if agree else None

    def _find_per_lane(self, parts: Sequence[BlockPart]) -> None:
        """Find the registers with an element a thread: who writes one so makes it so for all who read it."""
        todo = list(parts)
        while todo:
            widened: set[int] = set()
            for part in todo:
                written = self._written(part)
                if (task := self._warp_operation(part)) is not None:
                    widened |= task.named
                elif written is None:
                    widened |= self._spread_by(part.bounds)
                else:
                    widened |= {slot for slot, _, per_lane in written if per_lane}
            new = widened - self.made.per_lane
            self.made.per_lane |= new
            todo = [part for part in parts if part.reads & new]

    def _spread_by(self, bounds: Sequence[InstructionSteps]) -> set[int]:
        """Return what arrays would write with an element a thread, as far as can be told before."""
        spread: set[int] = set()
        for instruction in bounds:
            plain = instruction.lowered is not None and instruction.lowered.access is None
            if not plain or instruction.reads & (self.made.per_lane | spread):
                spread |= instruction.writes
        return spread

    def _shape(self, part: Segment, spread: Set[int] = frozenset()) -> FunctionShape:
        shared = part.reads - self.made.per_lane
        return part.shape(shared, masked=self.made.masked, spread=spread)

    def _written(self, part: BlockPart) -> list[Output] | None:
        """Return what the functions of a part write, None where it has none."""
        if isinstance(part, Arrays):
            return None
        written = part.written_in(self._shape(part), self.frame)
        return None if written is None else part.outputs(written)

    def _warp_operation(self, part: BlockPart) -> PartTask | None:
        """Return the task of the warp operation that a part is, for all threads."""
        if self.made.masked or isinstance(part, Segment):
            return None
        step = warp_operation(part.bounds)
        task = step and step.part
        if not (step and task and self.frame.layout.literals.isdisjoint(task.named)):
            return None
        if step.ready(self.frame.wave):
            return task
        self.made.awaited.add(part)
        return None

    def _functions(self, parts: Sequence[BlockPart]) -> dict[BlockPart, PartTask | None]:
        """Return what runs parts, of fewer if a register has an element a thread for want of it."""
        tasks: dict[BlockPart, PartTask | None] = {}
        for part in parts:
            if isinstance(part, Arrays):
                tasks[part] = self._warp_operation(part)
                continue
            written = self._written(part)
            if written is None:
                tasks[part] = None
                continue
            shared = (slot for slot, _, per_lane in written if not per_lane)
            compiled = part.compiled_in(
                self._shape(part, self.made.per_lane.intersection(shared)), self.frame
            )
            tasks[part] = None if compiled is None else part.task_of(compiled)
            if compiled is None and not part.writes <= self.made.per_lane:
                self.made.per_lane |= part.writes
                return {}
        return tasks

    def _agrees(self, block: RegionBlock) -> bool:
        """Note the kinds of a place's registers; say whether they are those noted before."""
        for work in block.work:
            if work is None:
                continue
            for slot in work.inputs:
                if (
                    self.made.kinds.setdefault(slot, kind_of := kind(self.frame.registers[slot]))
                    != kind_of
                ):
                    return False
            for slot, dtype, per_lane in work.outputs:
                kind_of = dtype.itemsize, dtype.kind == "b"
                agrees = per_lane == (slot in self.made.per_lane)
                if self.made.kinds.setdefault(slot, kind_of) != kind_of or not agrees:
                    return False
                self.made.outputs[slot] = dtype
                if work.can_fail and slot in work.inputs:
                    self.made.carried.add(slot)
        slot = block.choice.slot
        return slot == NOWHERE or self.made.kinds.setdefault(slot, (1, True)) == (1, True)


def kind(value: Array) -> Kind:
    """Return what a register's array must have in common with what is written in its place."""
    return value.dtype.itemsize * (value.ndim == 1), value.dtype.kind == "b"


def _parts(block: BasicBlock, code: BlockCode, layout: FrameLayout) -> Sequence[BlockPart] | None:
    """Return the parts of a block, None if it cannot be in a region."""
    watched = block.watched
    if any(instruction.leaves and instruction.steps for instruction in watched):
        return None
    staying = [instruction for instruction in watched if not instruction.leaves]
    if not staying:
        return []
    steps = code.steps
    if steps is None and not any(warp_operation([instruction]) for instruction in staying):
        return [Arrays(staying, block.steps)]
    if steps is None:
        steps = steps_of(block, layout, "", hot=False)
    return [step for step in steps if isinstance(step, Segment | Arrays)]


def _choice(block: BasicBlock, frame: Frame) -> BranchTarget:
    leave = block.exit
    if isinstance(leave, Jump):
        return BranchTarget(leave.target)
    if isinstance(leave, Barrier):
        return BranchTarget(leave.following if _holds_nobody(leave, frame) else NOWHERE)
    if isinstance(leave, Guarded):
        test = leave.predicate
        target = leave.then.target if isinstance(leave.then, Jump) else NOWHERE
        if test.convert is np.logical_not:
            return BranchTarget(leave.following, target, test.slot)
        if test.convert is None:
            return BranchTarget(target, leave.following, test.slot)
    return BranchTarget(NOWHERE)


def _holds_nobody(barrier: Barrier, frame: Frame) -> bool:
    """Say whether all threads together go on at once, and no error is to be told."""
    number = barrier.number
    is_known = number.slot in frame.layout.literals
    return is_known and barrier.is_for_all and int(number.read(frame.registers)[0]) < BARRIERS
