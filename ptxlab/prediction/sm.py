"""One SM, clock by clock: four sub-partitions issue the instructions of their warps.

After "Dissecting and Modeling the Architecture of Modern GPU Cores" (arXiv 2503.20481): a sub-partition
issues one instruction a clock, of the warp it issued last while that may, else of the youngest that
may; ptxas's stalls and scoreboards say when that is; registers are read through one port a bank;
memory instructions queue before an address unit, and all four before the pipe they share.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptxlab.errors import Unsupported
from ptxlab.prediction import timing as kinds
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.mbarriers import ARRIVE, INIT, WAIT, Key, Mbarriers, Operation
from ptxlab.prediction.requests import LINE, SECTOR
from ptxlab.prediction.timing import Timing
from ptxlab.prediction.tma import Copy

PARTITIONS = 4
QUEUE = 5
"""Memory instructions that wait before a sub-partition's address unit: four and a latch; arXiv 2503.20481."""
ADDRESS_CYCLES = 4
READ_WINDOW = 3
NEVER = float("inf")
SECTORS = LINE // SECTOR
SOURCES_READ = 10
"""Cycles until a memory instruction has read its registers; arXiv 2503.20481: 9 to 20."""

CLUSTER = -1
"""Where the barrier of a cluster is among the mbarriers; the other CTAs are there as soon as the first."""

Served = tuple[int, int, tuple[int, ...]]
"""What one warp asks for: passes through shared memory, lines, and the sectors by number."""

Orders = tuple[Operation | Copy, ...]
"""What it asks of mbarriers, barriers named by a register, and the tensor memory accelerator."""


@dataclass(slots=True, eq=False)
class Warp:
    """A warp: ``trace`` are the numbers of the instructions it issues, ``asks`` what each asks for.

    ``orders`` is what is asked of what is asynchronous, by place in the trace.
    """

    cta: int
    trace: Sequence[int]
    asks: Sequence[Served | None]
    orders: Mapping[int, Orders] = field(default_factory=dict)
    at: int = 0
    ready: float = 0
    fixed: float = 0
    """When the stall of the instruction before is over."""
    issued: float = 0
    waits_for: str = ""
    blocked: str = ""
    board: list[float] = field(default_factory=lambda: [0.0] * 6)
    far: list[bool] = field(default_factory=lambda: [False] * 6)
    marks: list[int] = field(default_factory=list)
    """Steps of the trace that are still to be told the time of; when none is left all stop."""
    passed: list[float] = field(default_factory=list)
    met: int = 0
    """How often it arrived at the barrier of its cluster."""
    copies: float = 0
    groups: list[float] = field(default_factory=list)
    product: float = 0.0
    products: list[float] = field(default_factory=list)
    """When groups of a warpgroup's products are there."""


@dataclass(slots=True)
class Run:
    """What came of it: ``cycles``, and by instruction and reason the cycles that warps spent waiting.

    ``busy`` are the cycles that each pipe was held.
    """

    cycles: float
    issued: int
    stalls: dict[tuple[int, str], float]
    busy: dict[str, float]


class Sm:
    """An SM with the warps of the CTAs on it."""

    def __init__(
        self,
        chip: Chip,
        timings: Mapping[int, Timing],
        warps: Sequence[Warp],
        shared: int,
    ) -> None:
        self._chip, self._timings = chip, timings
        self._parts = [
            [w for n, w in enumerate(warps) if n % PARTITIONS == p] for p in range(PARTITIONS)
        ]
        self._last: list[Warp | None] = [None] * PARTITIONS
        self._next: list[float] = [0.0] * PARTITIONS
        self._pipes: list[dict[str, float]] = [defaultdict(float) for _ in range(PARTITIONS)]
        self._ports = [[0.0, 0.0] for _ in range(PARTITIONS)]
        self._kept: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in range(PARTITIONS)]
        self._unit: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._unit_free = [0.0] * PARTITIONS
        self._latency = chip.latency
        self._stage_free = 0.0
        self._beyond_free = 0.0
        self._l1: OrderedDict[int, float] = OrderedDict()
        self._l1_sectors = max(0, chip.memory.l1_kib * 1024 - shared) // SECTOR
        self._arrived: dict[tuple[int, int], list[Warp]] = defaultdict(list)
        self._counts: dict[tuple[int, int], int] = defaultdict(int)
        self._mbarriers = Mbarriers()
        self._of_cta: dict[int, int] = defaultdict(int)
        for warp in warps:
            self._of_cta[warp.cta] += 1
        for cta, count in self._of_cta.items():
            self._mbarriers.do(Operation(INIT, (cta, CLUSTER), count))
        self._over = False
        self._waiting: dict[Key, list[tuple[int, Warp]]] = defaultdict(list)
        self.stalls: dict[tuple[int, str], float] = defaultdict(float)
        self.busy: dict[str, float] = defaultdict(float)
        self.issued = 0

    def run(self) -> Run:
        """Run all warps to their end."""
        end = 0.0
        while not self._over:
            now = min(self._next)
            if now == NEVER:
                break
            for part in range(PARTITIONS):
                if self._next[part] <= now:
                    self._next[part] = self._cycle(part, now)
            end = now
        if not self._over and any(self._parts):
            raise Unsupported(
                "warps wait for each other in an order that is not in the model of time"
            )
        return Run(end + 1, self.issued, dict(self.stalls), dict(self.busy))

    def _cycle(self, part: int, now: float) -> float:
        """Issue what a sub-partition can at ``now``; return when to look again."""
        soon = NEVER
        last = self._last[part]
        if last is not None and last.ready <= now:
            when = self._try(part, last, now)
            if when is None:
                return now + 1
            soon = when
        chosen: Warp | None = None
        for warp in reversed(self._parts[part]):
            if warp.ready > now:
                if warp.ready < soon:
                    soon = warp.ready
            elif warp is not last:
                when = self._try(part, warp, now)
                if when is None:
                    chosen = warp
                    break
                soon = min(soon, when)
        if chosen is None:
            return soon
        self._last[part] = chosen
        return now + 1

    def _try(self, part: int, warp: Warp, now: float) -> float | None:
        """Issue a warp's next instruction, or say when what it lacks may be free."""
        number = warp.trace[warp.at]
        t = self._timings[number]
        if t.kind == kinds.MEMORY:
            unit = self._unit[part]
            while unit and unit[0] <= now:
                unit.pop(0)
            if len(unit) >= QUEUE:
                warp.blocked = (
                    "lg throttle" if t.latency == self._chip.latency["global"] else "mio throttle"
                )
                return unit[0]
        pipes = self._pipes[part]
        pipe = ""
        if t.pipes:
            pipe = t.pipes[0]
            if len(t.pipes) > 1 and pipes[t.pipes[1]] < pipes[pipe]:
                pipe = t.pipes[1]
            if pipes[pipe] > now:
                warp.blocked = "math pipe throttle"
                return pipes[pipe]
        if t.reads:
            begins = self._read(part, warp, t, now)
            if begins > now:
                warp.blocked = "dispatch stall"
                return begins
        if pipe:
            pipes[pipe] = now + t.hold
            self.busy[pipe] += t.hold
        self._issue(part, warp, t, number, now)
        return None

    def _read(self, part: int, warp: Warp, t: Timing, now: float) -> float:
        """Reserve the ports for an instruction's registers, or return when that will be possible."""
        kept, ports = self._kept[part], self._ports[part]
        counts = [0, 0]
        mine = id(warp)
        for bank, slot, number, _ in t.reads:
            if kept.get((bank, slot)) != (mine, number):
                counts[bank] += 1
        begins = now
        for bank in (0, 1):
            if counts[bank]:
                begins = max(begins, ports[bank] + min(counts[bank], READ_WINDOW) - READ_WINDOW)
        if begins > now:
            return begins
        for bank in (0, 1):
            if counts[bank]:
                ports[bank] = max(ports[bank], now) + counts[bank]
        for bank, slot, number, reuse in t.reads:
            if reuse:
                kept[bank, slot] = (mine, number)
            else:
                kept.pop((bank, slot), None)
        return now

    def _issue(self, part: int, warp: Warp, t: Timing, number: int, now: float) -> None:
        self._account(warp, number, now)
        self.issued += 1
        warp.issued = now
        asks, orders = warp.asks[warp.at], warp.orders.get(warp.at, ())
        warp.at += 1
        if warp.marks and warp.at > warp.marks[0]:
            warp.marks.pop(0)
            warp.passed.append(now)
            self._over = not warp.marks
        kind = t.kind
        if kind == kinds.MEMORY:
            self._request(part, warp, t, asks or (0, 0, ()), now)
        elif kind in (kinds.FIXED, kinds.VARIABLE):
            if t.writes is not None:
                self._hold(warp, t.writes, now + t.latency, False)
            if t.frees is not None:
                self._hold(warp, t.frees, now + SOURCES_READ, False)
        elif kind == kinds.TMA:
            for one in orders:
                if isinstance(one, Copy):
                    self._copy(warp, t, one, now)
            if t.writes is not None:
                self._hold(warp, t.writes, now + SOURCES_READ, False)
            if t.frees is not None:
                self._hold(warp, t.frees, now + SOURCES_READ, False)
        elif kind == kinds.PRODUCT:
            self._multiply(part, warp, t, now)
        elif kind == kinds.GROUP:
            warp.groups.append(warp.copies)
            if t.writes is not None:
                self._hold(warp, t.writes, warp.copies, True)
        elif kind == kinds.EXIT and warp.at == len(warp.trace):
            self._leave(part, warp, now)
            return
        if warp.at == len(warp.trace):
            self._leave(part, warp, now)
            return
        self._prepare(warp, t, now)
        if kind in (kinds.BARRIER, kinds.ARRIVE):
            named = [one.key[1] for one in orders if isinstance(one, Operation)]
            number = named[0] if named else t.group[0]
            self._meet(warp, (number, t.group[1]), kind == kinds.BARRIER, now)
        elif kind == kinds.CLUSTER_ARRIVE:
            warp.met += 1
            key = (warp.cta, CLUSTER)
            if self._mbarriers.do(Operation(ARRIVE, key, 1), now + self._latency["cluster"]):
                self._ended(key)
        elif kind == kinds.CLUSTER_WAIT:
            self._await(warp, Operation(WAIT, (warp.cta, CLUSTER), warp.met), t)
        elif kind == kinds.SYNC:
            self._synchronise(warp, t, orders, now)

    def _prepare(self, warp: Warp, t: Timing, now: float) -> None:
        """Work out when the warp's next instruction may issue."""
        ready = now + max(t.stall, 1)
        warp.fixed = ready
        warp.waits_for = "wait"
        following = self._timings[warp.trace[warp.at]]
        for board in following.waits:
            if warp.board[board] > ready:
                ready = warp.board[board]
                warp.waits_for = "long scoreboard" if warp.far[board] else "short scoreboard"
        if following.kind == kinds.PENDING:
            _, open_groups = following.group
            if len(warp.groups) > open_groups:
                done = warp.groups[-1 - open_groups]
                if done > ready:
                    ready, warp.waits_for = done, "long scoreboard"
        if following.kind == kinds.PRODUCTS and len(warp.products) > following.group[1]:
            done = warp.products[-1 - following.group[1]]
            if done > ready:
                ready, warp.waits_for = done, "wgmma"
        warp.ready = ready
        warp.blocked = ""

    def _meet(self, warp: Warp, group: tuple[int, int], waits: bool, now: float) -> None:
        """Have a warp arrive at a barrier, by number and threads; the last lets all go on."""
        number, threads = group
        key = (warp.cta, number)
        expected = threads // 32 or self._of_cta[warp.cta]
        self._counts[key] += 1
        if waits:
            self._arrived[key].append(warp)
            warp.fixed = warp.ready
            warp.ready = NEVER
            warp.waits_for = "barrier"
        if self._counts[key] >= expected:
            self._release(key, now)

    def _release(self, key: tuple[int, int], now: float) -> None:
        over = now + self._chip.latency["barrier"]
        for warp in self._arrived.pop(key, []):
            self._wake(warp, max(over, warp.fixed))
        self._counts[key] = 0

    def _wake(self, warp: Warp, ready: float) -> None:
        warp.ready = ready
        for part, warps in enumerate(self._parts):
            if warp in warps:
                self._next[part] = min(self._next[part], ready)

    def _leave(self, part: int, warp: Warp, now: float) -> None:
        warp.ready = NEVER
        self._parts[part].remove(warp)
        self._of_cta[warp.cta] -= 1
        if self._mbarriers.leave((warp.cta, CLUSTER), now):
            self._ended((warp.cta, CLUSTER))
        for key in [key for key in self._arrived if key[0] == warp.cta]:
            if self._counts[key] >= self._of_cta[warp.cta]:
                self._release(key, now)

    # ---- what is asynchronous ---------------------------------------------------------------

    def _multiply(self, part: int, warp: Warp, t: Timing, now: float) -> None:
        """Queue a warp's part of a warpgroup's product before the tensor core."""
        pipes = self._pipes[part]
        begins = max(now, pipes["tensor"])
        pipes["tensor"] = begins + t.hold
        self.busy["tensor"] += t.hold
        warp.product = begins + t.hold + t.latency
        if t.copies:
            warp.products.append(warp.product)
        if t.frees is not None:
            self._hold(warp, t.frees, begins, False)

    def _synchronise(self, warp: Warp, t: Timing, orders: Orders, now: float) -> None:
        """Do what a warp asks of mbarriers; it sleeps until a phase has ended that it waits for."""
        for one in orders:
            if not isinstance(one, Operation):
                continue
            if one.kind == WAIT:
                self._await(warp, one, t)
            elif one.kind in (INIT, ARRIVE):
                there = now + self._latency["cluster" if one.far else "shared"]
                if self._mbarriers.do(one, there):
                    self._ended(one.key)
        if t.writes is not None and warp.ready != NEVER:
            self._hold(warp, t.writes, now + t.latency, False)
        if t.frees is not None:
            self._hold(warp, t.frees, now + SOURCES_READ, False)

    def _await(self, warp: Warp, one: Operation, t: Timing) -> None:
        if self._mbarriers.phase(one.key) < one.count:
            self._waiting[one.key].append((one.count, warp))
            warp.fixed, warp.ready, warp.waits_for = warp.ready, NEVER, "mbarrier"
            return
        ended = self._mbarriers.ended(one.key, one.count) + t.latency
        if ended > warp.ready:
            warp.ready, warp.waits_for = ended, "mbarrier"

    def _ended(self, key: Key) -> None:
        """Let those go on who waited for the phase that has ended."""
        phase = self._mbarriers.phase(key)
        over = self._mbarriers.ended(key, phase) + self._latency["shared"]
        left = []
        for count, warp in self._waiting.pop(key, []):
            if count <= phase:
                self._wake(warp, max(over, warp.fixed))
            else:
                left.append((count, warp))
        if left:
            self._waiting[key] = left

    def _copy(self, warp: Warp, t: Timing, copy: Copy, now: float) -> None:
        """Move a box between shared memory and beyond the SM, which several CTAs share if they do."""
        took = len(copy.sectors) * SECTOR / copy.ctas / self._chip.memory.l2_bytes
        begins = now + self._latency["tma"]
        self._beyond_free = max(self._beyond_free, begins) + took
        self.busy["l2"] += took
        if copy.key is None:
            warp.copies = max(warp.copies, self._beyond_free)
            return
        far = self._latency["l2" if _hits(copy.sectors, t.hits) else "dram"]
        there = max(begins + far, self._beyond_free + far - took)
        if self._mbarriers.landed(copy.key, copy.nbytes, copy.ctas, there):
            self._ended(copy.key)

    # ---- memory -----------------------------------------------------------------------------

    def _request(self, part: int, warp: Warp, t: Timing, asks: Served, now: float) -> None:
        """Take a request through the address unit, the shared pipe, and where it leaves the SM."""
        passes, lines, sectors = asks
        memory = self._chip.memory
        unit = max(self._unit_free[part], now)
        begins = max(self._stage_free, unit)
        # What is copied past L1 is looked up there, and comes through its passes to shared memory.
        past = t.copies and not t.cached
        of_l1 = lines if past else max(lines, len(sectors) * SECTOR / memory.l1_bytes)
        held = max(passes * memory.wavefront + of_l1, memory.request)
        self._stage_free = begins + held
        self._unit_free[part] = max(unit + ADDRESS_CYCLES, begins)
        self._unit[part].append(unit)
        self.busy["lsu"] += held
        done = begins + held - memory.request + t.latency
        far = False
        if sectors:
            arrival = self._fetch(t, sectors, begins + held)
            far = arrival > done
            done = max(done, arrival)
        if t.copies:
            warp.copies = max(warp.copies, done)
        if t.writes is not None:
            self._hold(warp, t.writes, done, far or bool(sectors))
        if t.frees is not None:
            self._hold(warp, t.frees, max(begins, now + SOURCES_READ), bool(sectors))

    def _fetch(self, t: Timing, sectors: Sequence[int], now: float) -> float:
        """Return when the sectors are there; those that L1 has, or that are under way, are not asked again."""
        latest, missed = now, 0
        l1 = self._l1
        for sector in sectors:
            if t.cached and sector in l1:
                l1.move_to_end(sector)
                latest = max(latest, l1[sector])
            else:
                missed += 1
        if missed:
            took = missed * SECTOR / self._chip.memory.l2_bytes
            self._beyond_free = max(self._beyond_free, now) + took
            self.busy["l2"] += took
            if not t.loads:
                return now
            far = self._latency["l2" if _hits(sectors, t.hits) else "dram"]
            latest = max(latest, now + far, self._beyond_free + far - took)
            if t.cached:
                for sector in sectors:
                    if sector not in l1:
                        l1[sector] = latest
                while len(l1) > self._l1_sectors:
                    l1.popitem(last=False)
        return latest

    @staticmethod
    def _hold(warp: Warp, board: int, until: float, far: bool) -> None:
        if until > warp.board[board]:
            warp.board[board], warp.far[board] = until, far

    # ---- what the warps waited for ----------------------------------------------------------

    def _account(self, warp: Warp, number: int, now: float) -> None:
        """Add up why the instruction was not issued earlier, in Nsight Compute's words."""
        stalls = self.stalls
        stalls[number, "selected"] += 1
        first = warp.issued + 1
        if warp.fixed > first:
            stalls[number, "wait"] += warp.fixed - first
        first = max(first, warp.fixed)
        if warp.ready > first:
            stalls[number, warp.waits_for] += warp.ready - first
        first = max(first, warp.ready)
        if now > first:
            stalls[number, warp.blocked or "not selected"] += now - first


def _hits(sectors: Sequence[int], part: float) -> bool:
    """Say whether the L2 cache has all lines of some sectors, of which it has a ``part``, always the same."""
    if part >= 1:
        return True
    spread = ((sector // SECTORS * 0x9E3779B1 & 0xFFFFFFFF) / 2**32 for sector in sectors)
    return all(one < part for one in spread)
