"""Turns of loops that are not followed where warps wait for each other.

Warps that hand each other data through mbarriers come, each in its own loop, to where they stood together before: a period
later, when every loop has made as many turns as there are buffers, or some times as many. If all stand as they did then, and what they hold
is the same but for words that grew, the next periods will be like this one until something that is compared comes out
otherwise. These are left out, and the one behind them is followed: if it is not what was foretold, words that grew by as much again
among it, all are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.values import Array, Held, Where
from ptxlab.prediction.following.execute import Executor
from ptxlab.prediction.following.issue_order import IssueOrder, ThreadGroup
from ptxlab.prediction.following.program_slice import ProgramSlice
from ptxlab.prediction.following.standing import Growth, Standing, alike, equal, growth_between

MEASURED = 16
"""So many phases of a CTA's barriers end at least in a period that is to be run clock by clock."""

_LONGEST = 64
"""So many turns of a loop are looked back at, to where all stood as they do now."""

_PATIENCE = 2 * _LONGEST
"""After so many turns in which no period was found none is looked for in a loop."""

_FEW_TILES = 4
"""After so many tiles in which no period was found turns of the loops in them are looked at."""

_COMPARED = 512
"""So many of the comparisons that an instruction makes are remembered."""

_ORDERS = ("LT", "LE", "GT", "GE", "EQ", "NE")
_ONCE = ("next cluster", "tensor allocation", "call", "return")
"""What is done once has no place in a period."""


@dataclass(slots=True)
class _Loop:
    """Where all stood when a branch back was taken, by what could be seen of it, and how many phases had ended then."""

    turns: int = 0
    seen: dict[Any, list[tuple[Standing, int]]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class _Trial:
    """What is foretold: after ``periods`` that were left out at the last of two standings one more is followed."""

    branch: int
    before: Standing
    begun: Standing
    growth: Growth
    periods: int

    @property
    def end(self) -> int:
        return 2 * self.begun.step - self.before.step


class Periods:
    """Finds periods that are alike while a kernel is followed.

    In those that are to be ``measured``, run clock by clock, MEASURED phases of a CTA end.
    ``told`` are those that were left out when it was followed before, as ``IssueOrder.more`` has them: now they are again, and no others.
    """

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        executor: Executor,
        needed: ProgramSlice,
        steps: IssueOrder,
        arrived: Array,
        measured: bool,
        told: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        self._code, self._executor, self._needed = code, executor, needed
        self._steps, self._arrived = steps, arrived
        self._least = MEASURED if measured else 0
        self._barriers = executor.asynchronous.mbarriers
        self._loops: dict[tuple[int, int, int], _Loop] = defaultdict(_Loop)
        self._compared: dict[tuple[int, int], deque[tuple[int, Array]]] = defaultdict(
            lambda: deque(maxlen=_COMPARED)
        )
        self._comparisons = {
            i.number
            for i in code
            if i.outs and len(i.sources) == 2 and not i.has("EX") and any(map(i.has, _ORDERS))
        }
        self._leader: tuple[int, int, int] | None = None
        self._others = 0
        """Turns of other loops since the last of the one that leads."""
        self._outer: tuple[int, int, int] | None = None
        """A loop over tiles, which has the one that leads in it."""
        self._unlike = measured
        """Whether tiles are not looked at: they are not alike, or what turns cost is to be told of each."""
        self._last: dict[tuple[int, int], dict[int, Held]] = {}
        """What threads held last, by the first of them and how many they are."""
        self._again: dict[tuple[int, int], bool] = {}
        """Whether instructions in a row can be done again, by the first of them and where they end."""
        self._trial: _Trial | None = None
        self._refused: set[int] = set()
        self._uneven: set[tuple[int, int, int, bytes]] = set()
        """Words of which it was foretold how they grow, wrongly: the branch, the group's place, the bit, and the growth."""
        self._told = None if told is None else {end: (first, n) for (first, end), n in told.items()}
        self._wanted = {step for both in told or () for step in both}
        self._stood: dict[int, Standing] = {}

    @property
    def overdue(self) -> bool:
        """Whether what was foretold has not come."""
        return self._trial is not None and self._steps.count > self._trial.end

    @property
    def trying(self) -> bool:
        return self._trial is not None

    def come(
        self, branch: DecodedInstruction, group: ThreadGroup, groups: Sequence[ThreadGroup]
    ) -> list[ThreadGroup] | None:
        """Look at where all stand when a group has gone back by a branch; return who goes on instead, None if nobody does."""
        if self._told is not None:
            self._leave_out_as_told(groups)
        elif self._trial is None:
            self._look_back(branch, group, groups)
        elif self._steps.count >= self._trial.end and not self._came_true(branch, groups):
            return self.undone()
        return None

    def compare(self, i: DecodedInstruction, where: Where) -> None:
        """Take note of what an instruction compares, to know when that comes out otherwise."""
        if self._told is None and i.number in self._comparisons:
            values = [self._executor.value(source, where) for source in i.sources]
            if all(value is not None for value in values):
                kind = np.uint32 if i.has("U32") else np.int32
                here, there = (
                    np.atleast_1d(np.asarray(value)).view(kind).astype(np.int64) for value in values
                )
                first = -1 if isinstance(where, slice) else int(where[0])
                self._compared[i.number, first].append((self._steps.count, _briefly(here - there)))

    def undone(self) -> list[ThreadGroup]:
        """Have all be as before what was foretold and did not come, and return who goes on."""
        assert self._trial is not None
        before, begun = self._trial.before, self._trial.begun
        self._trial = None
        self._executor.settle(taken_back=True)
        self._refused.add(begun.step)
        self._steps.cut(begun.step, begun.segment)
        del self._steps.more[before.step, begun.step]
        self._barriers.restore(begun.barriers)
        self._arrived[:] = begun.arrived
        for group, held in zip(begun.groups, begun.held, strict=True):
            self._executor.restore(held, group.threads)
        return [*map(copy, begun.groups)]

    # ---- finding a period -------------------------------------------------------------------

    def _look_back(
        self, branch: DecodedInstruction, group: ThreadGroup, groups: Sequence[ThreadGroup]
    ) -> None:
        """Leave out what comes if all stood alike some turns of a loop before, and nothing but that grew."""
        cta = int(group.threads[0]) // self._executor.threads_of_cta
        stand = sorted((other.pc, int(other.threads[0]), len(other.threads)) for other in groups)
        key = (branch.number, int(group.threads[0]), len(group.threads))
        outer = self._is_outer(branch, key)
        loop = self._loops[key]
        if loop.turns > _PATIENCE or not (outer or self._leads(key)):
            return
        sight = (tuple(stand), self._barriers.progress(cta))
        now, phases = self._standing(groups), self._barriers.phases(cta)
        for then, ended in reversed(loop.seen[sight]):
            if phases - ended >= self._least and self._begins(branch, group, then, now):
                return
        loop.seen[sight].append((now, phases))
        loop.turns += 1
        self._unlike |= outer and loop.turns > _FEW_TILES
        if loop.turns % _LONGEST == 0:
            loop.seen.clear()

    def _leads(self, key: tuple[int, int, int]) -> bool:
        """Say whether it is this loop whose turns show where all stand: one does, as long as it goes on, and tiles do not."""
        self._others = 0 if key == self._leader else self._others + 1
        if self._others > _LONGEST or self._leader is None:
            self._leader, self._others = key, 0
        return key == self._leader and (self._outer is None or self._unlike)

    def _is_outer(self, branch: DecodedInstruction, key: tuple[int, int, int]) -> bool:
        """Say whether a loop is that over tiles which shows where all stand: the first that is seen to have another in it."""
        assert branch.target is not None
        if self._outer is None and any(
            branch.target <= inner < branch.number for inner, *_ in self._loops
        ):
            self._outer = key
        return key == self._outer and not self._unlike

    def _begins(
        self, branch: DecodedInstruction, group: ThreadGroup, then: Standing, now: Standing
    ) -> bool:
        """Leave out periods like that between two standings if there are any, and try whether it was right."""
        if now.step in self._refused or not alike(then, now):
            return False
        growth = growth_between(then, now)
        if growth is None or not self._uneven.isdisjoint(growth.told(branch.number)):
            self._unlike |= self._outer is not None
            return False
        if not self._can_repeat(branch, group, then, now):
            return False
        periods = min(growth.room(now), self._coming(then)) - 1
        periods -= periods % 2 if growth.turns else 0
        if periods < 1:
            return False
        self._steps.more[then.step, now.step] = periods
        self._executor.watch()
        self._jump(growth, then, now, periods)
        self._trial = _Trial(branch.number, then, now, growth, periods)
        self._compared.clear()
        return True

    def _standing(self, groups: Sequence[ThreadGroup]) -> Standing:
        ordered = sorted(groups, key=lambda group: (group.pc, int(group.threads[0])))
        live = (uses.each(self._needed.held(group.pc)) for group in ordered)
        held = [
            self._stored(bits, group.threads) for bits, group in zip(live, ordered, strict=True)
        ]
        return Standing(
            self._steps.count,
            len(self._steps.first),
            [*map(copy, ordered)],
            held,
            self._barriers.stored(),
            self._arrived.copy(),
            {
                space: times
                for space, times in self._executor.taken.items()
                if not (space == "local" and self._needed.spilled)
            },
            self._executor.memory.lost,
        )

    def _stored(self, bits: Iterable[int], threads: Array) -> dict[int, Held]:
        """Return what threads hold; what they held before takes no more memory."""
        key = int(threads[0]), len(threads)
        last = self._last.get(key, {})
        held = self._executor.stored(bits, threads)
        for bit in held.keys() & last.keys():
            (words, known), (before, knew) = held[bit], last[bit]
            if (known is knew or np.array_equal(known, knew)) and np.all(words == before):
                held[bit] = last[bit]
        self._last[key] = {**last, **held}
        return held

    def _can_repeat(
        self, branch: DecodedInstruction, group: ThreadGroup, first: Standing, last: Standing
    ) -> bool:
        """Say whether all that is done between can be done again: the group stays in its loop, and nobody stores or takes what is known."""
        assert branch.target is not None
        if first.taken != last.taken:
            return False
        warp = group.warps[0]
        for begin, end, warps in self._steps.between(first.segment, last.segment):
            inside = branch.target <= begin and end <= branch.number + 1
            if not inside and (warps is None or warp in warps):
                return False
            if (begin, end) not in self._again:
                self._again[begin, end] = self._is_done_again(begin, end)
            if not self._again[begin, end]:
                return False
        return True

    def _is_done_again(self, begin: int, end: int) -> bool:
        """Say whether what is needed of some instructions in a row, and the last of them, can be done again."""
        numbers = {*self._needed.of(begin, end, False), end - 1}
        return not any(self._code[number].does in _ONCE for number in numbers)

    def _coming(self, then: Standing) -> int:
        """Return how many periods come, from one standing to now, before something that is compared comes out otherwise."""
        coming = 0
        for compared in self._compared.values():
            steps, values = zip(*compared, strict=True)
            within = len(steps) - bisect_left(steps, then.step)
            if not within:
                continue
            if len(values) <= within or values[-1].shape != values[-1 - within].shape:
                return 0
            now = values[-1]
            step = now - values[-1 - within]
            nearing = (step != 0) & (now * step <= 0)
            if nearing.any():
                left = int(((abs(now) - 1)[nearing] // abs(step)[nearing]).min())
                coming = min(coming, left) if coming else left
                if not coming:
                    return 0
        return coming

    def _jump(self, growth: Growth, then: Standing, begun: Standing, periods: int) -> None:
        """Have all be as so many periods later, like that between two standings."""
        self._executor.memory.forget(then.lost)
        later = growth.later(begun, periods)
        for group, held in zip(begun.groups, later, strict=True):
            self._executor.restore(held, group.threads)

    # ---- what was foretold ------------------------------------------------------------------

    def _came_true(self, branch: DecodedInstruction, groups: Sequence[ThreadGroup]) -> bool:
        """Say whether the period behind those that were left out was what it should be."""
        trial = self._trial
        assert trial is not None
        now = self._standing(groups)
        same = self._steps.same(trial.before.segment, trial.begun.segment, now.segment)
        if branch.number != trial.branch or not same or not alike(trial.before, now):
            return False
        foretold = trial.growth.later(trial.before, trial.periods + 2)
        wrong = {
            (group, bit)
            for group, (told, held) in enumerate(zip(foretold, now.held, strict=True))
            for bit in told
            if not equal(told[bit], held[bit])
        }
        if wrong:
            self._uneven |= {word for word in trial.growth.told(trial.branch) if word[1:3] in wrong}
            return False
        self._trial = None
        self._executor.settle(taken_back=False)
        self._loops.clear()
        return True

    def _leave_out_as_told(self, groups: Sequence[ThreadGroup]) -> None:
        step = self._steps.count
        if step not in self._wanted:
            return
        self._stood[step] = now = self._standing(groups)
        assert self._told is not None
        if step in self._told:
            first, periods = self._told[step]
            then = self._stood[first]
            growth = growth_between(then, now)
            if growth is None:
                raise Unsupported("turns of a loop ask memory for what changes by no steady step")
            self._jump(growth, then, now, periods)
            self._stood = {step: now}


def _briefly(values: Array) -> Array:
    """Return what warps have, one number for each where all of its lanes have the same."""
    if len(values) % WARP:
        return values
    lanes = values.reshape(-1, WARP)
    return lanes[:, 0].copy() if (lanes == lanes[:, :1]).all() else values
