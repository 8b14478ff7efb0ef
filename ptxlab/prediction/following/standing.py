"""Where all threads stand, what they hold, and by how much that has grown since they stood alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.machine import uses
from ptxlab.machine.values import Array, Held
from ptxlab.prediction.following.issue_order import ThreadGroup
from ptxlab.prediction.following.program_slice import SPILLED
from ptxlab.prediction.sm.mbarriers import Key, Stored

_WORD = 1 << 32

_ONE_BIT = (1, 1 << 31)
"""Words of one bit, as which the parity of a phase is kept."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where all threads stand before a ``step``, and what those of each group hold that is read later.

    ``taken`` is how often something known was loaded or stored until then, by space, and ``lost`` how often what is known
    of each region of global memory was overwritten by what is not.
    """

    step: int
    segment: int
    groups: Sequence[ThreadGroup]
    held: Sequence[Mapping[int, Held]]
    barriers: Mapping[Key, Stored]
    arrived: Array
    taken: Mapping[str, int]
    lost: Sequence[int]


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much words grow in a period, group by group; ``turns`` says that others turn to and fro, as the parity of phases does."""

    words: Sequence[Mapping[int, Array]]
    turns: bool

    def later(self, standing: Standing, periods: int) -> list[dict[int, Held]]:
        """Return what threads hold so many periods later."""
        later = []
        for held, growth in zip(standing.held, self.words, strict=True):
            grown = dict(held)
            for bit, step in growth.items():
                words, known = held[bit]
                grown[bit] = ((words + periods * step) % _WORD).astype(np.uint32), known
            later.append(grown)
        return later

    def told(self, branch: int) -> set[tuple[int, int, int, bytes]]:
        """Return which words of which group grow behind a ``branch``, and by how much."""
        return {
            (branch, group, bit, step.tobytes())
            for group, growth in enumerate(self.words)
            for bit, step in growth.items()
        }

    def room(self, standing: Standing) -> int:
        """Return for how many periods no word goes around."""
        room = _WORD
        for held, growth in zip(standing.held, self.words, strict=True):
            for bit, step in growth.items():
                words = held[bit][0].astype(np.int64)
                left = np.where(step > 0, _WORD - 1 - words, words) // np.maximum(abs(step), 1)
                room = min(room, int(left[step != 0].min()))
        return room


def alike(first: Standing, last: Standing) -> bool:
    """Say whether all stand alike, and barriers lack as much."""
    if len(first.groups) != len(last.groups) or first.barriers.keys() != last.barriers.keys():
        return False
    if not np.array_equal(first.arrived, last.arrived):
        return False
    if any(lacking != last.barriers[key][1] for key, (_, lacking) in first.barriers.items()):
        return False
    return all(
        _stands_like(a, first.barriers, b, last.barriers)
        for a, b in zip(first.groups, last.groups, strict=True)
    )


def _stands_like(
    group: ThreadGroup,
    barriers: Mapping[Key, Stored],
    other: ThreadGroup,
    later: Mapping[Key, Stored],
) -> bool:
    def named(group: ThreadGroup) -> Array:
        return np.zeros(0, np.int64) if group.barriers is None else group.barriers

    def waits(group: ThreadGroup, barriers: Mapping[Key, Stored]) -> Iterable[tuple[Key, int]]:
        return [(wait.key, wait.count - barriers[wait.key][0]) for wait in group.phases]

    return (
        (group.pc, group.waits) == (other.pc, other.waits)
        and np.array_equal(group.threads, other.threads)
        and np.array_equal(named(group), named(other))
        and waits(group, barriers) == waits(other, later)
    )


def growth_between(then: Standing, now: Standing) -> Growth | None:
    """Return by how much words grew in a period, None where something did that is no word.

    Where phases of another parity come, predicates and what is one bit turn to and fro.
    """
    turns = any((phase - then.barriers[key][0]) % 2 for key, (phase, _) in now.barriers.items())
    words = []
    for before, after in zip(then.held, now.held, strict=True):
        steps: dict[int, Array] = {}
        for bit, (word, known) in after.items():
            earlier, was_known = before[bit]
            if word is earlier and known is was_known:
                continue
            if not np.array_equal(known, was_known):
                return None
            moved = (word != earlier) & known
            if turns and moved.any():
                either = word | earlier
                moved = moved & (either != _ONE_BIT[0]) & (either != _ONE_BIT[1])
            if moved.any():
                if uses.PREDICATES <= bit < SPILLED:
                    return None
                step = (word - earlier).view(np.int32).astype(np.int64)
                steps[bit] = np.where(moved, step, 0)
        words.append(steps)
    return Growth(words, turns)


def equal(foretold: Held, now: Held) -> bool:
    """Say whether threads hold what was foretold, and know as much of it."""
    words, known = foretold
    return np.array_equal(known, now[1]) and bool(
        ((words == now[0]) | ~np.broadcast_to(known, words.shape)).all()
    )
