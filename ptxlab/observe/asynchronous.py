"""Programs of asynchronous work: mbarriers, clusters, bulk copies and products of warpgroups.

Here what happens to them is handed to those who follow it, and what the copy engine and the tensor cores access is
followed. They access memory at any time until somebody waits for it, so that it is noted when it begins, as done by
an engine of which threads hear by waiting alone. It comes after what the thread knows that began it. Source: PTX
ISA, "Asynchronous operations", "Asynchronous copy", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.in_flight import Groups, Schedule
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess, Tiles
from ptxlab.emulator.run.wave import Frame
from ptxlab.instrument.sites import instructions
from ptxlab.matrix.canonical import MODES, UNIT_BYTES
from ptxlab.observe.bulk_stores import BulkStores
from ptxlab.observe.check_context import CheckContext, entries
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.cta_lifetime import CtaLifetime
from ptxlab.observe.map_use import MapUse
from ptxlab.observe.mbarrier_order import MbarrierOrder
from ptxlab.observe.ordering import AccessKind, Touch
from ptxlab.observe.phases import MbarrierBytes
from ptxlab.observe.races import Races
from ptxlab.observe.releases import Fences
from ptxlab.observe.tensor_memory_use import MOVES, TensorMemoryUse
from ptxlab.observe.tile_layouts import TileLayouts
from ptxlab.observe.unheeded import WaitUse
from ptxlab.observe.unwritten import SharedMemory
from ptxlab.observe.value_flow import groups_left
from ptxlab.observe.wgmma_use import WgmmaUse
from ptxlab.syntax.tree import Function


def has_asynchronous(functions: Iterable[Function]) -> bool:
    return any(
        effects_of(site.instruction).asynchronous
        for function in functions
        for site in instructions(function)
    )


class Asynchronous:
    """All of this in a wave."""

    def __init__(
        self,
        context: CheckContext,
        clocks: Clocks,
        races: Races,
        shared: SharedMemory,
        maps: MapUse,
        fences: Fences,
    ) -> None:
        self._context = context
        self._clocks = clocks
        self._lifetimes = CtaLifetime(context, clocks)
        self._products = WgmmaUse(context)
        self.tensor_memory = TensorMemoryUse(context, clocks)
        self.stores = BulkStores(context)
        self.maps = maps
        self._bytes = MbarrierBytes(context)
        self.layouts = TileLayouts(context)
        self._engines = Engines(
            context, clocks, races, self._lifetimes, shared, self.stores, self.layouts
        )
        self.mbarrier_order = MbarrierOrder(context, clocks, races, fences)
        self._waits = WaitUse(context)

    def before(self, site: Site, frame: Frame, passing: Threads) -> None:
        effects = effects_of(site.instruction)
        self._products.see(site, frame, passing)
        if effects.relaxed:
            self.tensor_memory.arrive(passing)
        if effects.fence:
            self.mbarrier_order.fence(effects, passing)
            self.tensor_memory.fence(effects.fence, passing)
            self.maps.fence(effects, passing)
        elif effects.barrier == "cluster":
            self.mbarrier_order.cluster(site, passing)
        elif effects.mbarrier == "wait":
            self._waits.see(site, passing)
        elif effects.waits in MOVES:
            self.tensor_memory.wait(effects.waits, passing)
        elif {effects.commits, effects.waits}.intersection(GROUPED):
            self._engines.control(site, passing)

    def touch(self, threads: Array, first: Array, nbytes: int, *, writes: bool) -> None:
        """See plain accesses to shared memory."""
        wave = self._context.wave
        if self.mbarrier_order.any:
            self.mbarrier_order.overlap(threads, first, nbytes, writes=writes)
        if wave.config.cluster_ctas > 1:
            self.reach(threads, first)

    def reach(self, threads: Array, first: Array, *, noted: bool = True) -> None:
        """See threads, or copies for them, access bytes of shared memory that may be another CTA's.

        Not ``noted`` is what the end of that CTA need not be held against.
        """
        ctas = first // self._context.wave.shared_pitch
        away = ctas != self._context.wave.cta_of[threads]
        if away.any():
            threads, ctas = threads[away], ctas[away]
            self._lifetimes.reach(threads, ctas, self.mbarrier_order.started(threads))
            if noted:
                self._lifetimes.note(ctas, threads)

    def arrive(self, site: Site, threads: Threads, words: Array) -> None:
        effects = effects_of(site.instruction)
        # Who sees the phase complete has seen a relaxed arrival, which is told of nowhere else.
        self.reach(threads.index, words * OBJECT_BYTES, noted=not effects.relaxed)
        self.mbarrier_order.arrive(site, threads, words)
        if effects.behind == "tensor_work":
            self.mbarrier_order.behind(threads, words, effects.behind)
        if "expect_tx" in (effects.mbarrier, effects.tx):
            self._bytes.expect(site, words)

    def complete(self, words: Array) -> None:
        self._bytes.complete(words)
        self.mbarrier_order.complete(words)

    def stuck(self) -> None:
        """See that nobody can go on any more."""
        self._bytes.stuck()

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        if effects_of(self._context.site.instruction).begins == "products":
            self._engines.multiply(threads, moved)
            return
        if told is not None:
            owners = threads.index[told.owner]
            self.mbarrier_order.use(owners, told.words)
            self._bytes.copy(self._context.site, told.words, told.nbytes)
            self.reach(owners, told.words * OBJECT_BYTES, noted=False)
        self._engines.copy(threads, moved, told)

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        """See threads have tensor cores work on Tensor Memory."""
        engines = self._clocks.agents.engines("tensor_work", threads.index)
        self.tensor_memory.issue(threads, engines, access)
        self._engines.issue(threads, engines, access)

    def done(self, words: Array, threads: Threads | None) -> None:
        """See asynchronous work done that mbarriers hear of."""
        if threads is None:
            self._bytes.done(words)
            self.mbarrier_order.done(words)
        else:
            self.mbarrier_order.copies_arrive(threads, words)

    def ended(self, threads: Threads, over: Array) -> None:
        self.mbarrier_order.ended(threads)
        self._lifetimes.end(over, self.mbarrier_order.known_in)


_ANYWHERE = np.empty(0, np.int64)
"""Where tiles of tcgen05 begin: within a row, too."""

GROUPED: tuple[Queue, ...] = ("bulk_copies", "products")
"""The queues of engines that threads wait for in groups."""


class Engines:
    """Follows the work of a wave."""

    def __init__(
        self,
        context: CheckContext,
        clocks: Clocks,
        races: Races,
        lifetimes: CtaLifetime,
        shared: SharedMemory,
        stores: BulkStores,
        layouts: TileLayouts,
    ) -> None:
        self._context = context
        self._clocks = clocks
        self._races = races
        self._lifetimes = lifetimes
        self._shared = shared
        self._stores = stores
        self._layouts = layouts
        self._groups: dict[Queue, Groups] = {
            queue: Groups(context.wave.width, Schedule()) for queue in GROUPED
        }

    def copy(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        """See bulk copies begin that mbarriers are told of, or that are waited for in groups."""
        clocks, agents = self._clocks, self._clocks.agents
        if told is None:
            engines = agents.engines("bulk_copies", threads.index)
            of_item = [engines[access.owner] for access in moved]
        else:
            of_item = [
                agents.engines("signals", self._words(access, threads, told)) for access in moved
            ]
        for access, engine in zip(moved, of_item, strict=True):
            if access.memory.name == "shared":
                self._see(access, engine, threads.index[access.owner])
        time = clocks.tick()
        if told is not None:
            return
        stores = self._stores.begin(threads, moved)

        def read(chosen: Array | None) -> None:
            who = slice(None) if chosen is None else chosen
            clocks.hear(threads.index[who], engines[who], time)

        def land(chosen: Array | None) -> None:
            self._stores.waited(stores, threads.index[slice(None) if chosen is None else chosen])

        self._groups["bulk_copies"].start(threads, land, read)

    def multiply(self, threads: Threads, moved: list[MemoryAccess]) -> None:
        clocks, width = self._clocks, self._context.wave.width
        groups, known = clocks.issue(threads.index)
        of_thread = np.repeat(groups, threads.size // groups.size)
        engines = clocks.agents.engines("products", of_thread - width)
        for access in moved:
            self._see(access, engines[access.owner], of_thread[access.owner])
        time = clocks.tick()

        def hear(chosen: Array | None) -> None:
            who = np.arange(threads.size) if chosen is None else chosen
            clocks.learn(threads.index[who], known, np.searchsorted(groups, of_thread[who]))
            clocks.hear_of_products(threads.index[who], engines[who], time)

        self._groups["products"].start(threads, hear)

    def issue(self, threads: Threads, engines: Array, access: TensorCoreAccess) -> None:
        """See what tensor cores read of shared memory, for an operation of each of the threads."""
        region = self._context.wave.regions["shared"]
        for name, first in access.shared.items():
            owner = np.repeat(np.arange(threads.size), first.size // threads.size)
            mode = access.swizzles.get(name)
            tiles = None if mode is None else Tiles(mode, MODES[mode].span, 0, _ANYWHERE)
            read = MemoryAccess(
                region, first.reshape(-1), UNIT_BYTES, owner, writes=False, tiles=tiles
            )
            self._see(read, engines[owner], threads.index[owner])
        self._clocks.tick()

    def control(self, site: Site, threads: Threads) -> None:
        """Follow the groups of bulk copies and of products."""
        effects = effects_of(site.instruction)
        if effects.commits:
            self._groups[effects.commits].commit(threads)
        else:
            left = groups_left(site)
            assert left is not None
            self._groups[effects.waits].wait(threads, left, read_only=effects.until == "read")

    def _words(self, access: MemoryAccess, threads: Threads, told: CompletionSignal) -> Array:
        """Return for each item the mbarrier that hears of it.

        It is in the CTA where the item is written or, if all that a thread's copies tell are on one side of
        their pairs, in that CTA of the pair.
        """
        wave = self._context.wave
        words = wave.shared_pitch // OBJECT_BYTES
        of_thread = np.zeros(threads.size, np.int64)
        of_thread[told.owner] = told.words
        told_words: Array = of_thread[access.owner]
        if not access.writes:
            return told_words
        sides = np.zeros((2, threads.size), bool)
        sides[told.words // words % wave.config.cluster_ctas % 2, told.owner] = True
        even, odd = sides[:, access.owner]
        cta = access.first // wave.shared_pitch
        first = cta - cta % wave.config.cluster_ctas % 2
        heard: Array = told_words % words + np.where(even & odd, cta, first + odd) * words
        return heard

    def _see(self, access: MemoryAccess, engines: Array, behind: Array) -> None:
        context = self._context
        granules, count = context.shadow.cover(access.first, access.size)
        strong = (
            access.writes and effects_of(context.site.instruction).strong
        )  # sources are just read
        kind = AccessKind(access.writes, strong, engine=True)
        engine, row = entries(engines, count), entries(behind, count)
        touch = Touch(kind, context.number(context.site), engine, granules, row)
        self._races.compare(touch)
        self._races.remember(touch)
        self._lifetimes.note(access.first // context.wave.shared_pitch, engines)
        self._layouts.see(access, granules)
        if access.writes:
            self._shared.write(granules)
