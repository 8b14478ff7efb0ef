"""How GEMMs are timed, on a GPU whose times are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Timing
from ptxlab.gemm.timing import MOST, Arm, Procedure, burst, cold, mean, sustained, warmed
from tests.gemm.stopwatch import Simulated


def ours() -> None:
    raise AssertionError("the stopwatch runs it, nobody else")


def theirs() -> None:
    raise AssertionError("the stopwatch runs it, nobody else")


NAMES = {ours: "ours", theirs: "theirs"}
USUAL = Procedure()


def stopwatch(of_ours: float = 1e-3, of_theirs: float = 5e-4) -> Simulated:
    return Simulated(NAMES, {"ours": lambda _: of_ours, "theirs": lambda _: of_theirs})


# ---- numbers --------------------------------------------------------------------------------


def test_a_median_and_percentiles_by_hand() -> None:
    timing = Timing.of([10.0, 30.0, 20.0, 50.0, 40.0, 60.0], 10)
    assert (timing.p20, timing.median, timing.p80) == (2.0, 3.5, 5.0)
    assert (timing.samples, timing.launches) == (6, 10)


def test_one_slow_sample_moves_no_median() -> None:
    calm = Timing.of([1.0] * 9, 1)
    assert Timing.of([1.0] * 8 + [1000.0], 1) == calm
    assert float(np.mean([1.0] * 8 + [1000.0])) > 100  # a mean would have moved


def test_means_of_sensors_leave_out_what_is_not_known() -> None:
    assert mean([]) == Reading(None, None)
    assert mean([Reading(1700, 600), Reading(1800, None)]) == Reading(1750, 600)


# ---- warming up -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "launches"), [(1e-3, 10), (4e-3, 2), (9.9e-3, 1), (3.0, 1), (1e-6, MOST)]
)
def test_a_batch_is_of_ten_milliseconds(seconds: float, launches: int) -> None:
    watch = stopwatch(seconds)
    assert warmed(watch, ours, USUAL) == Arm(ours, launches, ("ours",))
    assert watch.open == 0
    slow = seconds > USUAL.batch
    assert watch.log == [("ours", 1)] * (1 if slow else 3), "what takes long is not repeated"


def test_a_slow_first_launch_does_not_count() -> None:
    watch = Simulated(NAMES, {"ours": lambda number: 8e-3 if number == 0 else 1e-3})
    assert warmed(watch, ours, USUAL).launches == 10


# ---- bursts ---------------------------------------------------------------------------------


def test_every_burst_follows_a_rest_of_its_own_and_is_short() -> None:
    watch = stopwatch(1e-4, 4e-3)
    arms = [Arm(ours, 100), Arm(theirs, 2)]
    timings = burst(watch, arms, USUAL)
    turn = [("rest", 2.0), ("ours", 20), ("rest", 2.0), ("theirs", 2)]
    assert watch.log == 3 * turn
    assert [(t.median, t.samples, t.launches) for t in timings] == [(1e-4, 3, 20), (4e-3, 3, 2)]
    assert watch.open == 0


# ---- sustained ------------------------------------------------------------------------------


def test_arms_take_turns_and_change_who_is_first() -> None:
    watch = stopwatch()
    timings, reading = sustained(
        watch, [Arm(ours, 10), Arm(theirs, 20)], replace(USUAL, seconds=0.05)
    )
    names = [name for name, _ in watch.log]
    assert names == ["ours", "theirs", "theirs", "ours", "ours", "theirs"], "three rounds of 20 ms"
    assert [(t.median, t.samples) for t in timings] == [(1e-3, 3), (5e-4, 3)]
    assert reading == Reading(1750, 600)
    assert watch.open == 0


def test_it_lasts_as_long_as_it_should() -> None:
    watch = stopwatch()
    timings, _ = sustained(watch, [Arm(ours, 10), Arm(theirs, 20)], USUAL)
    assert watch.time - 100 >= 3
    assert watch.time - 100 <= 3.03
    assert timings[0].samples == timings[1].samples == 150


def test_what_takes_long_has_three_rounds_all_the_same() -> None:
    watch = stopwatch(4.0)
    (timing,), _ = sustained(watch, [Arm(ours, 1)], USUAL)
    assert timing.samples == 3


def test_alternation_is_fair_where_one_after_the_other_is_not() -> None:
    """A GPU that slows down as it warms: both kernels are the same, and so must be their times."""
    watch = stopwatch()
    drift = {name: lambda _: 1e-3 * (1 + 0.02 * (watch.time - 100)) for name in NAMES.values()}
    watch.costs.update(drift)
    both = [Arm(ours, 10), Arm(theirs, 10)]
    turns, _ = sustained(watch, both, USUAL)
    assert turns[0].median == pytest.approx(turns[1].median, rel=1e-3)
    apart = [sustained(watch, [arm], USUAL)[0][0].median for arm in both]
    assert apart[1] > 1.03 * apart[0]


# ---- cold -----------------------------------------------------------------------------------


def test_cold_launches_are_single_and_in_turns() -> None:
    watch = stopwatch()
    timings = cold(watch, [Arm(ours, 10), Arm(theirs, 20)], replace(USUAL, cold=2))
    turn = [("flush", 0), ("ours", 1), ("flush", 0), ("theirs", 1)]
    assert watch.log == 2 * turn
    assert [(t.median, t.samples, t.launches) for t in timings] == [(1e-3, 2, 1), (5e-4, 2, 1)]
