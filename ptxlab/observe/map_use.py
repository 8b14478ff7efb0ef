"""Copies with tensor maps: boxes wholly outside of their tensors, and maps that a kernel changes.

Where a tile reaches over the edge of a matrix, some of its boxes are outside, and rightly so. A tensor of
which all boxes are outside is copied from or to in vain: that is warned of.

The copy engine reads maps by a proxy of its own: who changed one releases it to that proxy, and the CTA
that uses it acquires it there, as far as its threads tell each other of it. Source: PTX ISA, "fence.proxy",
"tensormap.cp_fenceproxy".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.global_races import GlobalRaces
from ptxlab.tensormap.tensor_map import TensorMap


class BoxUse:
    """The boxes of a launch, by their tensor maps, and those outside by the instructions that copy them too."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._copied: Counter[TensorMap] = Counter()
        self._outside: Counter[tuple[TensorMap, Site]] = Counter()
        self._first: dict[tuple[TensorMap, Site], str] = {}

    def see(
        self, thread: int, tensor_map: TensorMap, coordinates: Sequence[int], *, outside: bool
    ) -> None:
        """See a thread have a box copied, which may lie wholly outside its tensor."""
        self._copied[tensor_map] += 1
        if outside:
            key = tensor_map, self._context.site
            self._outside[key] += 1
            if key not in self._first:
                self._first[key] = (
                    f"{self._context.thread(thread)} has a box at ({', '.join(map(str, coordinates))}) copied, "
                    f"wholly outside a tensor of {' x '.join(map(str, tensor_map.dims))}, dimension 0 first"
                )

    def tell(self) -> None:
        """Report them, when the launch is over."""
        together: Counter[TensorMap] = Counter()
        for (tensor_map, _), count in self._outside.items():
            together[tensor_map] += count
        for key, count in self._outside.items():
            tensor_map, site = key
            outside, copied = together[tensor_map], self._copied[tensor_map]
            severity, of = "warning", "all boxes of this tensor"
            if outside < copied:
                severity, of = "info", f"{outside} of the {copied} boxes of this tensor"
            hint = (
                "coordinates count elements, that of the contiguous dimension first; a load brings the fill, a "
                "store and a reduction change nothing"
            )
            words = f"{self._first[key]}, as are {of}", hint
            self._context.find(
                "bounds", severity, "outside", count, words, site=site, unit="threads"
            )


_PROXY = "tensormap::generic"


class MapUse:
    """When each CTA of a launch last released tensor maps, and acquired them."""

    def __init__(self, context: CheckContext, memory: GlobalRaces) -> None:
        self._context = context
        self._memory = memory
        self._released, self._acquired = np.zeros((2, 0), np.int64)

    def begin(self, wave: Wave) -> None:
        """Go on in another wave of the launch: its CTAs have not released or acquired anything yet."""
        if not self._released.size:
            self._released, self._acquired = np.zeros((2, wave.config.ctas), np.int64)

    def fence(self, effects: Effects, threads: Threads) -> None:
        if effects.fence == _PROXY:
            times = self._acquired if effects.acquires else self._released
            self._memory.order(times, threads.mask)

    def use(self, memory: Allocation, threads: Array, first: Array, nbytes: int) -> None:
        """See ``threads`` begin copies with maps of which ``nbytes`` lie at the bytes ``first``."""
        context = self._context
        times, writers, places = self._memory.last_write(memory, first, nbytes)
        width = context.wave.cta_width
        mine = np.asarray(context.wave.numbers)[threads // width]
        for number in np.unique(places[times > 0]).tolist():
            site = context.numbered(number)
            here = (times > 0) & (places == number)
            released = self._released[writers // width] > times
            if effects_of(site.instruction).fence == _PROXY:  # it releases what it writes
                released[:] = True
            for done, what in ((released, "release"), (self._acquired[mine] > times, "acquire")):
                missing = np.flatnonzero(here & ~done)
                if missing.size:
                    at = int(missing[0])
                    message = (
                        f"{context.thread(int(threads[at]))} copies with the tensor map at byte "
                        f"{int(first[at])} of {memory.name}, which line {site.line} changes, and no "
                        f"fence.proxy.{_PROXY}.{what} lies between the two"
                    )
                    hint = (
                        "the thread that changes the map releases it, then a thread of the CTA that copies "
                        "acquires it, with fence.proxy.tensormap::generic"
                    )
                    count = missing.size * nbytes
                    context.find("async", "error", f"map {what}", count, (message, hint), site)
