"""Asynchronous copies in flight: cp.async, its groups, and when the bytes land.

A copy lands when the thread that started it waits for its group, and not before, so that a program
that reads too early sees what was there before. Source: PTX ISA, "cp.async", "cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxlab.emulator.run.registers import Array
from ptxlab.emulator.run.threads import Threads


@dataclass(slots=True)
class Copy:
    """A copy by ``threads``; ``land`` does it for the positions (into those threads) it is given.

    ``group`` is the number of the group it was committed to, per lane; -1 before the commit.
    """

    threads: Threads
    land: Callable[[Array | None], None]
    group: Array


class AsyncCopies:
    """The copies of one wave that have not landed, oldest first, and each thread's count of groups."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._groups: Array = np.zeros(1, np.int64)
        self._pending: list[Copy] = []

    def start(self, threads: Threads, land: Callable[[Array | None], None]) -> None:
        """Record a copy that no group holds yet."""
        self._pending.append(Copy(threads, land, np.full(1, -1)))

    def commit(self, threads: Threads) -> None:
        """Put the threads' copies that are in no group yet into a new one."""
        everyone = threads.full or threads.everyone
        for copy in self._pending:
            chosen = copy.group < 0
            if chosen.any():
                if not everyone:
                    chosen = copy.threads.pick(threads.mask) & chosen
                copy.group = np.where(chosen, copy.threads.pick(self._groups), copy.group)
        self._groups = self._groups + (1 if everyone else threads.mask)

    def wait(self, threads: Threads, allowed: int) -> None:
        """Land all but the last ``allowed`` groups of each of the threads."""
        newest = self._groups - allowed
        self._land(
            threads,
            lambda copy: (copy.group >= 0) & (copy.group < copy.threads.pick(newest)),
        )

    def wait_all(self, threads: Threads) -> None:
        """Land every copy of the threads, committed or not."""
        self._land(threads, lambda copy: np.ones_like(copy.group, bool))

    def _land(self, threads: Threads, due: Callable[[Copy], Array]) -> None:
        kept: list[Copy] = []
        for copy in self._pending:
            now = due(copy)
            if not (threads.full or threads.everyone):
                now = now & copy.threads.pick(threads.mask)
            if not now.any():
                kept.append(copy)
            elif now.all():
                copy.land(None)
            else:
                copy.land(np.flatnonzero(now))
                kept.append(_remaining(copy, ~now))
        self._pending = kept


def _remaining(copy: Copy, keep: Array) -> Copy:
    positions = np.flatnonzero(keep)
    threads = Threads(copy.threads.width, index=copy.threads.index[positions])
    land = copy.land

    def land_rest(chosen: Array | None) -> None:
        land(positions if chosen is None else positions[chosen])

    return Copy(threads, land_rest, np.broadcast_to(copy.group, keep.shape)[positions])
