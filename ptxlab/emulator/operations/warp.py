"""What all operations on whole warps share: who takes part, and registers as [warps, 32].

A warp operation waits until every thread it needs stands at it; see ``ptxlab.emulator.run.waiting``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP

LANE_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
EVERYONE = np.uint32(0xFFFFFFFF)


class Aligned:
    """Threads that must all execute an ``.aligned`` operation: of a warp, as far as it lives."""

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the lanes whose warp is here."""
        if threads.everyone:
            return threads.mask
        missing = (alive & ~threads.mask).reshape(-1, WARP).any(axis=1)
        whole: Array = threads.mask & np.repeat(~missing, WARP)
        return whole

    def expected(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return what lives of the first lane's warp."""
        warp: Array = np.arange(frame.wave.width) // WARP == threads.index[0] // WARP
        return alive & warp


ALIGNED = Aligned()


class MemberMask:
    """The lanes that take part in an operation, as each of them names them in its membermask.

    Threads that have ended are not waited for (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
    "redux.sync"). bar.warp.sync is held to the same rule, which a GPU follows too.
    """

    __slots__ = ("_line", "_name", "source")

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

    def expected(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return those that the first lane names and that live."""
        value = self.source.read(frame.registers)
        mask = value[0 if value.shape[0] == 1 else threads.index[0]]
        named: Array = np.tile((mask & LANE_BITS).astype(bool), frame.wave.warps)
        return ALIGNED.expected(frame, threads, alive) & named

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


class Warps:
    """The whole warps that an instruction acts on: ``numbers`` are theirs in the wave, None for all.

    Raises LaunchError in the ``name`` of the instruction for a partial warp.
    """

    __slots__ = ("_frame", "_line", "_threads", "name", "numbers", "wave")

    def __init__(self, frame: Frame, threads: Threads, name: str, line: int) -> None:
        self.wave = frame.wave
        self.name = name
        self._frame = frame
        self._threads = threads
        self._line = line
        self.numbers: Array | None = None
        if threads.everyone:
            return
        per_warp = threads.mask.reshape(-1, WARP).sum(axis=1)
        partial = np.flatnonzero((per_warp > 0) & (per_warp < WARP))
        if partial.size:
            warp = int(partial[0])
            raise self.fault(
                f"{name} needs all 32 threads of the warp, {int(per_warp[warp])} are active in the "
                f"warp of {self.wave.thread(warp * WARP)}",
                hint="guard it so that whole warps execute it, or launch whole warps",
                kind="barrier",
            )
        self.numbers = np.flatnonzero(per_warp)

    def fault(self, what: str, *, hint: str | None = None, kind: str = "") -> LaunchError:
        """Return the error of the instruction."""
        return LaunchError(what, location=self.wave.locate(self._line), hint=hint, kind=kind)

    def first_thread(self, position: int) -> int:
        """Return the first thread of the warp at ``position`` among these."""
        return WARP * (position if self.numbers is None else int(self.numbers[position]))

    @property
    def count(self) -> int:
        """How many there are."""
        return self._threads.size // WARP

    def split(self, value: Array) -> Array:
        """Return a register's value as [warps, 32]."""
        if value.shape[0] == 1:
            return np.broadcast_to(value, (self.count, WARP))
        table = value.reshape(-1, WARP)
        return table if self.numbers is None else table[self.numbers]

    def read(self, source: Source) -> Array:
        """Return an operand as [warps, 32]."""
        return self.split(source.read(self._frame.registers))

    def write(self, destination: Destination, rows: Array) -> None:
        """Write [warps, 32] to a register."""
        registers, slot = self._frame.registers, destination.slot
        registers[slot] = self._threads.spread(registers[slot], rows.reshape(-1))
