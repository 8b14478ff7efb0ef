"""Watching a launch: what an observer is told, instruction by instruction.

A program prepared to be watched has every instruction wrapped in a step that reports it, and drops
no register, so that each can be looked at wherever its name is known. A program that is not
watched has none of this, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxlab.emulator.prepare.scope import Register, Scope
from ptxlab.syntax.tree import Instruction

if TYPE_CHECKING:
    from ptxlab.emulator.prepare.program import Array, Exit, Source, Step
    from ptxlab.emulator.run.access import Access, Part
    from ptxlab.emulator.run.group import Group
    from ptxlab.emulator.run.lanes import Lanes
    from ptxlab.emulator.run.machine import Machine
    from ptxlab.emulator.run.wave import Frame, Wave


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One instruction of a prepared program.

    ``number`` counts the instructions of its function from 0, in the order of the text. ``reads`` and
    ``writes`` are the numbers of registers in a frame; ``scope`` is where its names are looked up.
    """

    number: int
    function: str
    instruction: Instruction
    scope: Scope
    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def line(self) -> int:
        """The line of the PTX text."""
        return self.instruction.position.line

    def register(self, name: str) -> Register | None:
        """Return the register that ``name`` is here, None where no instruction uses one of that name."""
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            scope = scope.parent
        return None


class Watcher:
    """Is told what happens in a launch. Each method does nothing until a subclass wants to know.

    ``lanes`` are the threads that stand at an instruction, ``passing`` those of them that its guard
    lets execute it, None for none. Threads that are not in the lanes may have been anywhere.
    """

    def begin(self, wave: Wave) -> None:
        """Begin a wave: its CTAs run from their beginning to their end before the next wave."""

    def before(self, site: Site, frame: Frame, lanes: Lanes, passing: Lanes | None) -> None:
        """See an instruction about to be executed."""

    def after(self, site: Site, frame: Frame, lanes: Lanes, passing: Lanes | None) -> None:
        """See the registers after an instruction; not told of those that end a block."""

    def access(self, access: Access, frame: Frame, lanes: Lanes) -> None:
        """See ``lanes`` access memory, each at its own address, before it is known to be there.

        An instruction makes one access, or several where it is made of several: a copy reads and
        writes, and reads byte by byte in threads that copy less than a whole item.
        """

    def touch(self, access: Access, lanes: Lanes, parts: list[Part], items: Array | None) -> None:
        """See the same access again when all of it is known to be there, part by part.

        ``items`` are what it stores, one for each of the lanes or one for all; None for a load, an
        atomic and a copy.
        """

    def synchronize(self, arrived: Array, released: Array) -> None:
        """See a barrier complete, in one CTA or several: masks of the wave's threads.

        All that ``arrived`` did before is visible to those ``released`` from now on.
        """

    def synchronize_warps(self, together: Array) -> None:
        """See the threads of a mask pass bar.warp.sync, those of each warp with each other."""

    def ended(self, lanes: Lanes) -> None:
        """See threads end."""

    def end(self, wave: Wave) -> None:
        """End a wave; not told when the launch failed."""


class WatchedStep:
    """A step that reports itself."""

    __slots__ = ("_guard", "_site", "_step", "participants")

    def __init__(self, step: Step, guard: Source | None, site: Site) -> None:
        self._step = step
        self._guard = guard
        self._site = site
        self.participants = getattr(step, "participants", None)

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Report, run, report."""
        watcher = frame.wave.watcher
        passing = _passing(self._guard, frame, lanes)
        watcher.before(self._site, frame, lanes, passing)
        self._step.run(frame, lanes)
        watcher.after(self._site, frame, lanes, passing)


@dataclass(frozen=True, slots=True)
class WatchedExit:
    """An exit that reports itself."""

    exit: Exit
    guard: Source | None
    site: Site

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Report, and leave."""
        passing = _passing(self.guard, group.frame, group.lanes)
        machine.wave.watcher.before(self.site, group.frame, group.lanes, passing)
        return self.exit.leave(machine, group)


def _passing(guard: Source | None, frame: Frame, lanes: Lanes) -> Lanes | None:
    return lanes if guard is None else lanes.where(guard.read(frame.registers))
