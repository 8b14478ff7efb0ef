"""Which instruction an SM issues when, of warps that are made up, by pencil."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.sm import timing as kinds
from ptxlab.prediction.sm.lsu import QUEUE
from ptxlab.prediction.sm.ports import Reads, RegisterPorts
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.timing import InstructionTiming, timings
from ptxlab.prediction.sm.warps import Warp
from tests.machine.test_operations import instruction

PLAIN = InstructionTiming(kinds.FIXED, (), 0, 4, 1, (), None, None, ())
END = replace(PLAIN, kind=kinds.EXIT)
LAST = 99


def issued(*traces: list[InstructionTiming], apart: int = 4) -> Run:
    """Run warps, of one sub-partition where they are four ``apart``; instruction n of warp w is 100 w + n."""
    timings: dict[int, InstructionTiming] = {}
    warps: list[Warp] = []
    for number, trace in enumerate(traces):
        numbers = [100 * number + n for n in range(len(trace))]
        timings |= dict(zip([*numbers, 100 * number + LAST], [*trace, END], strict=True))
        idle = apart - 1 if number + 1 < len(traces) else 0
        warps += [Warp(0, [*numbers, 100 * number + LAST])]
        warps += [Warp(0, [LAST]) for _ in range(idle)]
    return Sm(find("rtx3090"), timings, warps, shared=0).run()


def waited(run: Run, reason: str) -> dict[int, float]:
    return {number: cycles for (number, why), cycles in run.stalls.items() if why == reason}


def test_a_warp_issues_an_instruction_a_cycle_and_stalls_as_told() -> None:
    assert issued([PLAIN] * 5).cycles == 5 + 2  # the end, and to see that nobody is left
    run = issued([replace(PLAIN, stall=5), PLAIN])
    assert run.cycles == 8
    assert waited(run, "wait") == {1: 4}
    assert waited(run, "selected") == {0: 1, 1: 1, LAST: 1}


def test_the_youngest_goes_first_and_stays_while_it_may() -> None:
    """The older one waits for all of the younger; where that stalls it goes on until its own end."""
    run = issued([PLAIN] * 3, [PLAIN] * 3)
    assert waited(run, "not selected") == {0: 3}  # of four cycles the first is everybody's
    run = issued([PLAIN] * 3, [replace(PLAIN, stall=3), PLAIN])
    assert waited(run, "not selected") == {101: 2}
    assert run.cycles == 8


def test_warps_of_other_sub_partitions_are_not_in_the_way() -> None:
    run = issued([PLAIN] * 3, [PLAIN] * 3, apart=1)
    assert run.cycles == 5
    assert waited(run, "not selected") == {}


def test_a_pipe_is_held_and_the_other_half_is_taken() -> None:
    alu = replace(PLAIN, pipes=("alu",), hold=2)
    run = issued([alu] * 4)
    assert run.cycles == 9  # at 0, 2, 4, 6, and the end
    assert waited(run, "math pipe throttle") == {1: 1, 2: 1, 3: 1}
    assert run.busy["alu"] == 8
    both = replace(PLAIN, pipes=("fmalite", "fmaheavy"), hold=2)
    assert issued([both] * 4).cycles == 6


def test_a_bank_gives_one_register_a_cycle() -> None:
    """Three of one bank take the window of three."""
    three = replace(PLAIN, reads=((0, 0, 2, False), (0, 1, 4, False), (0, 2, 6, False)))
    run = issued([three] * 4)
    assert waited(run, "dispatch stall") == {1: 2, 2: 2, 3: 2}


def test_what_is_kept_is_not_read_again() -> None:
    keeps = replace(PLAIN, reads=((0, 0, 2, True), (0, 1, 4, True), (0, 2, 6, True)))
    assert waited(issued([keeps] * 4), "dispatch stall") == {}
    other = replace(PLAIN, reads=((0, 0, 8, False), (0, 1, 10, False), (0, 2, 12, False)))
    run = issued([keeps, other, keeps])
    assert waited(run, "dispatch stall") == {
        1: 2,
        2: 2,
    }  # what read through the slots took their place
    run = issued([keeps], [replace(keeps, stall=9)])
    assert waited(run, "dispatch stall") == {0: 2}  # of another warp it is another register


def test_groups_of_copies_are_awaited_but_for_some() -> None:
    copy = InstructionTiming(
        kinds.MEMORY, (), 0, 33, 1, (), None, None, (), loads=True, cached=False, copies=True
    )
    close = replace(PLAIN, kind=kinds.GROUP)

    def behind(left_open: int) -> float:
        wait = replace(PLAIN, kind=kinds.PENDING, group=(0, left_open))
        return issued([copy, close, copy, close, wait]).cycles

    assert behind(2) == 7
    assert 7 < behind(1) < behind(0)


def test_products_queue_and_are_awaited() -> None:
    product = replace(PLAIN, kind=kinds.PRODUCT, hold=100, latency=20, copies=True)
    wait = replace(PLAIN, kind=kinds.PRODUCTS, group=(0, 1))
    run = issued([product, product, wait])
    assert waited(run, "wgmma") == {2: 120 - 2}
    assert run.busy["tensor"] == 200
    run = issued([product, product, replace(wait, group=(0, 0))])
    assert waited(run, "wgmma") == {2: 220 - 2}
    run = issued([product, replace(product, frees=3), replace(PLAIN, waits=(3,))])
    assert waited(run, "short scoreboard") == {2: 100 - 2}  # what it reads is read when it begins


def test_a_pause_is_slept() -> None:
    run = issued([replace(PLAIN, kind=kinds.SLEEP, latency=50), PLAIN])
    assert waited(run, "sleeping") == {1: 49}


def test_a_scoreboard_is_waited_for_by_what_says_so() -> None:
    slow = replace(PLAIN, kind=kinds.VARIABLE, latency=30, writes=2, frees=3)
    assert waited(issued([slow, replace(PLAIN, waits=(2,))]), "short scoreboard") == {1: 29}
    assert waited(issued([slow, replace(PLAIN, waits=(3,))]), "short scoreboard") == {1: 9}
    assert waited(issued([slow, replace(PLAIN, waits=(1,))]), "short scoreboard") == {}


def test_a_full_queue_is_told_by_whose_it_is() -> None:
    shared = InstructionTiming(kinds.MEMORY, (), 0, 24, 1, (), None, None, ())
    chip = find("rtx3090")
    assert chip.latency["global"] == 33
    assert waited(issued([shared] * 9), "mio throttle")
    assert waited(issued([replace(shared, latency=33)] * 9), "lg throttle")


def test_marks_are_told_when_they_are_passed_and_the_last_ends_all() -> None:
    warp = Warp(0, list(range(10)), marks=[2, 5], ends=5)
    run = Sm(find("rtx3090"), dict.fromkeys(range(10), PLAIN), [warp], shared=0).run()
    passed = {mark: (told.cycles, told.issued) for mark, told in warp.passed.items()}
    assert passed == {2: (2, 3), 5: (5, 6)}
    assert run.cycles == 6


def test_what_is_told_at_a_mark_has_what_others_still_wait_for() -> None:
    """One waits ten clocks behind its first instruction when another has issued four of its own."""
    slow = replace(PLAIN, stall=10)
    first, other = Warp(0, [0, 0, 0, 0, 0], marks=[3], number=0), Warp(0, [1, 0], number=1)
    Sm(find("rtx3090"), {0: PLAIN, 1: slow}, [first, other], shared=0).run()
    told = first.passed[3]
    assert told.stalls[0, "wait"] == told.cycles - 1


def test_a_scoreboard_is_held_until_the_last_is_there() -> None:
    slow, fast = (replace(PLAIN, kind=kinds.VARIABLE, latency=n, writes=2) for n in (50, 20))
    assert waited(issued([slow, fast, replace(PLAIN, waits=(2,))]), "short scoreboard") == {2: 48}
    assert waited(issued([fast, slow, replace(PLAIN, waits=(2,))]), "short scoreboard") == {2: 49}


def test_a_product_of_a_warpgroup_takes_half_of_the_ports_for_its_sums() -> None:
    """Of instructions that read two registers of a bank each, one begins in two cycles, and beside sums of f32 in four."""
    reads = Reads.of([(0, slot, 2 * slot, False) for slot in range(2)])

    def begun(sums: float) -> list[float]:
        ports, now, times = RegisterPorts(), 0.0, []
        ports.share(100.0, sums)
        for _ in range(8):
            while (later := ports.read(None, reads, now)) > now:
                now = later
            times.append(now)
        return times

    def apart(times: list[float]) -> float:
        return (times[-1] - times[3]) / 4

    assert [apart(begun(sums)) for sums in (0.0, 0.5, 1.0)] == pytest.approx([2, 8 / 3, 4], rel=0.1)


def test_the_sums_of_products_are_read_a_register_a_cycle_or_half_of_one() -> None:
    named = {
        "f32": "HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0",
        "f16": "HGMMA.64x128x16.F16 R24, gdesc[UR4], R24, gsb0",
    }
    code = [instruction(text, n) for n, text in enumerate(named.values())]
    timed = timings(code, range(len(code)), find("h100"), {})
    assert [timed[n].sums for n in range(2)] == [1, 0.5]


@pytest.mark.parametrize(("gpu", "apart"), [("a100", 1), ("rtx3090", 2)])
def test_shuffles_go_through_the_memory_pipe_one_after_the_other(gpu: str, apart: int) -> None:
    """64 of 16 warps; CUDA Programming Guide: an SM has 32 results a clock, and of GA102 its memory pipe takes one in two."""
    texts = ("SHFL.BFLY PT, R4, R4, 0x1, 0x1f", "EXIT")
    code = [instruction(text, n) for n, text in enumerate(texts)]
    chip = find(gpu)
    warps = [Warp(0, [0, 0, 0, 0, 1], part=n % 4) for n in range(16)]
    run = Sm(chip, timings(code, range(2), chip, {}), warps, shared=0).run()
    assert run.busy["lsu"] == 64 * apart
    assert run.cycles >= (64 - 4 * (QUEUE + 1)) * apart, "all but those that are queued are through"


def test_stores_merge_and_atomics_do_not() -> None:
    texts = ("STG.E desc[UR4][R2.64], R4", "RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R4",
             "LDG.E R4, desc[UR4][R2.64]")  # fmt: skip
    code = [instruction(text, n) for n, text in enumerate(texts)]
    timed = timings(code, range(len(code)), find("h100"), {})
    assert [timed[n].merges for n in range(len(code))] == [True, False, False]
