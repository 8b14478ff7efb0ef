"""Instructions of whole warps that are jobs of their own: machine code that no block has to be compiled for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.program import Bound
from ptxlab.emulator.run.registers import Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave


class Collective(ABC):
    """A step that is a job where all threads take part: of registers of one word a thread.

    It reads ``sources`` and writes registers, ``slots``, of dtype ``word``. Of a warp all is read before
    something is written; if it ``can_fail`` what it writes must not be what it reads.
    """

    can_fail = False

    sources: Sequence[Source]
    slots: Sequence[int]
    word: np.dtype[Any]

    @abstractmethod
    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Run for these threads, as arrays if need be."""

    @abstractmethod
    def ready(self, wave: Wave) -> bool:
        """Say whether there is machine code for a wave."""

    def takes(self, source: Source) -> bool:
        """Say whether the job can read a source."""
        return source.convert is None and source.dtype.itemsize == self.word.itemsize

    def gate(self, wave: Wave) -> int:
        """Return the address of a word that is 0 while the job is to be done by arrays; 0 for none."""
        return 0

    @abstractmethod
    def job(self, wave: Wave) -> tuple[bytes, int]:
        """Return the job without its registers, and the word from which on sources and slots are named."""


def collective(bounds: Sequence[Bound]) -> Collective | None:
    """Return the step of a single instruction if it is a job of its own."""
    if len(bounds) != 1 or len(bounds[0].steps) != 1:
        return None
    [step] = bounds[0].steps
    return step if isinstance(step, Collective) else None
