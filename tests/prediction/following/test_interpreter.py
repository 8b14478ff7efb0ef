"""In which order threads that parted go on, and where they meet again, of code written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import Launch
from ptxlab.prediction.following.interpreter import run
from tests.machine.test_operations import instruction

FIRST_16, FIRST_8 = (f"ISETP.LT.AND P{n}, PT, R0, {most:#x}, PT" for n, most in ((0, 16), (1, 8)))


def issued(
    code: Sequence[str], block: int = 32, **labels: int
) -> list[tuple[int, list[int] | None]]:
    """Return which instructions are issued, one by one, and for which warps, None for all."""
    named = {f".{name}": number for name, number in labels.items()}
    decoded = [instruction(text, n, named) for n, text in enumerate(code)]
    launch = Launch(TARGETS["sm_80"], LaunchConfig.of(1, block), b"", ())
    steps = run(decoded, launch, [0])
    return [
        (number, None if warps is None else warps.tolist())
        for first, end, warps in zip(steps.first, steps.end, steps.warps, strict=True)
        for number in range(first, end)
    ]


def numbers(code: Sequence[str], block: int = 32, **labels: int) -> list[int]:
    return [number for number, _ in issued(code, block, **labels)]


def test_who_stands_lowest_goes_first_and_they_go_on_together() -> None:
    code = ["S2R R0, SR_TID.X", FIRST_16, "@P0 BRA `(.L)", "NOP", "NOP", "EXIT"]
    assert numbers(code, L=4) == [0, 1, 2, 3, 4, 5]


def test_those_who_wait_inside_meet_before_those_who_wait_outside() -> None:
    code = [
        "S2R R0, SR_TID.X", FIRST_16, FIRST_8, "BSSY B0, `(.OUTER)", "@!P0 BRA `(.OUTER)",
        "BSSY B1, `(.INNER)", "@P1 BRA `(.INNER)", "NOP", "BSYNC B1", "NOP", "BSYNC B0", "NOP", "EXIT",
    ]  # fmt: skip
    executed = numbers(code, OUTER=10, INNER=8)
    assert executed == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9, 10, 11, 12]


def test_a_loop_is_left_one_by_one() -> None:
    """Warp 0 goes around once, half of warp 1 twice and the other half three times."""
    code = [
        "S2R R0, SR_TID.X", "SHF.R.U32.HI R1, RZ, 0x4, R0", "IADD3 R1, R1, -0x1, RZ",
        "ISETP.GT.AND P0, PT, R1, RZ, PT", "@P0 BRA `(.TOP)", "EXIT",
    ]  # fmt: skip
    executed = issued(code, 64, TOP=2)
    assert [warps for number, warps in executed if number == 2] == [None, [1], [1]]


def test_a_barrier_is_passed_when_all_are_there_who_have_not_ended() -> None:
    code = ["S2R R0, SR_TID.X", FIRST_16, "@!P0 EXIT", "BAR.SYNC 0x0", "NOP", "EXIT"]
    executed = issued(code, 64)
    assert [number for number, _ in executed] == [0, 1, 2, 3, 4, 5]
    assert executed[3] == (3, [0])


def test_barriers_that_count_are_passed_each_when_as_many_are_there() -> None:
    """Warp 2 waits at barrier 2 for warp 0, which waits at barrier 1 for warp 1; whom a guard keeps from one is not there."""
    code = [
        "S2R R0, SR_TID.X", "SHF.R.U32.HI R1, RZ, 0x5, R0", "ISETP.EQ.AND P0, PT, R1, 0x2, PT",
        "ISETP.EQ.AND P1, PT, R1, 0x1, PT", "@!P0 BRA `(.OTHERS)",
        "BAR.SYNC.DEFER_BLOCKING 0x2, 0x40", "NOP", "EXIT",
        "@P1 BAR.ARV 0x1, 0x40", "@P1 EXIT", "BAR.SYNC.DEFER_BLOCKING 0x1, 0x40", "NOP", "BAR.ARV 0x2, 0x40", "EXIT",
    ]  # fmt: skip
    executed = issued(code, 96, OTHERS=8)
    assert [warps for number, warps in executed if number == 8] == [[1]]
    order = [number for number, _ in executed]
    assert order.index(8) < order.index(11) < order.index(12) < order.index(6)


def test_a_barrier_is_complete_when_as_many_are_there_as_it_waits_for() -> None:
    """Warps 0 and 1 wait for warp 2, which is enough for a barrier of its own."""
    code = [
        "S2R R0, SR_TID.X", "SHF.R.U32.HI R1, RZ, 0x5, R0", "ISETP.EQ.AND P0, PT, R1, 0x2, PT", "@P0 BRA `(.LATE)",
        "BAR.SYNC.DEFER_BLOCKING 0x1, 0x60", "NOP", "EXIT",
        "BAR.SYNC.DEFER_BLOCKING 0x2, 0x20", "BRA `(.THERE)",
    ]  # fmt: skip
    executed = issued(code, 96, LATE=7, THERE=4)
    assert [warps for number, warps in executed if number == 5] == [None]


def test_a_barrier_whose_number_is_in_a_register_is_each_warp_s_own() -> None:
    """Of four warps two meet at barrier 1 and two at barrier 2; the last instruction of each pair is issued in turn."""
    code = [
        "S2R R0, SR_TID.X", "SHF.R.U32.HI R1, RZ, 0x6, R0", "IADD3 R1, R1, 0x1, RZ",
        "BAR.SYNC.DEFER_BLOCKING R1, 0x40", "NOP", "EXIT",
    ]  # fmt: skip
    assert [warps for number, warps in issued(code, 128) if number == 4] == [None]


def test_what_leads_nowhere_is_refused() -> None:
    with pytest.raises(Unsupported, match="goes where the machine code does not say"):
        numbers(["BRA `(.NOWHERE)", "EXIT"])
    with pytest.raises(Unsupported, match="goes to an address that is no instruction's"):
        numbers(["MOV R4, 0x1000", "RET.REL.NODEC R4 `(k)", "EXIT"])
    with pytest.raises(Unsupported, match="depends on data that is not computed"):
        numbers(
            ["FADD R0, R1, R2", "ISETP.LT.AND P0, PT, R0, R1, PT", "@P0 BRA `(.L)", "EXIT"], L=3
        )


def test_a_uniform_register_that_is_spilled_to_another_comes_back() -> None:
    code = [
        "UMOV UR4, 0x3", "MOV.SPILL R2, UR4", "UMOV UR4, 0x40", "R2UR.FILL UR4, R2", "IMAD.U32 R1, RZ, RZ, UR4",
        "ISETP.EQ.AND P0, PT, R1, 0x3, PT", "@P0 BRA `(.L)", "NOP", "EXIT",
    ]  # fmt: skip
    assert numbers(code, L=8) == [0, 1, 2, 3, 4, 5, 6, 8]
