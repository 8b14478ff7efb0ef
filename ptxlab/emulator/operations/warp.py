"""What all operations on whole warps share: who takes part, and registers as [warps, 32].

A warp operation waits until every thread it needs stands at it; see ``ptxlab.emulator.run.waiting``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP
from ptxlab.syntax.tree import Instruction

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


def require_whole_warps(frame: Frame, threads: Threads, name: str, line: int) -> Array | None:
    """Return the numbers of the active warps (None: all). Raise LaunchError for a partial warp."""
    if threads.everyone:
        return None
    per_warp = threads.mask.reshape(-1, WARP).sum(axis=1)
    partial = np.flatnonzero((per_warp > 0) & (per_warp < WARP))
    if partial.size:
        warp = int(partial[0])
        raise LaunchError(
            f"{name} needs all 32 threads of the warp, {int(per_warp[warp])} are active in the warp "
            f"of {frame.wave.thread(warp * WARP)}",
            location=frame.wave.locate(line),
            hint="guard it so that whole warps execute it, or launch whole warps",
            kind="barrier",
        )
    return np.flatnonzero(per_warp)


def by_warp(value: Array, frame: Frame, warps: Array | None) -> Array:
    """Return a register value as [warps, 32] of the active warps."""
    if value.shape[0] == 1:
        count = frame.wave.warps if warps is None else warps.shape[0]
        return np.broadcast_to(value, (count, WARP))
    table = value.reshape(-1, WARP)
    return table if warps is None else table[warps]


def write_warps(frame: Frame, threads: Threads, destination: Destination, rows: Array) -> None:
    """Write [active warps, 32] to a register."""
    slot = destination.slot
    frame.registers[slot] = threads.spread(frame.registers[slot], rows.reshape(-1))


class WarpBarrier:
    """bar.warp.sync: nothing to do once the lanes it names are here."""

    __slots__ = ("participants",)

    def __init__(self, mask: MemberMask) -> None:
        self.participants = mask

    def run(self, frame: Frame, threads: Threads) -> None:
        """Go on: all threads see the same memory at all times."""
        self.participants.check(frame, threads)
        if frame.wave.watched:
            for team, _ in self.participants.teams(frame, threads):
                frame.wave.watcher.synchronize_warps(team.reshape(-1))


def warp_barrier(context: Context, instruction: Instruction, form: Form) -> Step:
    """Wait for the lanes of a membermask. Barriers of a CTA end a block: see ``exits``."""
    if len(instruction.operands) != 1:
        context.reject(f"{instruction.name} takes a membermask")
    return WarpBarrier(MemberMask(context.source(instruction.operands[0], "b32"), context))


row("bar.warp.sync", "b32", step=warp_barrier, mix="synchronization", collective=True)
