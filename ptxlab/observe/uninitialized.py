"""Memory of the emulator that is read before it is written: shared memory, and each thread's own.

Both hold whatever was there before: PTX ISA, "State Spaces", gives them no initial value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.memory import Region
from ptxlab.emulator.run.wave import Frame
from ptxlab.observe.check_scene import Scene
from ptxlab.observe.ordering import Touch

Array = npt.NDArray[Any]


class SharedMemory:
    """Which granules of shared memory have been written; to read another one is an error."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._written = scene.shadow.table(np.bool_)

    def write(self, granules: Array) -> None:
        """See granules written."""
        self._written.data[granules] = True

    def read(self, touch: Touch) -> None:
        """See granules read."""
        written = self._written.data.take(touch.granules)
        if written.all():
            return
        at = np.flatnonzero(~written)
        thread, granule = int(touch.threads[at[0]]), int(touch.granules[at[0]])
        self._scene.find(
            "uninitialized",
            "error",
            "shared",
            at.size * self._scene.shadow.size,
            lambda: (
                f"{self._scene.thread(thread)} reads {self._scene.shared(granule)}, which nobody has "
                "written",
                "shared memory holds what was there before: every byte is to be written first",
            ),
        )


class LocalMemory:
    """Which bytes of its local memory each thread has written, in the function it is in.

    To read another one is no error yet: compilers copy structs with the holes in them. What it is
    read into is as unwritten.
    """

    def __init__(self, scene: Scene) -> None:
        self._written = np.zeros((scene.wave.width, 0), bool)

    def write(self, region: Region, first: Array, nbytes: int, written: Array) -> None:
        """See ``nbytes`` from each of the bytes ``first`` on stored, of values ``written`` or not.

        ``written`` is [first, values], of values that are equally large.
        """
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        self._written.reshape(-1)[at] = np.repeat(written, nbytes // written.shape[1], axis=1)

    def read(self, region: Region, first: Array, nbytes: int) -> Array:
        """Return which of ``nbytes`` from each of the bytes ``first`` on are written: [first, nbytes]."""
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        found: Array = self._written.reshape(-1)[at]
        return found

    def enter(self, frame: Frame, lanes: Lanes) -> None:
        """Begin an activation of a function: its part of local memory is new."""
        inside = slice(frame.local_base, frame.local_base + frame.function.local_bytes)
        self._written[lanes.index, inside] = False

    def _grow(self, region: Region) -> None:
        """Follow the local memory of the wave, which grows with the depth of calls."""
        width = self._written.shape[0]
        if self._written.size < region.data.size:
            grown = np.zeros((width, region.data.size // width), bool)
            grown[:, : self._written.shape[1]] = self._written
            self._written = grown
