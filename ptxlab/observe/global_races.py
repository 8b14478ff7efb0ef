"""Races in global memory: between CTAs, which nothing orders by itself, and between warps of a CTA.

Followed are barriers of a CTA, and fences with flags, both leniently: what a CTA did before a fence of
any of its threads is ordered before what another one does after a strong read that comes later, and so
is a strong write without a fence, as the flag itself. So what is found is a race, and a race can be
missed, as can one inside a warp. Source: PTX ISA, "Memory Consistency Model: Release and Acquire
Patterns" and "Causality order".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_context import CheckContext, Wording, entries
from ptxlab.observe.shadow import Shadow, ShadowTable
from ptxlab.observe.value_flow import reads
from ptxlab.syntax.tree import Instruction

_THREAD_BITS = 40
_THREADS = (1 << _THREAD_BITS) - 1
_WARPS = _THREADS & -WARP
_HINTS = {
    True: "CTAs run in any order: write, __threadfence(), then an atomic that the reader waits for; "
    "or two launches",
    False: "a barrier of both threads between the two, as __syncthreads(), orders them",
}


class _Entries:
    """For each granule an access: when, by which thread of the grid, and by which instruction.

    The number of the instruction is doubled, and odd where the access is strong.
    """

    __slots__ = ("keys", "places")

    def __init__(self, shadow: Shadow) -> None:
        self.keys: ShadowTable = shadow.table(np.int64)
        self.places: ShadowTable = shadow.table(np.int32)

    def note(self, granules: Array, keys: Array, instruction: int | Array) -> None:
        self.keys.data[granules] = keys
        self.places.data[granules] = instruction


@dataclass(slots=True)
class _Known:
    """The last write of each granule of an allocation, and the last reads by two warps, the latest first."""

    shadow: Shadow
    write: _Entries
    reads: tuple[_Entries, _Entries]

    def read(self, granules: Array, keys: Array, instruction: int) -> None:
        """Note reads: of those by one instruction the last, and the first if it is of another warp."""
        latest, other = self.reads
        before = latest.keys.data[granules]
        apart = np.flatnonzero((before != 0) & ((before ^ keys) & _WARPS != 0))
        other.note(granules[apart], before[apart], latest.places.data[granules[apart]])
        latest.note(granules, keys, instruction)
        apart = np.flatnonzero((keys ^ latest.keys.data[granules]) & _WARPS)[::-1]
        other.note(granules[apart], keys[apart], instruction)


@dataclass(frozen=True, slots=True)
class _Accesses:
    """What one instruction accesses in an allocation, an entry a granule, as ``_Entries`` has it."""

    memory: Allocation
    known: _Known
    granules: Array
    threads: Array
    instruction: int
    writes: bool
    items: Array | None

    def same(self, *, now: bool) -> Array:
        """Say which store what is there, or ``now`` what the last of those stores who store there."""
        if self.items is None:
            return np.zeros(self.granules.size, bool)
        size = self.known.shadow.size
        pieces = np.ascontiguousarray(self.items).view(np.uint8).reshape(len(self.items), -1, size)
        threads = self.granules.size // pieces.shape[1]
        stored = np.broadcast_to(pieces, (threads, *pieces.shape[1:])).reshape(-1, size)
        there = self.memory.data.reshape(-1, size)[self.granules]
        if now:
            places, order = np.unique(self.granules, return_inverse=True)
            last = np.zeros(places.size, np.int64)
            last[order] = np.arange(order.size)  # of several numpy keeps the last
            there = stored[last[order]]
        alike: Array = (stored == there).all(axis=1)
        return alike


class GlobalRaces:
    """Reports accesses to global memory of a launch that nothing orders."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._known: dict[Allocation, _Known] = {}
        self._now = 1
        self._fenced: Array = np.zeros(0, np.int64)

    def begin(self, wave: Wave) -> None:
        """Begin a wave: those before it are no less of this launch."""
        if not self._fenced.size:
            ctas = wave.config.ctas
            self._fenced, self._heard, self._met = (np.zeros(ctas, np.int64) for _ in range(3))
        self._numbers = np.asarray(wave.numbers, np.int64)
        inside = np.arange(wave.width) % wave.cta_width
        self._threads = self._numbers[wave.cta_of] * wave.cta_width + inside

    # ---- what orders ----

    def execute(self, instruction: Instruction, threads: Threads) -> None:
        """See ``threads`` execute what may be a fence, or read a flag."""
        effects = effects_of(instruction)
        if effects.releases or effects.orders_memory:
            self.order(self._fenced, threads.mask)
        if effects.strong and reads(instruction):
            self.order(self._heard, threads.mask)

    def release(self, threads: Threads) -> None:
        """See ``threads`` tell others what their CTA did."""
        self.order(self._fenced, threads.mask)

    def acquire(self, threads: Threads) -> None:
        """See ``threads`` hear of what others told."""
        for times in (self._heard, self._met):
            self.order(times, threads.mask)

    def synchronize(self, arrived: Array) -> None:
        self.order(self._met, arrived)

    def order(self, times: Array, threads: Array) -> None:
        """Enter a new time for the CTAs of a mask of threads."""
        self._now += 1
        ctas = threads.reshape(self._numbers.size, -1).any(axis=1)
        times[self._numbers[ctas]] = self._now

    # ---- accesses ----

    def last_write(
        self, memory: Allocation, first: Array, nbytes: int
    ) -> tuple[Array, Array, Array]:
        """Return the last write to each ``nbytes``: when (0 for never), by which thread, and where."""
        known = self._known.get(memory)
        if known is None:
            return (np.zeros_like(first),) * 3
        granules, count = known.shadow.cover(first, nbytes)
        keys = known.write.keys.data.take(granules).reshape(-1, count)
        last = keys.argmax(axis=1)[:, None]
        places = known.write.places.data.take(granules).reshape(-1, count)
        number = np.take_along_axis(places, last, axis=1)[:, 0] // 2
        keys = np.take_along_axis(keys, last, axis=1)[:, 0]
        return keys >> _THREAD_BITS, keys & _THREADS, number

    def touch(
        self,
        memory: Allocation,
        threads: Array,
        first: Array,
        nbytes: int,
        writes: bool,
        items: Array | None,
    ) -> None:
        """See ``threads`` access ``nbytes`` each from ``first`` on, to store ``items`` if they are known."""
        known = self._known.get(memory)
        if known is None:
            shadow = Shadow(memory.data.size)
            reads = _Entries(shadow), _Entries(shadow)
            known = self._known[memory] = _Known(shadow, _Entries(shadow), reads)
        granules, count = known.shadow.cover(first, nbytes)
        me = entries(self._threads[threads], count)
        keys = self._now << _THREAD_BITS | me
        strong = effects_of(self._context.site.instruction).strong
        instruction = 2 * self._context.number(self._context.site) + strong
        accesses = _Accesses(memory, known, granules, me, instruction, writes, items)
        self._compare(accesses, known.write)
        if not writes:
            known.read(granules, keys, instruction)
            return
        for read in known.reads:
            self._compare(accesses, read)
        known.write.note(granules, keys, instruction)
        if not strong and (known.write.keys.data.take(granules) != keys).any():
            self._compare(accesses, known.write, now=True)

    def _compare(self, accesses: _Accesses, entries: _Entries, *, now: bool = False) -> None:
        """Report those of the ``entries`` that accesses race with; they may be made just ``now``."""
        granules, me, instruction = accesses.granules, accesses.threads, accesses.instruction
        known, writes = accesses.known, accesses.writes
        keys = entries.keys.data.take(granules)
        raced = ((keys ^ me) & _WARPS != 0) & (keys != 0)
        if not raced.any():
            return
        width = self._context.wave.cta_width
        other, time = keys & _THREADS, keys >> _THREAD_BITS
        places = entries.places.data.take(granules)
        if instruction % 2:
            raced &= places % 2 == 0
        if not raced.any():
            return
        at = np.flatnonzero(raced)
        other, time, mine = other[at], time[at], me[at]
        theirs, ours = other // width, mine // width
        told = (self._fenced[theirs] > time) | (places[at] % 2 == 1) & (entries is known.write)
        flagged = told & (self._heard[ours] > time)
        met = (theirs == ours) & (self._met[ours] > time)
        at = at[~flagged & ~met]
        if not at.size:
            return
        wrote = entries is known.write
        same = accesses.same(now=now) if writes and wrote else np.zeros(granules.size, bool)
        for number in np.unique(places[at]):
            here = at[places[at] == number]
            for equal in (False, True):
                equals = here[same[here] == equal]
                if not equals.size:
                    continue
                nearest = int(equals[0])
                pair = int(me[nearest]), int(keys[nearest] & _THREADS)
                where = accesses.memory, int(granules[nearest]) * known.shadow.size
                rule, words = self._words(writes, wrote, equal, where, pair)
                count = equals.size * known.shadow.size
                site = self._context.numbered(int(number) // 2)
                severity = "info" if equal else "error"
                lane = self._context.wave.lane(pair[0])
                self._context.find("race", severity, rule, count, words, site, thread=lane)

    def _words(
        self,
        writes: bool,
        wrote: bool,
        equal: bool,
        where: tuple[Allocation, int],
        pair: tuple[int, int],
    ) -> tuple[str, Wording]:
        rule = {(False, True): "RAW", (True, False): "WAR", (True, True): "WAW"}[writes, wrote]
        memory, offset = where
        mine, other = (self._context.wave.member(thread) for thread in pair)
        message = (
            f"{rule}: {mine} {'overwrites' if writes else 'reads'} {memory.element(offset)}, "
            f"which {other} {'wrote' if wrote else 'read'}, and nothing orders the two"
        )
        if equal:
            return f"global {rule}", (
                f"{message}; both write the same value",
                "one of the threads is enough",
            )
        width = self._context.wave.cta_width
        return f"global {rule}", (message, _HINTS[pair[0] // width != pair[1] // width])
