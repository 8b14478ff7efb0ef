"""Tensor maps that a kernel changes in global memory, and copies with them.

The copy engine reads maps by a proxy of its own: who changed one releases it to that proxy, and the CTA
that uses it acquires it there, as far as its threads tell each other of it. Source: PTX ISA, "fence.proxy",
"tensormap.cp_fenceproxy".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.threads import Threads
from ptxlab.observe.check_scene import CheckScene
from ptxlab.observe.global_races import GlobalRaces
from ptxlab.syntax.tree import Instruction

_PROXY = "tensormap::generic"


class MapUse:
    """When each CTA of a launch last released tensor maps, and acquired them."""

    def __init__(self, scene: CheckScene, memory: GlobalRaces) -> None:
        self._scene = scene
        self._memory = memory
        ctas = scene.wave.config.ctas
        self._released, self._acquired = (np.zeros(ctas, np.int64) for _ in range(2))

    def fence(self, instruction: Instruction, threads: Threads) -> None:
        """See ``threads`` execute a fence."""
        if _PROXY in instruction.modifiers:
            acquires = "acquire" in instruction.modifiers
            self._memory.order(self._acquired if acquires else self._released, threads.mask)

    def use(self, memory: Allocation, threads: Array, first: Array, nbytes: int) -> None:
        """See ``threads`` begin copies with maps of which ``nbytes`` lie at the bytes ``first``."""
        scene = self._scene
        times, writers, places = self._memory.last_write(memory, first, nbytes)
        width = scene.wave.cta_width
        mine = np.asarray(scene.wave.numbers)[threads // width]
        for place in np.unique(places[times > 0]).tolist():
            site = scene.numbered(place)
            here = (times > 0) & (places == place)
            released = self._released[writers // width] > times
            if site.instruction.opcode == "tensormap" and _PROXY in site.instruction.modifiers:
                released[:] = True
            for done, what in ((released, "release"), (self._acquired[mine] > times, "acquire")):
                missing = np.flatnonzero(here & ~done)
                if missing.size:
                    at = int(missing[0])
                    message = (
                        f"{scene.thread(int(threads[at]))} copies with the tensor map at byte "
                        f"{int(first[at])} of {memory.name}, which line {site.line} changes, and no "
                        f"fence.proxy.{_PROXY}.{what} lies between the two"
                    )
                    hint = (
                        "the thread that changes the map releases it, then a thread of the CTA that copies "
                        "acquires it, with fence.proxy.tensormap::generic"
                    )
                    count = missing.size * nbytes
                    scene.find("async", "error", f"map {what}", count, (message, hint), site)
