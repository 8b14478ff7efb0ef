"""Which accesses to shared memory nothing orders, whatever barriers the program has.

Threads know of each other to different degrees where barriers are of part of a CTA, of part of a
warp or mbarriers, and engines access memory beside them. So of each granule all agents that accessed
it are known, and held against the clocks.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import FENCED, HEARD
from ptxlab.observe.ordering import AccessKind, EarlierAccesses, Touch
from ptxlab.observe.shadow import Shadow

MOST_UNSORTED = 1 << 23
"""Accesses that are noted before they are sorted, if nobody asks."""

FEW = 8
"""Earlier accesses to a place up to which each access is held against them by itself."""

_AGENT_BITS = 32
_AGENTS = (1 << _AGENT_BITS) - 1
_COLUMN_BITS = 24
_COLUMNS = (1 << _COLUMN_BITS) - 1


class Log:
    """The last access of each agent to each granule, sorted; ``keys`` are granule and column.

    What is in ``new``, with its time, has been noted since it was sorted, the latest last.
    """

    def __init__(self) -> None:
        self.keys: Array = np.zeros(0, np.int64)
        self.times: Array = np.zeros(0, np.int64)
        self.places: Array = np.zeros(0, np.int64)
        self.new: list[tuple[int, Touch, Array]] = []
        self.unsorted = 0

    def add(self, time: int, touch: Touch, columns: Array) -> None:
        self.new.append((time, touch, columns))
        self.unsorted += touch.granules.size

    def forget(self, before: int) -> None:
        self.new = [entry for entry in self.new if entry[0] >= before]
        self.unsorted = sum(touch.granules.size for _, touch, _ in self.new)

    def within(self, granules: Array) -> tuple[Array, Array]:
        """Return where in the sorted log the accesses to each granule begin, and where they end."""
        start: Array = np.searchsorted(self.keys, granules << _COLUMN_BITS)
        stop: Array = np.searchsorted(self.keys, granules + 1 << _COLUMN_BITS)
        return start, stop

    def sort(self) -> None:
        """Sort in what is new, which takes the place of what the same agents did before."""
        keys, times, places = [self.keys], [self.times], [self.places]
        for time, touch, columns in self.new:
            keys.append(touch.granules << _COLUMN_BITS | columns)
            times.append(np.full(touch.granules.size, time))
            places.append(np.full(touch.granules.size, touch.instruction))
        self.new, self.unsorted = [], 0
        self.keep(np.concatenate(keys), np.concatenate(times), np.concatenate(places))

    def keep(self, keys: Array, times: Array, places: Array) -> None:
        """Keep these and nothing else, of several of the same key the last."""
        order = np.argsort(keys, kind="stable")
        last = order[np.flatnonzero(np.diff(keys[order], append=-1))]
        self.keys, self.times, self.places = keys[last], times[last], places[last]


class _Last:
    """The last access of a kind to each granule, as time and agent, and whether others came before it.

    It tells of most accesses that nothing is unordered with them.
    """

    def __init__(self, shadow: Shadow) -> None:
        self._entries = shadow.table(np.int64)
        self._several = shadow.table(np.bool_)
        self.time = 0

    def note(self, time: int, touch: Touch, settled: Array) -> None:
        """Enter accesses; what came before the time ``settled`` of each is of no interest."""
        granules, entries, several = touch.granules, self._entries.data, self._several.data
        before = entries.take(granules)
        entry = time << _AGENT_BITS | touch.threads
        others = (before & _AGENTS != touch.threads) | several.take(granules)
        others &= before >> _AGENT_BITS >= np.maximum(settled, 1)
        entries[granules] = entry
        several[granules] = others
        again = entries.take(granules) != entry  # of several numpy keeps the last
        several[granules[again]] = True
        self.time = time

    def times(self, granules: Array) -> Array:
        """Return when the last access to each granule was, 0 where there was none."""
        times: Array = self._entries.data.take(granules) >> _AGENT_BITS
        return times

    def candidates(self, touch: Touch, clocks: Clocks, layer: int, settled: Array) -> Array:
        """Return which accesses may be unordered with one before."""
        entries, by = self._entries.data.take(touch.granules), touch.by
        unsettled = entries >> _AGENT_BITS >= np.maximum(settled, 1)
        at = np.flatnonzero(unsettled)
        if not at.size:
            return at
        entries, by = entries[at], by[at]
        agent = entries & _AGENTS
        unheard = entries >> _AGENT_BITS >= clocks.of(agent, by, layer)
        if layer == HEARD:
            unheard &= agent != by
        chosen: Array = at[unheard | self._several.data.take(touch.granules[at])]
        return chosen


class History:
    """Order by barriers of any kind.

    What all threads of the cluster have met since is of no interest, and most accesses are to granules
    that nobody else has touched since; for those that are not, the log is read.
    """

    def __init__(self, wave: Wave, shadow: Shadow, clocks: Clocks) -> None:
        self._wave = wave
        self._clocks = clocks
        self._last: dict[AccessKind, _Last] = {}
        self._logs: dict[AccessKind, Log] = {}
        self._shadow = shadow
        shadow.attach(self._split)

    @property
    def kinds(self) -> tuple[AccessKind, ...]:
        return tuple(self._logs)

    def synchronize(self, met: Array, *, counted: bool) -> None:
        self._clocks.synchronize(met, counted=counted)
        before = int(self._clocks.settled.min())
        for kind, log in self._logs.items():
            if not kind.engine:
                log.forget(before)

    def synchronize_warps(self, together: Array) -> None:
        self._clocks.synchronize_warps(together)

    def ended(self, threads: Threads) -> Array:
        return self._clocks.end(threads)

    def note(self, touch: Touch) -> None:
        kind = touch.kind
        if kind not in self._logs:
            self._logs[kind], self._last[kind] = Log(), _Last(self._shadow)
        log, now = self._logs[kind], self._clocks.now
        self._last[kind].note(now, touch, self._settled(touch, kind).min(axis=0))
        log.add(now, touch, self._clocks.agents.column(touch.threads))
        if log.unsorted > MOST_UNSORTED:
            self._sorted(kind)

    def forget(self, kind: AccessKind, before: Array) -> None:
        """Forget accesses of ``kind`` by threads, each thread's until the time ``before`` of it."""
        if kind in self._logs:
            log = self._sorted(kind)
            ctas = self._ctas(log.keys >> _COLUMN_BITS)
            kept = log.times >= before[self._clocks.agents.of(ctas, log.keys & _COLUMNS)]
            log.keep(log.keys[kept], log.times[kept], log.places[kept])

    def earlier(self, touch: Touch, kind: AccessKind) -> EarlierAccesses | None:
        """Find accesses of ``kind`` by others that are unordered with these, noted or not.

        Of accesses by engines also those by threads that are ordered, but not for their proxy, unless an engine
        has since written there: then it is that write which the fence was missing before.
        """
        layer = FENCED if touch.kind.proxied and not kind.engine else HEARD
        last = self._last[kind]
        if not kind.engine and last.time < self._clocks.settled[layer].min():
            return None
        at = last.candidates(touch, self._clocks, layer, self._settled(touch, kind)[layer])
        if not at.size:
            return None
        log = self._sorted(kind)
        granules, by = touch.granules[at], touch.by[at]
        start, stop = log.within(granules)
        first, group = self._groups(granules, by, layer, int(np.sum(stop - start)))
        granules, asking, start, stop = (each[first] for each in (granules, by, start, stop))
        # One row for each pair of a group and an access that was there before.
        pair = np.repeat(np.arange(start.size), stop - start)
        begins = np.cumsum(stop - start) - (stop - start)
        entry = np.arange(pair.size) - begins[pair] + start[pair]
        asking = asking[pair]
        other = self._clocks.agents.of(self._ctas(granules[pair]), log.keys[entry] & _COLUMNS)
        times = log.times[entry]
        earlier = unheard = times >= self._clocks.of(other, asking)
        if layer == FENCED:
            unheard = unheard & (other != asking)
            earlier = times >= self._clocks.of(other, asking, layer)
            earlier &= unheard | (times >= self._overwritten(granules[pair]))
        if not earlier.any():
            return None
        pair, entry, times, asking, other, unheard = (
            column[earlier] for column in (pair, entry, times, asking, other, unheard)
        )
        order = np.lexsort((times, asking // WARP != other // WARP, unheard, pair))
        pair, other = pair[order], other[order]
        best = np.searchsorted(pair, group, side="right") - 1
        if layer == HEARD:  # nobody comes before himself
            best -= (pair[best] == group) & (other[best] == by)
        chosen = np.flatnonzero((best >= 0) & (pair[best] == group))
        if not chosen.size:
            return None
        at, by, best = at[chosen], by[chosen], best[chosen]
        other, order = other[best], order[best]
        unheard = unheard[order]
        partly = unheard & (times[order] < self._clocks.of(other, by, part=True))
        return EarlierAccesses(at, other, log.places[entry[order]], ~unheard, partly)

    def _groups(self, granules: Array, by: Array, layer: int, others: int) -> tuple[Array, Array]:
        """Put accesses together that come after the same others: return the first of each group, and the group of each.

        ``others`` are counted for each access by itself. Where hundreds of threads write one place, those of a
        warp are looked at once. Of few others each access is its own group.
        """
        if others <= FEW * granules.size:
            each = np.arange(granules.size)
            return each, each
        alike = granules << _COLUMN_BITS | self._clocks.alike(by, layer)
        first, group = np.unique(alike, return_index=True, return_inverse=True)[1:]
        return first, group

    def _overwritten(self, granules: Array) -> Array:
        """Return when an engine last wrote to each granule, 0 where none did."""
        times = np.zeros(granules.size, np.int64)
        for kind, last in self._last.items():
            wrote = kind.engine and kind.writes
            if wrote and not kind.mbarrier:
                np.maximum(times, last.times(granules), out=times)
        return times

    def _ctas(self, granules: Array) -> Array:
        ctas: Array = granules * self._shadow.size // self._wave.shared_pitch
        return ctas

    def _settled(self, touch: Touch, kind: AccessKind) -> Array:
        """Return up to when accesses of ``kind`` are ordered with each of these: [layers, accesses]."""
        if kind.engine:
            return np.zeros((self._clocks.layers, 1), np.int64)
        settled: Array = self._clocks.settled[:, self._ctas(touch.granules)]
        return settled

    def _split(self, parts: int) -> None:
        for log in self._logs.values():
            log.sort()
            granules, columns = log.keys >> _COLUMN_BITS, log.keys & _COLUMNS
            keys = granules[:, None] * parts + np.arange(parts) << _COLUMN_BITS
            keys |= columns[:, None]
            log.keep(keys.reshape(-1), np.repeat(log.times, parts), np.repeat(log.places, parts))

    def _sorted(self, kind: AccessKind) -> Log:
        """Return the log with all of it sorted, less what all of its cluster have heard of."""
        log = self._logs[kind]
        if log.new:
            log.sort()
            clusters = self._ctas(log.keys >> _COLUMN_BITS) // self._wave.config.cluster_ctas
            known = self._clocks.common().min(axis=0)
            kept = log.times >= known[clusters, log.keys & _COLUMNS]
            log.keep(log.keys[kept], log.times[kept], log.places[kept])
        return log
