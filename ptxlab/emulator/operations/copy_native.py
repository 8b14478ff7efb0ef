"""cp.async and its groups as tasks in a dispatch loop, outside of which they are arrays.

See ``ptxlab.emulator.native.copies``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import proxy

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native import copies
from ptxlab.emulator.native.addresses import window_words
from ptxlab.emulator.native.copies import BEGUN, CAPACITY, COUNT, FIRST, GROUPS, HEAD, OPEN, ROW
from ptxlab.emulator.native.warp_operation import FallbackStep, is_possible
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.in_flight import Groups, Land
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.native import cores

WORTH = 2048
"""Threads that a core does at a time at least, in some microseconds."""


class Ring:
    """The copies of a wave of some ``width`` that machine code has begun and that are under way.

    It is open while that is all there is, and all threads have committed as many groups.
    """

    _groups: Groups
    _cores: int

    def __init__(self, width: int) -> None:
        self._places = np.empty((CAPACITY, 2, width), np.uint64)
        self.words = np.zeros(HEAD + CAPACITY * ROW, np.int64)
        self._rows = self.words[HEAD:].reshape(CAPACITY, ROW)
        row, array = self._places.strides[:2]
        self._rows[:, 0] = self._places.ctypes.data + row * np.arange(CAPACITY)
        self._rows[:, 1] = self._rows[:, 0] + array

    def begin(self, groups: Groups, cores: int) -> None:
        """Go on for another wave."""
        # Not the groups themselves, which have the ring: a circle would live on with all its memory.
        self._groups, self._cores = proxy(groups), cores
        groups.outside = self
        self.words[:HEAD] = 0

    def open(self) -> None:
        """Let machine code go on from what arrays have done, if it can."""
        if not (self.words[OPEN] or self.words[COUNT]):
            groups = self._groups.alike
            if groups is not None:
                self.words[[OPEN, GROUPS]] = 1, groups

    def gather(self) -> None:
        """Let arrays go on from what machine code has done."""
        words = self.words
        if not (words[OPEN] or words[COUNT]):
            return
        rows = (words[FIRST] + np.arange(words[COUNT])) % CAPACITY
        under_way = [(self._landing(row), int(self._rows[row, 3])) for row in rows]
        groups, begun = int(words[GROUPS]), int(words[BEGUN])
        words[[OPEN, COUNT, BEGUN]] = 0
        self._groups.go_on(groups, begun, under_way)

    def _landing(self, row: int) -> Land:
        places, nbytes = self._places[row].copy(), self._rows[row, 2]

        def land(chosen: Array | None) -> None:
            some = places if chosen is None else np.ascontiguousarray(places[:, chosen])
            ring, count = np.zeros(HEAD + ROW, np.int64), some.shape[1]
            ring[COUNT] = 1
            ring[HEAD:] = *(addresses.ctypes.data for addresses in some), nbytes, 0
            [function] = cores.functions(copies.groups(), "land")
            header = cores.header(count, (function, count))
            cores.pool(self._cores).run(cores.packed(*header, ring.ctypes.data, -1))

        return land


def ring(wave: Wave) -> Ring:
    """Return the ring of a wave."""
    own = wave.own
    if own.copies is None:
        own.copies = Ring(wave.width)
        own.copies.begin(wave.copies, wave.cores)
    assert isinstance(own.copies, Ring)
    return own.copies


@dataclass(eq=False)
class _Step(FallbackStep):
    """A step of the copies that the ring of a wave has."""

    word = np.dtype(np.uint64)
    kind = "cp.async"

    def gate(self, wave: Wave) -> int:
        return int(ring(wave).words[OPEN:].ctypes.data)

    def packed(self, wave: Wave, header: tuple[int, ...], *words: int) -> tuple[bytes, Any]:
        return cores.packed(*header, ring(wave).words.ctypes.data, *words), self


@dataclass(eq=False)
class CopyStep(_Step):
    """The step of a cp.async of whole items."""

    read: Access
    write: Access

    def takes(self, source: Source) -> bool:
        wide = source is self.read.base
        return source.convert is None and source.dtype.itemsize in ((8,) if wide else (4, 8))

    def task(self, wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
        target = self.write.base.dtype.itemsize
        text = copies.begin(self.write.nbytes, target, self.write.offset, self.read.offset)
        begin, begun = cores.functions(text, "begin", "begun")
        width = wave.width
        chunk = cores.pool(wave.cores).chunk(width, WORTH, WARP)
        window = window_words(wave.regions["shared"])
        header = cores.header(width, (begin, chunk), (begun, width))
        return self.packed(wave, header, id(wave.memory.table), *window)


class CommitStep(_Step):
    """The step that closes a group."""

    def task(self, wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
        [commit] = cores.functions(copies.groups(), "commit")
        return self.packed(wave, cores.header(1, (commit, 1)))


@dataclass(eq=False)
class WaitStep(_Step):
    """The step that waits for all but so many groups, -1 for all copies."""

    allowed: int

    def task(self, wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
        land, landed = cores.functions(copies.groups(), "land", "landed")
        width = wave.width
        chunk = cores.pool(wave.cores).chunk(width, WORTH, wave.cta_width)
        return self.packed(wave, cores.header(width, (land, chunk), (landed, width)), self.allowed)


def natively(step: Step, read: Access, write: Access) -> Step:
    """Return the step of a copy that is a task too."""
    sources = [write.base, read.base]
    return CopyStep(step, sources, (), read, write) if is_possible() else step


def committed(step: Step) -> Step:
    return CommitStep(step, (), ()) if is_possible() else step


def waited(step: Step, allowed: int) -> Step:
    return WaitStep(step, (), (), allowed) if is_possible() else step
