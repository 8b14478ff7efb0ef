"""barrier.cluster: a barrier of all threads of a cluster, at which threads arrive and wait apart.

It is complete when all threads of the cluster have arrived that have not ended. Source: PTX ISA,
"barrier.cluster".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads


class ClusterBarriers:
    """The barriers of the clusters of ``size`` threads side by side in a wave of ``width`` threads.

    ``arrived`` are the threads whose barrier is not complete, ``passed`` those that have yet to wait at
    one that is. ``changes`` counts arrivals. If somebody watches, ``tell`` gets who has arrived at
    barriers that complete.
    """

    tell: Callable[[Array], None] | None = None

    def __init__(self, width: int, size: int) -> None:
        self._size = size
        self.arrived = np.zeros(width, bool)
        self.passed = np.zeros(width, bool)
        self.changes = 0

    def arrive(self, threads: Threads) -> None:
        """Have threads arrive that have not arrived since they last waited; ``complete`` comes next."""
        self.arrived |= threads.mask
        self.changes += 1

    def complete(self, alive: Array) -> None:
        """Let the barriers be complete at which nobody is missing who is ``alive``."""
        if not self.arrived.any():
            return
        missing = (alive & ~self.arrived).reshape(-1, self._size).any(axis=1)
        done = self.arrived & ~np.repeat(missing, self._size)
        if done.any():
            self.arrived &= ~done
            self.passed |= done
            if self.tell is not None:
                self.tell(done)

    def waited(self, threads: Threads) -> None:
        """Have threads gone on that waited."""
        self.passed &= ~threads.mask
