"""Barriers of CTAs: who has arrived, who waits, and what a reducing barrier adds up.

A barrier is complete in a CTA when as many threads have arrived as it is for: the number the
instruction gives, or all threads of the CTA that have not ended. It can then be used again at once,
so that of more warps than a barrier is for, those left over have arrived at its next use.
Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.program import Arrival
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP

Holding = tuple[Array, Array]
BARRIERS = 16


class Barriers:
    """The barriers of one wave."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self.arrivals: list[Arrival] = []

    def pending(self, number: int) -> Array:
        """Return the mask of threads that have arrived at a barrier which is not complete."""
        return self._arrived(self._at(number))

    def counts(self, number: int, thread: int, alive: Array) -> tuple[str, int, int]:
        """Return a thread's CTA, and how many of how many have arrived at its barrier ``number``."""
        cta = int(self._wave.cta_of[thread])
        here = [
            arrival
            for arrival in self._at(number)
            if arrival.group.threads.mask.reshape(self._wave.ctas, -1)[cta].any()
        ]
        living = int(self._per_cta(alive)[cta])
        expected = next((arrival.count for arrival in here if arrival.count), living)
        return self._wave.cta(cta), int(self._per_cta(self._arrived(here))[cta]), expected

    def arrive(self, arrival: Arrival) -> None:
        """Note an arrival; ``complete`` says who may go on because of it.

        Raise LaunchError for what PTX leaves undefined: a barrier that does not exist, a count that
        is not whole warps, threads that arrive again, or in another way than those before them.
        """
        threads = arrival.group.threads
        if arrival.number >= BARRIERS:
            raise self._wrong(arrival, threads, f"barrier {arrival.number} of {BARRIERS}")
        if arrival.count is not None and (arrival.count % WARP or not arrival.count):
            what = f"a barrier for {arrival.count} threads, which is no number of whole warps,"
            raise self._wrong(arrival, threads, what)
        ctas = self._in_cta(threads.mask)
        for other in self.arrivals:
            if other.number != arrival.number:
                continue
            again = threads.where(other.group.threads.mask)
            if again is not None:
                what = f"a second arrival at barrier {arrival.number} before it is complete"
                raise self._wrong(arrival, again, what)
            together = ctas & self._in_cta(other.group.threads.mask)
            if arrival.kind != other.kind and together.any():
                unlike = threads.where(together[self._wave.cta_of])
                what = f"barrier {arrival.number}, used in another way on line {other.line},"
                raise self._wrong(arrival, unlike or threads, what)
        self.arrivals.append(arrival)

    def complete(self, alive: Array) -> None:
        """Forget the arrivals at barriers that are complete, given who has not ended."""
        for number in sorted({arrival.number for arrival in self.arrivals}):
            here = self._at(number)
            while (done := self._complete(here, alive)).any():
                self.arrivals = [a for a in self.arrivals if a.number != number]
                holding = self._holding(here, done)
                if self._wave.watched:
                    self._report(here, done)
                for arrival in here:
                    self._let_go(arrival, done, holding)
                here = self._at(number)

    def _at(self, number: int) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.number == number]

    def _arrived(self, arrivals: list[Arrival]) -> Array:
        mask = np.zeros(self._wave.width, bool)
        for arrival in arrivals:
            mask |= arrival.group.threads.mask
        return mask

    def _report(self, here: list[Arrival], done: Array) -> None:
        """Tell the watcher who of those that are ``done`` has arrived, and who may go on."""
        waited = self._arrived([arrival for arrival in here if arrival.waits])
        self._wave.watcher.synchronize(done, waited & done)

    def _complete(self, here: list[Arrival], alive: Array) -> Array:
        """Return the mask of the threads whose barrier is complete, of those that have arrived.

        A warp has arrived when all of it that lives has, and then it counts as 32 threads.
        """
        arrived = self._arrived(here)
        needed = np.zeros(self._wave.ctas, np.int64)
        for arrival in here:
            if arrival.count is not None:
                needed[self._in_cta(arrival.group.threads.mask)] = arrival.count
        missing = alive & ~arrived
        everyone = ~self._in_cta(missing) & (needed == 0)
        done: Array = arrived & everyone[self._wave.cta_of]
        if needed.any():
            whole = _in_warp(arrived) & ~_in_warp(missing)
            done |= arrived & np.repeat(self._first(here, whole, needed), WARP)
        return done

    def _first(self, here: list[Arrival], whole: Array, needed: Array) -> Array:
        """Return the ``whole`` warps that make up the ``needed`` threads of a CTA, where they do.

        They are the first that have arrived, and of those that arrived together the first ones.
        """
        since = np.full(whole.shape, len(here))
        for turn, arrival in enumerate(here):
            since[_in_warp(arrival.group.threads.mask)] = turn
        since[~whole] = len(here)
        order = since.reshape(self._wave.ctas, -1).argsort(axis=1, kind="stable")
        wanted = needed[:, None] // WARP
        enough = whole.reshape(order.shape).sum(axis=1, keepdims=True) >= wanted
        chosen: Array = enough & (order.argsort(axis=1) < wanted)
        return chosen.reshape(-1)

    def _let_go(self, arrival: Arrival, done: Array, holding: Holding) -> None:
        """Give those who are ``done`` their result; the others' arrival stands."""
        group, reduction = arrival.group, arrival.reduction
        held, free = group.threads.where(~done), group.threads.where(done)
        if held is not None:
            self.arrivals.append(replace(arrival, group=group.part(held)))
        if free is not None and reduction is not None:
            registers, slot = group.frame.registers, reduction.destination.slot
            result = reduction.result(*holding)[self._wave.cta_of]
            registers[slot] = free.merge(registers[slot], result)

    def _holding(self, here: list[Arrival], done: Array) -> Holding:
        """Count per CTA who is ``done``, and for how many of them the predicate they gave holds."""
        holding = np.zeros(self._wave.ctas, np.int64)
        for arrival in here:
            if arrival.reduction is not None:
                predicate = arrival.reduction.predicate.read(arrival.group.frame.registers)
                holding += self._per_cta(arrival.group.threads.mask & done & predicate)
        return self._per_cta(done), holding

    def _in_cta(self, mask: Array) -> Array:
        found: Array = np.logical_or.reduce(mask.reshape(self._wave.ctas, -1), axis=1)
        return found

    def _per_cta(self, mask: Array) -> Array:
        counts: Array = mask.reshape(self._wave.ctas, -1).sum(axis=1)
        return counts

    def _wrong(self, arrival: Arrival, threads: Threads, what: str) -> LaunchError:
        return LaunchError(
            f"{what} in {self._wave.thread(int(threads.index[0]))}",
            location=self._wave.locate(arrival.line),
            hint="what a GPU does then is undefined",
            kind="barrier",
        )


def _in_warp(mask: Array) -> Array:
    found: Array = np.logical_or.reduce(mask.reshape(-1, WARP), axis=1)
    return found
