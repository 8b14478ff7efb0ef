"""Which accesses to shared memory nothing orders, whatever barriers the program has.

Between barriers of part of a CTA, or of part of a warp, threads know of each other to different
degrees. So each thread has a clock of what it has heard of every other one, and of each granule
all threads that accessed it are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.run.memory import pitched
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.ordering import Earlier, Epochs, Kind, Touch
from ptxlab.observe.shadow import Shadow

Array = npt.NDArray[Any]

NEVER = np.iinfo(np.int64).max
MOST_UNSORTED = 1 << 23
"""Accesses that are noted before they are sorted, if nobody asks."""


class Clocks:
    """Up to when each thread of a wave has heard of what the others of its CTA do.

    ``of(heard, by)`` is a time: of what thread ``heard`` did, all before then is ordered with what
    ``by`` does now. A vector clock with one time for the whole wave, which every barrier moves on.
    """

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self.now = 1
        self.floor = np.ones(wave.ctas, np.int64)
        self._heard = np.ones((wave.width, wave.cta_width), np.int32)
        self._ended = ~wave.alive.mask

    def of(self, heard: Array, by: Array) -> Array:
        """Return the times for pairs of threads of the wave that are of one CTA."""
        width = self._wave.cta_width
        times: Array = np.maximum(self._heard[by, heard % width], self.floor[by // width])
        return times

    def synchronize(self, arrived: Array, released: Array, *, counted: bool) -> Array:
        """Let ``released`` know all that ``arrived`` know, in each CTA; see ``Epochs.synchronize``.

        Return the mask of threads whose CTA was there as a whole: all its threads know all now.
        """
        self.now += 1
        by_cta = arrived.reshape(self._wave.ctas, -1)
        here = by_cta.any(axis=1)
        come = arrived | (~self._wave.alive.mask if counted else self._ended)
        whole = here & come.reshape(by_cta.shape).all(axis=1)
        whole &= (arrived == released).reshape(by_cta.shape).all(axis=1)
        self.floor[whole] = self.now
        part = np.flatnonzero(here & ~whole)
        if part.size:
            self._join(self._wave.cta_width, part, arrived, released)
        of_threads: Array = whole[self._wave.cta_of]
        return of_threads

    def synchronize_warps(self, together: Array) -> None:
        self.now += 1
        warps = np.flatnonzero(together.reshape(-1, WARP).any(axis=1))
        self._join(WARP, warps, together, together)

    def _join(self, size: int, groups: Array, arrived: Array, released: Array) -> None:
        width = self._wave.cta_width
        heard = self._heard.reshape(-1, size, width)
        come, go = (mask.reshape(-1, size)[groups] for mask in (arrived, released))
        joined = np.where(come[:, :, None], heard[groups], 0).max(axis=1)
        group, member = np.nonzero(come)
        joined[group, (groups[group] * size + member) % width] = self.now
        group, member = np.nonzero(go)
        threads = groups[group] * size + member
        self._heard[threads] = np.maximum(self._heard[threads], joined[group])

    def end(self, threads: Threads) -> None:
        """Take threads off: who waits for all threads does not wait for them."""
        self._ended |= threads.mask
        over = self._ended.reshape(self._wave.ctas, -1).all(axis=1)
        self.floor[over] = NEVER


class Log:
    """The last access of each thread to each granule, sorted; ``keys`` are granule * threads + thread.

    What is in ``new``, with its time, has been noted since it was sorted, the latest last.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.keys: Array = np.zeros(0, np.int64)
        self.times: Array = np.zeros(0, np.int64)
        self.places: Array = np.zeros(0, np.int64)
        self.new: list[tuple[int, Touch]] = []
        self.unsorted = 0

    def add(self, time: int, touch: Touch) -> None:
        self.new.append((time, touch))
        self.unsorted += touch.granules.size

    def forget(self, before: int) -> None:
        self.new = [(time, touch) for time, touch in self.new if time >= before]
        self.unsorted = sum(touch.granules.size for _, touch in self.new)

    def sort(self) -> None:
        """Sort in what is new, which takes the place of what the same threads did before."""
        keys, times, places = [self.keys], [self.times], [self.places]
        for time, touch in self.new:
            keys.append(touch.granules * self._threads + touch.threads % self._threads)
            times.append(np.full(touch.granules.size, time))
            places.append(np.full(touch.granules.size, touch.place))
        self.new, self.unsorted = [], 0
        self.keep(np.concatenate(keys), np.concatenate(times), np.concatenate(places))

    def keep(self, keys: Array, times: Array, places: Array) -> None:
        """Keep these and nothing else, of several of the same key the last."""
        order = np.argsort(keys, kind="stable")
        last = order[np.flatnonzero(np.diff(keys[order], append=-1))]
        self.keys, self.times, self.places = keys[last], times[last], places[last]


class History:
    """Order by barriers of any kind.

    What all threads of the CTA have met since is of no interest, and most accesses are to granules that
    no other thread has touched since; ``Epochs`` tells which are not, and for these the log is read.
    """

    def __init__(self, wave: Wave, shadow: Shadow) -> None:
        self._width = wave.cta_width
        self._pitch = pitched(wave.shared_bytes)
        self._clocks = Clocks(wave)
        self._since = Epochs(wave, shadow, of_warps=False)
        self._logs: dict[Kind, Log] = {}
        self._shadow = shadow
        shadow.attach(self._split)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._logs)

    def synchronize(self, arrived: Array, released: Array, *, counted: bool) -> None:
        whole = self._clocks.synchronize(arrived, released, counted=counted)
        if whole.any():
            self._since.synchronize(whole, whole, counted=False)
            for log in self._logs.values():
                log.forget(int(self._clocks.floor.min()))

    def synchronize_warps(self, together: Array) -> None:
        self._clocks.synchronize_warps(together)

    def ended(self, threads: Threads) -> None:
        self._clocks.end(threads)

    def note(self, touch: Touch) -> None:
        self._since.note(touch)
        if touch.kind not in self._logs:
            self._logs[touch.kind] = Log(self._width)
        log = self._logs[touch.kind]
        log.add(self._clocks.now, touch)
        if log.unsorted > MOST_UNSORTED:
            self._sorted(touch.kind)

    def earlier(self, touch: Touch, kind: Kind) -> Earlier | None:
        since = self._since.earlier(touch, kind)
        if since is None:
            return None
        log = self._sorted(kind)
        granules, threads = touch.granules[since.at], touch.threads[since.at]
        start = np.searchsorted(log.keys, granules * self._width)
        stop = np.searchsorted(log.keys, (granules + 1) * self._width)
        # One row for each pair of an access and one that was there before.
        at = np.repeat(np.arange(start.size), stop - start)
        begins = np.cumsum(stop - start) - (stop - start)
        entry = np.arange(at.size) - begins[at] + start[at]
        me = threads[at]
        other = me // self._width * self._width + log.keys[entry] % self._width
        unordered = (other != me) & (log.times[entry] >= self._clocks.of(other, me))
        if not unordered.any():
            return None
        at, entry, me, other = (column[unordered] for column in (at, entry, me, other))
        other_warp = me // WARP != other // WARP
        best = np.lexsort((log.times[entry], other_warp, at))
        best = best[np.flatnonzero(np.diff(at[best], append=-1))]
        return Earlier(since.at[at[best]], other[best], log.places[entry[best]])

    def _split(self, parts: int) -> None:
        for log in self._logs.values():
            log.sort()
            granules, threads = np.divmod(log.keys, self._width)
            keys = (granules[:, None] * parts + np.arange(parts)) * self._width + threads[:, None]
            log.keep(keys.reshape(-1), np.repeat(log.times, parts), np.repeat(log.places, parts))

    def _sorted(self, kind: Kind) -> Log:
        """Return the log with all of it sorted, less what came before the last barrier of the CTA."""
        log = self._logs[kind]
        if log.new:
            log.sort()
            cta = log.keys // self._width * self._shadow.size // self._pitch
            kept = log.times >= self._clocks.floor[cta]
            log.keep(log.keys[kept], log.times[kept], log.places[kept])
        return log
