"""What is told at barrier objects (mbarriers, and the barriers of clusters), and by fences beside them.

A relaxed arrival tells what its thread knew at its last fence, and what a relaxed wait has seen is
known from the next fence on. Source: PTX ISA, "Memory Consistency Model: Release and Acquire Patterns".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import WARP
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import HEARD, TimeRows
from ptxlab.syntax.tree import Function, Instruction


class Releases:
    """What barrier objects tell those who wait for them: of the phase under way, and of the last one."""

    def __init__(self, clocks: Clocks, count: int) -> None:
        self._clocks = clocks
        self._coming, self._told = TimeRows(clocks.layers, count), TimeRows(clocks.layers, count)

    def more(self, count: int) -> None:
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


def is_relaxed(instruction: Instruction) -> bool:
    """Say whether an instruction arrives or waits at a barrier object, and orders nothing by itself."""
    return instruction.opcode in ("mbarrier", "barrier") and "relaxed" in instruction.modifiers


class Fences:
    """What threads knew at their last fence, and what they have seen without acquiring it.

    Fences are ``narrow``, of the scope of a CTA, or wide. A program that relaxes nothing needs no notes.
    """

    def __init__(self, clocks: Clocks, functions: Iterable[Function], width: int) -> None:
        self._clocks = clocks
        self._width = width
        self._needed = any(
            is_relaxed(site.instruction)
            for function in functions
            for site in instructions(function)
        )
        self._known: dict[bool, TimeRows] = {}
        self._seen: TimeRows | None = None

    def fence(self, instruction: Instruction, threads: Array) -> None:
        """See threads execute a fence of memory, not of proxies."""
        if not self._needed:
            return
        if self._seen is not None and "release" not in instruction.modifiers:
            self._clocks.learn(threads, self._seen.data, threads)
        if "acquire" not in instruction.modifiers:
            known = self._known.setdefault("cta" in instruction.modifiers, self._rows())
            known.learn(threads, self._clocks.released(threads))

    def told(self, threads: Array, *, near: bool) -> Array | None:
        """Return what relaxed arrivals tell; a narrow fence counts only for those ``near``, in the CTA."""
        known = [rows for narrow, rows in self._known.items() if near or not narrow]
        if not known:
            return None
        columns = max(rows.data.shape[2] for rows in known)
        for rows in known:
            rows.fit(columns)
        told: Array = np.maximum.reduce([rows.data[:, threads] for rows in known])
        return told

    def see(self, threads: Array, rows: Array) -> None:
        """See relaxed waits: they have been told ``rows``."""
        if self._seen is None:
            self._seen = self._rows()
        self._seen.learn(threads, rows)

    def seen_in(self, ctas: Array, width: int) -> Array:
        """Return what the ``width`` threads of each CTA have seen: of each column there is up to when."""
        if self._seen is None:
            return np.zeros((ctas.size, 0), np.int32)
        threads = ctas[:, None] * width + np.arange(width)
        seen: Array = self._seen.data[HEARD, threads].max(axis=1)
        return seen

    def _rows(self) -> TimeRows:
        return TimeRows(self._clocks.layers, self._width)
