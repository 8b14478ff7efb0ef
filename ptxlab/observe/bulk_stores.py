"""Bulk copies to global memory: nobody sees them before the thread that began them has waited in full.

cp.async.bulk.wait_group.read is about their sources alone. Source: PTX ISA, "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import MemoryAccess
from ptxlab.observe.async_copies import overlap
from ptxlab.observe.check_context import CheckContext


@dataclass(slots=True)
class _Store:
    """Items of ``size`` bytes that are written from the bytes ``first`` of ``memory`` on, for ``threads``."""

    site: Site
    memory: Allocation
    first: Array
    size: int
    threads: Array


class BulkStores:
    """The bulk copies of a wave to global memory that have not been waited for."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._stores: list[_Store] = []

    def begin(self, threads: Threads, moved: Iterable[MemoryAccess]) -> list[_Store]:
        """See stores begin, and return them."""
        begun = [
            _Store(
                self._context.site,
                access.memory,
                access.first,
                access.size,
                threads.index[access.owner],
            )
            for access in moved
            if access.writes and isinstance(access.memory, Allocation) and access.first.size
        ]
        self._stores += begun
        return begun

    def waited(self, stores: Iterable[_Store], threads: Array) -> None:
        for store in stores:
            left = ~np.isin(store.threads, threads)
            store.first, store.threads = store.first[left], store.threads[left]
        self._stores = [store for store in self._stores if store.first.size]

    def touch(
        self, memory: Allocation, threads: Array, first: Array, nbytes: int, *, writes: bool
    ) -> None:
        for store in self._stores:
            if store.memory is not memory:
                continue
            overlapping = overlap(first, nbytes, store.first, store.size)
            if overlapping is None:
                continue
            mine, theirs = overlapping
            did = "overwrites" if writes else "reads"
            who, other = int(threads[mine[0]]), int(store.threads[theirs[0]])
            message = (
                f"{self._context.thread(who)} {did} byte {int(first[mine[0]])} of {memory.name}, which the "
                f"copy of line {store.site.line} writes until {self._context.thread(other)} has waited for it"
            )
            hint = "cp.async.bulk.wait_group without .read by the thread that began the copy, then a barrier"
            count = mine.size * nbytes
            self._context.find("async", "error", did, count, (message, hint), store.site)
