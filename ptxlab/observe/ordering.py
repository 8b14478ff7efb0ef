"""Which accesses to shared memory nothing orders: barriers of a CTA and of its warps.

All that threads do before they arrive at a barrier happens before all that those do who are released
by it. Time counts the barriers of a wave; of two accesses of a CTA by different threads, the one
before was at a time that the other thread has not heard of exactly if nothing orders them.

``Epochs`` is for programs whose barriers are for whole CTAs and whole warps, and ``History`` for all.
Both find for each access one that it races with, if there is any, and nothing else: another warp's
rather than one of its own warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.shadow import Shadow

Array = npt.NDArray[Any]

Kind = tuple[bool, bool]
"""Whether an access writes, and whether it is strong: strong ones do not race with each other."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Accesses of one kind by one instruction, an entry a granule.

    ``threads`` are the threads of the wave, ascending, ``place`` is the number of the instruction.
    """

    kind: Kind
    place: int
    threads: Array
    granules: Array


@dataclass(frozen=True, slots=True)
class Earlier:
    """For the entries ``at`` of a touch: who accessed the granule before, unordered, and where."""

    at: Array
    threads: Array
    places: Array


PLACE_BITS = 22
THREAD_BITS = 10
MOST_THREADS = 1 << THREAD_BITS
"""Threads that a CTA can have."""

NEVER = (1 << 30) - 1
"""An epoch that no wave lives to see."""

_OTHER_WARP = (WARP, MOST_THREADS - 1)
_SAME_WARP = (1, WARP - 1)
_ANY_OTHER = (1, MOST_THREADS - 1)
"""Between which numbers the difference (exclusive or) of two threads of a CTA is."""


class _Keys:
    """The entry of each thread of a wave in the epochs at hand, without a place."""

    __slots__ = ("first", "last")

    def __init__(self, epochs: Array, threads: Array) -> None:
        high = epochs << PLACE_BITS + THREAD_BITS
        self.last = high | threads << PLACE_BITS
        self.first = high | (MOST_THREADS - 1 - threads) << PLACE_BITS


class _Extent:
    """The last and the first thread that accessed each granule in an epoch, and where.

    An entry is (epoch, thread, place), in ``first`` with threads counted down, so that the largest
    counts in both.
    """

    __slots__ = ("first", "last")

    def __init__(self, shadow: Shadow) -> None:
        self.last = shadow.table(np.int64)
        self.first = shadow.table(np.int64)

    def note(self, touch: Touch, keys: _Keys) -> None:
        """Enter accesses. Of several for one granule numpy keeps the last, so the largest is last."""
        granules, known = touch.granules, self.last.data
        last = keys.last.take(touch.threads) + touch.place
        known[granules] = np.maximum(known.take(granules), last)
        first, known = keys.first.take(touch.threads) + touch.place, self.first.data
        known[granules[::-1]] = np.maximum(known.take(granules), first)[::-1]


class Epochs:
    """Order by barriers of whole CTAs and whole warps.

    What came before the last barrier of a CTA is ordered with all that follows, so of the accesses to
    a granule it is enough to know the first and the last thread since then: they tell exactly
    whether there is a thread other than this one, or one of another warp. The same is kept since the
    last barrier of a warp, of the warp that accessed the granule last: if another one has come
    between, warps race, and which threads of one do is of no interest.
    """

    def __init__(self, wave: Wave, shadow: Shadow, *, of_warps: bool) -> None:
        self._wave = wave
        self._shadow = shadow
        self._of_warps = of_warps
        self._now = 1
        self._epochs: Array = np.ones(wave.width, np.int64)
        self._warp_epochs: Array = np.ones(wave.width, np.int64)
        self._threads: Array = np.arange(wave.width) % wave.cta_width
        self._ended: Array = ~wave.alive.mask
        self._extents: dict[Kind, tuple[_Extent, _Extent]] = {}
        self._noted: dict[Kind, int] = {}
        self._renew()

    def _renew(self) -> None:
        self._oldest = int(self._epochs.min())
        self._keys = self._warp_keys = _Keys(self._epochs, self._threads)
        if self._of_warps:
            self._warp_keys = _Keys(self._warp_epochs, self._threads)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._extents)

    def synchronize(self, arrived: Array, released: Array, *, counted: bool) -> None:
        """Order what ``arrived`` did before what ``released`` do from now on, in each CTA.

        The barrier is for a number of threads if it is ``counted``, else for all of the CTA: those
        that have ended count as arrived.
        """
        self._now += 1
        ctas: Array = np.logical_or.reduce(arrived.reshape(self._wave.ctas, -1), axis=1)
        of_threads = ctas[self._wave.cta_of]
        self._epochs[of_threads] = self._now
        self._warp_epochs[of_threads] = self._now
        self._renew()

    def synchronize_warps(self, together: Array) -> None:
        """Order what threads of a warp did before what the others of it do from now on."""
        self._now += 1
        warps = together.reshape(-1, WARP).any(axis=1)
        self._warp_epochs[np.repeat(warps, WARP)] = self._now
        self._warp_keys = _Keys(self._warp_epochs, self._threads)

    def ended(self, threads: Threads) -> None:
        """Take threads off: CTAs that are over are in an epoch that nothing is noted in."""
        self._ended |= threads.mask
        over: Array = np.logical_and.reduce(self._ended.reshape(self._wave.ctas, -1), axis=1)
        self._epochs[over[self._wave.cta_of]] = NEVER
        self._oldest = int(self._epochs.min())

    def note(self, touch: Touch) -> None:
        self._noted[touch.kind] = self._now
        extents = self._extents.get(touch.kind)
        if extents is None:
            since_barrier = since_warp = _Extent(self._shadow)
            if self._of_warps:
                since_warp = _Extent(self._shadow)
            extents = self._extents[touch.kind] = (since_barrier, since_warp)
        extents[0].note(touch, self._keys)
        if self._of_warps:
            extents[1].note(touch, self._warp_keys)

    def earlier(self, touch: Touch, kind: Kind) -> Earlier | None:
        """Find accesses of ``kind`` by others that are unordered with these, noted or not."""
        if self._noted[kind] < self._oldest:
            return None
        since_barrier, since_warp = self._extents[kind]
        warps = (since_barrier, self._keys, _OTHER_WARP)
        threads = (since_warp, self._warp_keys, _SAME_WARP)
        looks = (warps, threads) if self._of_warps else ((since_barrier, self._keys, _ANY_OTHER),)
        found: Array = np.zeros(touch.granules.shape, bool)
        for extent, keys, others in looks:
            for known, mine in ((extent.last, keys.last), (extent.first, keys.first)):
                entries = known.data.take(touch.granules)
                found |= _within(entries ^ mine.take(touch.threads), others)
        if not found.any():
            return None
        at = np.flatnonzero(found)
        granules, threads_at = touch.granules[at], touch.threads[at]
        chosen = np.zeros(at.shape, np.int64)
        in_cta = np.zeros(at.shape, np.int64)
        for extent, keys, others in (threads, warps):
            for known, mine, down in (
                (extent.first, keys.first, True),
                (extent.last, keys.last, False),
            ):
                entries = known.data[granules]
                here = _within(entries ^ mine[threads_at], others)
                thread = entries >> PLACE_BITS & (MOST_THREADS - 1)
                chosen = np.where(here, entries, chosen)
                in_cta = np.where(here, MOST_THREADS - 1 - thread if down else thread, in_cta)
        of_cta = threads_at // self._wave.cta_width * self._wave.cta_width
        return Earlier(at, of_cta + in_cta, chosen & ((1 << PLACE_BITS) - 1))


def _within(differences: Array, others: tuple[int, int]) -> Array:
    """Say which differences of entries are between ``others`` of the same epoch."""
    lowest, highest = others
    threads = differences.view(np.uint64)
    threads >>= np.uint64(PLACE_BITS)
    threads -= np.uint64(lowest)  # what is less becomes large, and so does another epoch
    return threads <= np.uint64(highest - lowest)
