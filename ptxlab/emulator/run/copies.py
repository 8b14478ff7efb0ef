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

from ptxlab.emulator.run.lanes import Lanes

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Copy:
    """A copy by ``lanes``; ``land`` does it for the positions (into those lanes) it is given.

    ``group`` is the number of the group it was committed to, per lane; None before the commit.
    """

    lanes: Lanes
    land: Callable[[Array | None], None]
    group: Array | None = None


class AsyncCopies:
    """The copies of one wave that have not landed, oldest first, and each thread's count of groups."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._groups: Array = np.zeros(1, np.int64)
        self._pending: list[Copy] = []

    def start(self, lanes: Lanes, land: Callable[[Array | None], None]) -> None:
        """Record a copy that no group holds yet."""
        self._pending.append(Copy(lanes, land))

    def commit(self, lanes: Lanes) -> None:
        """Put the lanes' copies that are in no group yet into a new one."""
        for copy in self._pending:
            if copy.group is None or (copy.group < 0).any():
                self._assign(copy, lanes)
        if lanes.full or lanes.everyone:
            self._groups = self._groups + 1
        else:
            self._groups = self._groups + lanes.mask

    def _assign(self, copy: Copy, lanes: Lanes) -> None:
        number = copy.lanes.pick(self._groups)
        if lanes.full or lanes.everyone:
            copy.group = (
                number if copy.group is None else np.where(copy.group < 0, number, copy.group)
            )
            return
        old = np.full(copy.lanes.size, -1) if copy.group is None else copy.group
        chosen = copy.lanes.pick(lanes.mask) & (old < 0)
        copy.group = np.where(chosen, number, old)

    def wait(self, lanes: Lanes, allowed: int) -> None:
        """Land all but the last ``allowed`` groups of each of the lanes."""
        newest = self._groups - allowed
        self._land(lanes, lambda copy, group: (group >= 0) & (group < copy.lanes.pick(newest)))

    def wait_all(self, lanes: Lanes) -> None:
        """Land every copy of the lanes, committed or not."""
        self._land(lanes, lambda copy, group: np.ones_like(group, bool))

    def _land(self, lanes: Lanes, due: Callable[[Copy, Array], Array]) -> None:
        kept: list[Copy] = []
        for copy in self._pending:
            group = np.full(1, -1) if copy.group is None else copy.group
            now = due(copy, group)
            if not (lanes.full or lanes.everyone):
                now = now & copy.lanes.pick(lanes.mask)
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
    lanes = Lanes(copy.lanes.width, index=copy.lanes.index[positions])
    land = copy.land

    def land_rest(chosen: Array | None) -> None:
        land(positions if chosen is None else positions[chosen])

    left = None if copy.group is None else np.broadcast_to(group, keep.shape)[positions]
    return Copy(lanes, land_rest, left)
