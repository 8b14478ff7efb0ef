"""Steps and exits of a program prepared to be watched: they report to the wave's watcher.

Every instruction is wrapped in one, and no register is dropped, so that each can be looked at
wherever its name is known. A program that is not watched has none of this, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.emulator.prepare.program import Arrival, Converged, Ended, Exit, Step
from ptxlab.emulator.prepare.scope import Site
from ptxlab.emulator.run.registers import Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame


class WatchedStep:
    """A step that reports itself."""

    __slots__ = ("_guard", "_site", "_step", "participants")

    def __init__(self, step: Step, guard: Source | None, site: Site) -> None:
        self._step = step
        self._guard = guard
        self._site = site
        self.participants = getattr(step, "participants", None)

    def run(self, frame: Frame, threads: Threads) -> None:
        """Report, run, report."""
        watcher = frame.wave.watcher
        passing = _passing(self._guard, frame, threads)
        watcher.before(self._site, frame, threads, passing)
        self._step.run(frame, threads)
        watcher.after(self._site, frame, threads, passing)


@dataclass(frozen=True, slots=True)
class WatchedExit:
    """An exit that reports itself."""

    exit: Exit
    guard: Source | None
    site: Site

    def leave(self, group: Converged) -> Sequence[Converged | Ended | Arrival]:
        """Report, and leave."""
        frame, threads = group.frame, group.threads
        passing = _passing(self.guard, frame, threads)
        frame.wave.watcher.before(self.site, frame, threads, passing)
        return self.exit.leave(group)


def _passing(guard: Source | None, frame: Frame, threads: Threads) -> Threads | None:
    return threads if guard is None else threads.where(guard.read(frame.registers))
