"""cp.async and its waits: staged, committed, waited for, and nothing may come between.

A copy may read its source and write its destination at any time from cp.async on until the thread
that started it has waited for it. Till then nobody may touch the destination or write the source;
then the copy is a write by that thread, made when it waited. Source: PTX ISA, "Asynchronous
copy operations", "cp.async.wait_group"; the rules are those of Triton's ConSan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.in_flight import Groups, Schedule
from ptxlab.emulator.run.threads import Threads
from ptxlab.observe.check_context import CheckContext, Wording, entries
from ptxlab.observe.ordering import AccessKind, Touch
from ptxlab.observe.races import Races
from ptxlab.observe.value_flow import groups_left

_THREAD_BITS = 24
_THREADS = (1 << _THREAD_BITS) - 1


@dataclass(slots=True)
class _Copy:
    """A cp.async in flight: ``number`` stands for it, ``threads`` started it, ``left`` have not waited.

    ``first`` are the shared bytes where the ``nbytes`` of each thread go, ``sources`` the global
    intervals (start, length, thread) that are read. ``committed`` has an entry a thread.
    """

    number: int
    site: Site
    threads: Array
    first: Array
    nbytes: int
    left: int
    committed: Array
    sources: list[tuple[Array, int, Array]] = field(default_factory=list)


class AsyncCopies:
    """Follows the copies of a wave, and tells ``races`` of each when it has been waited for."""

    def __init__(self, context: CheckContext, races: Races) -> None:
        self._context = context
        self._races = races
        self._flights = Groups(context.wave.width, Schedule())
        self._copies: dict[int, _Copy] = {}
        self._started = 0
        self._pending = context.shadow.table(np.int64)
        self._write = AccessKind(writes=True)
        self._twice: Touch | None = None

    # ---- what copying instructions do ----

    @property
    def in_flight(self) -> bool:
        return bool(self._copies)

    def start(self, threads: Array, first: Array, nbytes: int) -> None:
        context = self._context
        self._started += 1
        granules, count = context.shadow.cover(first, nbytes)
        touch = Touch(self._write, context.number(context.site), entries(threads, count), granules)
        self.touch(touch)
        self._races.compare(touch)
        self._pending.data[granules] = self._started << _THREAD_BITS | touch.threads
        self._twice = touch
        copy = self._copies[self._started] = _Copy(
            self._started,
            context.site,
            threads,
            first,
            nbytes,
            threads.size,
            np.zeros(threads.size, bool),
        )
        group = Threads(context.wave.width, index=threads)
        self._flights.start(group, lambda chosen: self._land(copy, chosen))

    def read(self, start: Array, nbytes: int, threads: Array) -> None:
        """Add to the copy just started that ``threads`` read ``nbytes`` of global memory each."""
        self._copies[self._started].sources.append((start, nbytes, threads))

    def settle(self) -> None:
        """Report threads that copied to one place with the instruction at hand, of which all is known now."""
        touch, self._twice = self._twice, None
        if touch is None:
            return
        others = self._pending.data.take(touch.granules) & _THREADS
        lost = np.flatnonzero(others != touch.threads)
        if not lost.size:
            return
        origin = self._origins(self._copies[self._started])
        same = origin[touch.threads[lost]] == origin[others[lost]]
        for severity, at in (("error", lost[~same]), ("info", lost[same])):
            if at.size:
                self._find_twice(severity, touch, others, at)

    def _origins(self, copy: _Copy) -> Array:
        """Return for each thread where its source is, which brings the same as another's that is the same.

        Those without a source bring zeros. One with part of a source is like no other.
        """
        origin = np.zeros(self._context.wave.width, np.uint64)
        for start, length, readers in copy.sources:
            origin[readers] = start if length == copy.nbytes else ~readers
        return origin

    def _find_twice(self, severity: str, touch: Touch, others: Array, at: Array) -> None:
        context = self._context
        thread, other = int(touch.threads[at[0]]), int(others[at[0]])
        message = (
            f"WAW: {context.thread(thread)} and {context.thread(other)} both copy to "
            f"{context.shared(int(touch.granules[at[0]]))}, and nothing orders the two"
        )
        if severity == "info":
            message += "; both bring the same"
        words, count = (message, "let one thread copy it"), at.size * context.shadow.size
        context.find("race", severity, "twice", count, words, context.site)

    def control(self, site: Site, threads: Threads) -> None:
        """Follow the groups of copies."""
        if effects_of(site.instruction).commits:
            for copy in self._copies.values():
                if not copy.committed.all():
                    copy.committed |= threads.mask[copy.threads]
            self._flights.commit(threads)
        elif (left := groups_left(site)) is None:
            self.wait_all(threads)
        else:
            self._flights.wait(threads, left)

    def wait_all(self, threads: Threads) -> None:
        self._flights.wait_all(threads)

    def _land(self, copy: _Copy, chosen: Array | None) -> None:
        """Make of a copy that was waited for, all or some of its threads', a write just now."""
        first = copy.first if chosen is None else copy.first[chosen]
        threads = copy.threads if chosen is None else copy.threads[chosen]
        granules, count = self._context.shadow.cover(first, copy.nbytes)
        threads = entries(threads, count)
        mine = self._pending.data[granules] == (copy.number << _THREAD_BITS | threads)
        self._pending.data[granules[mine]] = 0
        self._races.remember(Touch(self._write, self._context.number(copy.site), threads, granules))
        copy.left -= first.size
        if not copy.left:
            del self._copies[copy.number]

    # ---- what must not happen meanwhile ----

    def touch(self, touch: Touch) -> None:
        """See accesses to shared memory: none may be where a copy is in flight to."""
        if not self._copies:
            return
        marks = self._pending.data.take(touch.granules)
        if not marks.any():
            return
        at = np.flatnonzero(marks)
        threads, numbers = touch.threads[at], marks[at] >> _THREAD_BITS
        others = marks[at] & _THREADS
        for number in np.unique(numbers):
            copy = self._copies[int(number)]
            here = np.flatnonzero(numbers == number)
            thread, other = int(threads[here[0]]), int(others[here[0]])
            did = "overwrites" if touch.kind.writes else "reads"
            where = self._context.shared(int(touch.granules[at[here[0]]]))
            words = _early(self._context, copy, f"{did} {where}", "to", thread, other)
            count = here.size * self._context.shadow.size
            self._context.find("async", "error", did, count, words, copy.site)

    def write(self, start: Array, nbytes: int, threads: Array) -> None:
        """See writes of ``nbytes`` each to global memory: none may be to what a copy still reads."""
        for copy in self._copies.values():
            for source, length, readers in copy.sources:
                overlapping = overlap(start, nbytes, source, length)
                if overlapping is None:
                    continue
                mine, theirs = overlapping
                did = f"overwrites {self._context.global_at(int(start[mine[0]]))}"
                who = int(threads[mine[0]]), int(readers[theirs[0]])
                words = _early(self._context, copy, did, "from", *who)
                self._context.find("async", "error", "source", mine.size, words, copy.site)

    def end(self) -> None:
        words = (
            "the kernel ends before these copies have been waited for",
            "cp.async.wait_all before the end, or leave out copies that nobody reads",
        )
        for copy in self._copies.values():
            count = copy.left * copy.nbytes
            self._context.find("async", "warning", "end", count, words, site=copy.site)


def _early(
    context: CheckContext, copy: _Copy, did: str, way: str, thread: int, other: int
) -> Wording:
    """Describe what ``thread`` did to memory ``way`` (to or from) which ``other`` still copies."""
    committed = copy.committed[np.searchsorted(copy.threads, other)]
    state = "not yet waited for" if committed else "neither committed nor waited for"
    who = f"which it copies {way}"
    hint = "cp.async.commit_group, then cp.async.wait_group"
    if committed:
        hint = "cp.async.wait_group N leaves the last N groups in flight; wait for this one"
    if thread != other:
        who = f"which {context.thread(other)} copies {way}"
        hint += ", by the thread that copies, and a barrier after that"
    return f"{context.thread(thread)} {did}, {who}: a copy {state}", hint


def overlap(start: Array, nbytes: int, others: Array, length: int) -> tuple[Array, Array] | None:
    """Return which intervals meet one of ``others`` of ``length`` bytes, and which one of them."""
    size, others_size = start.dtype.type(nbytes), others.dtype.type(length)
    if start.min() >= others.max() + others_size or others.min() >= start.max() + size:
        return None
    order = np.argsort(others, kind="stable")
    below = np.searchsorted(others[order], start + size) - 1
    met = (below >= 0) & (others[order[below]] + others_size > start)
    if not met.any():
        return None
    return np.flatnonzero(met), order[below[met]]
