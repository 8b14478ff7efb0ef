"""What the L2 cache keeps of operands that come again: against a cache of lines, and by pencil."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.prediction.chip import find
from ptxlab.prediction.memory.dram_queue import DramQueue
from ptxlab.prediction.memory.l2 import Cache, kept, reuse_of_uneven
from ptxlab.prediction.memory.touched import Touched, _again, own
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.requests import SECTOR, Request, Sectors
from tests.prediction.running import joined, without_launch

KERNEL = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 turns)
{
  .reg .b32 t<8>; .reg .f32 f<4>; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; ld.param.u32 t3, [turns];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, SHARED, t0;
  mul.wide.u32 w, t2, 4; add.u64 p, p, w; mov.f32 f0, 0f00000000; mov.u32 t4, 0;
more:
  ld.global.cg.f32 f1, [p]; add.f32 f0, f0, f1; add.u64 p, p, 4096; add.u32 t4, t4, 1;
  setp.lt.u32 u, t4, t3; @u bra more;
  mad.lo.u32 t2, t1, 256, t0; mul.wide.u32 w, t2, 4; add.u64 q, q, w; st.global.f32 [q], f0; ret;
}
"""
"""Each CTA walks through ``in`` in steps of 4 KiB; with SHARED 0 all read the same."""

LOOP = KERNEL[KERNEL.index("more:") : KERNEL.index("  mad.lo.u32 t2, t1, 256")]
TWICE = (
    KERNEL.replace("p, q, w;", "p, q, w, s;")
    .replace("more:", "mov.u64 s, p;\nmore:", 1)
    .replace(LOOP, LOOP + "  mov.u64 p, s; mov.u32 t4, 0;\n" + LOOP.replace("more", "over"))
)
"""Each CTA does so twice."""

TURNS = 52
APART = KERNEL.replace("SHARED", "1024")
PROGRAMS = joined(
    same=KERNEL.replace("SHARED", "0"),
    far_apart=KERNEL.replace("SHARED", str(4 * TURNS * 1024)),
    apart=APART,
    own=KERNEL.replace("SHARED", "4096"),
    both=TWICE.replace("SHARED", "0").replace("mov.u64 p, s;", "add.u64 p, s, 524288;"),
    twice=TWICE.replace("SHARED", "0"),
    added=APART.replace("st.global.f32 [q], f0", "red.global.add.f32 [q], f0"),
)


@pytest.mark.parametrize(("name", "whole"), [("a100", 40), ("h100", 50), ("b200", 126)])
def test_of_two_halves_each_keeps_what_the_other_has(name: str, whole: int) -> None:
    """What NVIDIA prints of the L2 cache is at full speed for half as many bytes."""
    assert find(name).l2_bytes == whole / 2 * 2**20


@pytest.mark.parametrize("lines", [80, 110, 160])
def test_a_cache_that_replaces_at_random_keeps_that_part(lines: int) -> None:
    """100 places, lines asked for in turn; the first rounds do not count."""
    chance = random.Random(0)
    places, hits = [-1] * 100, 0
    where: dict[int, int] = {}
    for turn in range(400):
        for line in range(lines):
            if line in where:
                hits += turn >= 100
                continue
            free = places.index(-1) if -1 in places else chance.randrange(100)
            where.pop(places[free], None)
            places[free], where[line] = line, free
    assert kept(lines, 100) == pytest.approx(hits / (300 * lines), abs=0.03)


def test_what_all_ctas_read_comes_from_l2_and_what_one_reads_from_dram() -> None:
    """Two generations of one CTA an SM, waiting for load after load; an A100 has 40 of 44 MiB."""
    ctas, turns, kib_160 = 216, 4 * TURNS, 160 << 10
    operand, result = np.zeros(ctas * turns * 1024, "f4"), np.zeros(ctas * 256, "f4")
    passed = [operand, result, turns]  # of each 4 KiB a CTA reads 1 KiB
    same, apart = (
        predict(PROGRAMS, "a100", ctas, 256, passed, kernel=kernel, shared=kib_160)
        for kernel in ("same", "far_apart")
    )
    latency = find("a100").latency
    assert same.generations == apart.generations == 2
    assert same.cycles / apart.cycles == pytest.approx(latency["l2"] / latency["dram"], abs=0.15)


@pytest.mark.parametrize(("kernel", "fresh"), [("same", 100), ("twice", 100), ("both", 200)])
def test_a_cold_cache_has_what_the_launch_itself_has_asked_for(kernel: str, fresh: int) -> None:
    """One CTA waits for four loads at a time: at first for DRAM, the second time for L2, unless it is elsewhere."""
    turns = 100
    passed = [np.zeros(1 << 20, "f4"), np.zeros(256, "f4"), turns]
    cold, warm = (
        predict(PROGRAMS, "a100", 1, 32, passed, kernel=kernel, cold=cold) for cold in (True, False)
    )
    latency = find("a100").at(cold.clock_mhz).latency
    assert (cold.cold, warm.cold) == (True, False)
    assert cold.cycles - warm.cycles == pytest.approx(
        fresh / 4 * (latency["dram"] - latency["l2"]), rel=0.02
    )


def test_the_next_generation_finds_in_a_cold_cache_what_the_first_has_loaded() -> None:
    """Of ten generations that read the same the first waits for DRAM."""
    turns, sms = 100, 108
    passed = [np.zeros(turns << 10, "f4"), np.zeros(10 * sms * 256, "f4"), turns]
    cold, warm = (
        predict(PROGRAMS, "a100", 10 * sms, 32, passed, kernel="same", shared=160 << 10, cold=cold)
        for cold in (True, False)
    )
    latency = find("a100").at(cold.clock_mhz).latency
    assert cold.cycles - warm.cycles == pytest.approx(
        turns / 4 * (latency["dram"] - latency["l2"]), rel=0.02
    )


def test_of_many_generations_the_first_and_what_is_left_over_count_as_the_others() -> None:
    turns, sms = 100, 108

    def cycles(ctas: int, cold: bool) -> float:
        passed = [np.zeros(turns << 10, "f4"), np.zeros(ctas * 256, "f4"), turns]
        return predict(
            PROGRAMS, "a100", ctas, 32, passed, kernel="same", shared=160 << 10, cold=cold
        ).cycles

    many, one_more = cycles(20 * sms, True), cycles(20 * sms + 5, True)
    assert many == cycles(20 * sms, False)
    assert one_more == pytest.approx(many * 21 / 20)


def test_the_next_generation_does_not_find_in_a_cold_cache_what_nobody_has_loaded() -> None:
    """Of 216 CTAs, 108 at a time, each reads 16 KiB of its own."""
    passed = [np.zeros(216 * 4 << 10, "f4"), np.zeros(216 * 256, "f4"), 4]
    cold, warm = (
        predict(PROGRAMS, "a100", 216, 32, passed, kernel="own", shared=160 << 10, cold=cold)
        for cold in (True, False)
    )
    latency = find("a100").at(cold.clock_mhz).latency
    assert cold.generations == 2
    assert cold.cycles - warm.cycles == pytest.approx(
        2 * (latency["dram"] - latency["l2"]), rel=0.05
    )


def test_a_grid_of_ctas_that_differ_finds_in_a_cold_cache_what_it_shares() -> None:
    memory = [MemoryRange(1 << 30, 1 << 20)]
    launch = Launch(TARGETS["sm_90a"], LaunchConfig.of(132, 128), b"", memory)
    touched = Touched({0: 4.0 * (1 << 20)}, {}, {})
    warm, cold = (
        reuse_of_uneven([], launch, touched, 132, Cache(25 << 20, 50 << 20, cold))
        for cold in (False, True)
    )
    assert (warm.loaded, cold.loaded) == (0, 1 << 20)


def test_an_instruction_comes_again_to_what_an_earlier_one_asked_for_at_first() -> None:
    def asked(*sectors: int) -> Request:
        bounds, whole = np.array([0, len(sectors)]), np.full(len(sectors), SECTOR)
        return Request(np.ones(1, int), Sectors(np.array(sectors), bounds, whole))

    requests = {0: asked(1, 2), 1: asked(3, 4), 2: asked(2, 3, 8, 9), 3: asked(1, 2), 4: asked(50)}
    assert own(requests, np.array([7, 7, 8, 9, 7])) == {7: 0.0, 8: 0.5, 9: 1.0}
    assert own({}, np.array([], int)) == {}


def test_what_others_have_asked_for_since_does_not_lie_in_between() -> None:
    """Four loads that each come to every sector of the same eight; and what a loop's turns ask for, 100 apart."""
    near = {step: np.arange(8) for step in range(4)}
    assert _again(near, np.arange(4), np.ones(4), None) == {1.0: 24.0}
    turns = {step: np.arange(8) + 100 * (step // 2 % 2) for step in range(8)}
    (near, far), (few, many) = zip(
        *_again(turns, np.arange(8) % 2, np.ones(2), None).items(), strict=True
    )
    assert (near, few, many) == (1.0, 32.0, 16.0)
    assert far == pytest.approx(16, rel=0.2)


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_what_is_added_in_memory_is_written_and_may_meet(gpu: str) -> None:
    """As a store that nobody waits for, with whatever its name is on that GPU."""
    passed = [np.zeros(112 << 10, "f4"), np.zeros(108 * 256, "f4"), 4]
    stored, added = (
        predict(PROGRAMS, gpu, 108, 32, passed, kernel=kernel) for kernel in ("apart", "added")
    )
    assert added.cycles == pytest.approx(stored.cycles, rel=0.05)
    assert set(added.not_modelled) - set(stored.not_modelled) == {"atomics that lie apart"}


def test_ctas_that_differ_and_run_at_a_time_come_in_step_to_what_they_share() -> None:
    """Of 100 MiB each of 132 CTAs reads a fourth, other CTAs than the next; all at a time, or in two generations."""
    whole, size = 100 << 20, 25 << 20
    memory = [MemoryRange(1 << 30, whole)]
    launch = Launch(TARGETS["sm_90a"], LaunchConfig.of(132, 128), b"", memory)
    touched = Touched({0: 33.0 * whole}, {}, {})
    persistent, generations = (
        reuse_of_uneven([], launch, touched, resident, Cache(size, 2 * size)).loaded
        for resident in (132, 66)
    )
    assert whole <= persistent < 2 * whole
    assert generations > 4 * persistent


def test_what_is_stored_takes_room_from_what_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All CTAs read the same 4 MiB; what an A100's 20 MiB have of these depends on what the CTAs store."""
    operand, result, kib_160 = np.zeros(1 << 20, "f4"), np.zeros(100 << 20, "f4"), 160 << 10
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    monkeypatch.setattr(DramQueue, "settled", lambda *told: 0.0)

    def stored(mib: int) -> Prediction:
        touched = Touched({0: operand.nbytes}, {1: mib << 20}, {})
        monkeypatch.setattr("ptxlab.prediction.resident.touched", lambda *told: touched)
        passed = [operand, result, TURNS]
        return predict(PROGRAMS, "a100", 216, 32, passed, kernel="same", shared=kib_160)

    little, much = stored(17), stored(400)
    latency = find("a100").latency
    assert little.cycles / much.cycles == pytest.approx(latency["l2"] / latency["dram"], abs=0.15)


def test_what_l2_loses_is_loaded_again() -> None:
    """Two generations walk 40 MiB, of which an A100's 20 MiB keep h = exp(-2 (1 - h)), a fifth."""
    turns, ctas = 10 << 10, 216
    operand, result = np.zeros(turns << 10, "f4"), np.zeros(ctas * 1024, "f4")
    passed = [operand, result, turns]
    prediction = predict(PROGRAMS, "a100", ctas, 1024, passed, kernel="same", shared=160 << 10)
    assert prediction.generations == 2
    hits = kept(2.0, 1.0)
    assert hits == pytest.approx(0.2, abs=0.01)
    seconds = prediction.used["dram"] * without_launch(prediction)
    loaded = 2 * (1 - hits) * operand.nbytes
    assert seconds == pytest.approx(find("a100").dram_seconds(loaded, result.nbytes), rel=0.03)


def test_who_comes_again_stands_for_the_turns_that_are_left_out() -> None:
    """Instruction 0 is in a loop of which one turn of five is run, 1 in one that is run whole."""
    asked = {0: np.array([1, 2]), 1: np.array([2, 1])}
    again = _again(asked, np.array([0, 1]), np.array([5.0, 1.0]), None)
    assert sum(again.values()) == 2 * 5


def test_what_comes_between_is_more_by_the_turns_that_are_left_out() -> None:
    """Between two loads of a sector another loads four, in a turn that stands for eight."""
    asked = {0: np.array([1]), 1: np.arange(4) + 10, 2: np.array([1])}
    numbers, once = np.array([0, 1, 0]), np.ones(2)
    near, far = (_again(asked, numbers, once, times) for times in (None, np.array([1, 8, 1])))
    (before,), (later,) = near, far
    assert later / before == pytest.approx(
        32.5 / 4.5, rel=0.1
    )  # four distances are told apart to twice as far
