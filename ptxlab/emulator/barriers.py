"""Barriers of CTAs: who has arrived, who waits, and what a reducing barrier adds up.

A barrier is complete in a CTA when as many threads have arrived as it is for: the number the
instruction gives, or all threads of the CTA that have not ended. Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.group import Group
from ptxlab.emulator.program import Destination, Source
from ptxlab.emulator.wave import Wave

Array = npt.NDArray[Any]


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
        """Note an arrival; ``complete`` says who may go on because of it."""
        self.arrivals.append(arrival)

    def complete(self, alive: Array) -> list[Group]:
        """Return the groups that may go on, given the mask of threads that have not ended."""
        freed: list[Group] = []
        everyone = self._per_cta(alive)
        for number in {arrival.number for arrival in self.arrivals}:
            here = [arrival for arrival in self.arrivals if arrival.number == number]
            arrived = self._total(a.group.lanes.mask for a in here)
            count = next((a.count for a in here if a.count is not None), None)
            done = (arrived > 0) & (arrived >= (everyone if count is None else count))
            if done.any():
                self.arrivals = [a for a in self.arrivals if a.number != number]
                self._reduce(here, arrived)
                for arrival in here:
                    freed += self._let_go(arrival, done[self._wave.cta_of])
        return freed

    def _let_go(self, arrival: Arrival, done: Array) -> list[Group]:
        """Return the threads of the complete CTAs; the others' arrival stands."""
        group = arrival.group
        held = group.lanes.where(~done)
        if held is not None:
            rest = Group(group.frame, group.block, held)
            self.arrivals.append(replace(arrival, group=rest))
        free = group.lanes.where(done)
        if free is None or not arrival.waits:
            return []
        return [Group(group.frame, group.block, free)]

    def _reduce(self, here: list[Arrival], arrived: Array) -> None:
        """Write the results of a reducing barrier; in CTAs not complete they are written again."""
        reducing = [a for a in here if a.reduction is not None]
        if not reducing:
            return
        holding = self._total(_holding(a) for a in reducing)
        for arrival in reducing:
            reduction, group = arrival.reduction, arrival.group
            assert reduction is not None
            registers, slot = group.frame.registers, reduction.destination.slot
            result = reduction.result(arrived, holding)[self._wave.cta_of]
            registers[slot] = group.lanes.merge(registers[slot], result)

    def _total(self, masks: Any) -> Array:
        total = np.zeros(self._wave.ctas, np.int64)
        for mask in masks:
            total += self._per_cta(mask)
        return total

    def _per_cta(self, mask: Array) -> Array:
        counts: Array = mask.reshape(self._wave.ctas, -1).sum(axis=1)
        return counts


def _holding(arrival: Arrival) -> Array:
    assert arrival.reduction is not None
    mask: Array = arrival.reduction.predicate.read(arrival.group.frame.registers)
    return arrival.group.lanes.mask & mask
