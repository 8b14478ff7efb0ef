"""Where the warps of an SM wait for each other: barriers of a CTA, of a cluster, and mbarriers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ptxlab.prediction.sm.mbarriers import ARRIVE, INIT, WAIT, Key, Operation, SmMbarriers
from ptxlab.prediction.sm.timing import InstructionTiming
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Orders, Warp

CLUSTER = -1
"""Where the barrier of a cluster is among the mbarriers; the other CTAs are there as soon as the first."""


class Rendezvous:
    """The barriers of the CTAs whose ``warps`` are on an SM; ``wake`` has a warp go on at some time."""

    def __init__(
        self,
        latency: Mapping[str, int],
        warps: Sequence[Warp],
        wake: Callable[[Warp, float], None],
    ) -> None:
        self._latency, self._wake = latency, wake
        self._arrived: dict[Key, list[Warp]] = defaultdict(list)
        self._counts: dict[Key, int] = defaultdict(int)
        self._mbarriers = SmMbarriers()
        self._of_cta: dict[int, int] = defaultdict(int)
        for warp in warps:
            self._of_cta[warp.cta] += 1
        for cta, count in self._of_cta.items():
            self._mbarriers.do(Operation(INIT, (cta, CLUSTER), count))
        self._waiting: dict[Key, list[tuple[int, Warp]]] = defaultdict(list)

    def meet(
        self, warp: Warp, t: InstructionTiming, orders: Orders, waits: bool, now: float
    ) -> None:
        """Have a warp arrive at a barrier of its CTA; the last lets all go on."""
        named = [order.key[1] for order in orders if isinstance(order, Operation)]
        number, threads = named[0] if named else t.group[0], t.group[1]
        key = (warp.cta, number)
        expected = threads // 32 or self._of_cta[warp.cta]
        self._counts[key] += 1
        if waits:
            self._arrived[key].append(warp)
            warp.sleep("barrier")
        if self._counts[key] >= expected:
            self._release(key, now)

    def arrive_at_cluster(self, warp: Warp, now: float) -> None:
        warp.met += 1
        key = (warp.cta, CLUSTER)
        if self._mbarriers.do(Operation(ARRIVE, key, 1), now + self._latency["cluster"]):
            self._ended(key)

    def wait_for_cluster(self, warp: Warp, t: InstructionTiming) -> None:
        self._await(warp, Operation(WAIT, (warp.cta, CLUSTER), warp.met), t)

    def synchronise(self, warp: Warp, t: InstructionTiming, orders: Orders, now: float) -> None:
        """Do what a warp asks of mbarriers; it sleeps until a phase has ended that it waits for."""
        for order in orders:
            if not isinstance(order, Operation):
                continue
            if order.kind == WAIT:
                self._await(warp, order, t)
            elif order.kind in (INIT, ARRIVE):
                there = now + self._latency["cluster" if order.far else "shared"]
                if self._mbarriers.do(order, there):
                    self._ended(order.key)

    def landed(self, copy: Copy, there: float) -> None:
        assert copy.key is not None
        if self._mbarriers.landed(copy.key, copy.nbytes, copy.ctas, there):
            self._ended(copy.key)

    def told(self, key: Key, there: float) -> None:
        """Have one arrive at an mbarrier, at a time that may be yet to come."""
        if self._mbarriers.do(Operation(ARRIVE, key, 1), there):
            self._ended(key)

    def leave(self, warp: Warp, now: float) -> None:
        self._of_cta[warp.cta] -= 1
        if self._mbarriers.leave((warp.cta, CLUSTER), now):
            self._ended((warp.cta, CLUSTER))
        for key in [key for key in self._arrived if key[0] == warp.cta]:
            if self._counts[key] >= self._of_cta[warp.cta]:
                self._release(key, now)

    def _release(self, key: Key, now: float) -> None:
        over = now + self._latency["barrier"]
        for warp in self._arrived.pop(key, []):
            self._wake(warp, max(over, warp.fixed))
        self._counts[key] = 0

    def _await(self, warp: Warp, operation: Operation, t: InstructionTiming) -> None:
        if self._mbarriers.phase(operation.key) < operation.count:
            self._waiting[operation.key].append((operation.count, warp))
            warp.sleep("mbarrier")
            return
        warp.pause("mbarrier", self._mbarriers.ended(operation.key, operation.count) + t.latency)

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
