"""Cells of Tensor Memory that tensor cores still have: no warp may touch them before it knows the work done.

What a thread has had tensor cores do is over for those who have waited for an mbarrier that a commit behind
it tells, or have heard of it from one who has. A warp loads and stores as one, so that it is enough if one of
its threads knows. Source: PTX ISA, "tcgen05 memory consistency model".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.clocks import Clocks


@dataclass(frozen=True, slots=True)
class _Operation:
    """What one thread has had tensor cores do, and when."""

    site: Site
    engine: int
    time: int


class TensorMemoryUse:
    """Of each cell of a wave the operation that last wrote it, and the one that last read it, by number."""

    def __init__(self, context: CheckContext, clocks: Clocks) -> None:
        self._context = context
        self._clocks = clocks
        self._operations: list[_Operation | None] = [None]
        self._written, self._read = np.zeros((2, context.wave.ctas * CTA_CELLS), np.int32)

    def issue(self, engines: Array, access: TensorCoreAccess) -> None:
        """See operations begin, one of each engine."""
        first = len(self._operations)
        site, time = self._context.site, self._clocks.now
        self._operations += [_Operation(site, engine, time) for engine in engines.tolist()]
        numbers = first + np.arange(engines.size).repeat(access.group)
        for table, several in ((self._read, access.read), (self._written, access.written)):
            for cells in several:
                table[cells] = numbers.reshape(-1, *(1,) * (cells.ndim - 1))

    def touch(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        """See whole warps read or write cells [warps, ...]."""
        if len(self._operations) == 1:
            return
        warps, flat = threads.index[::WARP], cells.reshape(len(cells), -1)
        self._hold(warps, flat, "WAW" if writes else "RAW", self._written)
        if writes:
            self._hold(warps, flat, "WAR", self._read)

    def _hold(self, warps: Array, cells: Array, rule: str, table: Array) -> None:
        """Report the warps, by their first threads, that do not know what the ``table`` says is done."""
        numbers = table[cells]
        for number in np.unique(numbers).tolist():
            operation = self._operations[number]
            if operation is None:
                continue
            here = numbers == number
            touching = np.flatnonzero(here.any(axis=1))
            lanes = warps[touching, np.newaxis] + np.arange(WARP)
            engines = np.full(lanes.size, operation.engine)
            known = self._clocks.of(engines, lanes.reshape(-1)).reshape(lanes.shape).max(axis=1)
            early = touching[known <= operation.time]
            if early.size:
                cell = int(cells[early[0]][here[early[0]].argmax()])
                self._find(rule, operation, int(warps[early[0]]), cell, int(here[early].sum()))

    def _find(self, rule: str, operation: _Operation, thread: int, cell: int, count: int) -> None:
        context, line = self._context, operation.site.line
        work = effects_of(operation.site.instruction).work
        lane, column = divmod(cell % CTA_CELLS, COLUMNS)
        does = "reads" if rule == "RAW" else "overwrites"
        did = "reads" if rule == "WAR" else "writes"
        message = (
            f"{rule}: the warp of {context.thread(thread)} {does} column {column} of lane {lane} of Tensor "
            f"Memory, which the {work} of line {line} {did} until it is waited for"
        )
        hint = (
            f"between the two: tcgen05.commit behind line {line}, in the thread that issued it, then a wait for "
            "the phase of its mbarrier (mbarrier.try_wait)"
        )
        context.find("async", "error", rule, 4 * count, (message, hint), operation.site)
