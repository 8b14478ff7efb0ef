"""Barriers of CTAs: who has arrived, who waits, and what a reducing barrier adds up.

A barrier is complete in a CTA when as many threads have arrived as it is for: the number the
instruction gives, or all threads of the CTA that have not ended. Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.prepare.program import Destination, Source
from ptxlab.emulator.run.group import Group
from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.wave import WARP, Wave
from ptxlab.errors import LaunchError

Array = npt.NDArray[Any]
Holding = tuple[Array, Array]
BARRIERS = 16


@dataclass(frozen=True, slots=True)
class Reduction:
    """What bar.red makes of the arriving threads' predicates: popc, and, or."""

    operation: str
    predicate: Source
    destination: Destination

    def result(self, arrived: Array, holding: Array) -> Array:
        """Return the result per CTA from how many arrived, and for how many the predicate held."""
        if self.operation == "and":
            return np.equal(holding, arrived)
        if self.operation == "or":
            return np.greater(holding, 0)
        return holding.astype(np.uint32)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Threads that have arrived at barrier ``number``, which is for ``count`` threads of a CTA.

    ``count`` None means all of them. ``waits`` is False for bar.arrive, whose threads have gone on.
    """

    group: Group
    number: int
    count: int | None
    line: int
    waits: bool = True
    reduction: Reduction | None = None

    @property
    def kind(self) -> tuple[int | None, str | None]:
        """What all arrivals at one barrier have in common."""
        return self.count, None if self.reduction is None else self.reduction.operation


class Barriers:
    """The barriers of one wave."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self.arrivals: list[Arrival] = []

    @property
    def waiting(self) -> list[Arrival]:
        """The arrivals whose threads have not gone on."""
        return [arrival for arrival in self.arrivals if arrival.waits]

    def arrive(self, arrival: Arrival) -> None:
        """Note an arrival; ``complete`` says who may go on because of it.

        Raise LaunchError for what PTX leaves undefined: a barrier that does not exist, a count that
        is not whole warps, threads that arrive again, or in another way than those before them.
        """
        lanes = arrival.group.lanes
        if arrival.number >= BARRIERS:
            raise self._wrong(arrival, lanes, f"barrier {arrival.number} of {BARRIERS}")
        if arrival.count is not None and (arrival.count % WARP or not arrival.count):
            what = f"a barrier for {arrival.count} threads, which is no number of whole warps,"
            raise self._wrong(arrival, lanes, what)
        ctas = self._in_cta(lanes.mask)
        for other in self.arrivals:
            if other.number != arrival.number:
                continue
            again = lanes.where(other.group.lanes.mask)
            if again is not None:
                what = f"a second arrival at barrier {arrival.number} before it is complete"
                raise self._wrong(arrival, again, what)
            together = ctas & self._in_cta(other.group.lanes.mask)
            if arrival.kind != other.kind and together.any():
                unlike = lanes.where(together[self._wave.cta_of])
                what = f"barrier {arrival.number}, used in another way on line {other.line},"
                raise self._wrong(arrival, unlike or lanes, what)
        self.arrivals.append(arrival)

    def complete(self, alive: Array) -> list[Group]:
        """Return the groups that may go on, given the mask of threads that have not ended."""
        freed: list[Group] = []
        for number in sorted({arrival.number for arrival in self.arrivals}):
            here = [arrival for arrival in self.arrivals if arrival.number == number]
            done = self._complete(here, alive)
            if done.any():
                self.arrivals = [a for a in self.arrivals if a.number != number]
                holding = self._holding(here)
                if self._wave.watched:
                    self._report(here, done)
                for arrival in here:
                    freed += self._let_go(arrival, done, holding)
        return freed

    def _report(self, here: list[Arrival], done: Array) -> None:
        """Tell the watcher who has arrived in the CTAs that are ``done``, and who may go on."""
        nobody = np.zeros(self._wave.width, bool)
        arrived = np.logical_or.reduce([nobody, *(a.group.lanes.mask for a in here)])
        waited = np.logical_or.reduce([nobody, *(a.group.lanes.mask for a in here if a.waits)])
        of_thread = done[self._wave.cta_of]
        self._wave.watcher.synchronize(arrived & of_thread, waited & of_thread)

    def _complete(self, here: list[Arrival], alive: Array) -> Array:
        """Return for every CTA whether the barrier that these have arrived at is complete.

        A warp has arrived when all of it that lives has, and then it counts as 32 threads.
        """
        arrived = np.zeros(self._wave.width, bool)
        needed = np.zeros(self._wave.ctas, np.int64)
        for arrival in here:
            mask = arrival.group.lanes.mask
            arrived |= mask
            if arrival.count is not None:
                needed[self._in_cta(mask)] = arrival.count
        missing = alive & ~arrived
        whole = arrived.reshape(-1, WARP).any(axis=1) & ~missing.reshape(-1, WARP).any(axis=1)
        threads = WARP * whole.reshape(self._wave.ctas, -1).sum(axis=1)
        done = self._in_cta(arrived)
        done[self._in_cta(missing)] = False
        counted = needed > 0
        done[counted] = threads[counted] >= needed[counted]
        return done

    def _let_go(self, arrival: Arrival, done: Array, holding: Holding | None) -> list[Group]:
        """Return the threads of the complete CTAs; the others' arrival stands."""
        group, of_thread = arrival.group, done[self._wave.cta_of]
        held = group.lanes.where(~of_thread)
        if held is not None:
            self.arrivals.append(replace(arrival, group=group.part(held)))
        free = group.lanes.where(of_thread)
        if free is None or not arrival.waits:
            return []
        if arrival.reduction is not None:
            assert holding is not None
            registers, slot = group.frame.registers, arrival.reduction.destination.slot
            result = arrival.reduction.result(*holding)[self._wave.cta_of]
            registers[slot] = free.merge(registers[slot], result)
        return [group.part(free)]

    def _holding(self, here: list[Arrival]) -> Holding | None:
        """Count per CTA who has arrived at a reducing barrier, and for how many of them it holds."""
        if here[0].reduction is None:
            return None
        arrived = np.zeros(self._wave.ctas, np.int64)
        holding = np.zeros(self._wave.ctas, np.int64)
        for arrival in here:
            assert arrival.reduction is not None
            mask = arrival.group.lanes.mask
            predicate = arrival.reduction.predicate.read(arrival.group.frame.registers)
            arrived += self._per_cta(mask)
            holding += self._per_cta(mask & predicate)
        return arrived, holding

    def _in_cta(self, mask: Array) -> Array:
        found: Array = np.logical_or.reduce(mask.reshape(self._wave.ctas, -1), axis=1)
        return found

    def _per_cta(self, mask: Array) -> Array:
        counts: Array = mask.reshape(self._wave.ctas, -1).sum(axis=1)
        return counts

    def _wrong(self, arrival: Arrival, lanes: Lanes, what: str) -> LaunchError:
        return LaunchError(
            f"{what} in {self._wave.thread(int(lanes.index[0]))}",
            location=self._wave.program.locate(arrival.line),
            hint="what a GPU does then is undefined",
            kind="barrier",
        )
