"""What is told at barrier objects (mbarriers, and the barriers of clusters), by flags, and by fences beside them.

A relaxed arrival tells what its thread knew at its last fence, and what a relaxed wait has seen is
known from the next fence on. Source: PTX ISA, "Memory Consistency Model: Release and Acquire Patterns", and of
tensor cores "tcgen05 memory consistency model: canonical synchronization patterns".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.prepare.row import Mix
from ptxlab.emulator.run.barriers import BARRIERS
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import WARP
from ptxlab.observe.choices import operand_value
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import HEARD, VectorClocks, in_warps
from ptxlab.observe.value_flow import reads
from ptxlab.syntax.tree import Function, Instruction


class Releases:
    """What barrier objects tell those who wait for them: of the phase under way, and of the last one.

    Arrivals may be ``for_warpgroups``: of products that one warp has waited for they tell for the others, as
    CUTLASS frees a slot by one arrival of a warpgroup.
    """

    def __init__(self, clocks: Clocks, count: int, *, for_warpgroups: bool = False) -> None:
        self._clocks = clocks
        self._for_warpgroups = for_warpgroups
        self._coming, self._told = (
            VectorClocks(clocks.layers, count),
            VectorClocks(clocks.layers, count),
        )

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
        of_ctas: Array = objects[first]
        return of_ctas

    def reset(self, objects: Array) -> None:
        """Have objects tell nothing of what they were told."""
        self._coming.data[:, objects] = 0

    def arrive(self, objects: Array, rows: Array) -> None:
        """Tell the phase under way of each object the row beside it."""
        if self._for_warpgroups:
            self._clocks.tell_of_products(rows)
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


class EarlyArrivals:
    """What threads tell at a barrier of their CTA that they do not wait at: what they did before bar.arrive.

    What they do from then on, before the barrier is complete, is ordered by nothing.
    """

    def __init__(self, clocks: Clocks, wave: Wave) -> None:
        self._cta_of = wave.cta_of
        self._told = Releases(clocks, wave.ctas * BARRIERS)

    def arrive(self, site: Site, frame: Frame, threads: Threads) -> None:
        numbers = operand_value(site, frame, site.instruction.operands[0], "u32")
        assert numbers is not None
        of_threads = np.broadcast_to(numbers, (threads.width,))[threads.index]
        if (of_threads < BARRIERS).all():  # others end the launch
            self._told.release(threads, self._objects(threads.index, of_threads))

    def complete(self, number: int, released: Array) -> None:
        """See a barrier complete at which also threads have arrived that are not ``released`` by it."""
        waited = np.flatnonzero(released)
        objects = self._objects(waited, np.full(waited.size, number))
        self._told.complete(np.unique(objects))
        self._told.acquire(Threads(released.size, mask=released), objects)

    def _objects(self, threads: Array, numbers: Array) -> Array:
        objects: Array = self._cta_of[threads] * BARRIERS + numbers
        return objects


_ACCESSES: frozenset[Mix] = frozenset({"load", "store", "atomic"})


def is_flag(instruction: Instruction) -> bool:
    """Say whether an instruction may access a flag in shared memory, by which threads tell each other."""
    if not effects_of(instruction).strong or form_of(instruction).row.mix not in _ACCESSES:
        return False
    return state_space(instruction.modifiers) != "global"


class Fences:
    """What threads knew at their last fence, and what they have seen without acquiring it.

    Fences are ``narrow``, of the scope of a CTA, or wide. A program that relaxes nothing, and has no flags,
    does not need notes (``needed``).
    """

    def __init__(self, clocks: Clocks, functions: Iterable[Function], width: int) -> None:
        self._clocks = clocks
        self._width = width
        self.needed = any(
            effects_of(site.instruction).relaxed or is_flag(site.instruction)
            for function in functions
            for site in instructions(function)
        )
        self._known: dict[bool, VectorClocks] = {}
        self._seen: VectorClocks | None = None

    def fence(self, effects: Effects, threads: Array) -> None:
        """See threads execute a fence of memory, not of proxies."""
        if not self.needed:
            return
        if self._seen is not None and effects.semantics != "release":
            self._clocks.learn(threads, self._seen.data, threads)
        if effects.semantics != "acquire":
            known = self._known.setdefault(effects.scope == "cta", self._rows())
            known.learn(threads, self._clocks.released(threads))

    def fence_tensor_work(self, threads: Array) -> None:
        """See threads execute tcgen05.fence::after_thread_sync: of what they have seen that takes tensor cores' work."""
        if self._seen is None:
            return
        work = self._clocks.agents.of_queue("tensor_work")
        seen = self._seen.data[:, :, : work.size]
        self._clocks.learn(threads, np.where(work[: seen.shape[2]], seen, 0), threads)

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

    def _rows(self) -> VectorClocks:
        return VectorClocks(self._clocks.layers, self._width)


class Flags:
    """Words of shared memory by which threads tell each other what they know.

    A strong write tells it that releases, or comes after a fence; who reads the word then by a strong read
    that acquires, or has a fence after it, hears that. An atomic adds to what is told, a store begins anew.
    A lane tells for those with which it last executed a warp instruction: libcu++ counts down for all whom
    match.any.sync finds. Source: PTX ISA, "Memory Consistency Model: Release and Acquire Patterns".
    """

    def __init__(self, clocks: Clocks, fences: Fences, width: int) -> None:
        self._clocks = clocks
        self._fences = fences
        self._objects = Releases(clocks, 0)
        self._numbers: dict[int, int] = {}
        self._met = np.zeros(width, np.int32)

    def meet(self, threads: Threads) -> None:
        """See threads execute a warp instruction together."""
        if self._fences.needed:
            self._met[threads.index] = self._clocks.tick()

    def access(self, instruction: Instruction, threads: Threads, first: Array) -> None:
        """See a strong access of threads to the words of which these are the ``first`` bytes."""
        effects, reading = effects_of(instruction), reads(instruction)
        if effects.atomic or not reading:
            self._write(threads.index, first, effects.releases, adds=effects.atomic)
        if reading:
            self._read(threads, first, effects.acquires)

    def _write(self, threads: Array, first: Array, releases: bool, *, adds: bool) -> None:
        if releases:
            rows: Array | None = self._clocks.released(threads)
        else:
            rows = self._fences.told(threads, near=True)
        objects = self._of(first, new=rows is not None)
        known = objects >= 0
        if not adds:
            self._objects.reset(objects[known])
        if rows is not None:
            self._for_warps(rows, threads)
            self._objects.arrive(objects, rows)
        self._objects.complete(np.unique(objects[known]))

    def _for_warps(self, rows: Array, threads: Array) -> None:
        """Let rows, one a thread, know what lanes did before they executed a warp instruction with it."""
        lanes, met = in_warps(threads // WARP), self._met[threads][:, None]
        columns, row = lanes % self._clocks.agents.threads, np.arange(threads.size)[:, None]
        times = np.where(self._met[lanes] == met, met, 0)
        rows[HEARD, row, columns] = np.maximum(rows[HEARD, row, columns], times)

    def _read(self, threads: Threads, first: Array, acquires: bool) -> None:
        objects = self._of(first, new=False)
        known = objects >= 0
        if not known.any():
            return
        threads, objects = Threads(threads.width, index=threads.index[known]), objects[known]
        if acquires:
            self._objects.acquire(threads, objects)
        else:
            self._fences.see(threads.index, self._objects.told(objects))

    def _of(self, first: Array, *, new: bool) -> Array:
        """Return the number of each word, -1 for one that tells nothing, unless it is to do so from now on."""
        words, word = np.unique(first, return_inverse=True)
        if new:
            before = len(self._numbers)
            for at in words.tolist():
                self._numbers.setdefault(at, len(self._numbers))
            self._objects.more(len(self._numbers) - before)
        numbers = np.array([self._numbers.get(at, -1) for at in words.tolist()])
        of_thread: Array = numbers[word]
        return of_thread
