"""Reads of what nobody has written, shared and local memory among it, and where the values that they gave arrive.

PTX ISA, "State Spaces", gives memory no initial value. What is read is as unwritten as it was there.

A state says of each thread of a wave whether a register is written, or of each of its bits, [bits, threads]: 0,
or where the value was read that it comes from, a number of ``Reads``, or UNREAD: it was only ever moved. None is 0
for all. Where several values come together, the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.run.memory import Region
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.observe.check_context import CheckContext, Wording
from ptxlab.observe.computed import Computed
from ptxlab.observe.ordering import Touch

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
    computed: tuple[Computed, ...]
    count: int = 0
    arrived: Site | None = None


class Reads:
    """All reads of a launch before the write: errors where the value arrives, else information."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._reads: list[_Read] = []
        self._numbers: dict[tuple[Site, str], int] = {}

    def note(
        self, rule: str, count: int, thread: int, words: Callable[[], Wording], unit: str
    ) -> int:
        """Return the number of the read by the instruction at hand, first by a ``thread``; those alike are one."""
        site = self._context.site
        number = self._numbers.get((site, rule))
        if number is None:
            computed = self._context.computed(thread)
            self._reads.append(_Read(site, rule, words(), unit, computed))
            number = self._numbers[site, rule] = len(self._reads)
        self._reads[number - 1].count += count
        return number

    def arrive(self, numbers: Array) -> None:
        """See values of the reads with these numbers used by the instruction at hand."""
        for number in np.unique(numbers):
            read = self._reads[int(number) - 1]
            read.arrived = read.arrived or self._context.site

    def tell(self) -> None:
        """Put all that was read among the findings."""
        for read in self._reads:
            severity, (message, hint), other = "error", read.words, read.arrived
            if other is None:
                severity, hint = "info", hint + _DROPPED
            elif other is read.site:
                other = None
            told = other, read.site, read.unit, read.computed
            words = message, hint
            self._context.find("uninitialized", severity, read.rule, read.count, words, *told)


class SharedMemory:
    """Which granules of shared memory have been written."""

    def __init__(self, context: CheckContext, reads: Reads) -> None:
        self._context = context
        self._reads = reads
        self._written = context.shadow.table(np.bool_)

    def write(self, granules: Array) -> None:
        self._written.data[granules] = True

    def read(self, touch: Touch) -> Array | None:
        """Return the state of each granule that is read; None if all are written."""
        written = self._written.data.take(touch.granules)
        if written.all():
            return None
        at = np.flatnonzero(~written)
        thread = int(touch.threads[at[0]])

        def words() -> Wording:
            where = self._context.shared(int(touch.granules[at[0]]))
            return (
                f"{self._context.thread(thread)} reads {where}, which nobody has written",
                "shared memory holds what was there before: every byte is to be written first",
            )

        nbytes = at.size * self._context.shadow.size
        number = self._reads.note("shared", nbytes, thread, words, "bytes")
        return np.where(written, 0, np.int32(number))


class LocalMemory:
    """The state of each byte of local memory of each thread, in the function it is in.

    To read one that is not written is a move: compilers copy structs with the holes in them.
    """

    def __init__(self, context: CheckContext) -> None:
        self._states = np.zeros((context.wave.width, 0), np.int32)

    def write(self, region: Region, first: Array, nbytes: int, states: Array) -> None:
        """See ``nbytes`` from each of the bytes ``first`` on stored.

        ``states`` is [first, values], of values that are equally large.
        """
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        self._states.reshape(-1)[at] = np.repeat(states, nbytes // states.shape[1], axis=1)

    def read(self, region: Region, first: Array, nbytes: int) -> Array:
        """Return the states of ``nbytes`` from each of the bytes ``first`` on: [first, nbytes]."""
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        states: Array = self._states.reshape(-1)[at]
        return states

    def enter(self, frame: Frame, threads: Threads) -> None:
        """Begin an activation of a function: its part of local memory is new."""
        inside = slice(frame.local_base, frame.local_base + frame.layout.local_bytes)
        self._states[threads.index, inside] = UNREAD

    def _grow(self, region: Region) -> None:
        """Follow the local memory of the wave, which grows with the depth of calls."""
        width = self._states.shape[0]
        if self._states.size < region.data.size:
            grown = np.full((width, region.data.size // width), UNREAD, np.int32)
            grown[:, : self._states.shape[1]] = self._states
            self._states = grown
