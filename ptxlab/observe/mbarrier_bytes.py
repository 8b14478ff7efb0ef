"""Bytes that an mbarrier expects, and those of the copies that tell it: a phase ends when they are equal."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.observe.check_scene import CheckScene

_NOWHERE = -1


class MbarrierBytes:
    """Of each word of shared memory the bytes of copies in its phase, and what last named it.

    Counted are also the copies that have not landed.
    """

    def __init__(self, scene: CheckScene) -> None:
        self._scene = scene
        words = scene.wave.ctas * scene.wave.shared_pitch // OBJECT_BYTES
        self._copied, self._under_way = (np.zeros(words, np.int64) for _ in range(2))
        self._copying, self._expecting = (np.full(words, _NOWHERE, np.int32) for _ in range(2))

    def expect(self, site: Site, words: Array) -> None:
        self._expecting[words] = self._scene.number(site)

    def copy(self, site: Site, words: Array, nbytes: Array) -> None:
        np.add.at(self._copied, words, nbytes)
        np.add.at(self._under_way, words, 1)
        self._copying[words] = self._scene.number(site)

    def done(self, words: Array) -> None:
        np.subtract.at(self._under_way, words, 1)

    def complete(self, words: Array) -> None:
        """See phases end, which copies under way are not to outlive."""
        self._copied[words] = 0
        early = words[self._under_way[words] > 0]
        for place in np.unique(self._copying[early]).tolist():
            here = early[self._copying[early] == place]
            site = self._scene.numbered(place)
            where = self._scene.shared_at(int(here[0]) * OBJECT_BYTES)
            message = (
                f"a phase of the mbarrier {where} ends before this copy has landed: nobody said in time that "
                "its bytes are to be expected"
            )
            hint = "mbarrier.arrive.expect_tx, by the thread that has the copy made"
            self._scene.find(
                "async", "error", "early", here.size, (message, hint), None, site, "threads"
            )

    def stuck(self) -> None:
        """Report, where nobody can go on any more, the objects whose bytes do not come out even."""
        scene, barriers = self._scene, self._scene.wave.mbarriers
        words = np.flatnonzero(barriers.valid)
        missing = barriers.state(words).tx
        for word, tx in zip(
            words[missing != 0].tolist(), missing[missing != 0].tolist(), strict=True
        ):
            copied = int(self._copied[word])
            places = [int(one[word]) for one in (self._expecting, self._copying)]
            sites = [scene.numbered(place) for place in places if place != _NOWHERE]
            message = (
                f"the mbarrier {scene.shared_at(word * OBJECT_BYTES)} expects {tx + copied} bytes in this phase, "
                f"and the copies that it hears of have {copied}"
            )
            hint = (
                "one thread tells it once a phase, with mbarrier.arrive.expect_tx, of the bytes of all its "
                "copies, and has each of them made once"
            )
            told = message, hint
            other = sites[1] if len(sites) > 1 else None
            scene.find("async", "error", "bytes", abs(tx), told, other, sites[0])
