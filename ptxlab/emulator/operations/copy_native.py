"""cp.async and its groups as jobs in a walk: see ``ptxlab.emulator.native.copies``. Outside of one they are arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any
from weakref import proxy

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native import copies
from ptxlab.emulator.native.collective import Collective
from ptxlab.emulator.native.copies import BEGUN, CAPACITY, COUNT, FIRST, GROUPS, HEAD, OPEN, ROW
from ptxlab.emulator.native.engine import NEVER
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.run.in_flight import Land
from ptxlab.emulator.run.memory import Access
from ptxlab.emulator.run.registers import Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.native import compiler
from ptxlab.native import cores as jobs
from ptxlab.native.arrays import sees_arrays

WORTH = 2048
"""Threads that a core does at a time at least, in some microseconds."""

SOONER = 8
"""How much sooner than a block it is compiled: it is short, and who copies does so again and again."""


class Ring:
    """The copies of a wave that machine code has begun and that are under way.

    It is open while that is all there is, and all threads have committed as many groups.
    """

    def __init__(self, wave: Wave) -> None:
        self._places = np.empty((CAPACITY, 2, wave.width), np.uint64)
        self.words = np.zeros(HEAD + CAPACITY * ROW, np.int64)
        self._rows = self.words[HEAD:].reshape(CAPACITY, ROW)
        row, array = self._places.strides[:2]
        self._rows[:, 0] = self._places.ctypes.data + row * np.arange(CAPACITY)
        self._rows[:, 1] = self._rows[:, 0] + array
        # Not the wave itself, which would live on with its ring, and all its memory with it.
        self._wave = proxy(wave)

    def open(self) -> None:
        """Let machine code go on from what arrays have done, if it can."""
        if not (self.words[OPEN] or self.words[COUNT]):
            groups = self._wave.copies.alike
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
        self._wave.copies.go_on(groups, begun, under_way)

    def _landing(self, row: int) -> Land:
        places, nbytes = self._places[row].copy(), self._rows[row, 2]

        def land(chosen: Array | None) -> None:
            some = places if chosen is None else np.ascontiguousarray(places[:, chosen])
            ring, count = np.zeros(HEAD + ROW, np.int64), some.shape[1]
            ring[COUNT] = 1
            ring[HEAD:] = *(one.ctypes.data for one in some), nbytes, 0
            [function] = _functions(copies.groups(), "land")
            words = function, count, 0, 0, count, ring.ctypes.data, -1
            jobs.pool(self._wave.cores).run(struct.pack(f"{len(words)}q", *words))

        return land


def ring(wave: Wave) -> Ring:
    """Return the ring of a wave."""
    if wave.copies.outside is None:
        wave.copies.outside = Ring(wave)
    assert isinstance(wave.copies.outside, Ring)
    return wave.copies.outside


def _functions(text: str, *names: str) -> list[int]:
    return [jobs.address(compiler.compile(text, name, jobs.Function)) for name in names]


@dataclass(eq=False)
class _Step(Collective):
    """A step that is ``by_arrays`` outside of a walk."""

    by_arrays: Step
    sources: Sequence[Source] = ()
    slots: Sequence[int] = ()
    word = np.dtype(np.uint64)
    spent = 0

    def __call__(self, frame: Frame, threads: Threads) -> None:
        began = perf_counter_ns()
        self.by_arrays(frame, threads)
        _Step.spent += perf_counter_ns() - began

    def ready(self, wave: Wave) -> bool:
        hot = wave.hot != NEVER and _Step.spent * SOONER >= wave.hot
        return hot and wave.config.cluster_ctas == 1

    def gate(self, wave: Wave) -> int:
        return int(ring(wave).words[OPEN:].ctypes.data)

    def _packed(self, wave: Wave, *words: Any) -> bytes:
        words = *words[:5], ring(wave).words.ctypes.data, *words[5:]
        return struct.pack(f"{len(words)}q", *words)


@dataclass(eq=False)
class CopyStep(_Step):
    """The step of a cp.async of whole items."""

    read: Access | None = None
    write: Access | None = None

    def takes(self, source: Source) -> bool:
        wide = self.read is not None and source is self.read.base
        return source.convert is None and source.dtype.itemsize in ((8,) if wide else (4, 8))

    def job(self, wave: Wave) -> tuple[bytes, int]:
        assert self.read is not None
        assert self.write is not None
        text = copies.begin(
            self.write.nbytes,
            self.write.base.dtype.itemsize,
            self.write.offset,
            self.read.offset,
        )
        begin, begun = _functions(text, "begin", "begun")
        width, shared = wave.width, wave.regions["shared"]
        header = begin, jobs.pool(wave.cores).piece(width, WORTH, WARP), begun, width, width
        window = id(shared.data), id(shared.start), shared.size, shared.first
        return self._packed(wave, *header, id(wave.memory.table), *window, 0, 0), copies.REGISTERS


class CommitStep(_Step):
    """The step that closes a group."""

    def job(self, wave: Wave) -> tuple[bytes, int]:
        [commit] = _functions(copies.groups(), "commit")
        return self._packed(wave, commit, 1, 0, 0, 1), copies.RING


@dataclass(eq=False)
class WaitStep(_Step):
    """The step that waits for all but so many groups, -1 for all copies."""

    allowed: int = -1

    def job(self, wave: Wave) -> tuple[bytes, int]:
        land, landed = _functions(copies.groups(), "land", "landed")
        width = wave.width
        piece = jobs.pool(wave.cores).piece(width, WORTH, wave.cta_width)
        return self._packed(wave, land, piece, landed, width, width, self.allowed), copies.RING


def natively(step: Step, read: Access, write: Access) -> Step:
    """Return the step of a copy that is a job too."""
    sources = [write.base, read.base]
    return CopyStep(step, sources, (), read, write) if _is_possible() else step


def committed(step: Step) -> Step:
    return CommitStep(step) if _is_possible() else step


def waited(step: Step, allowed: int) -> Step:
    return WaitStep(step, (), (), allowed) if _is_possible() else step


def _is_possible() -> bool:
    return compiler.available() and sees_arrays()
