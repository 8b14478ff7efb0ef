"""The shared and the local memory of CTAs that run together, which one wave hands on to the next.

What was made for its addresses serves the next wave too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT
from ptxlab.emulator.run.in_flight import Outside
from ptxlab.emulator.run.memory import Region, pitched

_KEPT: deque[WaveMemory] = deque(maxlen=2)
"""What the last waves have left: a launch has waves of one size, and a smaller one at its end."""


@dataclass(eq=False)
class WaveMemory:
    """Memory of ``ctas`` CTAs of ``cta_width`` threads, with ``shared_bytes`` each from ``shared_base`` on.

    ``cluster_ctas`` of them make a cluster, in which the address of shared memory has the rank of a CTA.

    ``loops`` and ``copies`` are what machine code has made for its addresses
    (``emulator.native.dispatch_loop``, ``operations.copy_native``).
    """

    ctas: int
    cta_width: int
    shared_bytes: int
    shared_base: int
    cluster_ctas: int
    loops: dict[Any, Any] = field(default_factory=dict, init=False)
    copies: Outside | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.cta_of = np.repeat(np.arange(self.ctas), self.cta_width)
        pitch = self.shared_pitch = pitched(self.shared_bytes)
        data = np.zeros(self.ctas * pitch, np.uint8)
        first = self.shared_base
        start, rank = self.cta_of * pitch - first, self.cta_of % self.cluster_ctas
        self.shared = Region(
            "shared", first + self.shared_bytes, data, start, rank << RANK_SHIFT, first
        )
        self.local = self._local(0)

    @classmethod
    def of(cls, *size: int) -> WaveMemory:
        """Return memory as it is at the beginning: of an earlier wave of the same size, or new."""
        for kept in tuple(_KEPT):
            if kept._size == size:
                try:
                    _KEPT.remove(kept)
                except ValueError:  # another thread was first
                    continue
                kept._clear()
                return kept
        return cls(*size)

    def hand_on(self) -> None:
        """Let the next wave have this memory if it saves work. Nobody may use it any more."""
        if self.loops:
            _KEPT.append(self)

    def reserve_local(self, needed: int) -> Region:
        """Give every thread at least ``needed`` bytes of local memory, and room to grow into."""
        old = self.local
        room = old.data.size // self.width
        if needed > room:
            self.local = self._local(max(needed, 2 * room))
            self.local.data.reshape(self.width, -1)[:, :room] = old.data.reshape(self.width, -1)
        self.local.size = max(needed, old.size)
        return self.local

    @property
    def width(self) -> int:
        """How many threads there are."""
        return self.ctas * self.cta_width

    @property
    def _size(self) -> tuple[int, ...]:
        return self.ctas, self.cta_width, self.shared_bytes, self.shared_base, self.cluster_ctas

    def _clear(self) -> None:
        self.shared.data.fill(0)
        self.local.data.fill(0)
        self.local.size = 0

    def _local(self, nbytes: int) -> Region:
        pitch = pitched(nbytes)
        start: Array = np.arange(self.width) * pitch
        data = np.zeros(self.width * pitch, np.uint8)
        return Region("local", nbytes, data, start, np.zeros_like(start))
