"""Barriers of CTAs: who has arrived, who waits, and what a reducing barrier adds up.

A barrier is complete in a CTA when all threads of the CTA have arrived that have not ended, or as many
as the instruction says. These are counted warp by warp, whoever they are: a warp that has gone on after
bar.arrive may arrive once more, and wait for itself, as in FlashAttention-3. A complete barrier can be
used again at once, so that warps beyond the count have arrived at its next use.
Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.code import Arrival, Converged, Onward, Reduction
from ptxlab.emulator.run.exits import by_value
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
        """Return the mask of threads that wait at a barrier which is not complete."""
        return self._union(
            [arrival.group.threads.mask for arrival in self._at(number) if arrival.waits]
        )

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
        arrived = sum(int(self._per_cta(arrival.group.threads.mask)[cta]) for arrival in here)
        return self._wave.cta(cta), arrived, expected

    def arrive(self, arrival: Arrival) -> None:
        """Note an arrival; ``complete`` says who may go on because of it.

        Raise LaunchError for what PTX leaves undefined: a barrier that does not exist, a count that
        is not whole warps, threads that arrive in another way than those before them.
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
            together = ctas & self._in_cta(other.group.threads.mask)
            if arrival.kind != other.kind and together.any():
                unlike = threads.where(together[self._wave.cta_of])
                what = f"barrier {arrival.number}, used in another way on line {other.line},"
                raise self._wrong(arrival, unlike or threads, what)
        self.arrivals.append(arrival)

    def at_once(self, arrivals: Sequence[Arrival], alive: Array) -> bool:
        """Say whether arrivals complete their barriers, of which each is another one, with nobody else.

        It may say no where they do.
        """
        numbers = {arrival.number for arrival in arrivals}
        if self.arrivals or self._wave.watched or len(numbers) < len(arrivals):
            return False
        return all(
            arrival.waits and arrival.reduction is None and self._whole(arrival, alive)
            for arrival in arrivals
        )

    def _whole(self, arrival: Arrival, alive: Array) -> bool:
        """Say whether threads that arrive are all that a barrier waits for, in each CTA that some of them are in."""
        mask = arrival.group.threads.mask
        here, wanted = self._per_cta(mask), arrival.count
        warps = mask.reshape(-1, WARP)
        expected = self._per_cta(alive) if wanted is None else wanted
        is_whole = (warps.any(axis=1) == warps.all(axis=1)).all()
        good: Array = (here == 0) | (here == expected)
        return bool(is_whole and arrival.number < BARRIERS and good.all())

    def complete(self, alive: Array) -> None:
        """Forget the arrivals at barriers that are complete, given who has not ended."""
        for number in sorted({arrival.number for arrival in self.arrivals}):
            here = self._at(number)
            while done := self._complete(here, alive):
                self.arrivals = [a for a in self.arrivals if a.number != number]
                holding = self._holding(here, done)
                if self._wave.watched:
                    self._report(number, here, done)
                for arrival, over in zip(here, done, strict=True):
                    self._let_go(arrival, over, holding)
                here = self._at(number)

    def _at(self, number: int) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.number == number]

    def _union(self, masks: Iterable[Array]) -> Array:
        union = np.zeros(self._wave.width, bool)
        for mask in masks:
            union |= mask
        return union

    def _report(self, number: int, here: list[Arrival], done: list[Array]) -> None:
        """Tell the watcher who has arrived at a complete barrier, and who may go on."""
        waited = [over for arrival, over in zip(here, done, strict=True) if arrival.waits]
        self._wave.watcher.synchronize(number, self._union(done), self._union(waited))

    def _complete(self, here: list[Arrival], alive: Array) -> list[Array]:
        """Return of each arrival the mask of its threads whose barrier is complete; [] where none is."""
        masks = [arrival.group.threads.mask for arrival in here]
        needed = np.zeros(self._wave.ctas, np.int64)
        for arrival, mask in zip(here, masks, strict=True):
            if arrival.count is not None:
                needed[self._in_cta(mask)] = arrival.count
        done = [np.zeros_like(alive)] * len(masks)
        if needed.any():
            done = self._first(masks, alive, needed)
        if not needed.all():
            everyone = ~self._in_cta(alive & ~self._union(masks)) & (needed == 0)
            of_all = everyone[self._wave.cta_of]
            done = [mask & of_all | first for mask, first in zip(masks, done, strict=True)]
        return done if any(mask.any() for mask in done) else []

    def _first(self, masks: list[Array], alive: Array, needed: Array) -> list[Array]:
        """Return of each arrival the threads of those warps that make up the ``needed`` ones of a CTA.

        A warp has arrived when all of it that lives has, and then it counts as 32 threads. The first that
        have arrived are taken, and of those that arrived together the first ones.
        """
        rounds = [masks] if len(masks) == 1 else _rounds(masks)
        since = np.full((alive.size // WARP, len(rounds)), len(masks))
        for nth, of_arrivals in enumerate(rounds):
            missing = _in_warp(alive & ~self._union(of_arrivals))
            for turn, mask in enumerate(of_arrivals):
                since[_in_warp(mask), nth] = turn
            since[missing, nth] = len(masks)
        # Of a CTA one after the other: the arrivals of its first warp, of the second, ...
        since = since.reshape(self._wave.ctas, -1)
        order = since.argsort(axis=1, kind="stable").argsort(axis=1)
        wanted = needed[:, None] // WARP
        enough = (since < len(masks)).sum(axis=1, keepdims=True) >= wanted
        chosen = (enough & (order < wanted)).reshape(-1, len(rounds))
        done = [np.zeros_like(alive) for _ in masks]
        for nth, of_arrivals in enumerate(rounds):
            threads = chosen[:, nth].repeat(WARP)
            for over, mask in zip(done, of_arrivals, strict=True):
                over |= mask & threads
        return done

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

    def _holding(self, here: list[Arrival], done: list[Array]) -> Holding:
        """Count per CTA who is ``done``, and for how many of them the predicate they gave holds."""
        holding = np.zeros(self._wave.ctas, np.int64)
        for arrival, over in zip(here, done, strict=True):
            if arrival.reduction is not None:
                predicate = arrival.reduction.predicate.read(arrival.group.frame.registers)
                holding += self._per_cta(over & predicate)
        return self._per_cta(self._union(done)), holding

    def _in_cta(self, mask: Array) -> Array:
        any_of: Array = np.logical_or.reduce(mask.reshape(self._wave.ctas, -1), axis=1)
        return any_of

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
    any_of: Array = np.logical_or.reduce(mask.reshape(-1, WARP), axis=1)
    return any_of


def _rounds(masks: Sequence[Array]) -> list[list[Array]]:
    """Return of each arrival the threads for which it is the first one, the second one, and so on."""
    seen = np.zeros_like(masks[0])
    first, later = [], []
    for mask in masks:
        first.append(mask & ~seen)
        later.append(mask & seen)
        seen |= mask
    return [first, *(_rounds(later) if any(mask.any() for mask in later) else [])]


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
                met = group.threads.mask
                group.frame.wave.watcher.synchronize(int(here[0]), met, met)
            return (group,)
        parts: list[Onward] = []
        for number, chosen in by_value(group, numbers):
            part = group.part(chosen)
            counts: Sequence[tuple[int | None, Threads]] = [(None, chosen)]
            if self.count is not None:
                counts = by_value(part, self.count.read(registers))
            for asked, threads in counts:
                arrived = part.part(threads)
                parts.append(Arrival(arrived, number, asked, self.line, self.waits, self.reduction))
        return parts if self.waits else [*parts, group]
