"""What instructions have begun and not ended, before another one.

Times are cycles at which a warp may issue at the earliest. Where paths meet, what is in flight on any of them
is, and is told by the scoreboards that tell of it on all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from ptxlab.machine import uses
from ptxlab.machine.latencies import LONGEST
from ptxlab.machine.operands import Predicate

KEPT_FOR = 2
"""Instructions for which a reuse flag keeps a register: behind them ptxas counts on it no more."""

TAKES_EFFECT = 2
"""Cycles from an instruction to the first that sees the scoreboard it holds."""


class Flight(NamedTuple):
    """What an instruction has not done yet: ``bits`` it writes or reads, of which ``boards`` tell the end.

    It was issued at a time ``begun``, and runs where ``guard`` says, which is None where nobody knows any more.
    """

    bits: int
    begun: int
    guard: Predicate | None
    boards: int = 0

    def joined(self, other: Flight) -> Flight:
        """Return what is in flight if it is the one or the other."""
        return Flight(
            self.bits | other.bits,
            max(self.begun, other.begun),
            self.guard if self.guard == other.guard else None,
            self.boards & other.boards,
        )


class Flights(dict[int, Flight]):
    """What is in flight of a kind, by the number of the instruction, until ``lasts`` cycles later it makes no difference.

    ``bits`` are all of theirs, and of some that have ended.
    """

    def __init__(self, lasts: int, flights: Mapping[int, Flight] = MappingProxyType({})) -> None:
        super().__init__(flights)
        self.lasts = lasts
        self.bits = 0
        for flight in flights.values():
            self._notice(flight)

    def begin(self, number: int, flight: Flight) -> None:
        self[number] = flight
        self._notice(flight)

    def _notice(self, flight: Flight) -> None:
        self.bits |= flight.bits
        if flight.guard is not None:
            self.bits |= uses.of(flight.guard)

    def overwrite(self, bits: int, *, ends: bool) -> None:
        """Forget guards that are written, and with ``ends`` what was under way to what is written."""
        if not self.bits & bits:
            return
        for number, flight in list(self.items()):
            guard, left = flight.guard, flight.bits
            if guard is not None and bits & uses.of(guard):
                guard = None
            if ends:
                left &= ~bits
            if not left:
                del self[number]
            elif (left, guard) != (flight.bits, flight.guard):
                self[number] = flight._replace(bits=left, guard=guard)

    def settled(self, now: int, *, timed: bool) -> Flights:
        """Return the same where the time is 0 and not ``now``; what is ``timed`` ends."""
        flights = Flights(self.lasts)
        for number, flight in self.items():
            begun = max(flight.begun - now, -self.lasts)
            if begun > -self.lasts or not timed:
                flights.begin(
                    number, flight if begun == flight.begun else flight._replace(begun=begun)
                )
        return flights

    def join(self, others: Flights) -> bool:
        """Add what is in flight on another path, and say whether that is more."""
        changed = False
        for number, flight in others.items():
            old = self.get(number)
            if flight is not old:
                new = flight if old is None else old.joined(flight)
                if new != old:
                    self.begin(number, new)
                    changed = True
        return changed


class Kept(dict[tuple[int, int], tuple[int, bool, int]]):
    """Registers that are kept, as bits, whether they were written since, and for how many instructions they are still.

    By the instruction that keeps them, and its slot.
    """

    def join(self, others: Kept) -> bool:
        """Add what is kept on another path, and say whether that is more."""
        before = dict(self)
        for key, (bits, stale, left) in others.items():
            _, was_stale, was_left = self.get(key, (0, False, 0))
            self[key] = bits, stale or was_stale, max(left, was_left)
        return before != self


@dataclass(slots=True)
class InFlight:
    """What is under way before an instruction, at a time ``now``.

    ``writes`` and ``reads`` end when a scoreboard says so, ``timed`` are writes that end after some cycles. ``kept``
    has what reuse flags keep of registers, until the next instruction that has a register in that slot, and no longer
    than ``KEPT_FOR``.
    """

    writes: Flights = field(default_factory=partial(Flights, TAKES_EFFECT))
    reads: Flights = field(default_factory=partial(Flights, TAKES_EFFECT))
    timed: Flights = field(default_factory=partial(Flights, LONGEST))
    kept: Kept = field(default_factory=Kept)
    now: int = 0

    def settled(self) -> InFlight:
        """Return the same at the time 0."""
        return InFlight(
            self.writes.settled(self.now, timed=False),
            self.reads.settled(self.now, timed=False),
            self.timed.settled(self.now, timed=True),
            Kept(self.kept),
        )

    def join(self, other: InFlight) -> bool:
        """Add what is in flight on another path, and say whether that is more."""
        writes, reads = self.writes.join(other.writes), self.reads.join(other.reads)
        kept = self.kept.join(other.kept)
        return self.timed.join(other.timed) or writes or reads or kept
