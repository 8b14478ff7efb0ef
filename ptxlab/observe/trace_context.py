"""The CTAs that a trace follows in a wave, and how far they are."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.tensor_memory import CTA_CELLS
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.observe.timeline import SharedSpan, Warps
from ptxlab.syntax.names import called

NO_FLIGHT = -1
"""The number that memory has which no flight filled."""


class TraceContext:
    """The cluster, or single CTA, that CTA ``number`` of the grid is in.

    ``first`` is the position of its first CTA in the wave, ``count`` how many they are, ``inside`` their
    threads. Step by step ``executed`` has the number of the instruction, or ``LANDING``, and ``who``
    that of the warps in ``together``.
    """

    LANDING = -1

    def __init__(self, wave: Wave, number: int) -> None:
        self.wave = wave
        self.count = wave.config.cluster_ctas
        self.first = wave.numbers.index(number) // self.count * self.count
        start = self.first * wave.cta_width
        self.inside = slice(start, start + self.count * wave.cta_width)
        self.cta_warps = wave.cta_width // WARP
        self.executed: list[int] = []
        self.who: list[int] = []
        self.together: dict[Warps, int] = {}

    @property
    def now(self) -> int:
        """The moment: how many steps are over, the one at hand among them."""
        return len(self.executed)

    @property
    def step(self) -> int:
        """The step at hand, or the last one."""
        return len(self.executed) - 1

    def add(self, instruction: int, warps: Warps) -> None:
        self.executed.append(instruction)
        self.who.append(self.together.setdefault(warps, len(self.together)))

    def warps(self, mask: Array) -> Warps:
        """Return the warps of which threads are in a mask of the wave's."""
        mine = mask[self.inside].reshape(-1, WARP).any(axis=1)
        return tuple(np.flatnonzero(mine).tolist())

    def warp_of(self, threads: Threads) -> Array:
        numbers: Array = (threads.index - self.inside.start) // WARP
        return numbers

    def follows(self, index: Array) -> Array:
        mine: Array = (index >= self.inside.start) & (index < self.inside.stop)
        return mine

    def spans(self, first: Array, size: int) -> list[SharedSpan]:
        """Return the bytes that items of a size lie in, given where they begin in the wave's shared memory."""
        first, pitch = np.unique(first), self.wave.shared_pitch
        cuts = np.flatnonzero((np.diff(first) > size) | (np.diff(first // pitch) != 0)) + 1
        starts, ends = first[np.r_[0, cuts]], first[np.r_[cuts - 1, first.size - 1]] + size
        ctas = starts // pitch
        places = (ctas - self.first, starts - ctas * pitch, ends - ctas * pitch)
        return [
            SharedSpan(*span) for span in zip(*(column.tolist() for column in places), strict=True)
        ]

    def cells(self, cells: Array) -> Array:
        """Return those cells of the wave's Tensor Memory that are the followed CTAs', as numbers in theirs."""
        inside = cells.ravel() - self.first * CTA_CELLS
        mine: Array = inside[(inside >= 0) & (inside < self.count * CTA_CELLS)]
        return mine

    def name(self, span: SharedSpan) -> str:
        """Return the variable that a span begins in, with the distance from its beginning."""
        variable_at = self.wave.shared.at(span.start)
        if variable_at is None:
            return "shared"
        variable, offset = variable_at
        return f"{called(variable.name)}+{offset:#x}" if offset else called(variable.name)
