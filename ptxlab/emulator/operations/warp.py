"""What all operations on whole warps share: who takes part, and registers as [warps, 32].

A warp operation waits until every thread it needs stands at it; see ``ptxlab.emulator.machine``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.context import Context
from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.operation import Modifiers, step
from ptxlab.emulator.program import Array, Destination, Source, Step
from ptxlab.emulator.wave import WARP, Frame
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Instruction

Participants = Callable[[Frame, Lanes], Array]


def whole_warps(frame: Frame, lanes: Lanes) -> Array:
    """Return every lane of every warp that has an active lane: who an ``.aligned`` operation needs."""
    return np.repeat(lanes.mask.reshape(-1, WARP).any(axis=1), WARP)


class MemberMask:
    """The lanes that the active lanes name in their membermask operand."""

    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, frame: Frame, lanes: Lanes) -> Array:
        """Return the lanes named by any active lane of their warp."""
        named = np.where(lanes.mask, self._source.read(frame.registers), np.uint32(0))
        joined = np.bitwise_or.reduce(named.reshape(-1, WARP), axis=1)
        bits: Array = (joined[:, None] >> np.arange(WARP, dtype=np.uint32)) & 1
        return bits.astype(bool).reshape(-1)


def require_whole_warps(frame: Frame, lanes: Lanes, name: str, line: int) -> Array | None:
    """Return the numbers of the active warps (None: all). Raise LaunchError for a partial warp."""
    if lanes.everyone:
        return None
    per_warp = lanes.mask.reshape(-1, WARP).sum(axis=1)
    partial = np.flatnonzero((per_warp > 0) & (per_warp < WARP))
    if partial.size:
        warp = int(partial[0])
        raise LaunchError(
            f"{name} needs all 32 threads of the warp, {int(per_warp[warp])} are active in the warp "
            f"of {frame.wave.thread(warp * WARP)}",
            location=frame.wave.program.locate(line),
            hint="guard it so that whole warps execute it, or launch whole warps",
        )
    return np.flatnonzero(per_warp)


def by_warp(value: Array, frame: Frame, warps: Array | None) -> Array:
    """Return a register value as [warps, 32] of the active warps."""
    if value.shape[0] == 1:
        count = frame.wave.warps if warps is None else warps.shape[0]
        return np.broadcast_to(value, (count, WARP))
    table = value.reshape(-1, WARP)
    return table if warps is None else table[warps]


def write_warps(frame: Frame, lanes: Lanes, destination: Destination, rows: Array) -> None:
    """Write [active warps, 32] to a register."""
    slot = destination.slot
    frame.registers[slot] = lanes.spread(frame.registers[slot], rows.reshape(-1))


class WarpBarrier:
    """bar.warp.sync: nothing to do once the lanes it names are here."""

    __slots__ = ("participants",)

    def __init__(self, mask: Source) -> None:
        self.participants = MemberMask(mask)

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Go on: all threads see the same memory at all times."""


@step("bar", "barrier", collective=True)
def warp_barrier(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """bar.warp.sync membermask. Barriers of a CTA end a block and are built by ``exits``."""
    modifiers.one_of("warp")
    modifiers.one_of("sync")
    [mask] = instruction.operands
    return WarpBarrier(context.source(mask, "b32"))
