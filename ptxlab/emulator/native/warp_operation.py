"""Instructions of whole warps that are tasks of their own: machine code that no block has to be compiled for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.heat import ANY, PROCESS, clock
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.code import InstructionSteps, Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import NEVER, Frame, Wave
from ptxlab.native import cores
from ptxlab.native.arrays import sees_arrays
from ptxlab.native.compiler import available

Output = tuple[int, np.dtype[Any], bool]
"""What machine code writes: a register, its dtype, and whether it has an element a thread, or one for all."""

NAME = "warps"
"""What functions for one warp after the other are called."""

WARPS = 128
"""Warps that a core does at a time at least, in some microseconds."""

SOONER = 8
"""How much sooner than a block it is compiled: it is short, and who does it does so again and again."""


@dataclass(eq=False)
class PartTask:
    """What runs a part of a block in a dispatch loop: a task, and the registers that it names.

    Of a warp all ``inputs`` are read before something is written; if it ``can_fail`` what it writes must not be what
    it reads. ``make`` returns the task for the threads of a mask, None for all, behind which the registers are named, a
    word each, and what must stay as long as it. ``gate`` returns the address of a word that is 0 while the part is to
    be done by arrays; 0 for none.
    """

    inputs: Sequence[int]
    outputs: Sequence[Output]
    make: Callable[[Wave, Array | None], tuple[bytes, Any]]
    can_fail: bool = True
    gate: Callable[[Wave], int] = lambda wave: 0

    @property
    def named(self) -> set[int]:
        """The registers that it names."""
        return {*self.inputs, *(slot for slot, _, _ in self.outputs)}


@dataclass(eq=False)
class WarpOperation(ABC):
    """A step, of arrays as a rule, that is also the task of a ``part`` where all threads take part, None if it cannot be."""

    by_arrays: Step
    part: PartTask | None

    @abstractmethod
    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Run for these threads, as arrays if need be."""

    @abstractmethod
    def ready(self, wave: Wave) -> bool:
        """Say whether there is machine code for a wave."""


@dataclass(eq=False)
class FallbackStep(WarpOperation):
    """A step that falls back to arrays outside of a dispatch loop; in one it is a task once those of its ``kind`` have taken long."""

    kind: str

    def __call__(self, frame: Frame, threads: Threads) -> None:
        began = clock()
        self.by_arrays(frame, threads)
        PROCESS.spent[ANY, self.kind] += clock() - began

    def ready(self, wave: Wave) -> bool:
        possible = wave.hot != NEVER and wave.config.cluster_ctas == 1
        return possible and PROCESS.is_hot((ANY, self.kind), wave.hot // SOONER)


def with_task(
    kind: str,
    step: Step,
    sources: Sequence[Source],
    outputs: Sequence[Output],
    make: Callable[[Wave], bytes],
    gate: Callable[[Wave], int] = lambda wave: 0,
) -> Step:
    """Return the step that is a task too, which somebody can ``make`` for a wave; ``step`` alone where it cannot be."""
    if not (is_possible() and all(source.convert is None for source in sources)):
        return step
    inputs = [source.slot for source in sources]
    part = PartTask(inputs, outputs, lambda wave, mask: (make(wave), None), gate=gate)
    return FallbackStep(step, part, kind)


def by_warps(text: str, words: Callable[[Wave], tuple[int, ...]]) -> Callable[[Wave], bytes]:
    """Return what makes the task of the function ``NAME`` of a module, for one warp after the other.

    It is given these ``words`` before the registers.
    """

    def make(wave: Wave) -> bytes:
        [function] = cores.functions(text, NAME)
        return cores.pool(wave.cores).task(wave.warps, (function, WARPS, 1), words=words(wave))

    return make


def per_lane(destinations: Sequence[Destination]) -> list[Output]:
    """Return what writes a word of 32 bits a thread to registers."""
    return [(destination.slot, np.dtype(np.uint32), True) for destination in destinations]


def is_possible() -> bool:
    """Say whether a step can be a task."""
    return available() and sees_arrays()


def warp_operation(bounds: Sequence[InstructionSteps]) -> WarpOperation | None:
    """Return the step of a single instruction if it is a task of its own."""
    if len(bounds) != 1 or len(bounds[0].steps) != 1:
        return None
    [step] = bounds[0].steps
    return step if isinstance(step, WarpOperation) else None
