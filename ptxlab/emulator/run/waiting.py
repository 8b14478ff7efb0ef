"""Who waits, and for what: one list for barriers and for whatever else threads wait for each other at.

Whatever may end a wait (an arrival, the end of a thread) is followed by a look through the list; who
is still on it when nobody can run any more is in a deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.barriers import Barriers
from ptxlab.emulator.run.code import Converged, Participants
from ptxlab.emulator.run.threads import Threads, union
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError


@dataclass(frozen=True, slots=True)
class AtBarrier:
    """Threads that wait until barrier ``number`` of their CTA is complete."""

    barriers: Barriers
    number: int

    where = "at the barrier"
    gives_up = False

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of the threads that wait no longer, among others."""
        return ~self.barriers.pending(self.number)

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say how many have arrived in the CTA."""
        first = int(threads.index[0])
        cta, arrived, expected = self.barriers.counts(self.number, first, alive)
        return f"barrier {self.number} of {cta}: {arrived} of {expected} threads have arrived"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Threads that wait for something, at the instruction on a ``line``."""

    group: Converged
    awaited: Participants
    line: int


class WaitList:
    """Those of a wave who wait."""

    def __init__(self) -> None:
        self._list: list[Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._list)

    def add(self, group: Converged, awaited: Participants, line: int) -> None:
        self._list.append(Waiting(group, awaited, line))

    def gather(self, group: Converged) -> Converged:
        """Return the group with all who wait for others at the place where it stands."""
        kept: list[Waiting] = []
        for waiting in self._list:
            if not isinstance(waiting.awaited, AtBarrier) and waiting.group.at(group):
                group = joined(group, waiting.group)
            else:
                kept.append(waiting)
        self._list = kept
        return group

    def free(self, alive: Array) -> list[Converged]:
        """Take off the list whoever waits no longer, given the mask of threads that have not ended."""
        kept: list[Waiting] = []
        freed: list[Converged] = []
        for waiting in self._list:
            threads = waiting.group.threads
            over = waiting.awaited(waiting.group.frame, threads, alive)
            free, held = threads.where(over), threads.where(~over)
            if free is not None:
                freed.append(waiting.group.part(free))
            if held is not None:
                kept.append(
                    waiting if free is None else replace(waiting, group=waiting.group.part(held))
                )
        self._list = kept
        return freed

    def impatient(self, width: int) -> Array:
        """Return the mask of those who may be told that they wait still, of ``width`` threads."""
        mask = np.zeros(width, bool)
        for waiting in self._list:
            if waiting.awaited.gives_up:
                mask |= waiting.group.threads.mask
        return mask

    def deadlock(self, wave: Wave, alive: Array) -> LaunchError:
        """Describe who waits for what. The first waiting place gives the location."""
        places: dict[tuple[int, str], list[Waiting]] = {}
        for waiting in sorted(self._list, key=lambda waiting: waiting.group.first):
            places.setdefault((waiting.line, waiting.awaited.where), []).append(waiting)
        first = min(waiting.group.first for waiting in self._list)
        text = "; ".join(
            f"{sum(waiting.group.threads.size for waiting in places[line, where])} threads wait {where} on line "
            f"{line} ({_missing(places[line, where][0], alive)})"
            for line, where in sorted(places)
        )
        return LaunchError(
            f"deadlock: {text}; the first is {wave.thread(first)}",
            location=wave.locate(min(places)[0]),
            hint=(
                "a phase ends when all arrivals and all bytes have come that the mbarrier expects"
                if any(waiting.awaited.gives_up for waiting in self._list)
                else "every thread a barrier or warp instruction is for must reach it"
            ),
            kind="deadlock",
        )


def _missing(waiting: Waiting, alive: Array) -> str:
    return waiting.awaited.missing(waiting.group.frame, waiting.group.threads, alive)


def joined(group: Converged, other: Converged) -> Converged:
    """Return both as one; its turn is due when the earlier one's was."""
    both = group.part(union(group.threads, other.threads))
    both.ran = min(group.ran, other.ran)
    return both
