"""Registers and shared memory of a CTA, looked at again and again: what has changed, and who accessed what."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.tensor_memory import CTA_CELLS
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.recorded_operands import KnownRegisters
from ptxlab.observe.recording import (
    COPY,
    READ,
    WRITE,
    RegisterChanges,
    SharedAccesses,
    SharedChanges,
    Turns,
    Words32,
)
from ptxlab.observe.trace_context import TraceContext

WORD = 4
"""Bytes of a word."""
NOTHING = SharedChanges(*(np.zeros(0, np.uint32) for _ in range(4)))
"""What became of a memory that nobody used."""


class RegisterLog:
    """The registers of ``warps`` of the CTA at a position of the wave."""

    def __init__(self, context: TraceContext, position: int, warps: Sequence[int]) -> None:
        wave = context.wave
        self._context = context
        self._warps = np.array(warps, np.int64)
        self._threads = (
            position * wave.cta_width + self._warps[:, None] * WARP + np.arange(WARP)
        ).ravel()
        self.known = KnownRegisters(lifted=wave.module.lifted)
        self._frames: WeakKeyDictionary[Frame, _Seen] = WeakKeyDictionary()
        self._current: dict[str, Frame] = {}
        self._doubts = 0
        self._values: dict[int, Array] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._changes: list[tuple[int, int, int]] = []
        self._words: list[Words32] = []

    def turn(self, threads: Threads, passing: Threads | None) -> None:
        """See ``threads`` have the step at hand as their turn, of which those ``passing`` execute it."""
        standing = self._lanes(threads.mask)
        acting = np.zeros_like(standing) if passing is None else self._lanes(passing.mask)
        for at in np.flatnonzero(standing).tolist():
            turn = self._context.step, int(self._warps[at])
            self._turns[turn] = self._turns.get(turn, 0) | int(acting[at])

    def _lanes(self, mask: Array) -> Array:
        """Return as bits which lanes of each warp are in a mask of the wave's threads."""
        bits = mask[self._threads].reshape(-1, WARP).astype(np.int64)
        lanes: Array = bits @ (1 << np.arange(WARP, dtype=np.int64))
        return lanes

    def doubt(self) -> None:
        """Have all registers of each frame looked at next time: not only its instructions have written some."""
        self._doubts += 1

    def look(self, site: Site, frame: Frame, threads: Threads) -> None:
        """Note what has changed of a frame's registers, in the threads that are or have been in it.

        Only what the site writes may have, unless there is doubt.
        """
        here = threads.mask[self._threads]
        if not here.any():
            return
        numbers = self.known.meet(site)
        seen = self._frames.get(frame)
        if seen is None:
            seen = self._frames[frame] = _Seen(np.zeros_like(here))
        if (here & ~seen.members).any() or self._current.get(site.function) is not frame:
            seen.members |= here
            seen.values.clear()
            self._current[site.function] = frame
            seen.doubts = -1
        certain, seen.doubts = seen.doubts == self._doubts, self._doubts
        for slot in site.writes if certain else numbers:
            number = numbers.get(slot)
            if number is None:
                continue
            value = frame.registers[slot]
            if seen.values.get(slot) is not value:
                seen.values[slot] = value
                self._compare(number, value, seen.members)

    def _compare(self, number: int, value: Array, members: Array) -> None:
        """Note what a register has become in warps; ``members`` are the threads whose value it is."""
        everyone = np.broadcast_to(value, (self._context.wave.width,))[self._threads]
        now = _as_words(everyone)
        before = self._values.get(number)
        if before is None:
            before = self._values[number] = np.zeros_like(now)
        became = np.where(members[:, None], now ^ before, np.uint32(0)).reshape(
            -1, WARP, now.shape[1]
        )
        changed = np.flatnonzero(became.any(axis=(1, 2)))
        if changed.size:
            before ^= became.reshape(now.shape)
            step = max(self._context.step, 0)
            for at in changed.tolist():
                self._changes.append((step, int(self._warps[at]), number))
                self._words.append(became[at].T.ravel())

    def turns(self) -> Turns:
        return Turns(*columns([(*turn, lanes) for turn, lanes in self._turns.items()], 3))

    def changes(self) -> RegisterChanges:
        step, warp, register = columns(self._changes, 3)
        return RegisterChanges(step, warp, register, joined(self._words))


class _Seen:
    """The arrays last looked at in a frame, by register, after how many doubts, and who is in it."""

    __slots__ = ("doubts", "members", "values")

    def __init__(self, members: Array) -> None:
        self.members = members
        self.doubts = -1
        self.values: dict[int, Array] = {}


def _as_words(value: Array) -> Words32:
    """Return values as words of 32 bits, [threads, words], the low one first."""
    if value.dtype.itemsize < WORD:
        unsigned = value if value.dtype == bool else value.view(f"u{value.dtype.itemsize}")
        return unsigned.astype(np.uint32)[:, None]
    return np.ascontiguousarray(value).view(np.uint32).reshape(len(value), -1)


class MemoryLog:
    """The words of a memory that is looked at again and again."""

    def __init__(self, context: TraceContext, now: Words32) -> None:
        self._context = context
        self._now = now
        self._seen = np.zeros_like(now)
        self._runs: list[tuple[int, int, int]] = []
        self._words: list[Words32] = []

    def look(self) -> None:
        """Note what has changed."""
        became = self._now ^ self._seen
        changed = np.flatnonzero(became)
        if not changed.size:
            return
        step = max(self._context.step, 0)
        for run in np.split(changed, np.flatnonzero(np.diff(changed) > 1) + 1):
            first, count = int(run[0]), len(run)
            self._runs.append((step, first, count))
            self._words.append(became[first : first + count])
        np.copyto(self._seen, self._now)

    def changes(self) -> SharedChanges:
        step, first, count = columns(self._runs, 3)
        return SharedChanges(step, first, count, joined(self._words))


def cells_of(wave: Wave, position: int) -> Words32:
    """Return the cells of the Tensor Memory of the CTA at a position, as they are at any time."""
    cells: Words32 = wave.tensor_memory.cells[position * CTA_CELLS : (position + 1) * CTA_CELLS]
    return cells


class SharedLog(MemoryLog):
    """The shared memory of the CTA at a position of the wave."""

    def __init__(self, context: TraceContext, position: int) -> None:
        region, self._base = context.wave.regions["shared"], position * context.wave.shared_pitch
        self._end = self._base + context.wave.shared_pitch
        super().__init__(context, region.data[self._base : self._end].view(np.uint32))
        self._accesses: list[tuple[int, int, int, int, int]] = []
        self._addresses: list[Array] = []

    def access(self, access: Access, threads: Array, first: Array, *, copies: bool) -> None:
        """See threads of the wave access shared memory, ``first`` being where in all of the wave's."""
        mine = (first >= self._base) & (first < self._end)
        threads, first = threads[mine] - self._context.inside.start, first[mine] - self._base
        kind = (COPY if copies else WRITE) if access.writes else READ
        for warp in np.unique(threads // WARP).tolist():
            here = threads // WARP == warp
            lanes = int(np.bitwise_or.reduce(np.int64(1) << (threads[here] % WARP)))
            self._accesses.append((self._context.step, warp, kind, access.nbytes, lanes))
            self._addresses.append(first[here].astype(np.uint32))

    def accesses(self) -> SharedAccesses:
        step, warp, kind, nbytes, lanes = columns(self._accesses, 5)
        return SharedAccesses(step, warp, kind, nbytes, lanes, joined(self._addresses))


def columns(rows: Sequence[tuple[int, ...]], count: int) -> Sequence[Words32]:
    """Return the columns of a table of ``count``, which may have no rows."""
    return list(np.array(rows, np.uint32).reshape(-1, count).T)


def joined(parts: Sequence[Words32]) -> Words32:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)
