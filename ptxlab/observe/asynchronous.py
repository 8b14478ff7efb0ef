"""Programs of asynchronous work: mbarriers, clusters, bulk copies and products of warpgroups.

Here what happens to them is handed to those who follow it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import Moved, Told
from ptxlab.emulator.run.wave import Frame
from ptxlab.instrument.sites import instructions
from ptxlab.observe.bulk_stores import BulkStores
from ptxlab.observe.check_scene import CheckScene
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.engines import GROUPED, Engines
from ptxlab.observe.handover import Handovers
from ptxlab.observe.leaving import Leaving
from ptxlab.observe.map_use import MapUse
from ptxlab.observe.phases import MbarrierBytes
from ptxlab.observe.races import Races
from ptxlab.observe.releases import Fences
from ptxlab.observe.tile_layouts import TileLayouts
from ptxlab.observe.unwritten import SharedMemory
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
        scene: CheckScene,
        clocks: Clocks,
        races: Races,
        shared: SharedMemory,
        maps: MapUse,
        fences: Fences,
    ) -> None:
        self._scene = scene
        self._clocks = clocks
        self._leaving = Leaving(scene, clocks)
        self._products = WgmmaUse(scene)
        self.stores = BulkStores(scene)
        self.maps = maps
        self._bytes = MbarrierBytes(scene)
        self.layouts = TileLayouts(scene)
        self._engines = Engines(
            scene, clocks, races, self._leaving, shared, self.stores, self.layouts
        )
        self.handovers = Handovers(scene, clocks, races, fences)

    def before(self, site: Site, frame: Frame, passing: Threads) -> None:
        effects = effects_of(site.instruction)
        self._products.see(site, frame, passing)
        if effects.fence:
            self.handovers.fence(effects, passing)
            self.maps.fence(effects, passing)
        elif effects.barrier == "cluster":
            self.handovers.cluster(site, passing)
        elif {effects.commits, effects.waits}.intersection(GROUPED):
            self._engines.control(site, passing)

    def touch(self, threads: Array, first: Array, nbytes: int, *, writes: bool) -> None:
        """See plain accesses to shared memory."""
        wave = self._scene.wave
        if self.handovers.any:
            self.handovers.overlap(threads, first, nbytes, writes=writes)
        if wave.config.cluster_ctas > 1:
            self.reach(threads, first)

    def reach(self, threads: Array, first: Array, *, noted: bool = True) -> None:
        """See threads, or copies for them, access bytes of shared memory that may be another CTA's.

        Not ``noted`` is what the end of that CTA need not be held against.
        """
        ctas = first // self._scene.wave.shared_pitch
        away = ctas != self._scene.wave.cta_of[threads]
        if away.any():
            threads, ctas = threads[away], ctas[away]
            self._leaving.reach(threads, ctas, self.handovers.started(threads))
            if noted:
                self._leaving.note(ctas, threads)

    def arrive(self, site: Site, threads: Threads, words: Array) -> None:
        effects = effects_of(site.instruction)
        # Who sees the phase complete has seen a relaxed arrival, which is told of nowhere else.
        self.reach(threads.index, words * OBJECT_BYTES, noted=not effects.relaxed)
        self.handovers.arrive(site, threads, words)
        if "expect_tx" in (effects.mbarrier, effects.tx):
            self._bytes.expect(site, words)

    def complete(self, words: Array) -> None:
        self._bytes.complete(words)
        self.handovers.complete(words)

    def stuck(self) -> None:
        """See that nobody can go on any more."""
        self._bytes.stuck()

    def begun(self, threads: Threads, moved: list[Moved], told: Told | None) -> None:
        if effects_of(self._scene.site.instruction).begins == "products":
            self._engines.multiply(threads, moved)
            return
        if told is not None:
            owners = threads.index[told.owner]
            self.handovers.use(owners, told.words)
            self._bytes.copy(self._scene.site, told.words, told.nbytes)
            self.reach(owners, told.words * OBJECT_BYTES, noted=False)
        self._engines.copy(threads, moved, told)

    def done(self, words: Array, threads: Threads | None) -> None:
        """See asynchronous work done that mbarriers hear of."""
        if threads is None:
            self._bytes.done(words)
            self.handovers.done(words)
        else:
            self.handovers.copies_arrive(threads, words)

    def ended(self, over: Array) -> None:
        self._leaving.end(over, self.handovers.known_in)
