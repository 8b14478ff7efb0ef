"""shfl as a task in a dispatch loop: see ``ptxlab.native.shuffle``. Outside of one it is no machine code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.native.warp_operation import FallbackStep
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.wave import Wave
from ptxlab.native import compiler, shuffle
from ptxlab.native import cores as tasks
from ptxlab.native.arrays import sees_arrays

WORTH = 128
"""Warps that a core does at a time at least, in some microseconds."""


@dataclass(eq=False)
class ShuffleStep(FallbackStep):
    """The step of a shfl by whole warps."""

    text: str
    word = np.dtype(np.uint32)
    kind = "shfl"
    can_fail = True

    @property
    def outputs(self) -> list[tuple[int, np.dtype[Any], bool]]:
        dtypes = self.word, np.dtype(bool)
        return [(slot, dtype, True) for slot, dtype in zip(self.slots, dtypes, strict=False)]

    def task(self, wave: Wave) -> tuple[bytes, int]:
        function = compiler.compile(self.text, shuffle.NAME, tasks.Function)
        chunk = tasks.pool(wave.cores).chunk(wave.warps, WORTH)
        registers = [0] * (len(self.sources) + len(self.slots))
        words = tasks.address(function), chunk, 0, 0, wave.warps, *registers
        return struct.pack(f"{len(words)}q", *words), shuffle.REGISTERS


def natively(
    step: Step,
    mode: str,
    sources: Sequence[Source],
    given: Sequence[int | None],
    destinations: Sequence[Destination],
) -> Step:
    """Return the step that is a task too; ``given`` are b, c and the membermask where they are constants."""
    if any(one.widen for one in destinations) or not (compiler.available() and sees_arrays()):
        return step
    text = shuffle.text(mode, tuple(given), tells=len(destinations) == 2)
    value, *numbers = sources
    read = [one for one, constant in zip(numbers, given, strict=True) if constant is None]
    return ShuffleStep(step, [value, *read], [one.slot for one in destinations], text)
