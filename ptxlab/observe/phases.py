"""Phases of mbarriers that end when they should not: before everybody has seen the last one, or without the bytes.

A wait tells phases apart by their parity: who looks two phases too late waits for one that is long over.
So the end of a phase comes after all waits for the one before, by threads that wait there at all. And it
comes when the bytes that the mbarrier expects are those of the copies that tell it.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.knowledge import VectorClocks

_SEEN, _TIME, _PLACE = range(3)


class Phases:
    """Of each mbarrier how many phases have ended, and what threads of its CTA have seen of that.

    Who knows that a copy is done knows that all has happened that the thread which began it had seen or
    heard of. That is no release of memory, and so it counts here alone: ``_begun`` has, by the column of the
    engine that makes copies, when each cluster last began one, and up to when it had heard of its threads.
    """

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._begun: dict[int, tuple[Array, Array]] = {}
        self._ended: Array = np.zeros(0, np.int64)
        self._threads = VectorClocks(3, 0)
        self._threads.fit(context.wave.cta_width)

    def more(self, count: int) -> None:
        self._ended = np.append(self._ended, np.zeros(count, np.int64))
        self._threads.more(count)

    def begin(self, objects: Array) -> None:
        """See objects made: nobody waits for them yet."""
        self._ended[objects] = 0
        self._threads.data[:, objects] = 0

    def waited(self, threads: Array, objects: Array, time: int) -> None:
        """See threads told that the last phase of objects has ended."""
        inside = threads % self._context.wave.cta_width
        known = self._threads.data
        known[_SEEN, objects, inside] = self._ended[objects]
        known[_TIME, objects, inside] = time
        known[_PLACE, objects, inside] = self._context.number(self._context.site)

    def copy(self, threads: Array, columns: Array, rows: Array, time: int) -> None:
        """See threads, who have heard of those of their clusters up to what ``rows`` say, begin copies."""
        wave = self._context.wave
        together = wave.cta_width * wave.config.cluster_ctas
        clusters = threads // together
        for column in np.unique(columns).tolist():
            if column not in self._begun:
                shape = (wave.width // together, together)
                self._begun[column] = np.zeros(shape[0], np.int64), np.zeros(shape, np.int64)
            last, heard = self._begun[column]
            here = columns == column
            last[clusters[here]] = time
            np.maximum.at(heard, clusters[here], rows[here, :together])

    def complete(self, objects: Array, words: Array, told: Array) -> None:
        """See phases end after what is ``told`` there: up to when of each cluster's agents, a row each."""
        wave = self._context.wave
        width = wave.cta_width
        ended = self._ended[objects][:, None]
        seen, time, numbers = self._threads.data[:, objects, :width]
        waits = (seen == ended) & (ended > 0)
        self._ended[objects] += 1
        if not waits.any():
            return
        ctas = words * OBJECT_BYTES // wave.shared_pitch
        first = ctas % wave.config.cluster_ctas * width
        heard = np.take_along_axis(told, first[:, None] + np.arange(width), axis=1) > time
        row, inside = np.nonzero(waits & ~heard)
        threads = ctas[row] * width + inside
        heard[row, inside] = self._copied(threads, time[row, inside], told[row])
        missed = waits & ~heard
        if not missed.any():
            return
        some = (waits & heard).reshape(len(objects), -1, WARP).any(axis=2)
        in_warp = np.repeat(some, WARP, axis=1)
        for severity, chosen in (("error", missed & ~in_warp), ("warning", missed & in_warp)):
            for number in np.unique(numbers[chosen]).tolist():
                at, lane = (int(axis[0]) for axis in np.nonzero(chosen & (numbers == number)))
                count = int((chosen & (numbers == number)).sum())
                self._tell(severity, count, int(words[at]), int(ctas[at]) * width + lane, number)

    def _copied(self, threads: Array, time: Array, told: Array) -> Array:
        """Say what threads did by a ``time`` each came before a copy of which it is ``told``, in a row each."""
        copied = np.zeros(threads.size, bool)
        for column, (last, heard) in self._begun.items():
            if column < told.shape[1]:
                cluster, inside = np.divmod(threads, heard.shape[1])
                copied |= (heard[cluster, inside] > time) & (told[:, column] > last[cluster])
        return copied

    def _tell(self, severity: str, count: int, word: int, thread: int, number: int) -> None:
        context, site = self._context, self._context.numbered(number)
        message = (
            f"{context.thread(thread)} waits here for a phase of the mbarrier {context.shared_at(word * OBJECT_BYTES)}, and "
            "the next phase can end before it has looked: it would wait for one that is long over"
        )
        hint = (
            "what ends the next phase is to come after this wait: the thread arrives at the mbarrier that "
            "frees the slot, or meets the one that does, as with bar.warp.sync"
        )
        context.find("async", severity, "phase", count, (message, hint), None, site, "threads")


_NOWHERE = -1


class MbarrierBytes:
    """Of each word of shared memory the bytes of copies in its phase, and what last named it.

    Counted are also the copies that have not landed.
    """

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        words = context.wave.ctas * context.wave.shared_pitch // OBJECT_BYTES
        self._copied, self._under_way = (np.zeros(words, np.int64) for _ in range(2))
        self._copying, self._expecting = (np.full(words, _NOWHERE, np.int32) for _ in range(2))

    def expect(self, site: Site, words: Array) -> None:
        self._expecting[words] = self._context.number(site)

    def copy(self, site: Site, words: Array, nbytes: Array) -> None:
        np.add.at(self._copied, words, nbytes)
        np.add.at(self._under_way, words, 1)
        self._copying[words] = self._context.number(site)

    def done(self, words: Array) -> None:
        np.subtract.at(self._under_way, words, 1)

    def complete(self, words: Array) -> None:
        """See phases end, which copies under way are not to outlive."""
        self._copied[words] = 0
        early = words[self._under_way[words] > 0]
        for number in np.unique(self._copying[early]).tolist():
            here = early[self._copying[early] == number]
            site = self._context.numbered(number)
            where = self._context.shared_at(int(here[0]) * OBJECT_BYTES)
            message = (
                f"a phase of the mbarrier {where} ends before this copy has landed: nobody said in time that "
                "its bytes are to be expected"
            )
            hint = "mbarrier.arrive.expect_tx, by the thread that has the copy made"
            self._context.find(
                "async", "error", "early", here.size, (message, hint), None, site, "threads"
            )

    def stuck(self) -> None:
        """Report, where nobody can go on any more, the objects whose bytes do not come out even."""
        context, barriers = self._context, self._context.wave.mbarriers
        words = np.flatnonzero(barriers.valid)
        missing = barriers.state(words).tx
        for word, tx in zip(
            words[missing != 0].tolist(), missing[missing != 0].tolist(), strict=True
        ):
            copied = int(self._copied[word])
            places = [int(numbers[word]) for numbers in (self._expecting, self._copying)]
            sites = [context.numbered(number) for number in places if number != _NOWHERE]
            message = (
                f"the mbarrier {context.shared_at(word * OBJECT_BYTES)} expects {tx + copied} bytes in this phase, "
                f"and the copies that it hears of have {copied}"
            )
            hint = (
                "one thread tells it once a phase, with mbarrier.arrive.expect_tx, of the bytes of all its "
                "copies, and has each of them made once"
            )
            told = message, hint
            other = sites[1] if len(sites) > 1 else None
            context.find("async", "error", "bytes", abs(tx), told, other, sites[0])
