"""Traces of programs of which can be said by hand what happens when, and of what counters know too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.profile import count
from ptxlab.observe.timeline import SharedSpan, Timeline
from ptxlab.observe.trace import trace
from tests.observe.pipelines import (
    A_BYTES,
    EXCHANGE,
    GROUPS,
    MEET,
    RING,
    SENT,
    STAGE_BYTES,
    STAGES,
    STEPS,
    TURNS,
)


def traced(text: str, threads: int, *sizes: int, schedule: str = "late", **more: Any) -> Timeline:
    """Trace a program in one CTA, whose arguments are arrays of that many bytes."""
    device = EmulatorDevice(TARGETS["sm_90a"], schedule=schedule)
    args = [device.zeros((size,), "u8") for size in sizes]
    return trace(device.load(text).kernel(), LaunchConfig.of(1, threads), args, **more)


@pytest.fixture(scope="module")
def ring() -> Timeline:
    return traced(RING, 160, STEPS * A_BYTES, STEPS * 256, 64 * 8 * 4)


def line_of(text: str, part: str) -> int:
    (number,) = [
        n for n, line in enumerate(text.split("\n"), 1) if part in line and "//" not in line
    ]
    return number


def steps_at(timeline: Timeline, line: int) -> list[int]:
    return [
        step
        for step, number in enumerate(timeline.executed)
        if number >= 0 and timeline.places[number].line == line
    ]


def test_every_warp_executes_what_the_counters_count() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    sizes = (STEPS * A_BYTES, STEPS * 256, 64 * 8 * 4)
    args = [device.zeros((size,), "u8") for size in sizes]
    kernel, config = device.load(RING).kernel(), LaunchConfig.of(1, 160)
    timeline = trace(kernel, config, args)
    executed: Counter[int] = Counter()
    for number, who in zip(timeline.executed, timeline.who, strict=True):
        if number >= 0:
            executed[timeline.places[number].line] += len(timeline.together[who])
    counted = count(kernel, config, args)
    assert executed == {
        line.number: line.counts.executed for line in counted.lines if line.counts.executed
    }


def test_a_ring_is_filled_and_read_stage_by_stage(ring: Timeline) -> None:
    assert [tile.span for tile in ring.tiles] == [
        SharedSpan(0, stage * STAGE_BYTES, (stage + 1) * STAGE_BYTES) for stage in range(STAGES)
    ]
    names = ["tiles", *(f"tiles+{stage * STAGE_BYTES:#x}" for stage in range(1, STAGES))]
    assert [tile.name for tile in ring.tiles] == names
    products = [flight for flight in ring.flights if flight.queue == "products"]
    assert [flight.group for flight in products] == list(range(STEPS))
    for stage, tile in enumerate(ring.tiles):
        assert [fill.number for fill in tile.fills] == list(range(stage, STEPS, STAGES))
        for fill in tile.fills:
            product = products[fill.number]
            assert fill.nbytes == STAGE_BYTES
            assert fill.landed is not None
            assert product.landed is not None
            assert fill.since < fill.landed <= product.step
            assert fill.read == (product.step, product.landed - 1)
            assert product.warps == (0, 1, 2, 3)
            assert {span.start for span in product.reads} == {
                tile.span.start, tile.span.start + A_BYTES,
            }  # fmt: skip
        for before, after in zip(tile.fills, tile.fills[1:], strict=False):
            assert before.read[-1] < after.since


def test_the_mbarriers_of_the_ring_go_through_their_phases(ring: Timeline) -> None:
    assert [mbarrier.expected for mbarrier in ring.mbarriers] == [1] * STAGES + [4] * STAGES
    assert ring.mbarriers[1].name == "full+0x8"
    assert [mbarrier.address for mbarrier in ring.mbarriers] == [
        STAGES * STAGE_BYTES + 8 * number for number in range(2 * STAGES)
    ]
    for stage in range(STAGES):
        full, empty = ring.mbarriers[stage], ring.mbarriers[STAGES + stage]
        fills = ring.tiles[stage].fills
        for turn, fill in enumerate(fills):
            a, b = (ring.flights[number] for number in fill.flights)
            assert a.mbarriers == b.mbarriers == [(stage, turn)]
            told = [(s.pending, s.tx) for s in full.states if s.phase == turn]
            landed_one_by_one = [(0, STAGE_BYTES), (0, STAGE_BYTES - A_BYTES)]
            assert told == [(1, 0), *landed_one_by_one]
            assert fill.landed == next(s.at for s in full.states if s.phase == turn + 1)
            assert next(s.pending for s in empty.states if s.phase == turn) == 4
        assert {full.states[-1].phase, empty.states[-1].phase} == {STEPS // STAGES}


def test_a_wait_is_from_where_a_warp_stands_until_the_phase_is_complete(ring: Timeline) -> None:
    waits_for_full = steps_at(ring, line_of(RING, "p, [is_full], parity"))
    consuming = [
        wait for wait in ring.waits if wait.mbarrier is not None and wait.mbarrier < STAGES
    ]
    assert consuming
    for wait in consuming:
        assert wait.mbarrier is not None
        assert wait.warps == (0, 1, 2, 3)
        assert wait.step in waits_for_full
        completions = [s.at for s in ring.mbarriers[wait.mbarrier].states if s.phase]
        assert wait.until in completions
        assert wait.since < wait.until <= wait.step
        mine = [number in ring.together[who] for who in ring.who for number in wait.warps[:1]]
        assert mine[wait.since - 1]
        assert not any(mine[wait.since : wait.step])
    filling = [wait for wait in ring.waits if wait.mbarrier is not None and wait.mbarrier >= STAGES]
    assert {wait.warps for wait in filling} == {(4,)}


def test_copies_of_a_group_land_when_it_is_waited_for() -> None:
    late = traced(GROUPS, 64, 3072)
    (of_one,) = steps_at(late, line_of(GROUPS, "wait_group 1"))
    (of_all,) = steps_at(late, line_of(GROUPS, "wait_all"))
    assert [flight.landed for flight in late.flights] == [of_one + 1, of_one + 1, of_all + 1]
    assert [flight.group for flight in late.flights] == [0, 1, 2]
    (first,) = steps_at(late, line_of(GROUPS, "k, [to];"))
    (last,) = steps_at(late, line_of(GROUPS, "k, [to+2048]"))
    assert [tile.fills[0].read for tile in late.tiles] == [(first,), (), (last,)]
    early = traced(GROUPS, 64, 3072, schedule="early")
    assert [flight.landed for flight in early.flights] == [
        flight.step + 1 for flight in early.flights
    ]
    assert (late.schedule, early.schedule) == ("late", "early")


@pytest.mark.parametrize(("kind", "released"), [("sync", 2), ("arrive", 1)])
def test_a_barrier_is_waited_for_until_the_last_arrives(kind: str, released: int) -> None:
    timeline = traced(MEET.format(kind=kind, count=10), 64)
    (early,) = steps_at(timeline, line_of(MEET, "bar.sync"))
    last = 1 + max(steps_at(timeline, line_of(MEET, "bra count")))
    (meeting,) = timeline.barriers
    assert (meeting.name, meeting.arrivals, meeting.complete) == ("2", [early, last], last + 1)
    (wait,) = timeline.waits
    assert (wait.warps, wait.since, wait.until, wait.step) == ((1,), early + 1, last + 1, early)
    assert last - early >= 30


def test_a_cluster_is_followed_as_one() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    out = device.zeros((6 * 64,), "u32")
    config = LaunchConfig.of(6, 64, cluster=2)
    timeline = trace(device.load(EXCHANGE).kernel(), config, [out], (3, 0, 0))
    sent = np.arange(64) + 1000 * (1 - np.arange(6)[:, None] % 2)
    assert (out.numpy().reshape(6, 64) == sent).all()
    assert timeline.ctas == ((2, 0, 0), (3, 0, 0))
    assert timeline.together[timeline.who[0]] == (0, 1, 2, 3)
    assert [tile.span for tile in timeline.tiles] == [
        SharedSpan(rank, SENT, 2 * SENT) for rank in (0, 1)
    ]
    assert [mbarrier.cta for mbarrier in timeline.mbarriers] == [0, 1]
    (meeting,) = timeline.barriers
    assert (meeting.cta, meeting.name) == (None, "cluster")
    assert meeting.complete == meeting.arrivals[-1] + 1
    alone = trace(device.load(EXCHANGE).kernel(), config, [out], (4, 0, 0))
    assert alone.ctas == ((4, 0, 0), (5, 0, 0))
    assert alone.executed == timeline.executed


def test_phases_are_counted_beyond_what_an_object_holds() -> None:
    timeline = traced(TURNS.format(turns=21), 1)
    (mbarrier,) = timeline.mbarriers
    assert [state.phase for state in mbarrier.states] == list(range(22))
    (unmaking,) = steps_at(timeline, line_of(TURNS, "mbarrier.inval"))
    assert mbarrier.unmade == unmaking + 1
    assert (mbarrier.name, mbarrier.address, mbarrier.expected) == ("bell+0x8", 8, 2)


def test_the_first_steps_are_kept_and_the_launch_goes_on() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    out = device.zeros((128,), "u32")
    kernel = device.load(EXCHANGE).kernel()
    timeline = trace(kernel, LaunchConfig.of(2, 64, cluster=2), [out], most=10)
    assert timeline.cut
    assert len(timeline.executed) == 10
    assert out.numpy()[0] == 1000


def test_a_launch_that_stops_is_traced_until_then() -> None:
    deadlock = MEET.format(kind="arrive", count=3).replace("bar.arrive 2", "bar.arrive 3")
    timeline = traced(deadlock, 64)
    assert timeline.fault is not None
    assert "deadlock" in timeline.fault
    assert len(steps_at(timeline, line_of(deadlock, "bar.sync"))) == 1


def test_copies_that_tell_no_mbarrier_are_traced_until_they_land() -> None:
    made = ("@one mbarrier.init.shared::cta.b64", "@one mbarrier.arrive.expect_tx.shared::cta.b64")
    text = "\n".join(line for line in EXCHANGE.split("\n") if not line.strip().startswith(made))
    waits = text.index("again:"), text.index("    mov.u32 to, theirs;\n    add")
    kernel = EmulatorDevice(TARGETS["sm_90a"]).load(text[: waits[0]] + text[waits[1] :]).kernel()
    out = kernel.device.zeros((128,), "u32")
    timeline = trace(kernel, LaunchConfig.of(2, 64, cluster=2), [out])
    assert timeline.fault is None
    [flight] = timeline.flights
    assert (flight.mbarriers, flight.landed) == ([], None)


def test_a_cta_that_is_not_there_is_refused() -> None:
    with pytest.raises(PtxlabError, match=r"no CTA \(1, 0, 0\) in a grid of \(1, 1, 1\)"):
        traced(MEET.format(kind="sync", count=1), 64, cta=(1, 0, 0))
