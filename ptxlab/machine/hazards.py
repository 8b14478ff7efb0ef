"""Hazards that control bits leave open, along every path through a kernel.

An instruction must not read a register before what was told to write it has, nor write one that another
still reads or writes. The hardware does not look: ptxas counts cycles of stall behind what takes a fixed
time, and has what takes longer hold one of six scoreboards, which others wait for. What is in flight is
followed from block to block until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ptxlab.machine import uses
from ptxlab.machine.control import scoreboards
from ptxlab.machine.flow import Block, blocks
from ptxlab.machine.in_flight import KEPT_FOR, TAKES_EFFECT, Flight, InFlight
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.latencies import LONGEST, Latencies
from ptxlab.machine.operands import TRUE_PREDICATE, UNIFORM, Immediate, Predicate
from ptxlab.machine.row import Row

_NEVER = Predicate(TRUE_PREDICATE, negated=True)
_READ_IN_ORDER = ("xu", "fp64", "tmem")
"""Pipes that read, and write, as they are told."""
_TAKEN = 8
"""Cycles that the pipe of special functions takes for an instruction: by then it has its sources."""


Kind = Literal["RAW", "WAR", "WAW", "REUSE"]


@dataclass(frozen=True, slots=True)
class Hazard:
    """``later`` does not wait for ``earlier``: it reads after a write, writes after a read, or after a write.

    ``bits`` are the registers and predicates they share. It comes ``missing`` cycles too early or, where that is
    0, waits for none of the ``scoreboards`` that tell when ``earlier`` is done, of which there may be none. Of the
    kind ``REUSE`` it reads what ``earlier`` keeps of a register that has been written since.
    """

    kind: Kind
    earlier: DecodedInstruction
    later: DecodedInstruction
    bits: int
    missing: int = 0
    scoreboards: tuple[int, ...] = ()


class HazardCheck:
    """The hazards of a kernel and what it calls, as ``latencies`` of its target say."""

    def __init__(self, code: Sequence[DecodedInstruction], latencies: Latencies) -> None:
        self._code, self._latencies = code, latencies
        runs = [latencies.knows(i) and i.guard != _NEVER for i in code]
        self._reads = [uses.read(i) if run else 0 for i, run in zip(code, runs, strict=True)]
        # What a product of a warpgroup writes is waited for with its group.
        self._writes = [
            uses.written(i) if run and i.does != "product" else 0
            for i, run in zip(code, runs, strict=True)
        ]
        self._slots = [uses.slots(i) if run else {} for i, run in zip(code, runs, strict=True)]
        self._variable = [
            run and latencies.is_variable(i) for i, run in zip(code, runs, strict=True)
        ]
        self._hazards: dict[tuple[str, int, int], Hazard] = {}

    def run(self) -> list[Hazard]:
        """Return the hazards, as their second instructions stand in the code. Raises NotFollowed."""
        every = blocks(self._code)
        places = {block: number for number, block in enumerate(every)}
        before = {every[0]: InFlight()}
        waiting = {0}
        while waiting:
            block = every[min(waiting)]
            waiting.remove(places[block])
            after = self._passed(block, before[block].settled()).settled()
            for following in block.after:
                if following not in before:
                    before[following] = after.settled()
                elif not before[following].join(after):
                    continue
                waiting.add(places[following])
        return sorted(self._hazards.values(), key=lambda h: (h.later.number, h.earlier.number))

    def _passed(self, block: Block, flying: InFlight) -> InFlight:
        """Return what is in flight behind a block."""
        for i in block.code:
            self._wait(i, flying)
            self._check(i, flying)
            self._begin(i, flying)
            self._keep(i, flying)
            flying.now += max(i.control.stall, 1)
            if i.does == "call" and i.target is None:  # by the ABI nothing is in flight behind it
                flying = InFlight()
        return flying

    def _wait(self, i: DecodedInstruction, flying: InFlight) -> None:
        waits, seen = _waits(i), flying.now - TAKES_EFFECT
        if waits:
            for flights in (flying.writes, flying.reads):
                for number, flight in list(flights.items()):
                    if flight.boards & waits and flight.begun <= seen:
                        del flights[number]
        if _stands_still(i):  # behind all that was asked of shared memory
            for number in list(flying.reads):
                if self._code[number].known.space == "shared":
                    del flying.reads[number]

    def _check(self, i: DecodedInstruction, flying: InFlight) -> None:
        reads, writes = self._reads[i.number], self._writes[i.number]
        if flying.writes.bits & (reads | writes):
            for number, flight in flying.writes.items():
                self._find("RAW", flight, number, i, flight.bits & reads)
                if not self._in_order(number, i):
                    self._find("WAW", flight, number, i, flight.bits & writes)
        if flying.reads.bits & writes:
            for number, flight in flying.reads.items():
                if not self._reads_before(number, i):
                    self._find("WAR", flight, number, i, flight.bits & writes)
        for number, flight in flying.timed.items():
            earlier, since = self._code[number], flying.now - flight.begun
            if flight.bits & reads and since < LONGEST:
                needed = self._latencies.between(earlier, i, flight.bits & reads)
                if since < needed:
                    self._find("RAW", flight, number, i, flight.bits & reads, needed - since)
            if flight.bits & writes and since < LONGEST:
                needed = self._latencies.overtaking(earlier, i)
                if since < needed:
                    self._find("WAW", flight, number, i, flight.bits & writes, needed - since)

    def _find(
        self,
        kind: Kind,
        flight: Flight,
        number: int,
        later: DecodedInstruction,
        bits: int,
        missing: int = 0,
    ) -> None:
        if not bits or _exclude(flight.guard, later.guard):
            return
        key = kind, number, later.number
        old = self._hazards.get(key)
        if old is None or old.missing < missing:
            boards = tuple(uses.each(flight.boards))
            self._hazards[key] = Hazard(kind, self._code[number], later, bits, missing, boards)

    def _begin(self, i: DecodedInstruction, flying: InFlight) -> None:
        reads, writes = self._reads[i.number], self._writes[i.number]
        if writes:
            flying.writes.overwrite(writes, ends=i.guard is None)
            flying.reads.overwrite(writes, ends=False)
            flying.timed.overwrite(writes, ends=i.guard is None)
        if not self._variable[i.number]:
            if writes:
                flying.timed.begin(i.number, Flight(writes, flying.now, i.guard))
            return
        told = 0 if i.control.writes is None else 1 << i.control.writes
        freed = told | (0 if i.control.reads is None else 1 << i.control.reads)
        if told:
            for number, flight in flying.writes.items():
                if ~flight.boards & told and self._in_order(number, i):
                    flying.writes[number] = flight._replace(boards=flight.boards | told)
        if freed:
            for number, flight in flying.reads.items():
                if ~flight.boards & freed and self._reads_in_order(number, i):
                    flying.reads[number] = flight._replace(boards=flight.boards | freed)
        if writes:
            flying.writes.begin(i.number, Flight(writes, flying.now, i.guard, told))
        late = reads & (1 << (uses.PREDICATES if i.known.reads_late else UNIFORM)) - 1
        if late and not (i.known.pipe == "xu" and i.control.stall >= _TAKEN):
            flying.reads.begin(i.number, Flight(late, flying.now, i.guard, freed))

    def _keep(self, i: DecodedInstruction, flying: InFlight) -> None:
        """Read what is kept of registers, and keep some: nothing tells a slot that its register is written."""
        slots, writes = self._slots[i.number], self._writes[i.number]
        for (number, slot), (bits, stale, left) in list(flying.kept.items()):
            if stale and bits & slots.get(slot, 0):
                self._find("REUSE", Flight(bits, 0, None), number, i, bits & slots[slot])
            if slot in slots or left == 1:
                del flying.kept[number, slot]
            else:
                flying.kept[number, slot] = bits, stale or bool(bits & writes), left - 1
        for slot in i.control.reuse:
            if slot in slots:
                stale = bool(slots[slot] & writes)
                flying.kept[i.number, slot] = slots[slot], stale, KEPT_FOR

    def _in_order(self, number: int, later: DecodedInstruction) -> bool:
        """Say whether an instruction's result comes before that of a later one, whoever waits."""
        queue = _queue(later)
        return queue != "" and queue == _queue(self._code[number])

    def _reads_before(self, number: int, later: DecodedInstruction) -> bool:
        """Say whether an instruction has read its sources before a later one writes, whoever waits."""
        earlier, row = self._code[number].known, later.known
        together = {earlier.space, row.space} in ({"global"}, {"mbarrier"})
        loads = earlier.loads and row.loads and not (earlier.stores or row.stores)
        return (
            (together and (loads or row.does == "phase"))
            or _ordered(earlier) == _ordered(row) != ""
            or (earlier.latency == "agu" and row.space in ("shared", "local"))
            or (earlier.latency == row.latency == "agu" and row.scoreboard == "special")  # shuffles
        )

    def _reads_in_order(self, number: int, later: DecodedInstruction) -> bool:
        """Say whether an instruction has read its sources before a later one has."""
        earlier, row = self._code[number].known, later.known
        return "agu" == earlier.latency == row.latency or _ordered(earlier) == _ordered(row) != ""


def _queue(i: DecodedInstruction) -> str:
    """Name those whose results come in the order they were asked for, "" if that of ``i`` is waited for alone.

    The scoreboard of a later one tells of all before. Shuffles go the way of shared memory.
    """
    row = i.known
    if row.scoreboard == row.pipe == "adu":  # reductions of a warp
        return row.pipe
    if row.scoreboard in ("shared", "special"):
        return row.scoreboard if row.latency != "agu" else "shuffled or shared"
    return _ordered(row)


def _ordered(row: Row) -> str:
    """Name what reads and writes as it is told, "" for what does not: some pipes, and products of f64."""
    return row.pipe if row.pipe in _READ_IN_ORDER else "f64" if row.factors == "f64" else ""


def _waits(i: DecodedInstruction) -> int:
    """Return the scoreboards that an instruction waits for, as bits."""
    waits = sum(1 << board for board in i.control.waits)
    if i.does == "await group":
        first, *_ = operands = i.sass.operands
        for board in (board for operand in operands for board in scoreboards(operand)):
            waits |= 1 << board
        if i.operands[1:2] == (Immediate(0, 0.0),):
            waits |= 1 << int(first.removeprefix("SB"))
    return waits


def _stands_still(i: DecodedInstruction) -> bool:
    """Say whether a warp issues nothing more until a barrier is complete."""
    return i.does == "barrier" and i.sass.modifiers == ("SYNC",) and i.guard is None


def _exclude(first: Predicate | None, second: Predicate | None) -> bool:
    """Say whether two guards are opposites."""
    return first is not None and second == Predicate(first.number, not first.negated)
