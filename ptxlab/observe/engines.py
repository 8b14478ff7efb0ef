"""Asynchronous work: what the copy engine and the tensor cores access, from its beginning to a wait.

Work accesses memory at any time until somebody waits for it, so that it is noted when it begins, as
done by an engine of which threads hear by waiting alone. It comes after what the thread knows that
began it. Source: PTX ISA, "Asynchronous operations", "Asynchronous copy", "wgmma.wait_group".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.in_flight import Groups, Schedule
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import Moved, Told
from ptxlab.observe.bulk_stores import BulkStores
from ptxlab.observe.check_scene import CheckScene, entries
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.leaving import Leaving
from ptxlab.observe.ordering import AccessKind, Touch
from ptxlab.observe.races import Races
from ptxlab.observe.tile_layouts import TileLayouts
from ptxlab.observe.unwritten import SharedMemory
from ptxlab.observe.value_flow import groups_left

GROUPED: tuple[Queue, ...] = ("bulk_copies", "products")
"""The queues of engines that threads wait for in groups."""


class Engines:
    """Follows the work of a wave."""

    def __init__(
        self,
        scene: CheckScene,
        clocks: Clocks,
        races: Races,
        leaving: Leaving,
        shared: SharedMemory,
        stores: BulkStores,
        layouts: TileLayouts,
    ) -> None:
        self._scene = scene
        self._clocks = clocks
        self._races = races
        self._leaving = leaving
        self._shared = shared
        self._stores = stores
        self._layouts = layouts
        self._groups: dict[Queue, Groups] = {
            queue: Groups(scene.wave.width, Schedule()) for queue in GROUPED
        }

    def copy(self, threads: Threads, moved: list[Moved], told: Told | None) -> None:
        """See bulk copies begin that mbarriers are told of, or that are waited for in groups."""
        clocks, agents = self._clocks, self._clocks.agents
        if told is None:
            engines = agents.engines("bulk_copies", threads.index)
            of_item = [engines[one.owner] for one in moved]
        else:
            of_item = [agents.engines("signals", self._words(one, threads, told)) for one in moved]
        for one, engine in zip(moved, of_item, strict=True):
            if one.memory.name == "shared":
                self._see(one, engine, threads.index[one.owner])
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

    def multiply(self, threads: Threads, moved: list[Moved]) -> None:
        clocks, width = self._clocks, self._scene.wave.width
        groups, known = clocks.issue(threads.index)
        of_thread = np.repeat(groups, threads.size // groups.size)
        engines = clocks.agents.engines("products", of_thread - width)
        for one in moved:
            self._see(one, engines[one.owner], of_thread[one.owner])
        time = clocks.tick()

        def hear(chosen: Array | None) -> None:
            who = np.arange(threads.size) if chosen is None else chosen
            clocks.learn(threads.index[who], known, np.searchsorted(groups, of_thread[who]))
            clocks.hear_of_products(threads.index[who], engines[who], time)

        self._groups["products"].start(threads, hear)

    def control(self, site: Site, threads: Threads) -> None:
        """Follow the groups of bulk copies and of products."""
        effects = effects_of(site.instruction)
        if effects.commits:
            self._groups[effects.commits].commit(threads)
        else:
            left = groups_left(site)
            assert left is not None
            self._groups[effects.waits].wait(threads, left, read_only=effects.until == "read")

    def _words(self, one: Moved, threads: Threads, told: Told) -> Array:
        """Return for each item the mbarrier that hears of it: it is where the item is written."""
        of_thread = np.zeros(threads.size, np.int64)
        of_thread[told.owner] = told.words
        found: Array = of_thread[one.owner]
        if one.writes:
            pitch = self._scene.wave.shared_pitch
            words = pitch // OBJECT_BYTES
            found = found % words + one.first // pitch * words
        return found

    def _see(self, one: Moved, engines: Array, behind: Array) -> None:
        scene = self._scene
        granules, count = scene.shadow.cover(one.first, one.size)
        strong = one.writes and effects_of(scene.site.instruction).strong  # sources are just read
        kind = AccessKind(one.writes, strong, engine=True)
        engine, row = entries(engines, count), entries(behind, count)
        touch = Touch(kind, scene.number(scene.site), engine, granules, row)
        self._races.compare(touch)
        self._races.remember(touch)
        self._leaving.note(one.first // scene.wave.shared_pitch, engines)
        self._layouts.see(one, granules)
        if one.writes:
            self._shared.write(granules)
