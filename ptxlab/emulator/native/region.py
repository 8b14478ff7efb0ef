"""The blocks of a routine that threads can walk through together in one call: a program of jobs and choices.

It is for threads of whom no other sees what they write. A register has one shape in all of a region:
``wide``, one element a thread, or a single one that all share.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.stretch import Arrays, Made, Stretch
from ptxlab.emulator.native.writer import Shape, Written
from ptxlab.emulator.operations.control import Barrier, Guarded, Jump
from ptxlab.emulator.prepare.program import BasicBlock, Bound, Routine
from ptxlab.emulator.run.barriers import BARRIERS
from ptxlab.emulator.run.wave import Frame

Part = Stretch | Arrays
Kind = tuple[int, bool]

LATER = frozenset({"wgmma", "tcgen05"})
"""What writes registers when nobody looks: asynchronous products."""

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Choice:
    """Where threads go behind a block: ``yes`` if ``slot`` holds in all, ``no`` if in none. -1 is nowhere.

    Without a slot all go to ``yes``.
    """

    yes: int
    no: int = NOWHERE
    slot: int = NOWHERE


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a region: its parts, for each of these what runs it (None: arrays), and the choice behind."""

    block: BasicBlock
    parts: Sequence[Part]
    made: Sequence[Made | None]
    choice: Choice


@dataclass(slots=True, eq=False)
class Region:
    """The places of a routine, by the numbers of their blocks, and what their machine code takes registers for.

    ``kinds`` are the sizes in bytes of all registers that it reads or writes, and whether these are
    predicates; ``outputs`` those written, ``carried`` those of a stretch that reads them too. It is ``stale`` once there is machine code for more blocks.
    """

    places: dict[int, Place]
    wide: set[int]
    kinds: dict[int, Kind]
    outputs: dict[int, np.dtype[Any]]
    carried: set[int]
    masked: bool
    stale: bool = False

    @property
    def name(self) -> tuple[bool, int]:
        """What tells it from other regions of its routine."""
        return self.masked, min(self.places)


def around(routine: Routine, head: int) -> list[int]:
    """Return the blocks from which threads come back to a block that they have come from."""
    onward = [_following(block, number) for number, block in enumerate(routine.blocks)]
    back: list[list[int]] = [[] for _ in onward]
    for number, targets in enumerate(onward):
        for target in targets:
            if target < len(back):
                back[target].append(number)
    return sorted(_reached(onward, head) & _reached(back, head))


def _following(block: BasicBlock, number: int) -> list[int]:
    """Return the blocks behind one; of a call or a table the next line is."""
    leave = block.exit
    targets = [leave.target] if isinstance(leave, Jump) else [number + 1]
    if isinstance(leave, Guarded) and isinstance(leave.then, Jump):
        targets.append(leave.then.target)
    return targets


def _reached(onward: Sequence[Sequence[int]], head: int) -> set[int]:
    found, todo = {head}, [head]
    while todo:
        number = todo.pop()
        new = [one for one in (onward[number] if number < len(onward) else ()) if one not in found]
        found.update(new)
        todo += new
    return found


@dataclass(slots=True)
class Builder:
    """Builds the region of a routine for registers that are ``wide`` at least."""

    routine: Routine
    frame: Frame
    masked: bool
    wide: set[int]
    kinds: dict[int, Kind] = field(default_factory=dict)
    outputs: dict[int, np.dtype[Any]] = field(default_factory=dict)
    carried: set[int] = field(default_factory=set)

    def region(self, head: int) -> Region | None:
        """Return the region of a loop's first block; None where a register is not always of one kind."""
        found = {}
        for number in around(self.routine, head):
            block = self.routine.blocks[number]
            parts = _parts(block)
            if parts is not None:
                found[number] = block, parts
        all_parts = [part for _, parts in found.values() for part in parts]
        made: dict[Part, Made | None] = {}
        while len(made) < len(all_parts):
            self._widen(all_parts)
            made = self._functions(all_parts)
        places = {
            number: Place(
                block,
                parts,
                [made[part] for part in parts],
                _choice(block, self.frame),
            )
            for number, (block, parts) in found.items()
        }
        for place in places.values():
            if not self._agrees(place):
                return None
        return Region(places, self.wide, self.kinds, self.outputs, self.carried, self.masked)

    def _widen(self, parts: Sequence[Part]) -> None:
        """Find the registers that are wide: who makes one wide makes it so for all who read it."""
        todo = list(parts)
        while todo:
            found: set[int] = set()
            for part in todo:
                written = self._written(part)
                if isinstance(part, Arrays) or written is None:
                    found |= self._widened(part.bounds)
                else:
                    found |= {slot for slot, _, wide in written.outputs if wide}
            new = found - self.wide
            self.wide |= new
            todo = [part for part in parts if part.reads & new]

    def _widened(self, bounds: Sequence[Bound]) -> set[int]:
        """Return what instructions make wide as arrays, as far as can be told before."""
        found: set[int] = set()
        for one in bounds:
            plain = one.lowered is not None and one.lowered.access is None
            if not plain or one.site.reads & (self.wide | found):
                found |= one.site.writes
        return found

    def _shape(self, part: Stretch, spread: Set[int] = frozenset()) -> Shape:
        shared = frozenset(part.reads - self.wide)
        return Shape(shared, self.masked, merging=False, spread=frozenset(spread))

    def _written(self, part: Part) -> Written | None:
        if isinstance(part, Arrays) or not part.is_native_in(self.frame.wave):
            return None
        return part.written_in(self._shape(part), self.frame)

    def _functions(self, parts: Sequence[Part]) -> dict[Part, Made | None]:
        """Return the functions of parts, of fewer if a register is wide for want of one."""
        found: dict[Part, Made | None] = {}
        for part in parts:
            written = self._written(part)
            if isinstance(part, Arrays) or written is None:
                found[part] = None
                continue
            thin = (slot for slot, _, wide in written.outputs if not wide)
            made = found[part] = part.made_in(
                self._shape(part, self.wide.intersection(thin)), self.frame
            )
            if made is None and not part.writes <= self.wide:
                self.wide |= part.writes
                return {}
        return found

    def _agrees(self, place: Place) -> bool:
        """Note the kinds of a place's registers; say whether they are those noted before."""
        for part, made in zip(place.parts, place.made, strict=True):
            if made is None:
                continue
            for slot in part.reads:
                if self.kinds.setdefault(slot, found := kind(self.frame.registers[slot])) != found:
                    return False
            for slot, dtype, wide in made.written.outputs:
                found = dtype.itemsize, dtype.kind == "b"
                if self.kinds.setdefault(slot, found) != found or wide != (slot in self.wide):
                    return False
                self.outputs[slot] = dtype
                if slot in part.reads:
                    self.carried.add(slot)
        slot = place.choice.slot
        return slot == NOWHERE or self.kinds.setdefault(slot, (1, True)) == (1, True)


def kind(value: Array) -> Kind:
    """Return what a register's array must have in common with what is written in its place."""
    return value.dtype.itemsize * (value.ndim == 1), value.dtype.kind == "b"


def _parts(block: BasicBlock) -> Sequence[Part] | None:
    """Return the parts of a block, None if it cannot be in a region."""
    watched = block.watched
    leaving = any(one.leaves and one.steps for one in watched)
    if leaving or any(one.site.instruction.opcode in LATER for one in watched):
        return None
    staying = [one for one in watched if not one.leaves]
    if not staying:
        return []
    if block.native is None:
        return [Arrays(staying, block.steps)]
    return [one for one in block.native if isinstance(one, Stretch | Arrays)]


def _choice(block: BasicBlock, frame: Frame) -> Choice:
    leave = block.exit
    if isinstance(leave, Jump):
        return Choice(leave.target)
    if isinstance(leave, Barrier):
        return Choice(leave.following if _holds_nobody(leave, frame) else NOWHERE)
    if isinstance(leave, Guarded):
        test = leave.predicate
        target = leave.then.target if isinstance(leave.then, Jump) else NOWHERE
        if test.convert is np.logical_not:
            return Choice(leave.following, target, test.slot)
        if test.convert is None:
            return Choice(target, leave.following, test.slot)
    return Choice(NOWHERE)


def _holds_nobody(barrier: Barrier, frame: Frame) -> bool:
    """Say whether all threads together go on at once, and no error is to be told."""
    number = barrier.number
    is_known = number.slot in frame.layout.literals
    return is_known and barrier.is_for_all and int(number.read(frame.registers)[0]) < BARRIERS
