"""cp.async and its groups as machine code: where copies go is noted, and they are made when they are waited for.

They are tasks in a dispatch loop, outside of which they are arrays. All threads take part, so that all have begun
as many groups. What is under way is a ring of words: a head of ``HEAD`` words, and for each of ``CAPACITY`` copies
a row: where the array is that says where each thread reads, the same of where it writes, how many bytes, and the
number of its group, -1 before the commit. Nothing may be begun or waited for while the ring is not open, and it
closes itself when it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import proxy

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.addresses import WINDOW, AddressTranslation, Span, Window, window_words
from ptxlab.emulator.native.warp_operation import with_task
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.in_flight import Groups, Land
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.native import cores
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.cores import HEADER
from ptxlab.native.text import ModuleFunction, module
from ptxlab.native.value import VectorValue

WORTH = 2048
"""Threads that a core does at a time at least, in some microseconds."""

OPEN, GROUPS, FIRST, COUNT, BEGUN = range(5)
"""Words of the ring: whether it may be used, groups committed, the oldest copy, how many, how many were begun."""

HEAD, ROW, CAPACITY = 8, 4, 64
"""The words before the rows, those of a row, and how many rows there are, a power of two."""

RING, ALLOWED = (HEADER + at for at in range(2))
"""Words of all tasks: the ring; of a wait how many groups may be under way, -1 to wait for all that has begun."""

TABLE, SHARED, REGISTERS = (HEADER + at for at in (1, 2, 2 + WINDOW))
"""Words of the task that begins a copy: allocations, the window of shared memory, registers with addresses."""

SOURCE, TARGET, SIZE, GROUP = range(ROW)
"""The words of a row."""


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
            [function] = cores.functions(groups(), "land")
            pool = cores.pool(self._cores)
            pool.run(pool.task(count, (function, count, 1), words=(ring.ctypes.data, -1)))

        return land


def ring(wave: Wave) -> Ring:
    """Return the ring of a wave."""
    own = wave.own
    if own.copies is None:
        own.copies = Ring(wave.width)
        own.copies.begin(wave.copies, wave.cores)
    assert isinstance(own.copies, Ring)
    return own.copies


# ---- functions ----


class _RingFunction:
    """A function of a task, and the ring that the task names."""

    def __init__(self) -> None:
        self.f = FunctionBuilder()
        self.task, self.first, self.end = self.f.task()
        self.words = self.task.word(RING).pointer()
        self._oldest = self.words.word(FIRST)

    def row(self, index: VectorValue) -> VectorValue:
        """Return where the words of a copy are, of which ``index`` were older at the beginning."""
        return self.words.at(((self._oldest + index) & CAPACITY - 1) * ROW + HEAD, 8)

    @contextmanager
    def due(self) -> Iterator[VectorValue]:
        """Do what is inside with the row of each copy that is due, as all that are older are; then end the function."""
        allowed, newest = self.task.word(ALLOWED), self.words.word(GROUPS)
        with self.f.for_range(0, self.words.word(COUNT)) as i:
            row = self.row(i)
            group = row.word(GROUP)
            not_due = group.is_("slt", 0) | group.is_("sge", newest - allowed)
            with self.f.when(allowed.is_("sge", 0) & not_due):
                self.f.ret(0)
            yield row


def _begun(nbytes: int) -> ModuleFunction:
    ring = _RingFunction()
    words, count = ring.words, ring.words.word(COUNT)
    row, more = ring.row(count), count + 1
    row.set(SIZE, count.like(nbytes))
    row.set(GROUP, count.like(-1))
    words.set(COUNT, more)
    words.set(BEGUN, words.word(BEGUN) + 1)
    words.set(OPEN, more.is_("ult", CAPACITY).to("zext", "i64"))
    return ring.f.function("begun")


def _commit() -> ModuleFunction:
    ring = _RingFunction()
    groups = ring.words.word(GROUPS)
    with ring.f.for_range(0, ring.words.word(COUNT)) as i:
        row = ring.row(i)
        with ring.f.when(row.word(GROUP).is_("slt", 0)):
            row.set(GROUP, groups)
    ring.words.set(GROUPS, groups + 1)
    return ring.f.function("commit")


def _land() -> ModuleFunction:
    """Return the function that makes the copies that are due, each of all threads."""
    ring = _RingFunction()
    with ring.due() as row:
        source, target = (row.word(at).pointer() for at in (SOURCE, TARGET))
        for size in (4, 8, 16):
            is_size = row.word(SIZE).is_("eq", size)
            with ring.f.when(is_size), ring.f.for_range(ring.first, ring.end) as k:
                item = source.word(k).pointer().load("i8", size, align=1)
                target.word(k).pointer().store(item, align=1)
    return ring.f.function("land")


def _landed() -> ModuleFunction:
    """Return the function that takes these copies from the ring."""
    ring = _RingFunction()
    with ring.due():
        ring.words.set(COUNT, ring.words.word(COUNT) - 1)
        ring.words.set(FIRST, ring.words.word(FIRST) + 1)
    return ring.f.function("landed")


@cache
def groups() -> str:
    """Return the functions ``commit``, and ``land`` and ``landed``, which follow each other in a wait."""
    return module(_commit(), _land(), _landed())


@cache
def begin(nbytes: int, target_bytes: int, target: int, origin: int) -> str:
    """Return the functions ``begin`` and ``begun``, which follow each other, of copies of so many bytes.

    Addresses in shared memory have ``target_bytes`` bytes. ``target`` and ``origin`` are added to the
    addresses.
    """
    ring = _RingFunction()
    f, task = ring.f, ring.task
    row = ring.row(ring.words.word(COUNT))
    sources, targets = (row.word(at).pointer() for at in (SOURCE, TARGET))
    table, window = task.array(TABLE), Window.of(f, task, SHARED)
    into, out_of = (task.array(REGISTERS + at) for at in range(2))
    with f.thread_loop(ring.first, ring.end) as i:
        addresses = AddressTranslation(f, table, i)
        to = into.at(i, target_bytes).load(f"i{8 * target_bytes}", LANES, align=1)
        to = to.extended(64, signed=False)
        written = addresses.in_window(to, window, _span(target, nbytes), None)
        from_ = out_of.at(i, 8).load("i64", LANES, align=1)
        read = addresses.in_global(from_, _span(origin, nbytes), None, writes=False)
        for array, address, offset in ((sources, read, origin), (targets, written, target)):
            array.at(i, 8).store(address.address + offset, align=8)
    return module(f.function("begin"), _begun(nbytes))


def _span(offset: int, nbytes: int) -> Span:
    span = Span(offset, offset)
    span.add(offset, nbytes)
    return span


# ---- steps ----


def _step(step: Step, sources: Sequence[Source], make: Callable[[Wave], bytes]) -> Step:
    """Return a step of the copies that the ring of a wave has, while it is open."""
    return with_task("cp.async", step, sources, (), make, _where_open)


def _where_open(wave: Wave) -> int:
    return int(ring(wave).words[OPEN:].ctypes.data)


def _task(
    wave: Wave, total: int, *stages: tuple[Any, int, int], words: tuple[int, ...] = ()
) -> bytes:
    given = ring(wave).words.ctypes.data, *words
    return cores.pool(wave.cores).task(total, *stages, words=given)


def natively(step: Step, read: Access, write: Access) -> Step:
    """Return the step of a cp.async of whole items that is a task too."""
    target = write.base.dtype.itemsize
    if read.base.dtype.itemsize != 8:
        return step

    def task(wave: Wave) -> bytes:
        text = begin(write.nbytes, target, write.offset, read.offset)
        first, second = cores.functions(text, "begin", "begun")
        words = id(wave.memory.table), *window_words(wave.regions["shared"])
        stages = (first, WORTH, WARP), (second, wave.width, 1)
        return _task(wave, wave.width, *stages, words=words)

    return _step(step, [write.base, read.base], task)


def committed(step: Step) -> Step:
    """Return the step that closes a group."""

    def task(wave: Wave) -> bytes:
        [commit] = cores.functions(groups(), "commit")
        return _task(wave, 1, (commit, 1, 1))

    return _step(step, (), task)


def waited(step: Step, allowed: int) -> Step:
    """Return the step that waits for all but so many groups, -1 for all copies."""

    def task(wave: Wave) -> bytes:
        land, landed = cores.functions(groups(), "land", "landed")
        stages = (land, WORTH, wave.cta_width), (landed, wave.width, 1)
        return _task(wave, wave.width, *stages, words=(allowed,))

    return _step(step, (), task)
