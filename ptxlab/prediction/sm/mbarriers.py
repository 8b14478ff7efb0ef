"""mbarriers: their phases, and what warps ask of them. Source: PTX ISA, "mbarrier"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
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
class State:
    """A barrier: how many arrivals a phase has, how many are still to come, and how many phases have ended."""

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


Stored = tuple[int, tuple[int, int, int, int, int]]
"""What a barrier is like: how many phases have ended, and what it has and lacks in this one, as the first of ``State`` are."""


class SmMbarriers:
    """The barriers of the CTAs on an SM.

    Of a cluster only the first CTA is run. What it does to the barriers of others, these do to its own:
    so what it copies to ``ctas`` CTAs counts once, or once for each of them where each copies a part,
    whichever is what the barrier expects.
    """

    def __init__(self) -> None:
        self._states: dict[int, dict[int, State]] = defaultdict(dict)
        """By CTA and offset."""
        self._last: dict[int, int] = {}
        """The offset of that barrier of a CTA which ended a phase last."""

    def do(self, operation: Operation, now: float = 0.0) -> bool:
        """Do what a warp asks at a time, but wait; say whether it ended a phase."""
        if operation.kind == INIT:
            cta, offset = operation.key
            self._states[cta][offset] = State(operation.count, operation.count)
            return False
        state = self._state(operation.key)
        state.pending -= operation.count
        state.nbytes += operation.nbytes
        state.latest = max(state.latest, now)
        if state.pending < 0:
            raise Unsupported("more threads arrive at an mbarrier than it expects")
        return self._step(operation.key, state)

    def leave(self, key: Key, now: float) -> bool:
        """Have one be expected no more, now or later; say whether it ended a phase."""
        state = self._state(key)
        state.expected -= 1
        state.pending -= 1
        state.latest = max(state.latest, now)
        return state.expected > 0 and self._step(key, state)

    def landed(self, key: Key, nbytes: int, ctas: int, now: float = 0.0) -> bool:
        """Count what was copied, for one or more CTAs; say whether it ended a phase."""
        state = self._state(key)
        if ctas > 1:
            state.multicast, state.ctas = state.multicast + nbytes, ctas
        else:
            state.nbytes -= nbytes
        state.latest = max(state.latest, now)
        return self._step(key, state)

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

    def progress(self, cta: int) -> object:
        """Return what is the same whenever the barriers of a CTA are as far in their phases."""
        lacking = ((state.pending, state.nbytes) for state in self._states[cta].values())
        return self._last.get(cta), tuple(lacking)

    def phases(self, cta: int) -> int:
        """Return how many phases of a CTA's barriers have ended."""
        return sum(state.phase for state in self._states[cta].values())

    def stored(self) -> dict[Key, Stored]:
        """Return what all barriers are like now."""
        return {
            (cta, offset): (state.phase, (state.expected, state.pending, state.nbytes, state.multicast, state.ctas))
            for cta, states in self._states.items()
            for offset, state in states.items()
        }  # fmt: skip

    def restore(self, stored: Mapping[Key, Stored]) -> None:
        """Have all barriers be what ``stored`` said; when phases ended is not."""
        for (cta, offset), (phase, lacking) in stored.items():
            self._states[cta][offset] = State(*lacking, phase)

    def _step(self, key: Key, state: State) -> bool:
        ended = state.step()
        if ended:
            self._last[key[0]] = key[1]
        return ended

    def _state(self, key: Key) -> State:
        cta, offset = key
        if offset not in self._states[cta]:
            raise Unsupported("an mbarrier is used that nobody initialised")
        return self._states[cta][offset]


def by_warp(operations: Iterable[tuple[int, T]], warps: int) -> tuple[tuple[T, ...], ...]:
    """Return what each of so many warps asks, of pairs of a warp and an operation."""
    asked: list[tuple[T, ...]] = [()] * warps
    for warp, operation in operations:
        asked[warp] += (operation,)
    return tuple(asked)
