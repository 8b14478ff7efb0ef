"""Reads of what nobody has written, and where the values that they gave arrive.

A state says of each thread of a wave whether a register is written: 0, or where the value was read
that it comes from, a number of ``Reads``, or UNREAD: it was only ever moved. None is 0 for all. Where
several values come together, the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.observe.check_scene import CheckScene, Wording

State = Array | None

UNREAD = np.iinfo(np.int32).max

_DROPPED = "; here the value is dropped: it reaches no store, address, branch or returned value"


@dataclass(slots=True)
class _Read:
    """A value read before it was written, at ``site``, as often as ``count`` says."""

    site: Site
    rule: str
    words: Wording
    unit: str
    count: int = 0
    arrived: Site | None = None


class Reads:
    """All reads of a launch before the write: errors where the value arrives, else information."""

    def __init__(self, scene: CheckScene) -> None:
        self._scene = scene
        self._reads: list[_Read] = []
        self._numbers: dict[tuple[Site, str], int] = {}

    def note(self, rule: str, count: int, words: Callable[[], Wording], unit: str) -> int:
        """Return the number of the read by the instruction at hand; those alike are one."""
        site = self._scene.site
        number = self._numbers.get((site, rule))
        if number is None:
            self._reads.append(_Read(site, rule, words(), unit))
            number = self._numbers[site, rule] = len(self._reads)
        self._reads[number - 1].count += count
        return number

    def arrive(self, numbers: Array) -> None:
        """See values of the reads with these numbers used by the instruction at hand."""
        for number in np.unique(numbers):
            read = self._reads[int(number) - 1]
            read.arrived = read.arrived or self._scene.site

    def tell(self) -> None:
        """Put all that was read among the findings."""
        for read in self._reads:
            severity, (message, hint), other = "error", read.words, read.arrived
            if other is None:
                severity, hint = "info", hint + _DROPPED
            elif other is read.site:
                other = None
            words = message, hint
            self._scene.find(
                "uninitialized", severity, read.rule, read.count, words, other, read.site, read.unit
            )
