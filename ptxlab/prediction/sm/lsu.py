"""The way of an SM's memory instructions, and of what the tensor memory accelerator copies.

Memory instructions queue before the address unit of their sub-partition, and all four before the pipe
they share (arXiv 2503.20481); what L1 has not, and every copy, comes through the port to what is beyond.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.requests import LINE, PASS, SECTOR, Served
from ptxlab.prediction.sm.run import PARTITIONS
from ptxlab.prediction.sm.timing import InstructionTiming
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Skipped, Warp

QUEUE = 5
"""Memory instructions that wait before a sub-partition's address unit: four and a latch; arXiv 2503.20481."""
ADDRESS_CYCLES = 4
SECTORS = LINE // SECTOR
SOURCES_READ = 10
"""Cycles until a memory instruction has read its registers; arXiv 2503.20481: 9 to 20."""


@dataclass(slots=True)
class _Stored:
    """A sector of which ``nbytes`` wait to leave, ``since`` a time, which ``takes`` so long."""

    since: float
    nbytes: int = 0
    takes: float = 0.0


class _Parts(NamedTuple):
    """How much a ``warp`` stores of each sector, of which L2 has the part ``hits``."""

    warp: int
    carried: Sequence[int]
    hits: float


class LoadStoreUnit:
    """The queues, the pipe, and the L1 cache, of which ``shared`` bytes are shared memory; all add to ``busy``."""

    def __init__(self, chip: Chip, shared: int, busy: dict[str, float]) -> None:
        self._memory, self._latency, self._busy = chip.memory, chip.latency, busy
        self._unit: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._unit_free = [0.0] * PARTITIONS
        self._stage_free = 0.0
        self._beyond_free = self._stored_free = self._rows_free = 0.0
        self._leaving: OrderedDict[tuple[int, int], _Stored] = OrderedDict()
        """Sectors that wait to leave the SM, by number and the warp that stored to them."""
        self._leave_for = 0.0
        """How long those will take."""
        self._stores = 0
        self.sectors: dict[str, float] = defaultdict(float)
        self._waiting: deque[float] = deque()
        """When what loads wait for is there that L1 has not, in the order in which they ask: none gives up its place before the first."""
        self._l1: OrderedDict[int, float] = OrderedDict()
        self._l1_sectors = max(0, chip.memory.l1_kib * 1024 - shared) // SECTOR

    def full_until(self, part: int, now: float) -> float:
        """Return when the queue of a sub-partition takes another instruction, 0 if it does now."""
        unit = self._unit[part]
        while unit and unit[0] <= now:
            unit.pop(0)
        return unit[0] if len(unit) >= QUEUE else 0

    def copy(self, copy: Copy, hits: float, now: float) -> float:
        """Move a box between shared memory and beyond the SM, which several CTAs share if they do.

        Returns when all of it is there; ``hits`` is the part of its lines that the L2 cache has.
        """
        of_rows = copy.rows * self._memory.row
        begins = now + self._latency["tma"]
        self._rows_free = max(self._rows_free, begins) + of_rows
        self._busy["tma"] += of_rows
        if copy.key is None:
            return max(self._store(copy.sectors, begins), self._rows_free)
        took = len(copy.sectors) * SECTOR / copy.ctas / self._memory.bytes_of_copies
        self._beyond_free = max(self._beyond_free, begins) + took
        self._busy["l2"] += took
        there = max(self._beyond_free, self._rows_free)
        self.sectors["loaded"] += len(copy.sectors) / copy.ctas
        return there + self._latency["l2" if _hits(copy.sectors, hits) else "dram"]

    def request(self, warp: Warp, t: InstructionTiming, asks: Served, now: float) -> None:
        """Take a request through the address unit, the shared pipe, and where it leaves the SM."""
        part = warp.part
        passes, lines, sectors, carried = asks
        memory = self._memory
        unit = max(self._unit_free[part], now)
        begins = max(self._stage_free, unit)
        waits = bool(sectors) and t.loads and t.cached
        if waits:
            begins = self._room(begins)
        taken: float = passes * memory.wavefront
        if taken > passes and t.loads and carried:  # few lanes' words need no whole passes
            taken = min(taken, max(passes, sum(carried) * memory.wavefront / PASS))
        first, further = t.lookup
        held = max(taken, first + (lines - 1) * further, memory.request)
        self._stage_free = begins + held
        self._unit_free[part] = max(unit + ADDRESS_CYCLES, begins)
        self._unit[part].append(unit)
        self._busy["lsu"] += held
        done = begins + held - memory.request + t.latency
        far = False
        if sectors and t.loads:
            arrival = self._fetch(t, sectors, begins + held)
            far = arrival > done
            done = max(done, arrival)
            if waits and far and memory.waiting:
                self._waiting.append(done)
        elif sectors:
            parts = _Parts(warp.number, carried, t.hits) if t.merges else None
            warp.stored = self._store(sectors, begins + held, parts)
            if t.cached:
                self._keep(sectors, begins + held)
        if t.copies:
            warp.copies = max(warp.copies, done)
        warp.hold(t.writes, done, far or bool(sectors))
        warp.hold(t.frees, max(begins, now + SOURCES_READ), bool(sectors))

    def _room(self, now: float) -> float:
        """Return when one more load can wait for what L1 has not: no more than so many do at a time."""
        waiting = self._waiting
        while waiting and waiting[0] <= now:
            waiting.popleft()
        full = waiting and len(waiting) >= self._memory.waiting
        return waiting[0] if full else now

    def _store(self, sectors: Sequence[int], now: float, parts: _Parts | None = None) -> float:
        """Send sectors to L2, whole or in parts, beside what comes from there; return when the last will have left.

        What a warp stores goes with what it stored before to a sector that waits to leave.
        """
        self._leave(now)
        for n, sector in enumerate(sectors):
            self._stores += 1
            key = (sector, parts.warp) if parts else (sector, -self._stores)
            waits = self._leaving.get(key)
            before = waits.takes if waits else 0.0
            if waits is None:
                waits = self._leaving[key] = _Stored(now)
            waits.nbytes += parts.carried[n] if parts else SECTOR
            waits.takes = self._takes(waits.nbytes, parts)
            self._leave_for += waits.takes - before
            self._busy["stores"] += waits.takes - before
        return max(self._stored_free, now) + self._leave_for

    def _leave(self, now: float) -> None:
        """Have what waits begin to leave that can before ``now``."""
        while self._leaving:
            first = next(iter(self._leaving.values()))
            begins = max(self._stored_free, first.since)
            if begins >= now:
                return
            self._leaving.popitem(last=False)
            self._stored_free = begins + first.takes
            self._leave_for -= first.takes

    def _takes(self, nbytes: int, parts: _Parts | None) -> float:
        """Return how long a sector takes to leave of which so much is stored: a part of one that L2 lacks takes longer."""
        partly = parts and nbytes < SECTOR and parts.hits < 1
        return (self._memory.part if partly else SECTOR) / self._memory.stored_bytes

    def skip(self, warp: Warp, skipped: Skipped, now: float) -> None:
        """Have the L1 cache hold what turns that are left out would have loaded."""
        for sector in skipped.sectors(warp.number, self._l1_sectors):
            self._l1.setdefault(sector, now)
            self._l1.move_to_end(sector)
        self._evict()

    def _evict(self) -> None:
        while len(self._l1) > self._l1_sectors:
            self._l1.popitem(last=False)

    def _fetch(self, t: InstructionTiming, sectors: Sequence[int], now: float) -> float:
        """Return when the sectors are there; those that L1 has, or that are under way, are not asked again."""
        latest = now
        missed: list[int] = []
        l1 = self._l1
        for sector in sectors:
            if t.cached and sector in l1:
                l1.move_to_end(sector)
                latest = max(latest, l1[sector])
            else:
                missed.append(sector)
        if t.cached:
            self.sectors["asked"] += len(sectors)
            self.sectors["missed"] += len(missed)
        if missed:
            took = self._given(missed) / self._memory.l2_bytes
            self._beyond_free = max(self._beyond_free, now) + took
            self._busy["l2"] += took
            self.sectors["loaded"] += len(missed)
            far = self._latency["l2" if _hits(sectors, t.hits) else "dram"]
            latest = max(latest, now + far, self._beyond_free + far - took)
            if t.cached:
                self._keep(sectors, latest)
        return latest

    def _given(self, sectors: Sequence[int]) -> int:
        """Return the bytes for which L2 is held to give sectors, where one alone may take as long as several that lie together."""
        least = self._memory.l2_least
        if least == SECTOR:
            return len(sectors) * SECTOR
        return len({sector * SECTOR // least for sector in sectors}) * least

    def _keep(self, sectors: Sequence[int], since: float) -> None:
        """Have L1 keep sectors that it has not, from when they are there."""
        for sector in sectors:
            if sector not in self._l1:
                self._l1[sector] = since
        self._evict()


def _hits(sectors: Sequence[int], part: float) -> bool:
    """Say whether the L2 cache has all lines of some sectors, of which it has a ``part``, always the same."""
    if part >= 1:
        return True
    spread = ((sector // SECTORS * 0x9E3779B1 & 0xFFFFFFFF) / 2**32 for sector in sectors)
    return all(bank < part for bank in spread)
