"""What the threads of a CTA read and write, step by step: registers before and after, and where in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import Allocation, Part
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave

MOST_BYTES = 1 << 30
"""Of registers that are kept: what comes later is not followed."""

_GRANULE = 4


@dataclass(frozen=True, slots=True)
class StepAccess:
    """Memory that ``threads`` of the CTA access in a step, each ``nbytes`` at its own of ``addresses``.

    Addresses of global memory are those of the device, of other spaces those within what the thread sees. Of a bulk
    copy, which is made some time later, ``offset`` is how far from its first byte each is.
    """

    space: str
    writes: bool
    nbytes: int
    threads: Array
    addresses: Array
    offset: Array | None = None

    def byte_at(self, thread: int, address: int) -> int | None:
        """Return how far from the first byte of a thread's copy the byte at an address is, None where it copies none there."""
        within = address - self.addresses
        hits = np.flatnonzero((self.threads == thread) & (within >= 0) & (within < self.nbytes))
        return (
            int(self.offset[hits[0]] + within[hits[0]])
            if self.offset is not None and hits.size
            else None
        )

    def address_of(self, thread: int, byte: int) -> int | None:
        """Return where a byte of a thread's copy is, None where it is nowhere."""
        if self.offset is None:
            return None
        within = byte - self.offset
        hits = np.flatnonzero((self.threads == thread) & (within >= 0) & (within < self.nbytes))
        return int(self.addresses[hits[0]] + within[hits[0]]) if hits.size else None

    def granules(self) -> tuple[Array, Array]:
        """Return threads, each as often as it accesses a word, and the numbers of these words."""
        first = self.addresses.astype(np.int64)[:, None]
        words = first // _GRANULE + np.arange(-(-self.nbytes // _GRANULE) + 1)
        row, column = np.nonzero(words * _GRANULE < first + self.nbytes)
        return self.threads[row], words[row, column]


@dataclass(slots=True)
class Step:
    """An instruction that threads of the CTA, in ``mask``, execute together.

    ``reads`` and ``writes`` have by number the registers of the activation ``frame`` before and after it, a value for
    each thread or one for all.
    """

    site: Site
    frame: int
    mask: Array
    reads: dict[int, Array]
    writes: dict[int, Array] = field(default_factory=dict)
    accesses: list[StepAccess] = field(default_factory=list)


class ValueTrace(Watcher):
    """The ``steps`` of CTA ``number`` of the grid; ``cut`` says that there were more than could be kept."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps: list[Step] = []
        self.cut = False
        self._live = False
        self._bytes = 0
        self._step: Step | None = None
        self._frames: dict[int, tuple[Frame, int]] = {}
        self._kept: dict[tuple[int, int], tuple[Array, Array]] = {}

    def begin(self, wave: Wave) -> None:
        self._live = wave.watched = self.number in wave.numbers
        self._step = None
        if self._live:
            position = wave.numbers.index(self.number)
            first = position * wave.cta_width
            self._inside = slice(first, first + wave.cta_width)
            self._shared, self._pitch = position * wave.shared_pitch, wave.shared_pitch

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self._step = None
        if not self._live or passing is None or self.cut:
            return
        mask = passing.mask[self._inside]
        if not mask.any():
            return
        number = self._frames.setdefault(id(frame), (frame, len(self._frames)))[1]
        reads = {slot: self._value(number, slot, frame) for slot in site.reads}
        self._step = Step(site, number, mask.copy(), reads)
        self.steps.append(self._step)
        self._bytes += mask.nbytes
        self.cut = self._bytes > MOST_BYTES

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        step = self._step
        if step is not None and step.site is site:
            step.writes = {slot: self._value(step.frame, slot, frame) for slot in site.writes}

    def _value(self, number: int, slot: int, frame: Frame) -> Array:
        """Return the CTA's part of a register, once for as long as it is the same."""
        value = frame.registers[slot]
        held = self._kept.get((number, slot))
        if held is not None and held[0] is value:
            return held[1]
        part = value if len(value) == 1 else value[self._inside].copy()
        self._kept[number, slot] = value, part
        self._bytes += part.nbytes
        return part

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        if self._step is None:
            return
        for part in parts:
            index = threads.index if part.where is None else threads.index[part.where]
            first = np.broadcast_to(part.index, index.shape) * access.nbytes
            if isinstance(part.memory, Allocation):
                space, first = "global", first + part.memory.address
            else:
                space = part.memory.name
                first = first - self._shared * (space == "shared")
            mine = (index >= self._inside.start) & (index < self._inside.stop)
            self._step.accesses.append(
                StepAccess(
                    space,
                    access.writes,
                    access.nbytes,
                    index[mine] - self._inside.start,
                    first[mine],
                )
            )

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        if self._step is None:
            return
        for each in moved:
            index = threads.index[each.owner] - self._inside.start
            if isinstance(each.memory, Allocation):
                space, first = "global", each.first + each.memory.address
            else:
                space, first = each.memory.name, each.first - self._shared
            mine = (index >= 0) & (index < self._inside.stop - self._inside.start)
            if space == "shared":
                mine &= (first >= 0) & (first < self._pitch)
            if each.offset is not None and mine.any():
                self._step.accesses.append(
                    StepAccess(
                        space, each.writes, each.size, index[mine], first[mine], each.offset[mine]
                    )
                )

    # ---- where values come from ----

    @cached_property
    def _writers(self) -> dict[tuple[int, int], list[int]]:
        writers: dict[tuple[int, int], list[int]] = {}
        for number, step in enumerate(self.steps):
            for slot in step.site.writes:
                writers.setdefault((step.frame, slot), []).append(number)
        return writers

    def writer(self, before: int, slot: int, thread: int) -> int | None:
        """Return the last step before one in which a thread wrote a register that it reads there."""
        writers = self._writers.get((self.steps[before].frame, slot), [])
        for at in range(bisect_left(writers, before) - 1, -1, -1):
            if self.steps[writers[at]].mask[thread]:
                return writers[at]
        return None

    @cached_property
    def _stores(self) -> dict[str, Array]:
        """Of each space the words that are stored, the steps, and the threads [3, stores], in this order."""
        stores: dict[str, list[Array]] = {}
        for number, step in enumerate(self.steps):
            for access in step.accesses:
                if access.writes:
                    threads, words = access.granules()
                    rows = np.stack([words, np.full(words.size, number), threads])
                    stores.setdefault(access.space, []).append(rows)
        joined = {space: np.concatenate(rows, axis=1) for space, rows in stores.items()}
        return {space: rows[:, np.lexsort(rows[::-1])] for space, rows in joined.items()}

    def _last(self, space: str, words: list[int], before: int) -> Iterator[tuple[int, int]]:
        """Yield for each word the last step before one, and its thread, that stored it."""
        stored, steps, threads = self._stores.get(space, np.zeros((3, 0), np.int64))
        for word in words:
            first, end = np.searchsorted(stored, (word, word + 1))
            at = first + np.searchsorted(steps[first:end], before) - 1
            if at >= first:
                yield int(steps[at]), int(threads[at])

    def storers(self, load: int, thread: int) -> list[list[tuple[int, int]]]:
        """Return what stored last before a step what a thread loads in it: the steps and their threads.

        Behind a bulk copy stands what stored its source, and so on. There are several where one copy brought it all.
        """
        chains = [
            self.stored(access.space, word * _GRANULE, load)
            for access in self.steps[load].accesses
            if not access.writes and access.offset is None
            for threads, words in [access.granules()]
            for word in words[threads == thread].tolist()
        ]
        latest = max((chain[0] for chain in chains if chain), default=None)
        return [chain for chain in chains if chain and chain[0] == latest]

    def stored(self, space: str, address: int, before: int | None = None) -> list[tuple[int, int]]:
        """Return the last step, and its thread, that stored the word at an address, behind a bulk copy what stored its source."""
        chain: list[tuple[int, int]] = []
        number = len(self.steps) if before is None else before
        source: tuple[str, int] | None = (space, address)
        while source is not None:
            space, address = source
            last = next(self._last(space, [address // _GRANULE], number), None)
            if last is None:
                break
            chain.append(last)
            number, thread = last
            source = self._copied_from(number, thread, space, address)
        return chain

    def _copied_from(
        self, number: int, thread: int, space: str, address: int
    ) -> tuple[str, int] | None:
        """Return from where a bulk copy brought the byte at an address, None where it was stored otherwise."""
        accesses = self.steps[number].accesses
        to = (access for access in accesses if access.writes and access.space == space)
        byte = next(
            (b for access in to if (b := access.byte_at(thread, address)) is not None), None
        )
        if byte is None:
            return None
        sources = (
            (access.space, at)
            for access in accesses
            if not access.writes and (at := access.address_of(thread, byte)) is not None
        )
        return next(sources, None)


class StoreFinder(Watcher):
    """Which CTA of the grid last stored to the word at an address of global memory, None for none."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.cta: int | None = None

    def begin(self, wave: Wave) -> None:
        self._wave = wave

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        if not access.writes:
            return
        for part in parts:
            if not isinstance(part.memory, Allocation):
                continue
            index = threads.index if part.where is None else threads.index[part.where]
            first = np.broadcast_to(part.index, index.shape) * access.nbytes + part.memory.address
            self._find(index, first, access.nbytes)

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        for each in moved:
            if each.writes and isinstance(each.memory, Allocation):
                first = each.first + each.memory.address
                self._find(threads.index[each.owner], first, each.size)

    def _find(self, threads: Array, first: Array, nbytes: int) -> None:
        hits = (first <= self.address) & (self.address < first + nbytes)
        if hits.any():
            thread = int(threads[np.flatnonzero(hits)[-1]])
            self.cta = self._wave.numbers[int(self._wave.cta_of[thread])]
