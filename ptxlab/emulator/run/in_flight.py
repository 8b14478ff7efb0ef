"""Asynchronous work in flight: what an instruction began, and when it is done.

It lands as late as it may, so that a program that does not wait sees what was there before: work in
groups (of copies, bulk copies, products of warpgroups) when the thread that began it waits for its
group, or touches a register that it writes, work that an mbarrier is told of when nobody can go on without it. Another ``Schedule`` has it
land at once, or at times that a seed decides; a program that is right has one result under all.
Source: PTX ISA, "Asynchronous operations", "cp.async.wait_group", "cp.async.bulk.wait_group",
"wgmma.wait_group".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.errors import PtxlabError

Land = Callable[[Array | None], None]
"""Do the work of the positions, into the threads that began it, that it is given; of all for None."""


class Joined(ABC):
    """Work that may be done in one go with work of its kind that lands right behind it."""

    @abstractmethod
    def __call__(self, chosen: Array | None) -> None:
        """Do it, as any ``Land``."""

    @abstractmethod
    def land_with(self, others: Sequence[Joined]) -> None:
        """Do all of it, and of the others after it."""


Tell = Callable[[int, Threads | None], None]
"""Hear that work has landed: its turn, and which threads' it is, None for all of it."""


class Schedule:
    """When work lands that may: ``late``, ``early``, or ``random:SEED``. Raises PtxlabError for others."""

    def __init__(self, text: str = "late") -> None:
        kind, _, seed = text.partition(":")
        if text not in ("late", "early") and not (kind == "random" and seed.isdigit()):
            raise PtxlabError(
                f"{text!r} is no schedule of asynchronous work",
                hint="there are late, early and random:SEED, like random:1",
            )
        self.text = text
        self._chance = {"late": 0.0, "early": 1.0}.get(text, 0.25)
        self._random = np.random.default_rng(int(seed or 0)) if kind == "random" else None

    @property
    def due(self) -> bool:
        """Whether work that could land at this moment does."""
        return self._chance == 1 or (
            self._random is not None and self._random.random() < self._chance
        )

    def choose(self, count: int) -> int:
        """Say which of ``count`` pieces of work, oldest first, lands next."""
        return 0 if self._random is None else int(self._random.integers(count))


@dataclass(slots=True)
class AsyncWork:
    """What ``threads`` began. ``read`` is what it does first where that can be waited for alone.

    ``group`` is the number of the group it was committed to, per thread; -1 before the commit. ``turn``
    counts the work of a kind. ``writes`` are the registers that it writes.
    """

    threads: Threads
    land: Land
    read: Land | None
    group: Array
    turn: int
    writes: frozenset[int] = frozenset()


class _Picked:
    """A value of all threads of a wave, as those of several pieces of work have it: one element where all have the same."""

    def __init__(self, value: Array) -> None:
        self._value = value
        self._known: dict[int, tuple[Array, Array]] = {}

    def of(self, threads: Threads) -> Array:
        index = threads.index
        known, picked = self._known.get(id(index), (None, self._value))
        if known is not index:
            picked = threads.pick(self._value)
            if (picked == picked[0]).all():
                picked = picked[:1]
            self._known[id(index)] = index, picked
        return picked


class Outside(Protocol):
    """Who begins work of a kind, commits it and waits for it instead of ``Groups``, for all threads at once."""

    def begin(self, groups: Groups, cores: int) -> None:
        """Do so for the groups of a wave from now on, on so many cores."""

    def open(self) -> None:
        """Go on from what there is."""

    def gather(self) -> None:
        """Hand over what there is."""


class Groups:
    """The work of one kind in a wave that has not landed, oldest first, and each thread's count of groups.

    If somebody watches, ``tell`` hears of work that lands.
    """

    tell: Tell | None = None
    outside: Outside | None = None

    def __init__(self, width: int, schedule: Schedule, team: int = 1) -> None:
        self._schedule = schedule
        self._team = team
        self._groups: Array = np.zeros(1, np.int64)
        self._pending: list[AsyncWork] = []
        self._turn = 0
        self._width = width

    @property
    def turn(self) -> int:
        """How much work was begun."""
        self._gather()
        return self._turn

    @property
    def alike(self) -> int | None:
        """How many groups each thread has committed if all is late and has landed; None where they differ."""
        if self._pending or len(self._groups) > 1 or self._schedule.text != "late":
            return None
        return int(self._groups[0])

    def go_on(self, groups: int, begun: int, under_way: Sequence[tuple[Land, int]]) -> None:
        """Take over from outside: so many groups of each thread, and of the work begun what has not landed.

        That is of all threads, oldest first, each with its group.
        """
        everyone, landed = Threads(self._width), begun - len(under_way)
        self._groups = np.full(1, groups)
        for turn, (land, group) in enumerate(under_way, self._turn + landed + 1):
            self._pending.append(AsyncWork(everyone, land, None, np.full(1, group), turn))
        self._turn += begun

    def _gather(self) -> None:
        if self.outside is not None:
            self.outside.gather()

    def start(
        self,
        threads: Threads,
        land: Land,
        read: Land | None = None,
        writes: frozenset[int] = frozenset(),
    ) -> None:
        """Record work that no group holds yet."""
        self._gather()
        self._turn += 1
        if self._schedule.due and not self._pending:
            if read is not None:
                read(None)
            land(None)
            if self.tell is not None:
                self.tell(self._turn, threads)
        else:
            self._pending.append(AsyncWork(threads, land, read, np.full(1, -1), self._turn, writes))

    def commit(self, threads: Threads) -> None:
        """Put the threads' work that is in no group yet into a new one."""
        self._gather()
        everyone = threads.full or threads.everyone
        groups, committing = _Picked(self._groups), _Picked(threads.mask)
        for work in self._pending:
            chosen = work.group < 0
            if chosen.any():
                if not everyone:
                    chosen = committing.of(work.threads) & chosen
                work.group = np.where(chosen, groups.of(work.threads), work.group)
        self._groups = self._groups + (1 if everyone else threads.mask)

    def wait(self, threads: Threads, allowed: int, *, read_only: bool = False) -> None:
        """Land all but the last ``allowed`` groups of each of the threads, or only have their sources read."""
        self._gather()
        newest = _Picked(self._groups - allowed)
        self._finish(
            threads,
            lambda work: (work.group >= 0) & (work.group < newest.of(work.threads)),
            read_only=read_only,
        )

    def wait_all(self, threads: Threads, until: int | None = None) -> None:
        """Land all work of the threads, committed or not, begun before the turn ``until``."""
        self._gather()
        self._finish(
            threads,
            lambda work: np.full_like(work.group, until is None or work.turn <= until, bool),
        )

    def settle(self, threads: Threads, touched: frozenset[int]) -> None:
        """Land what writes ``touched`` registers in a team of which some of the threads are.

        What was begun before it and writes some of its registers lands before it.
        """
        if not self._pending:
            return
        mask, turns, registers = threads.mask, set(), set(touched)
        for work in reversed(self._pending):
            if not work.writes.isdisjoint(registers):
                turns.add(work.turn)
                registers |= work.writes

        def due(work: AsyncWork) -> Array:
            teams = work.threads.pick(mask).reshape(-1, self._team).any(axis=1)
            owing: Array = teams.repeat(self._team) & (work.turn in turns)
            return owing

        if turns:
            self._finish(Threads(self._width), due)

    def _finish(
        self, threads: Threads, due: Callable[[AsyncWork], Array], *, read_only: bool = False
    ) -> None:
        kept: list[AsyncWork] = []
        joined: list[Joined] = []
        waiting = _Picked(threads.mask)
        for work in self._pending:
            now = due(work)
            if not (threads.full or threads.everyone):
                now = now & waiting.of(work.threads)
            if not now.any():
                kept.append(work)
                continue
            chosen = None if now.all() else np.flatnonzero(now)
            if chosen is None and self.tell is None and isinstance(work.land, Joined):
                joined.append(work.land)
                continue
            _land_joined(joined)
            if work.read is not None:
                work.read(chosen)
            if read_only:
                kept.append(work)
                continue
            work.land(chosen)
            if self.tell is not None:
                self.tell(work.turn, work.threads if chosen is None else _at(work.threads, chosen))
            if chosen is not None:
                kept.append(_remaining(work, ~now))
        _land_joined(joined)
        self._pending = kept


def _land_joined(joined: list[Joined]) -> None:
    """Do work in one go, which then is none any more."""
    if joined:
        first, *others = joined
        joined.clear()
        first.land_with(others)


def _at(threads: Threads, positions: Array) -> Threads:
    return Threads(threads.width, index=threads.index[positions])


def _remaining(work: AsyncWork, keep: Array) -> AsyncWork:
    positions = np.flatnonzero(keep)

    def rest_of(act: Land) -> Land:
        return lambda chosen: act(positions if chosen is None else positions[chosen])

    return AsyncWork(
        _at(work.threads, positions),
        rest_of(work.land),
        None if work.read is None else rest_of(work.read),
        np.broadcast_to(work.group, keep.shape)[positions],
        work.turn,
        work.writes,
    )


class Signals:
    """The work of a wave that an mbarrier is told of when it is done; ``turn`` and ``tell`` as in ``Groups``."""

    tell: Tell | None = None

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._pending: list[tuple[int, Callable[[], None]]] = []
        self.turn = 0

    def __bool__(self) -> bool:
        return bool(self._pending)

    def start(self, land: Callable[[], None]) -> None:
        self.turn += 1
        self._pending.append((self.turn, land))
        self.land_due()

    def land_due(self) -> None:
        """Land what the schedule wants landed now."""
        while self._pending and self._schedule.due:
            self.land_next()

    def land_next(self) -> None:
        turn, land = self._pending.pop(self._schedule.choose(len(self._pending)))
        land()
        if self.tell is not None:
            self.tell(turn, None)
