"""Who accesses memory: the threads of a wave, and the engines that work for them.

An engine is what is waited for as one: the copies that one mbarrier hears of, the bulk copies of one
thread, what one has had tensor cores do with Tensor Memory, the products of one warpgroup, of which each warp
has a part of its own. The threads of a wave are the agents 0 to its width; agents of a
cluster have columns, its threads first and the engines in the order in which they are met.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP, WARPGROUP

_MOST = 1 << 20
"""Engines that a cluster may have."""
PARTS = WARPGROUP // WARP
"""Columns behind that of a warpgroup's products, each of the part of a warp: who waits hears of its own."""


class Agents:
    """The numbers of the agents of a wave."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        ctas = wave.config.cluster_ctas
        self.threads = wave.cta_width * ctas
        self.columns = self.threads
        sizes: dict[Queue, int] = {
            "signals": wave.shared_pitch // OBJECT_BYTES,
            "bulk_copies": wave.cta_width,
            "products": -(-wave.cta_width // WARPGROUP),
            "tensor_work": wave.cta_width,
        }
        self._known = {queue: np.full(ctas * size, -1) for queue, size in sizes.items()}
        self._kinds: list[tuple[Queue, int]] = []
        self.products: list[int] = []
        self._of_products = np.zeros(self.columns, bool)

    def engines(self, queue: Queue, places: Array) -> Array:
        """Return the engines of a queue.

        The ``places`` are words of shared memory, threads or warpgroups, counted through the wave.
        """
        known = self._known[queue]
        clusters, inside = np.divmod(places, len(known))
        new = np.unique(inside[known[inside] < 0])
        if new.size:
            parts = 1 + PARTS if queue == "products" else 1
            known[new] = self.columns + parts * np.arange(new.size)
            self.columns += parts * new.size
            self._kinds += [(queue, int(number)) for number in new for _ in range(parts)]
            whole = np.zeros((new.size, parts), bool)
            whole[:, 0] = parts > 1
            self._of_products = np.append(self._of_products, whole)
            self.products = np.flatnonzero(self._of_products).tolist()
        return self._at(clusters, known[inside])

    def of_queue(self, queue: Queue) -> Array:
        """Say of each column whether it is that of an engine of a queue."""
        engines = [kind == queue for kind, _ in self._kinds]
        return np.array([False] * self.threads + engines)

    def of_products(self, columns: Array) -> Array:
        """Say which columns are those of the products of a warpgroup, which its warps' parts follow."""
        agents: Array = self._of_products[columns]
        return agents

    def column(self, agents: Array) -> Array:
        width = self._wave.width
        columns = agents % self.threads
        engines = agents >= width
        if engines.any():
            columns[engines] = self.threads + (agents[engines] - width) % _MOST
        return columns

    def of(self, ctas: Array, columns: Array) -> Array:
        """Return the agents with these columns in the clusters of the CTAs of the wave."""
        return self._at(ctas // self._wave.config.cluster_ctas, columns)

    def _at(self, clusters: Array, columns: Array) -> Array:
        engines = self._wave.width + (clusters + 1) * _MOST + columns - self.threads
        agents: Array = np.where(columns < self.threads, clusters * self.threads + columns, engines)
        return agents

    def engine(self, agent: int) -> tuple[Queue, int] | None:
        """Return the queue of an engine and its place in its cluster; None for a thread."""
        if agent < self._wave.width:
            return None
        return self._kinds[(agent - self._wave.width) % _MOST]
