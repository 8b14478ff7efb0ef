"""One SM, clock by clock: four sub-partitions issue the instructions of their warps.

After "Dissecting and Modeling the Architecture of Modern GPU Cores" (arXiv 2503.20481): a sub-partition
issues one instruction a clock, of the warp it issued last while that may, else of the youngest that
may; ptxas's stalls and scoreboards say when that is; registers are read through one port a bank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from ptxlab.errors import Unsupported
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.lsu import SOURCES_READ, LoadStoreUnit
from ptxlab.prediction.sm.ports import RegisterPorts
from ptxlab.prediction.sm.rendezvous import Rendezvous
from ptxlab.prediction.sm.run import PARTITIONS, Run
from ptxlab.prediction.sm.tensor_core import TensorCore, TensorMemory
from ptxlab.prediction.sm.tensor_work import Columns, Commit, TensorCopy, TensorProduct
from ptxlab.prediction.sm.timing import (
    ARRIVE,
    BARRIER,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    GROUP,
    MEMORY,
    PENDING,
    PRODUCT,
    SLEEP,
    SYNC,
    TENSOR,
    TMA,
    VARIABLE,
    InstructionTiming,
)
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import NEVER, NOTHING, Orders, Warp


class Sm:
    """An SM with the warps of the CTAs on it."""

    def __init__(
        self,
        chip: Chip,
        timings: Mapping[int, InstructionTiming],
        warps: Sequence[Warp],
        shared: int,
    ) -> None:
        self._chip, self._timings = chip, timings
        self._parts: list[list[Warp]] = [[] for _ in range(PARTITIONS)]
        timed: dict[int, list[InstructionTiming]] = {}
        for number, warp in enumerate(warps):
            warp.part = number % PARTITIONS
            self._parts[warp.part].append(warp)
            if id(warp.trace) not in timed:
                timed[id(warp.trace)] = [timings[n] for n in warp.trace]
            warp.timed = timed[id(warp.trace)]
        self._last: list[Warp | None] = [None] * PARTITIONS
        self._next: list[float] = [0.0] * PARTITIONS
        self._pipes: list[dict[str, float]] = [defaultdict(float) for _ in range(PARTITIONS)]
        self._ports = [RegisterPorts() for _ in range(PARTITIONS)]
        self._over = False
        self.stalls: dict[tuple[int, str], float] = defaultdict(float)
        self._selected: dict[int, int] = defaultdict(int)
        self.busy: dict[str, float] = defaultdict(float)
        self._lsu = LoadStoreUnit(chip, shared, self.busy)
        self._rendezvous = Rendezvous(chip.latency, warps, self._wake)
        self._tensor_core = TensorCore(chip, self.busy)
        self._tensor_memory = TensorMemory(self._wake)

    def run(self) -> Run:
        end, following = 0.0, self._next
        while not self._over:
            now = min(following)
            if now == NEVER:
                break
            for part in range(PARTITIONS):
                if following[part] <= now:
                    following[part] = self._cycle(part, now)
            end = now
        if not self._over and any(self._parts):
            raise Unsupported(
                "warps wait for each other in an order that is not in the model of time"
            )
        return self._until(end + 1)

    def _until(self, now: float) -> Run:
        """Return what came of it until now, what warps still wait for included."""
        stalls: dict[tuple[int, str], float] = defaultdict(float, self.stalls)
        for number, times in self._selected.items():
            stalls[number, "selected"] = times
        for warp in chain.from_iterable(self._parts):
            if warp.at == len(warp.trace):
                continue
            first, next_one = warp.issued + 1, warp.trace[warp.at]
            for until, why in ((warp.fixed, "wait"), (warp.ready, warp.waits_for)):
                if min(until, now) > first:
                    stalls[next_one, why] += min(until, now) - first
                    first = until
        issued = sum(self._selected.values())
        return Run(now, issued, stalls, dict(self.busy), dict(self._lsu.sectors))

    def _cycle(self, part: int, now: float) -> float:
        """Issue what a sub-partition can at ``now``; return when to look again."""
        soon = NEVER
        last = self._last[part]
        if last is not None and last.ready <= now:
            if last.lacking <= now and self._try(part, last, now):
                return now + 1
            soon = last.lacking
        for warp in reversed(self._parts[part]):
            if warp.ready > now:
                if warp.ready < soon:
                    soon = warp.ready
            elif warp is not last:
                if warp.lacking <= now and self._try(part, warp, now):
                    self._last[part] = warp
                    return now + 1
                if warp.lacking < soon:
                    soon = warp.lacking
        return soon

    def _try(self, part: int, warp: Warp, now: float) -> bool:
        """Issue a warp's next instruction if it can be, else note until when it lacks something: others only take more of it."""
        t = warp.timed[warp.at]
        if t.kind == MEMORY:
            free = self._lsu.full_until(part, now)
            if free:
                warp.blocked = (
                    "lg throttle" if t.latency == self._chip.latency["global"] else "mio throttle"
                )
                warp.lacking = free
                return False
        pipes = self._pipes[part]
        pipe = ""
        if t.pipes:
            pipe = t.pipes[0]
            if len(t.pipes) > 1 and pipes[t.pipes[1]] < pipes[pipe]:
                pipe = t.pipes[1]
            if pipes[pipe] > now:
                warp.blocked, warp.lacking = "math pipe throttle", pipes[pipe]
                return False
        if t.reads:
            begins = self._ports[part].read(warp, t.through_ports, now)
            if begins > now:
                warp.blocked, warp.lacking = "dispatch stall", begins
                return False
        if pipe:
            pipes[pipe] = now + t.hold
            self.busy[pipe] += t.hold
        self._issue(warp, t, now)
        return True

    def _issue(self, warp: Warp, t: InstructionTiming, now: float) -> None:
        self._account(warp, warp.trace[warp.at], now)
        warp.issued = now
        if warp.skips:
            for skipped in warp.skips.get(warp.at, ()):
                if self._timings[skipped.number].cached:
                    self._lsu.skip(warp, skipped, now)
        kind = t.kind
        plain = kind <= VARIABLE
        asks, orders = NOTHING if plain else warp.asked()
        warp.at += 1
        if warp.marks and warp.at > warp.marks[0]:
            self._passed(warp, now)
        if plain:
            if t.writes is not None:
                warp.hold(t.writes, now + t.latency)
            if t.frees is not None:
                warp.hold(t.frees, now + SOURCES_READ)
        elif kind == MEMORY:
            self._lsu.request(warp, t, asks, now)
        elif kind == TMA:
            self._copy(warp, t, orders, now)
        elif kind == PRODUCT:
            self._multiply(warp, t, now)
        elif kind == GROUP:
            warp.groups.append(warp.copies)
            warp.hold(t.writes, warp.copies, True)
        if warp.at == len(warp.trace):
            self._leave(warp, now)
            return
        self._prepare(warp, t, now)
        if kind <= MEMORY:
            return
        if kind in (BARRIER, ARRIVE):
            self._rendezvous.meet(warp, t, orders, kind == BARRIER, now)
        elif kind == CLUSTER_ARRIVE:
            self._rendezvous.arrive_at_cluster(warp, now)
        elif kind == CLUSTER_WAIT:
            self._rendezvous.wait_for_cluster(warp, t)
        elif kind == SLEEP:
            warp.pause("sleeping", now + t.latency)
        elif kind == SYNC:
            self._rendezvous.synchronise(warp, t, orders, now)
            if warp.ready != NEVER:
                warp.hold(t.writes, now + t.latency)
            warp.hold(t.frees, now + SOURCES_READ)
        elif kind == TENSOR:
            self._tell_tensor_core(warp, orders, now)
            warp.hold(t.writes, now + t.latency)
            warp.hold(t.frees, now + SOURCES_READ)

    def _passed(self, warp: Warp, now: float) -> None:
        """Tell what came of it until a warp has passed a mark."""
        mark = warp.marks.pop(0)
        if warp.window:
            warp.window.come(warp, partial(self._until, now))
        else:
            warp.passed[mark] = self._until(now)
        self._over = self._over or mark == warp.ends

    def _prepare(self, warp: Warp, t: InstructionTiming, now: float) -> None:
        """Work out when the warp's next instruction may issue."""
        ready = now + (t.stall or 1)
        warp.fixed = ready
        warp.waits_for = "wait"
        following = warp.timed[warp.at]
        for board in following.waits:
            if warp.board[board] > ready:
                ready = warp.board[board]
                warp.waits_for = "long scoreboard" if warp.far[board] else "short scoreboard"
        if following.kind >= PENDING:
            of_copies = following.kind == PENDING
            done, still = warp.groups if of_copies else warp.products, following.group[1]
            if len(done) > still and done[-1 - still] > ready:
                ready = done[-1 - still]
                warp.waits_for = "long scoreboard" if of_copies else "wgmma"
        warp.ready = ready
        warp.blocked = ""

    def _wake(self, warp: Warp, ready: float) -> None:
        warp.ready = ready
        self._next[warp.part] = min(self._next[warp.part], ready)

    def _leave(self, warp: Warp, now: float) -> None:
        warp.ready = NEVER
        self._parts[warp.part].remove(warp)
        self._rendezvous.leave(warp, now)

    def _copy(self, warp: Warp, t: InstructionTiming, orders: Orders, now: float) -> None:
        """Have the tensor memory accelerator copy what a warp asks."""
        for order in orders:
            if isinstance(order, Copy):
                there = self._lsu.copy(order, t.hits, now)
                if order.key is None:
                    warp.copies = max(warp.copies, there)
                else:
                    self._rendezvous.landed(order, there)
        warp.hold(t.writes, now + SOURCES_READ)
        warp.hold(t.frees, now + SOURCES_READ)

    def _multiply(self, warp: Warp, t: InstructionTiming, now: float) -> None:
        """Queue a warp's part of a warpgroup's product before the tensor core."""
        pipes = self._pipes[warp.part]
        begins = max(now, pipes["tensor"])
        pipes["tensor"] = begins + t.hold
        self.busy["tensor"] += t.hold
        self._ports[warp.part].share(pipes["tensor"], t.sums)
        warp.product = begins + t.hold + t.latency
        if t.copies:
            warp.products.append(warp.product)
        warp.hold(t.frees, begins)

    def _tell_tensor_core(self, warp: Warp, orders: Orders, now: float) -> None:
        for order in orders:
            if isinstance(order, TensorProduct):
                self._tensor_core.multiply(warp.cta, order, now)
            elif isinstance(order, TensorCopy):
                self._tensor_core.copy(warp.cta, order, now)
            elif isinstance(order, Commit):
                self._rendezvous.told(order.key, self._tensor_core.done(order, now))
            elif isinstance(order, Columns):
                self._tensor_memory.ask(warp, order, now)

    # ---- what the warps waited for ----------------------------------------------------------

    def _account(self, warp: Warp, number: int, now: float) -> None:
        """Add up why the instruction was not issued earlier, in Nsight Compute's words."""
        stalls = self.stalls
        self._selected[number] += 1
        first = warp.issued + 1
        if warp.fixed > first:
            stalls[number, "wait"] += warp.fixed - first
            first = warp.fixed
        if warp.ready > first:
            stalls[number, warp.waits_for] += warp.ready - first
            first = warp.ready
        if now > first:
            stalls[number, warp.blocked or "not selected"] += now - first
