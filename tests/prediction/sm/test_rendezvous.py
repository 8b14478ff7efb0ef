"""Who waits for whom at barriers of a CTA, of a cluster, and at mbarriers, by pencil."""

from __future__ import annotations

from dataclasses import replace

from ptxlab.prediction.sm.mbarriers import ARRIVE, INIT, NAMED, WAIT, Operation
from ptxlab.prediction.sm.rendezvous import Rendezvous
from ptxlab.prediction.sm.timing import BARRIER, InstructionTiming
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import NEVER, Warp

LATENCY = {"barrier": 20, "cluster": 50, "shared": 10}
BAR = InstructionTiming(BARRIER, (), 0, 7, 1, (), None, None, ())


class Warps:
    """Some warps, in CTAs by the numbers given, and when each was woken."""

    def __init__(self, *ctas: int) -> None:
        self.warps = [Warp(cta, [0, 1]) for cta in ctas]
        self.woken: dict[int, float] = {}
        self.all = Rendezvous(LATENCY, self.warps, self._wake)

    def _wake(self, warp: Warp, at: float) -> None:
        self.woken[self.warps.index(warp)] = warp.ready = at

    def meet(
        self, warp: int, now: float, waits: bool = True, threads: int = 0, number: int = 0
    ) -> None:
        self.all.meet(self.warps[warp], replace(BAR, group=(number, threads)), (), waits, now)

    def orders(self, warp: int, now: float, *orders: Operation) -> None:
        self.all.synchronise(self.warps[warp], BAR, orders, now)


def test_the_last_warp_of_a_cta_lets_all_go_on() -> None:
    m = Warps(0, 0, 1)
    m.meet(0, 10)
    assert (m.woken, m.warps[0].ready, m.warps[0].waits_for) == ({}, NEVER, "barrier")
    m.meet(1, 30)
    assert m.woken == {0: 50, 1: 50}
    m.meet(0, 60)
    assert m.woken == {0: 50, 1: 50}
    m.meet(1, 70)
    assert m.woken == {0: 90, 1: 90}


def test_nobody_waits_for_a_warp_that_has_ended() -> None:
    m = Warps(0, 0, 0)
    m.meet(0, 10)
    m.meet(1, 20)
    m.all.leave(m.warps[2], 40)
    assert m.woken == {0: 60, 1: 60}
    m.meet(0, 70)
    m.meet(1, 80)
    assert m.woken == {0: 100, 1: 100}


def test_a_barrier_of_some_threads_waits_for_so_many_warps() -> None:
    m = Warps(0, 0, 0)
    m.meet(0, 10, threads=64)
    m.meet(2, 15, waits=False, threads=64)
    assert m.woken == {0: 35}


def test_barriers_are_apart_by_number_also_where_a_register_names_it() -> None:
    m = Warps(0, 0)
    m.meet(0, 10, number=1)
    m.meet(1, 20, waits=False, number=2)
    assert m.woken == {}
    m.all.meet(m.warps[1], BAR, (Operation(NAMED, (0, 1)),), True, 30)
    assert m.woken == {0: 50, 1: 50}


def test_a_warp_goes_on_no_earlier_than_its_own_stall_is_over() -> None:
    m = Warps(0, 0)
    m.warps[0].ready = 500
    m.meet(0, 10)
    m.meet(1, 20)
    assert m.woken == {0: 500, 1: 40}


def test_a_phase_ends_for_those_who_wait_when_the_last_arrival_is_there() -> None:
    key = (0, 64)
    m = Warps(0, 0)
    m.orders(0, 0, Operation(INIT, key, 2))
    m.orders(0, 5, Operation(WAIT, key, 1))
    assert m.warps[0].ready == NEVER
    m.orders(1, 20, Operation(ARRIVE, key, 1))
    assert m.woken == {}
    m.orders(1, 30, Operation(ARRIVE, key, 1, far=True))
    assert m.woken == {0: 30 + 50 + 10}
    m.orders(1, 100, Operation(WAIT, key, 1))  # over: it is told after the latency of asking
    assert (m.warps[1].ready, m.warps[1].waits_for) == (80 + 7, "mbarrier")


def test_who_waits_for_a_later_phase_stays() -> None:
    key = (0, 64)
    m = Warps(0, 0, 0)
    m.orders(0, 0, Operation(INIT, key, 1))
    m.orders(0, 1, Operation(WAIT, key, 1))
    m.orders(1, 2, Operation(WAIT, key, 2))
    m.orders(2, 3, Operation(ARRIVE, key, 1))
    assert m.woken == {0: 23}
    m.orders(2, 9, Operation(ARRIVE, key, 1))
    assert m.woken == {0: 23, 1: 29}


def test_bytes_that_land_end_a_phase() -> None:
    key = (0, 64)
    m = Warps(0)
    m.orders(0, 0, Operation(INIT, key, 1))
    m.orders(0, 0, Operation(ARRIVE, key, 1, nbytes=64))
    m.orders(0, 0, Operation(WAIT, key, 1))
    m.all.landed(Copy(key, 32, (0,)), 100)
    assert m.woken == {}
    m.all.landed(Copy(key, 32, (1,)), 200)
    assert m.woken == {0: 210}


def test_a_cluster_waits_for_all_warps_of_its_cta_that_are_left() -> None:
    m = Warps(0, 0)
    m.all.arrive_at_cluster(m.warps[0], 10)
    m.all.wait_for_cluster(m.warps[0], BAR)
    assert m.warps[0].ready == NEVER
    m.all.arrive_at_cluster(m.warps[1], 20)
    assert m.woken == {0: 20 + 50 + 10}
    m.all.arrive_at_cluster(m.warps[0], 100)
    m.all.wait_for_cluster(m.warps[0], BAR)
    m.all.leave(m.warps[1], 130)
    assert m.woken == {0: 160}
    m.all.arrive_at_cluster(m.warps[0], 200)  # the one that is left is all
    m.all.wait_for_cluster(m.warps[0], BAR)
    assert m.warps[0].ready == 200 + 50 + 7


def test_a_phase_that_ended_before_the_last_one_is_not_waited_for() -> None:
    key = (0, 64)
    m = Warps(0, 0)
    m.orders(0, 0, Operation(INIT, key, 1))
    m.orders(0, 1, Operation(ARRIVE, key, 1))
    m.orders(0, 9, Operation(ARRIVE, key, 1, far=True))  # there at 59
    m.orders(1, 20, Operation(WAIT, key, 1))
    assert m.warps[1].ready < 20
    m.orders(1, 30, Operation(WAIT, key, 2))
    assert m.warps[1].ready == 59 + 7
