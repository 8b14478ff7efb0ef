"""In which order warps issued instructions when a kernel was followed, and which threads stood together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ptxlab.machine.values import Array, warps_of
from ptxlab.prediction.sm.mbarriers import Operation
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked


@dataclass(slots=True, eq=False)
class ThreadGroup:
    """Threads that stand at the same instruction, and what they wait for there."""

    pc: int
    threads: Array
    waits: str = ""
    phases: tuple[Operation, ...] = ()
    """Those of mbarriers that it waits for."""
    barriers: Array | None = None
    """Which barrier each of its warps waits at, of all CTAs, where as many arrive as the instruction says."""
    warps: Array = field(init=False)

    def __post_init__(self) -> None:
        self.warps, _ = warps_of(self.threads)

    def without(self, ended: Array) -> ThreadGroup:
        """Return the others, one instruction further."""
        left = np.ones(len(self.threads), bool)
        left[np.searchsorted(self.threads, ended)] = False
        return ThreadGroup(self.pc + 1, self.threads[left])


@dataclass(slots=True)
class IssueOrder:
    """What was issued, in order: segments, instructions from ``first`` to before ``end``, for which warps.

    ``warps`` is None where it is all of them. A step is one instruction of a segment. ``more`` are how many turns of a long
    loop, that were not followed, a turn stands for, by its first step and that behind it. ``requests`` are what some steps asked for.
    """

    first: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    warps: list[Array | None] = field(default_factory=list)
    count: int = 0
    more: dict[tuple[int, int], int] = field(default_factory=dict)
    requests: dict[int, Request | Asked] = field(default_factory=dict)

    def add(self, first: int, end: int, warps: Array | None) -> None:
        self.first.append(first)
        self.end.append(end)
        self.warps.append(warps)
        self.count += end - first

    @property
    def lengths(self) -> Array:
        lengths: Array = np.array(self.end) - np.array(self.first)
        return lengths

    @property
    def times(self) -> Array | None:
        """How many times each step is issued, None for once."""
        if not self.more:
            return None
        times: Array = np.ones(self.count, np.int64)
        for (first, end), turns in self.more.items():
            times[first:end] += turns
        return times

    def between(self, begin: int, end: int) -> Iterator[tuple[int, int, Array | None]]:
        """Yield the segments from one to before another, by place, and for which warps they are."""
        some = slice(begin, end)
        return zip(self.first[some], self.end[some], self.warps[some], strict=True)

    def same(self, first: int, middle: int, last: int) -> bool:
        """Say whether the segments behind the ``middle`` are those before it, for the same warps."""
        before, behind = slice(first, middle), slice(middle, last)
        if self.first[before] != self.first[behind] or self.end[before] != self.end[behind]:
            return False
        return all(
            a is b or (a is not None and b is not None and np.array_equal(a, b))
            for a, b in zip(self.warps[before], self.warps[behind], strict=True)
        )

    def cut(self, step: int, segment: int) -> None:
        """Forget what came behind a step, the first of a segment."""
        del self.first[segment:], self.end[segment:], self.warps[segment:]
        for asked in [asked for asked in self.requests if asked >= step]:
            del self.requests[asked]
        self.count = step

    @property
    def numbers(self) -> Array:
        lengths = self.lengths
        begun = np.cumsum(lengths) - lengths
        numbers: Array = np.repeat(np.array(self.first) - begun, lengths) + np.arange(self.count)
        return numbers
