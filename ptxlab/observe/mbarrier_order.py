"""mbarriers and barriers of clusters: what who arrives there tells those who wait.

An arrival releases, a wait that has seen the phase complete acquires; a copy that completes bytes
releases what it wrote. Relaxed ones do so with fences (``fences``). A release of the scope of its CTA tells
another CTA nothing; one that names no scope has that one too, but is taken to be wide enough, as CUTLASS
frees slots by such arrivals. Source: PTX ISA, "mbarrier", "barrier.cluster" and "Memory Consistency Model:
Synchronization".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Effects, Queue
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.threads import Threads
from ptxlab.observe.barrier_use import WarpsTogether
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.choices import operand_value
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import HEARD
from ptxlab.observe.ordering import AccessKind, Touch
from ptxlab.observe.phases import Phases
from ptxlab.observe.races import Races
from ptxlab.observe.releases import Fences, Releases

USED = AccessKind(writes=True, strong=True, mbarrier=True)
WAITED = AccessKind(writes=False, strong=True, mbarrier=True)


class MbarrierOrder:
    """Follows the barrier objects of a wave; ``any`` says that there have been mbarriers."""

    def __init__(self, context: CheckContext, clocks: Clocks, races: Races, fences: Fences) -> None:
        self._context = context
        self._clocks = clocks
        self._races = races
        wave = context.wave
        self._cluster = clocks.agents.threads
        self._numbers: Array = np.full(wave.ctas * wave.shared_pitch // OBJECT_BYTES, -1)
        self._count = 0
        self.any = False
        self._objects = Releases(clocks, 0, for_warpgroups=True)
        self._clusters = Releases(clocks, wave.width // self._cluster)
        self._phases = Phases(context)
        self._fences = fences
        self._warps = WarpsTogether(context)
        self._met = np.zeros(wave.ctas, bool)
        self._arrived = np.zeros(wave.width, np.int64)

    # ---- mbarriers ----

    def arrive(self, site: Site, threads: Threads, words: Array) -> None:
        what = effects_of(site.instruction).mbarrier
        makes = what in ("init", "inval")
        self.any |= makes
        if what == "init":
            self._again(threads, words)
            self._phases.begin(self._of(words))
            threads, words = self._makers(threads, words)
        self._touch(USED._replace(strong=not makes), threads.index, words)
        if what in ("arrive", "arrive_drop"):
            self._release(site, threads, words)

    def _release(self, site: Site, threads: Threads, words: Array) -> None:
        """See ``threads`` arrive: they tell what they know, as far as the scope of that reaches."""
        ctas = words * OBJECT_BYTES // self._context.wave.shared_pitch
        away = ctas != self._context.wave.cta_of[threads.index]
        effects = effects_of(site.instruction)
        if away.any() and effects.scope != "cluster":
            threads, words = self._too_narrow(site, threads, words, away)
        objects = self._of(words)
        if not effects.relaxed:
            self._objects.release(threads, objects)
        elif (rows := self._fences.told(threads.index, near=not away.any())) is not None:
            self._objects.arrive(objects, rows)

    def _too_narrow(
        self, site: Site, threads: Threads, words: Array, away: Array
    ) -> tuple[Threads, Array]:
        """Report arrivals ``away`` from their CTA that are of its scope. Return those that tell something."""
        said = effects_of(site.instruction).scope == "cta"
        who = self._context.thread(int(threads.index[away.argmax()]))
        what = (
            "releases to its own CTA alone, .cta"
            if said
            else "names no scope, which is .cta in PTX"
        )
        message = f"{who} arrives at an mbarrier of another CTA, and {what}" + (
            "" if said else ": taken to be wide enough here"
        )
        hint = (
            "mbarrier.arrive.release.cluster, where the other CTA reads what was written before it"
        )
        self._context.find(
            "async", "info", "scope", int(away.sum()), (message, hint), unit="threads"
        )
        if not said:
            return threads, words
        return Threads(threads.width, index=threads.index[~away]), words[~away]

    def copies_arrive(self, threads: Threads, words: Array) -> None:
        """See ``threads`` arrive as the copies have landed that they began with cp.async."""
        self._objects.release(threads, self._of(words))

    def behind(self, threads: Threads, words: Array, queue: Queue) -> None:
        """See ``threads`` have these mbarriers told when all is done that they have begun in a queue."""
        self._objects.signal(self._of(words), self._clocks.agents.engines(queue, threads.index))

    def done(self, words: Array) -> None:
        """See copies done that these mbarriers hear of."""
        self._objects.signal(self._of(words), self._clocks.agents.engines("signals", words))

    def complete(self, words: Array) -> None:
        objects = self._of(words)
        self._objects.complete(objects)
        self._phases.complete(objects, words, self._objects.told(objects)[HEARD])

    def waited(self, threads: Threads, words: Array) -> None:
        self._touch(WAITED, threads.index, words)
        objects = self._of(words)
        self._phases.waited(threads.index, objects, self._clocks.now)
        if effects_of(self._context.site.instruction).relaxed:
            self._fences.see(threads.index, self._objects.told(objects))
        else:
            self._objects.acquire(threads, objects)

    def use(self, threads: Array, words: Array) -> None:
        """See ``threads`` have copies tell these mbarriers, which they do until somebody has waited."""
        agents = self._clocks.agents
        engines = agents.engines("signals", words)
        self._touch(USED._replace(engine=True), engines, words, threads)
        columns = agents.column(engines)
        rows = self._clocks.released(threads)[HEARD]
        self._phases.copy(threads, columns, rows, self._clocks.now)

    def overlap(self, threads: Array, first: Array, nbytes: int, *, writes: bool) -> None:
        """See plain accesses to shared memory: none may be to an mbarrier."""
        valid = self._context.wave.mbarriers.valid
        words = first[:, None] // OBJECT_BYTES + np.arange(-(-nbytes // OBJECT_BYTES))
        objects = np.flatnonzero(valid[words].any(axis=1))
        if objects.size:
            at = int(objects[0])
            did = "stores to" if writes else "loads"
            where = self._context.shared_at(int(words[at][valid[words[at]]][0]) * OBJECT_BYTES)
            message = (
                f"{self._context.thread(int(threads[at]))} {did} {where}, which is an mbarrier"
            )
            hint = "only mbarrier instructions may access it; mbarrier.inval gives the memory back"
            count = objects.size * nbytes
            self._context.find("async", "error", "object", count, (message, hint))

    def _again(self, threads: Threads, words: Array) -> None:
        """Report objects that are made where there is one."""
        there = np.flatnonzero(self._context.wave.mbarriers.valid[words])
        if there.size:
            at = int(there[0])
            where = self._context.shared_at(int(words[at]) * OBJECT_BYTES)
            message = (
                f"{self._context.thread(int(threads.index[at]))} makes an mbarrier of {where}, "
                "which is one already"
            )
            hint = "mbarrier.inval comes before the memory of an mbarrier is used again"
            self._context.find(
                "async", "error", "again", there.size, (message, hint), unit="threads"
            )

    def _makers(self, threads: Threads, words: Array) -> tuple[Threads, Array]:
        """Report objects that several threads make at once. Return one thread for each that make it alike."""
        context = self._context
        counts = operand_value(
            context.site, context.frame, context.site.instruction.operands[1], "u32"
        )
        assert counts is not None
        counts = np.broadcast_to(counts, (threads.width,))[threads.index]
        makers = np.unique(np.stack([words, counts]), axis=1, return_index=True)[1]
        makers.sort()
        if (together := threads.size - makers.size) == 0:
            return threads, words
        other = int(np.setdiff1d(np.arange(threads.size), makers)[0])
        first = int(np.flatnonzero(words == words[other])[0])
        who, also = (context.thread(int(threads.index[at])) for at in (first, other))
        where = context.shared_at(int(words[other]) * OBJECT_BYTES)
        message = f"{who} and {also} both make an mbarrier of {where}, for as many arrivals"
        hint = "let one thread of the CTA make it"
        context.find("async", "info", "again", together, (message, hint), unit="threads")
        return Threads(threads.width, index=threads.index[makers]), words[makers]

    def _touch(
        self, kind: AccessKind, agents: Array, words: Array, behind: Array | None = None
    ) -> None:
        context = self._context
        granules, count = context.shadow.cover(words * OBJECT_BYTES, OBJECT_BYTES)
        rows = None if behind is None else np.repeat(behind, count)
        number = context.number(context.site)
        self._races.see(Touch(kind, number, np.repeat(agents, count), granules, rows))

    def _of(self, words: Array) -> Array:
        new = np.unique(words[self._numbers[words] < 0])
        if new.size:
            self._numbers[new] = np.arange(self._count, self._count + new.size)
            self._count += new.size
            self._objects.more(new.size)
            self._phases.more(new.size)
        return self._numbers[words]

    # ---- clusters ----

    def fence(self, effects: Effects, threads: Threads) -> None:
        """See a fence of the proxies, or of tensor cores."""
        if effects.fence == "async" and effects.space != "global":
            self._clocks.fence(threads.index)
        elif effects.fence == "after_thread_sync":
            self._fences.fence_tensor_work(threads.index)

    def cluster(self, site: Site, threads: Threads) -> None:
        """See threads arrive or wait at the barrier of their cluster."""
        effects = effects_of(site.instruction)
        self._warps.come(site, threads)
        index = threads.index
        clusters = index // self._cluster
        if effects.meets == "wait":
            self._clusters.acquire(threads, clusters)
            self._met[self._context.wave.cta_of[index]] = True
        elif not effects.relaxed:
            self._clusters.release(threads, clusters)
        else:
            self._arrived[index] = self._clocks.tick()
            if (rows := self._fences.told(index, near=False)) is not None:
                self._clusters.arrive(clusters, rows)

    def clusters_met(self, arrived: Array) -> None:
        """See clusters meet: waits for mbarriers that a thread has behind it are over for all of them.

        That takes no release, as they have been answered.
        """
        self._races.forget(WAITED, np.where(arrived, self._arrived, 0))
        self._clusters.complete(np.unique(np.flatnonzero(arrived) // self._cluster))

    def ended(self, threads: Threads) -> None:
        self._warps.ended(threads)

    def known_in(self, ctas: Array) -> Array:
        """Return what the threads of each CTA know together, or have seen: they end no earlier."""
        known = self._clocks.known_in(ctas)
        seen = self._fences.seen_in(ctas, self._context.wave.cta_width)
        columns = min(known.shape[1], seen.shape[1])
        known[:, :columns] = np.maximum(known[:, :columns], seen[:, :columns])
        return known

    def started(self, threads: Array) -> Array:
        """Say which threads are in a CTA that has met the others of its cluster."""
        met: Array = self._met[self._context.wave.cta_of[threads]]
        return met
