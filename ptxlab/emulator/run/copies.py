"""Asynchronous copies in flight: cp.async, its groups, and when the bytes land.

A copy lands when the thread that started it waits for its group, and not before, so that a program
that reads too early sees what was there before. Source: PTX ISA, "cp.async", "cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.run.threads import Threads

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Copy:
    """A copy by ``threads``; ``land`` does it for the positions (into those threads) it is given.

    ``group`` is the number of the group it was committed to, per lane; None before the commit.
    """

    threads: Threads
    land: Callable[[Array | None], None]
    group: Array | None = None


class AsyncCopies:
    """The copies of one wave that have not landed, oldest first, and each thread's count of groups."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._groups: Array = np.zeros(1, np.int64)
        self._pending: list[Copy] = []

    def start(self, threads: Threads, land: Callable[[Array | None], None]) -> None:
        """Record a copy that no group holds yet."""
        self._pending.append(Copy(threads, land))

    def commit(self, threads: Threads) -> None:
        """Put the threads' copies that are in no group yet into a new one."""
        for copy in self._pending:
            if copy.group is None or (copy.group < 0).any():
                self._assign(copy, threads)
        if threads.full or threads.everyone:
            self._groups = self._groups + 1
        else:
            self._groups = self._groups + threads.mask

    def _assign(self, copy: Copy, threads: Threads) -> None:
        number = copy.threads.pick(self._groups)
        if threads.full or threads.everyone:
            copy.group = (
                number if copy.group is None else np.where(copy.group < 0, number, copy.group)
            )
            return
        old = np.full(copy.threads.size, -1) if copy.group is None else copy.group
        chosen = copy.threads.pick(threads.mask) & (old < 0)
        copy.group = np.where(chosen, number, old)

    def wait(self, threads: Threads, allowed: int) -> None:
        """Land all but the last ``allowed`` groups of each of the threads."""
        newest = self._groups - allowed
        self._land(threads, lambda copy, group: (group >= 0) & (group < copy.threads.pick(newest)))

    def wait_all(self, threads: Threads) -> None:
        """Land every copy of the threads, committed or not."""
        self._land(threads, lambda copy, group: np.ones_like(group, bool))

    def _land(self, threads: Threads, due: Callable[[Copy, Array], Array]) -> None:
        kept: list[Copy] = []
        for copy in self._pending:
            group = np.full(1, -1) if copy.group is None else copy.group
            now = due(copy, group)
            if not (threads.full or threads.everyone):
                now = now & copy.threads.pick(threads.mask)
            if not now.any():
                kept.append(copy)
            elif now.all():
                copy.land(None)
            else:
                copy.land(np.flatnonzero(now))
                kept.append(_remaining(copy, group, ~now))
        self._pending = kept


def _remaining(copy: Copy, group: Array, keep: Array) -> Copy:
    positions = np.flatnonzero(keep)
    threads = Threads(copy.threads.width, index=copy.threads.index[positions])
    land = copy.land

    def land_rest(chosen: Array | None) -> None:
        land(positions if chosen is None else positions[chosen])

    left = None if copy.group is None else np.broadcast_to(group, keep.shape)[positions]
    return Copy(threads, land_rest, left)
