"""What is told at barrier objects: mbarriers, and the barriers of clusters."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.isa.targets import WARP
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import HEARD, TimeRows


class Releases:
    """What barrier objects tell those who wait for them: of the phase under way, and of the last one."""

    def __init__(self, clocks: Clocks, count: int) -> None:
        self._clocks = clocks
        self._coming, self._told = TimeRows(clocks.layers, count), TimeRows(clocks.layers, count)

    def more(self, count: int) -> None:
        """Have as many objects more."""
        for rows in (self._coming, self._told):
            rows.more(count)

    def release(self, threads: Threads, objects: Array) -> None:
        """Have threads tell an object each what they know: of whole CTAs or warps together."""
        clocks, index = self._clocks, threads.index
        ctas = clocks.whole(threads, objects)
        if ctas is not None:
            self.arrive(self._of_ctas(threads, objects), clocks.released_all(ctas))
            return
        warps, others = clocks.by_warps(index, objects)
        if warps.size:
            of_warps = objects[np.searchsorted(index // WARP, warps)]
            self.arrive(of_warps, clocks.released_by_warps(warps, threads.mask))
        if others.any():
            self.arrive(objects[others], clocks.released(index[others]))

    def acquire(self, threads: Threads, objects: Array) -> None:
        """Have threads hear what an object each tells."""
        ctas = self._clocks.whole(threads, objects)
        if ctas is None:
            self._clocks.learn(threads.index, self._told.data, objects)
        else:
            self._clocks.learn_all(ctas, self.told(self._of_ctas(threads, objects)))

    def _of_ctas(self, threads: Threads, objects: Array) -> Array:
        """Return the one object of each CTA."""
        first = np.unique(self._clocks.cta_of[threads.index], return_index=True)[1]
        found: Array = objects[first]
        return found

    def arrive(self, objects: Array, rows: Array) -> None:
        """Tell the phase under way of each object the row beside it."""
        self._coming.fit(rows.shape[2])
        order = np.argsort(objects, kind="stable")
        ordered = objects[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        joined = np.maximum.reduceat(rows[:, order], first, axis=1)
        into, at = self._coming.data, ordered[first]
        into[:, at, : rows.shape[2]] = np.maximum(into[:, at, : rows.shape[2]], joined)

    def signal(self, objects: Array, agents: Array) -> None:
        """Tell the phase under way of each object that the agent beside it is done."""
        now = self._clocks.tick()
        columns = self._clocks.agents.column(agents)
        self._coming.fit(self._clocks.agents.columns)
        self._coming.data[HEARD, objects, columns] = now

    def complete(self, objects: Array) -> None:
        """End the phases under way."""
        columns = self._coming.data.shape[2]
        self._told.fit(columns)
        self._told.data[:, objects, :columns] = self._coming.data[:, objects]

    def told(self, objects: Array) -> Array:
        """Return what each of the objects tells: [layers, objects, columns]."""
        rows: Array = self._told.data[:, objects]
        return rows
