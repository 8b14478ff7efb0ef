"""Who wrote a few bytes of global memory last: the thread, and the line of its store."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import Allocation, Part
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.instrument.sites import sources


class LastWriter(Watcher):
    """Follows the stores to ``nbytes`` at ``address``: ``thread`` in words, ``site`` is None where there was none."""

    def __init__(self, address: int, nbytes: int) -> None:
        self._begin, self._end = address, address + nbytes
        self.thread = ""
        self.site: Site | None = None

    def told(self, kernel: EmulatorKernel) -> dict[str, Any]:
        """Return the thread, and the file and line of its store, of a launch of ``kernel``; nothing where there was none."""
        if self.site is None:
            return {}
        program = kernel.program
        source = sources(program.module, program.reachable).get(self.site.line)
        path, line = source or (program.module.source.path, self.site.line)
        return {"thread": self.thread, "path": path, "line": line}

    def begin(self, wave: Wave) -> None:
        self._wave = wave

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self._site = site

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        if access.writes:
            for part in parts:
                if isinstance(part.memory, Allocation):
                    index = threads.index if part.where is None else threads.index[part.where]
                    self._see(part.memory, part.index * access.nbytes, access.nbytes, index)

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        for access in moved:
            if access.writes and isinstance(access.memory, Allocation):
                self._see(access.memory, access.first, access.size, threads.index[access.owner])

    def _see(self, memory: Allocation, first: Array, nbytes: int, index: Array) -> None:
        start = np.broadcast_to(first.astype(np.int64) + memory.address, index.shape)
        hits = index[(start < self._end) & (start + nbytes > self._begin)]
        if hits.size:
            self.thread, self.site = self._wave.thread(int(hits[-1])), self._site
