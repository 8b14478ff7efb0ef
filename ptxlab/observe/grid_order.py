"""Global memory that a grid accesses before griddepcontrol.wait, while the grid before it may still run.

Nothing here launches grids that overlap, so that nobody can tell which of these accesses are to what the grid
before has: they are information. Source: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic
Dependent Launch and Synchronization".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.threads import Threads
from ptxlab.instrument.sites import instructions
from ptxlab.observe.check_context import CheckContext

CAVEAT = (
    "what griddepcontrol orders, with grids that this one overlaps: here a grid begins when the one before "
    "it is over"
)


class GridOrder:
    """Which CTAs of a wave have waited for the grid before; of interest if the program ever does.

    ``controls`` says whether it has griddepcontrol at all.
    """

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        orders = {
            effects.meets
            for function in context.wave.functions
            for site in instructions(function)
            if (effects := effects_of(site.instruction)).barrier == "grid"
        }
        self.controls = bool(orders)
        self._waits = "wait" in orders
        self._waited = np.zeros(context.wave.ctas, bool)

    def control(self, effects: Effects, threads: Threads) -> None:
        if effects.meets == "wait":
            self._waited[self._context.wave.cta_of[threads.index]] = True

    def touch(self, memory: Allocation, threads: Array, first: Array, *, writes: bool) -> None:
        """See threads, or copies for them, access global memory."""
        if not self._waits or not memory.writable:
            return
        early = np.flatnonzero(~self._waited[self._context.wave.cta_of[threads]])
        if early.size:
            at = int(early[0])
            does = "writes" if writes else "reads"
            message = (
                f"{self._context.thread(int(threads[at]))} {does} byte {int(first[at])} of {memory.name} before "
                "griddepcontrol.wait: the grid before may still run, if it launches this one programmatically"
            )
            hint = "what the grid before writes is read after griddepcontrol.wait, and what it reads written"
            self._context.find("race", "info", "grid", early.size, (message, hint), unit="threads")
