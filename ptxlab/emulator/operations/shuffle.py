"""shfl.sync. Source: PTX ISA, "Data Movement and Conversion Instructions: shfl.sync"."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.operations.warp import MemberMask
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.syntax.tree import Instruction, Operand, Pair


class Shuffle:
    """shfl.sync: each lane reads a register of another lane of its warp."""

    __slots__ = ("_choose", "_inside", "_sources", "_value", "participants")

    def __init__(
        self,
        value: Destination,
        inside: Destination | None,
        sources: list[Source],
        mode: str,
        mask: MemberMask,
    ) -> None:
        self._value = value
        self._inside = inside
        self._sources = sources
        self._choose = _FROM[mode]
        self.participants = mask

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for ``threads``; a lane whose source is out of range reads itself."""
        self.participants.check(frame, threads)
        registers = frame.registers
        a, b, c = (source.read(registers) for source in self._sources)
        lane = np.arange(frame.wave.width, dtype=np.int64) % WARP
        clamp, segment = c.astype(np.int64) & 31, (c.astype(np.int64) >> 8) & 31
        low, high = lane & segment, (lane & segment) | (clamp & ~segment)
        source, inside = self._choose(lane, b.astype(np.int64) & 31, low, high, segment)
        source = np.where(inside, source, lane)
        base = np.arange(frame.wave.width) - lane
        value = a if a.shape[0] == 1 else a[base + source]
        for destination, result in ((self._value, value), (self._inside, inside)):
            if destination is not None:
                slot = destination.slot
                registers[slot] = threads.merge(registers[slot], result)


def _up(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    return lane - b, lane - b >= high


def _down(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    return lane + b, lane + b <= high


def _butterfly(
    lane: Array, b: Array, low: Array, high: Array, segment: Array
) -> tuple[Array, Array]:
    return lane ^ b, (lane ^ b) <= high


def _indexed(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    source = low | (b & ~segment)
    return source, source <= high


_FROM = {"up": _up, "down": _down, "bfly": _butterfly, "idx": _indexed}


def shuffle(context: Context, instruction: Instruction, form: Form) -> Step:
    """Read a register of another lane of the warp."""
    if not form["sync"]:
        context.refuse("shfl without .sync", hint="write shfl.sync; shfl was removed from sm_70 on")
    if len(instruction.operands) != 5:
        context.reject(f"{instruction.name} takes 5 operands, found {len(instruction.operands)}")
    target: Operand = instruction.operands[0]
    inside = None
    if isinstance(target, Pair):
        inside = context.destination(target.second, "pred")
        target = target.first
    value = context.destination(target, "b32")
    a, b, c, mask = (context.source(operand, "b32") for operand in instruction.operands[1:])
    return Shuffle(value, inside, [a, b, c], form["mode"], MemberMask(mask, context))


row(
    "shfl{.sync}.<mode>.b32",
    "b32 b32 b32 b32 -> b32|pred",
    step=shuffle,
    mix="warp",
    collective=True,
    mode=" ".join(_FROM),
)
