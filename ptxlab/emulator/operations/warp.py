"""What all operations on whole warps share: who takes part, and registers as [warps, 32].

What is said of warps holds for warpgroups, which are teams of 128 threads in place of 32. A warp
operation waits until every thread it needs stands at it; see ``ptxlab.emulator.run.waiting``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.fragments import to_registers
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout

LANE_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
EVERYONE = np.uint32(0xFFFFFFFF)


_MOVES = {"up": np.subtract, "down": np.add, "bfly": np.bitwise_xor}


def lane_read(mode: str, lane: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return which lane each ``lane`` reads in a shfl, and whether that is another's place; all are signed integers."""
    by, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    low, high = lane & segment, (lane & segment) | (clamp & ~segment)
    source = low | (by & ~segment) if mode == "idx" else _MOVES[mode](lane, by)
    inside = source >= high if mode == "up" else source <= high
    return np.where(inside, source, lane), inside


def in_teams(wave: Wave, mask: Array, size: int) -> Array:
    """Return a mask of threads as [teams, size], False where the last team of a CTA is not whole."""
    width = wave.cta_width
    by_cta = mask.reshape(wave.ctas, width)
    if width % size:
        by_cta = np.zeros((wave.ctas, width + -width % size), mask.dtype)
        by_cta[:, :width] = mask.reshape(wave.ctas, width)
    return by_cta.reshape(-1, size)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Threads that must all execute an ``.aligned`` operation: of a warp, as far as it lives.

    Or of a team of another ``size``: CTAs are cut into teams from their first thread on.
    """

    size: int = WARP

    gives_up = False

    @property
    def where(self) -> str:
        """Where they wait, in words."""
        return "for the rest of their warp" + "group" * (self.size > WARP)

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the lanes whose warp is here."""
        if threads.everyone or self.size in threads.whole:
            return threads.mask
        wave = frame.wave
        here = in_teams(wave, threads.mask, self.size)
        if (here.any(axis=1) == here.all(axis=1)).all():
            threads.whole.add(self.size)
            return threads.mask
        missing = in_teams(wave, alive & ~threads.mask, self.size).any(axis=1)
        of_threads = np.repeat(~missing, self.size).reshape(wave.ctas, -1)
        whole: Array = threads.mask & of_threads[:, : wave.cta_width].reshape(-1)
        return whole

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say how many are here of what lives of the first lane's team."""
        return _here(frame, threads, alive & _team_of_first(frame, threads, self.size), self.size)


ALIGNED = Aligned()


def _team_of_first(frame: Frame, threads: Threads, size: int) -> Array:
    """Return the team of ``size`` threads that the first of ``threads`` belongs to."""
    width = frame.wave.cta_width
    cta, thread = divmod(int(threads.index[0]), width)
    first = cta * width + thread // size * size
    team = np.zeros(threads.width, bool)
    team[first : min(first + size, (cta + 1) * width)] = True
    return team


def _here(frame: Frame, threads: Threads, expected: Array, size: int = WARP) -> str:
    """Say how many of the ``expected`` threads of a team are here."""
    wave, here = frame.wave, int((expected & threads.mask).sum())
    cta, thread = divmod(int(threads.index[0]), wave.cta_width)
    name, count = "warp" if size == WARP else "warpgroup", int(expected.sum())
    return f"{name} {thread // size} of {wave.cta(cta)}: {here} of {count} threads are here"


class MemberMask:
    """The lanes that take part in an operation, as each of them names them in its membermask.

    Threads that have ended are not waited for (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
    "redux.sync"). bar.warp.sync is held to the same rule, which a GPU follows too.
    """

    __slots__ = ("_line", "_name", "source")

    where = ALIGNED.where
    gives_up = False

    def __init__(self, source: Source, context: Context) -> None:
        self.source = source
        self._name = context.instruction.name
        self._line = context.line

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the lanes whose members all stand here, with the same membermask."""
        if threads.everyone and self.source.read(frame.registers).shape[0] == 1:
            return threads.mask
        living, ready = alive.reshape(-1, WARP), np.zeros((frame.wave.warps, WARP), bool)
        for team, mask in self.teams(frame, threads):
            named = (mask & LANE_BITS).astype(bool)
            ready |= team & ~(living & named & ~team).any(axis=1, keepdims=True)
        return ready.reshape(-1)

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say how many are here of those that the first lane names and that live."""
        value = self.source.read(frame.registers)
        mask = value[0 if value.shape[0] == 1 else threads.index[0]]
        named: Array = np.tile((mask & LANE_BITS).astype(bool), frame.wave.warps)
        return _here(frame, threads, alive & _team_of_first(frame, threads, WARP) & named)

    def teams(self, frame: Frame, threads: Threads) -> Iterator[tuple[Array, Array]]:
        """Split the lanes by membermask: (lanes [warps, 32], their masks [warps or 1, 1])."""
        active, value = threads.mask.reshape(-1, WARP), self.source.read(frame.registers)
        if value.shape[0] == 1:
            yield active, value.reshape(1, 1)
            return
        masks, left = value.reshape(-1, WARP), active
        while left.any():
            mask = np.take_along_axis(masks, left.argmax(axis=1)[:, None], axis=1)
            team = left & (masks == mask)
            yield team, mask
            left = left & ~team

    def taking_part(self, frame: Frame, threads: Threads, other: Array) -> Array:
        """Say of each lane whether its thread ``other`` stands here and is named by its mask."""
        value = self.source.read(frame.registers)
        if threads.everyone and value.shape[0] == 1 and value[0] == EVERYONE:
            return threads.mask
        named = value >> (other % WARP).astype(np.uint32) & np.uint32(1)
        here: Array = threads.mask[other] & named.astype(bool)
        return here

    def check(self, frame: Frame, threads: Threads) -> None:
        """Raise LaunchError for a thread that its own membermask does not name."""
        value = self.source.read(frame.registers)
        if value.shape[0] == 1 and value[0] == EVERYONE:
            return
        every = np.broadcast_to(value, (frame.wave.width,)).reshape(-1, WARP)
        wrong = threads.mask & ((every & LANE_BITS) == 0).reshape(-1)
        if wrong.any():
            thread = int(wrong.argmax())
            raise LaunchError(
                f"{self._name} with membermask {int(every.reshape(-1)[thread]):#x}, which does not "
                f"name the lane that executes it, by {frame.wave.thread(thread)}",
                location=frame.wave.locate(self._line),
                hint=f"this is lane {thread % WARP}; what a GPU does then is undefined",
                kind="barrier",
            )


class WholeWarps:
    """The whole warps that an instruction acts on, or teams of another ``size``.

    Raises LaunchError in the ``name`` of the instruction for a partial warp.
    """

    kind = "warp"
    size = WARP

    def __init__(self, frame: Frame, threads: Threads, name: str, line: int) -> None:
        self.wave = frame.wave
        self.name = name
        self.threads = threads
        self._frame = frame
        self._line = line
        if self.size in threads.whole:
            return
        if not threads.everyone or self.wave.cta_width % self.size:
            self._check()

    def in_frame(self, frame: Frame) -> Self:
        """Return the same warps with the registers of another frame of theirs."""
        return type(self)(frame, self.threads, self.name, self._line)

    def _check(self) -> None:
        kind, width = self.kind, self.wave.cta_width
        here = in_teams(self.wave, self.threads.mask, self.size).sum(axis=1)
        partial = np.flatnonzero((here > 0) & (here < self.size))
        if partial.size:
            cta, team = divmod(int(partial[0]), -(-width // self.size))
            first = self.wave.thread(cta * width + team * self.size)
            raise self.fault(
                f"{self.name} needs all {self.size} threads of the {kind}, {int(here[partial[0]])} are "
                f"active in the {kind} of {first}",
                hint=f"guard it so that whole {kind}s execute it, or launch whole {kind}s",
                kind="barrier",
            )

    def fault(self, what: str, *, hint: str | None = None, kind: str = "") -> LaunchError:
        return LaunchError(what, location=self.wave.locate(self._line), hint=hint, kind=kind)

    def first_thread(self, position: int) -> int:
        return int(self.threads.index[self.size * position])

    @property
    def count(self) -> int:
        return self.threads.size // self.size

    @cached_property
    def _teams(self) -> Array:
        """Which of the wave they are."""
        teams: Array = self.threads.index[:: self.size] // self.size
        return teams

    @property
    def frame(self) -> Frame:
        return self._frame

    @property
    def registers(self) -> list[Array]:
        return self._frame.registers

    def split(self, value: Array) -> Array:
        """Return a register's value as [warps, 32]."""
        if value.shape[0] == 1:
            return np.broadcast_to(value, (self.count, self.size))
        if self.threads.everyone or self.wave.cta_width % self.size:
            return self.threads.pick(value).reshape(-1, self.size)
        rows: Array = value.reshape(-1, self.size)[self._teams]
        return rows

    def read(self, source: Source) -> Array:
        """Return an operand as [warps, 32]."""
        return self.split(source.read(self._frame.registers))

    def write(self, destination: Destination, rows: Array) -> None:
        """Write [warps, 32] to a register."""
        registers, slot, threads = self._frame.registers, destination.slot, self.threads
        if threads.everyone or threads.full or self.wave.cta_width % self.size:
            registers[slot] = threads.spread(registers[slot], rows.reshape(-1))
            return
        value = np.empty(threads.width, rows.dtype)
        value[:] = registers[slot].view(rows.dtype)
        value.reshape(-1, self.size)[self._teams] = rows
        registers[slot] = value

    def matrix(self, layout: FragmentLayout, sources: Sequence[Source]) -> Array:
        """Return what the registers of a fragment hold, [rows, cols, warps] of raw words."""
        values = [source.read(self._frame.registers) for source in sources]
        return self.wave.fragments.matrix(layout, values, self.split, self._identity)

    def write_matrix(
        self, layout: FragmentLayout, destinations: Sequence[Destination], matrix: Array
    ) -> None:
        """Write [rows, cols, warps] to the registers of a fragment."""
        for destination, words in zip(destinations, to_registers(layout, matrix), strict=True):
            self.write(destination, words)
        values = [self._frame.registers[destination.slot] for destination in destinations]
        self.wave.fragments.remember(layout, values, self._identity, matrix)

    @property
    def _identity(self) -> bytes:
        """What tells them from other warps of the wave: their first threads; nothing of them all."""
        return b"" if self.threads.everyone else self.threads.index[:: self.size].tobytes()
