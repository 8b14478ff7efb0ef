"""The operations that a dispatch loop runs for a region: see ``ptxlab.native.dispatch_code``.

They are made once. A wave adds its own tasks, and where it says which threads count.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.region import NOWHERE, CompiledRegion, RegionBlock
from ptxlab.emulator.native.warp_operation import PartTask
from ptxlab.emulator.run.wave import Wave
from ptxlab.native.dispatch_code import END, STAND, TASK, WORDS

_PROGRAMS: WeakKeyDictionary[CompiledRegion, DispatchProgram] = WeakKeyDictionary()


def program_of(region: CompiledRegion) -> DispatchProgram:
    """Return the program of a region, made when it is asked for first."""
    program = _PROGRAMS.get(region)
    if program is None:
        program = _PROGRAMS[region] = DispatchProgram(region)
    return program


class DispatchProgram:
    """The operations of all blocks of a region, and behind them one for each block that it is left to.

    ``moments`` says where each of them stands, (block, part), and ``first`` which is a block's first.
    """

    def __init__(self, region: CompiledRegion) -> None:
        blocks = region.blocks
        self.moments: list[tuple[int, int]] = []
        self.first: dict[int, int] = {}
        for number, block in blocks.items():
            self.first[number] = len(self.moments)
            self.moments += [(number, part) for part in range(len(block.parts) + 1)]
        outside = {
            target
            for block in blocks.values()
            for target in (block.choice.yes, block.choice.no)
            if target != NOWHERE and target not in blocks
        }
        for number in sorted(outside):
            self.first[number] = len(self.moments)
            self.moments.append((number, 0))
        self._masked = region.masked
        self._work: list[PartTask] = []
        self._slots = array("q")
        rows = [row for block in blocks.values() for row in self._block(block)]
        rows += [_row(STAND)] * len(outside)
        self._rows = np.array(rows, np.int64)
        self._tasks = self._rows[:, 0] == TASK
        self._rows[self._tasks, 3] += self._slots.buffer_info()[0]

    def _block(self, block: RegionBlock) -> Iterator[tuple[int, ...]]:
        for work in block.work:
            if work is None:
                yield _row(STAND)
            else:
                named = len(self._slots) * self._slots.itemsize
                self._work.append(work)
                self._slots.extend(work.inputs)
                self._slots.extend(slot for slot, _, _ in work.outputs)
                yield _row(TASK, 0, 0, named, len(work.inputs), len(work.outputs))
        choice = block.choice
        yes, no = (self.first.get(target, NOWHERE) for target in (choice.yes, choice.no))
        yield _row(END, block.block.instructions, choice.slot, 1, 0, yes, no)

    def operations(
        self, wave: Wave, per_lane: set[int], masks: tuple[Array, Array]
    ) -> tuple[Array, Any]:
        """Return the operations for a wave, and what must stay as long as they.

        Of the registers that decide the ``per_lane`` ones have an element a thread. The ``masks`` say which of
        these count, and that a single one does.
        """
        each, single = masks
        rows, tasks, held = self._rows.copy(), bytearray(), []
        places = []
        for work in self._work:
            task, kept = work.make(wave, each if self._masked else None)
            places.append((len(tasks), len(tasks) + len(task), work.gate(wave)))
            tasks += task + bytes(8 * (len(work.inputs) + len(work.outputs)))
            held.append(kept)
        memory = (ctypes.c_char * len(tasks)).from_buffer(tasks)
        if places:
            rows[np.ix_(self._tasks, (1, 2, 6))] = places
            rows[self._tasks, 1:3] += ctypes.addressof(memory)
        ends = rows[:, 0] == END
        rows[ends, 4] = single.ctypes.data
        by_each = ends & np.isin(rows[:, 2], list(per_lane))
        rows[by_each, 3:5] = len(each), each.ctypes.data
        return rows, (memory, held)


def _row(*words: int) -> tuple[int, ...]:
    return (*words, *[0] * (WORDS - len(words)))
