"""The tensor core that one thread tells what to multiply: its queue, and who has columns of Tensor Memory.

What comes of a product is there when A has been read, all has been multiplied, and some cycles later; a copy
from shared memory to Tensor Memory runs beside products, and those behind it wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.run import PARTITIONS
from ptxlab.prediction.sm.tensor_work import Columns, Commit, TensorCopy, TensorProduct
from ptxlab.prediction.sm.warps import Warp

GRANULES = 16
"""Of 32 columns, that an SM's Tensor Memory has; PTX ISA, "Tensor Memory Allocation"."""

_COPIED = 2048
"""Bytes of Tensor Memory that a chip's time for a copy is told of."""


class TensorCore:
    """What is queued before the tensor core of an SM, and when it is done; adds to ``busy``."""

    def __init__(self, chip: Chip, busy: dict[str, float]) -> None:
        self._chip, self._busy = chip, busy
        self._free = self._copier_free = 0.0
        self._copied: dict[int, float] = defaultdict(float)
        self._done: dict[int, float] = defaultdict(float)

    def multiply(self, cta: int, product: TensorProduct, now: float) -> None:
        multiplied = product.multiplied(self._chip)
        held = max(multiplied, product.a_read + product.b_read)
        begins = max(now, self._free, self._copied[cta])
        self._free = begins + held
        self._busy["tensor"] += held * PARTITIONS
        self._finish(cta, begins + product.a_read + multiplied)

    def copy(self, cta: int, copy: TensorCopy, now: float) -> None:
        begins = max(now, self._copier_free)
        self._copier_free = begins + copy.nbytes / _COPIED * self._chip.holds["tensor_copy"]
        self._copied[cta] = self._copier_free
        self._finish(cta, self._copier_free)

    def done(self, commit: Commit, now: float) -> float:
        """Return when the mbarrier of a commit is told."""
        pair = self._chip.latency["pair"] if commit.ctas > 1 else 0
        return max(now, self._done[commit.key[0]]) + self._chip.latency["commit"] + pair

    def _finish(self, cta: int, when: float) -> None:
        self._done[cta] = max(self._done[cta], when)


class TensorMemory:
    """The columns of an SM's Tensor Memory, which its CTAs share; who finds too few waits for others."""

    def __init__(self, wake: Callable[[Warp, float], None]) -> None:
        self._wake = wake
        self._free = GRANULES
        self._held: dict[int, int] = defaultdict(int)
        self._waiting: list[tuple[Warp, int]] = []

    def ask(self, warp: Warp, columns: Columns, now: float) -> None:
        if columns.granules:
            self._waiting.append((warp, columns.granules))
            warp.sleep("tensor memory")
        else:
            self._free += self._held.pop(warp.cta, 0)
        while self._waiting and self._waiting[0][1] <= self._free:
            first, granules = self._waiting.pop(0)
            self._free -= granules
            self._held[first.cta] += granules
            self._wake(first, max(now, first.fixed))
