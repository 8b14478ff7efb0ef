"""mbarriers: their phases, and what warps ask of them. Source: PTX ISA, "mbarrier"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ptxlab.errors import Unsupported

T = TypeVar("T")

Key = tuple[int, int]
"""A CTA, by its number on the SM, and where in its shared memory a barrier is."""

INIT, ARRIVE, WAIT, NAMED, NOTHING = range(5)

OFFSET = 0xFFFFFF
"""The part of a shared address that is not the number of the CTA in its cluster."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a warp asks of a barrier.

    ``count`` are the arrivals that INIT expects and ARRIVE makes, or the phases that must have ended for
    WAIT. NAMED is a barrier of the CTA by its number. ``nbytes`` are expected. ``far`` says that it comes from another CTA of the cluster.
    """

    kind: int
    key: Key
    count: int = 0
    nbytes: int = 0
    far: bool = False


@dataclass(slots=True)
class _State:
    expected: int
    pending: int
    nbytes: int = 0
    """Bytes that are expected and have not come."""
    multicast: int = 0
    ctas: int = 1
    phase: int = 0
    latest: float = 0.0
    ended: float = 0.0

    def step(self) -> bool:
        """End the phase if all is there that it waits for."""
        if self.pending or self.nbytes not in (self.multicast, self.multicast * self.ctas):
            return False
        self.pending, self.nbytes, self.multicast = self.expected, 0, 0
        self.phase, self.ended = self.phase + 1, self.latest
        return True


class SmMbarriers:
    """The barriers of the CTAs on an SM.

    Of a cluster only the first CTA is run. What it does to the barriers of others, these do to its own:
    so what it copies to ``ctas`` CTAs counts once, or once for each of them where each copies a part,
    whichever is what the barrier expects.
    """

    def __init__(self) -> None:
        self._states: dict[Key, _State] = {}

    def do(self, operation: Operation, now: float = 0.0) -> bool:
        """Do what a warp asks at a time, but wait; say whether it ended a phase."""
        if operation.kind == INIT:
            self._states[operation.key] = _State(operation.count, operation.count)
            return False
        state = self._state(operation.key)
        state.pending -= operation.count
        state.nbytes += operation.nbytes
        state.latest = max(state.latest, now)
        if state.pending < 0:
            raise Unsupported("more threads arrive at an mbarrier than it expects")
        return state.step()

    def leave(self, key: Key, now: float) -> bool:
        """Have one be expected no more, now or later; say whether it ended a phase."""
        state = self._state(key)
        state.expected -= 1
        state.pending -= 1
        state.latest = max(state.latest, now)
        return state.expected > 0 and state.step()

    def landed(self, key: Key, nbytes: int, ctas: int, now: float = 0.0) -> bool:
        """Count what was copied, for one or more CTAs; say whether it ended a phase."""
        state = self._state(key)
        if ctas > 1:
            state.multicast, state.ctas = state.multicast + nbytes, ctas
        else:
            state.nbytes -= nbytes
        state.latest = max(state.latest, now)
        return state.step()

    def state(self, key: Key) -> tuple[int, int]:
        """Return how many arrivals are still to come, and in which phase."""
        state = self._state(key)
        return state.pending, state.phase

    def phase(self, key: Key) -> int:
        """Return how many phases have ended."""
        return self._state(key).phase

    def ended(self, key: Key, phases: int) -> float:
        """Return when that many phases had ended, no later than the last of them."""
        state = self._state(key)
        return state.ended if state.phase == phases else 0.0

    def _state(self, key: Key) -> _State:
        if key not in self._states:
            raise Unsupported("an mbarrier is used that nobody initialised")
        return self._states[key]


def by_warp(operations: Iterable[tuple[int, T]], warps: int) -> tuple[tuple[T, ...], ...]:
    """Return what each of so many warps asks, of pairs of a warp and an operation."""
    asked: list[tuple[T, ...]] = [()] * warps
    for warp, operation in operations:
        asked[warp] += (operation,)
    return tuple(asked)
