"""Instructions of whole warps that are tasks of their own: machine code that no block has to be compiled for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.heat import ANY, PROCESS, clock
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.code import InstructionSteps, Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import NEVER, Frame, Wave
from ptxlab.native import cores
from ptxlab.native.arrays import sees_arrays
from ptxlab.native.compiler import available


class PartTask(ABC):
    """What runs a part of a block in a dispatch loop: a task, and the registers that it names.

    Of a warp all is read before something is written; if it ``can_fail`` what it writes must not be what it reads.
    """

    can_fail = False

    @property
    @abstractmethod
    def inputs(self) -> Sequence[int]:
        """The registers that it reads."""

    @property
    @abstractmethod
    def outputs(self) -> Sequence[tuple[int, np.dtype[Any], bool]]:
        """The registers that it writes, with their dtypes, and whether they have an element a thread."""

    def gate(self, wave: Wave) -> int:
        """Return the address of a word that is 0 while the part is to be done by arrays; 0 for none."""
        return 0

    @abstractmethod
    def task(self, wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
        """Return the task for the threads of a mask, None for all, and what must stay as long as it.

        Inputs and outputs are named behind it, a word each.
        """


class WarpOperation(PartTask):
    """A step that is a task where all threads take part: of registers of one word a thread.

    It reads ``sources`` and writes registers, ``slots``, of dtype ``word`` as a rule.
    """

    sources: Sequence[Source]
    slots: Sequence[int]
    word: np.dtype[Any]

    @property
    def inputs(self) -> Sequence[int]:
        return [source.slot for source in self.sources]

    @property
    def outputs(self) -> Sequence[tuple[int, np.dtype[Any], bool]]:
        return [(slot, self.word, True) for slot in self.slots]

    @property
    def named(self) -> set[int]:
        """The registers that its task names."""
        return {*self.inputs, *self.slots}

    @abstractmethod
    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Run for these threads, as arrays if need be."""

    @abstractmethod
    def ready(self, wave: Wave) -> bool:
        """Say whether there is machine code for a wave."""

    def takes(self, source: Source) -> bool:
        """Say whether the task can read a source."""
        return source.convert is None and source.dtype.itemsize == self.word.itemsize


NAME = "warps"
"""What functions for one warp after the other are called."""

WARPS = 128
"""Warps that a core does at a time at least, in some microseconds."""

SOONER = 8
"""How much sooner than a block it is compiled: it is short, and who does it does so again and again."""


@dataclass(eq=False)
class FallbackStep(WarpOperation):
    """A step that falls back to arrays, ``by_arrays``, outside of a dispatch loop.

    In one it is a task, that somebody can ``make`` for a wave, once those of its ``kind`` have taken long.
    """

    kind: str
    by_arrays: Step
    sources: Sequence[Source]
    slots: Sequence[int]
    make: Callable[[Wave], bytes]
    word = np.dtype(np.uint32)

    can_fail = True

    def __call__(self, frame: Frame, threads: Threads) -> None:
        began = clock()
        self.by_arrays(frame, threads)
        PROCESS.spent[ANY, self.kind] += clock() - began

    def ready(self, wave: Wave) -> bool:
        possible = wave.hot != NEVER and wave.config.cluster_ctas == 1
        return possible and PROCESS.is_hot((ANY, self.kind), wave.hot // SOONER)

    def task(self, wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
        return self.make(wave), self


def by_warps(text: str, words: Callable[[Wave], tuple[int, ...]]) -> Callable[[Wave], bytes]:
    """Return what makes the task of the function ``NAME`` of a module, for one warp after the other.

    It is given these ``words`` before the registers.
    """

    def make(wave: Wave) -> bytes:
        [function] = cores.functions(text, NAME)
        return cores.pool(wave.cores).task(wave.warps, (function, WARPS, 1), words=words(wave))

    return make


def is_possible() -> bool:
    """Say whether a step can be a task."""
    return available() and sees_arrays()


def warp_operation(bounds: Sequence[InstructionSteps]) -> WarpOperation | None:
    """Return the step of a single instruction if it is a task of its own."""
    if len(bounds) != 1 or len(bounds[0].steps) != 1:
        return None
    [step] = bounds[0].steps
    return step if isinstance(step, WarpOperation) else None
