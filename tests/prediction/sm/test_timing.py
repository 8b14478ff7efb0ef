"""What each instruction costs on a chip, by the chip's table and by pencil."""

from __future__ import annotations

import pytest

from ptxlab.errors import Unsupported
from ptxlab.prediction.chip import find
from ptxlab.prediction.sm import timing as kinds
from ptxlab.prediction.sm.timing import InstructionTiming, timings
from tests.machine.test_operations import instruction
from tests.together import in_one_test


def timed(text: str, gpu: str = "rtx3090") -> InstructionTiming:
    return timings([instruction(text)], [0], find(gpu), {})[0]


@in_one_test(
    ("text", "name", "more"),
    [
        ("LDS R0, [R4]", "shared", 0), ("LDS.128 R0, [R4]", "shared", 2), ("LDG.E R0, [R4.64]", "global", 0),
        ("LDG.E.128 R0, [R4.64]", "global", 2), ("LD.E.64 R0, [R4]", "global", 0), ("MUFU.EX2 R0, R1", "xu", 0),
        ("LDC R0, c[0x0][R4]", "constant", 0), ("SHFL.IDX PT, R0, R1, R2, 0x1f", "special", 0),
    ],
)  # fmt: skip
def test_what_waits_for_a_scoreboard_takes_a_latency_of_the_chip(
    text: str, name: str, more: int
) -> None:
    assert timed(text).latency == find("rtx3090").latency[name] + more


@in_one_test(
    ("text", "cached"),
    [
        ("LDG.E R0, [R4.64]", True), ("LDG.E.CONSTANT R0, [R4.64]", True), ("LDL R0, [R1]", True), ("STL R0, [R1]", True), ("STG.E [R4.64], R0", False),
        ("LDG.E.STRONG.GPU R0, [R4.64]", False), ("LDGSTS.E.BYPASS.128 [R0], [R4.64]", False),
    ],
)  # fmt: skip
def test_l1_has_what_was_loaded_and_what_was_stored_to_local_memory(
    text: str, cached: bool
) -> None:
    assert timed(text).cached == cached


def test_what_is_only_read_is_looked_up_in_its_own_time() -> None:
    texts = ("LDG.E R0, [R4.64]", "LDG.E.CONSTANT R0, [R4.64]", "LDL R0, [R1]")
    assert [timed(text).lookup for text in texts] == [
        kinds.LOOKUP, kinds.READ_ONLY_LOOKUP, kinds.LOOKUP
    ]  # fmt: skip


@in_one_test(
    ("text", "pipes", "hold"),
    [
        ("FFMA R0, R1, R2, R3", ("fmalite", "fmaheavy"), 2), ("IMAD R0, R1, R2, R3", ("fmaheavy",), 2),
        ("IMAD.WIDE.U32 R0, R1, R2, R4", ("fmaheavy",), 4), ("IMAD.HI.U32 R0, R1, R2, R4", ("fmaheavy",), 4),
        ("HFMA2 R0, R1, R2, R3", ("fmaheavy",), 2), ("LOP3.LUT R0, R1, R2, RZ, 0xc0, !PT", ("alu",), 2),
        ("MUFU.RCP R0, R1", ("xu",), 8), ("DADD R0, R2, R4", ("fp64",), 64), ("BRA `(.L)", (), 0),
        ("UIADD3 UR4, UR5, UR6, URZ", ("uniform",), 2), ("F2F.F64.F32 R0, R2", ("fp64",), 64),
        ("F2F.F32.F64 R0, R2", ("fp64",), 64), ("I2F.S64 R0, R2", ("fp64",), 64), ("F2F.F16.F32 R0, R2", ("xu",), 8),
        ("I2F R0, R2", ("xu",), 8),
    ],
)  # fmt: skip
def test_a_pipe_is_held_as_long_as_its_lanes_take(
    text: str, pipes: tuple[str, ...], hold: int
) -> None:
    timing = timed(text)
    assert (timing.pipes, timing.hold) == (pipes, hold)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_where_f64_is_as_fast_as_others_numbers_change_to_it_as_to_others(gpu: str) -> None:
    timing = timed("F2F.F64.F32 R0, R2", gpu)
    assert (timing.pipes, timing.hold) == (("xu",), find(gpu).holds["xu"])


@in_one_test(
    ("text", "gpu", "hold"),
    [
        ("HMMA.16816.F32 R0, R4, R8, R0", "a100", 8), ("HMMA.16816.F32 R0, R4, R8, R0", "rtx3090", 32),
        ("HMMA.16816.F16 R0, R4, R8, R0", "rtx3090", 16), ("HMMA.16816.F32.BF16 R0, R4, R8, R0", "a100", 8),
        ("HMMA.1688.F32.TF32 R0, R4, R8, R0", "a100", 8), ("IMMA.16832.S8.S8 R0, R4.ROW, R8.COL, R0", "a100", 8),
        ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0", "h100", 128),
        ("HGMMA.64x256x8.F32.TF32 R24, gdesc[UR4], RZ, !UPT, gsb0", "h100", 128),
        ("QGMMA.64x256x32.F32.E4M3.E4M3 R24, gdesc[UR4], RZ, !UPT, gsb0", "h100", 128),
    ],
)  # fmt: skip
def test_a_product_holds_the_tensor_core_as_the_data_sheets_say(
    text: str, gpu: str, hold: float
) -> None:
    """256 products of f16 a clock and sub-partition of an A100, 64 of an RTX 3090 with sums of f32."""
    assert timed(text, gpu).hold == pytest.approx(hold, rel=0.02)


def test_registers_are_read_by_bank_and_slot() -> None:
    assert timed("FFMA R0, R1, R2, R3").reads == (
        (1, 0, 1, False),
        (0, 1, 2, False),
        (1, 2, 3, False),
    )
    assert timed("FFMA R0, R1, RZ, 1").reads == ((1, 0, 1, False),)
    assert timed("IADD3 R0, R1, UR4, R6").reads == ((1, 0, 1, False), (0, 2, 6, False))
    assert timed("MOV R0, R5").reads == ((1, 1, 5, False),)
    read = timed("HMMA.16816.F32 R0, R4, R8, R12").reads
    assert [number for _, _, number, _ in read] == [4, 5, 6, 7, 8, 9, 12, 13, 14, 15]
    assert [slot for _, slot, _, _ in read] == [0] * 4 + [1] * 2 + [2] * 4
    assert timed("LDG.E R0, [R4.64]").reads == ()


@in_one_test(
    ("text", "kind", "group"),
    [
        ("EXIT", kinds.EXIT, (0, 0)), ("BAR.SYNC.DEFER_BLOCKING 0x3, 0x40", kinds.BARRIER, (3, 64)),
        ("BAR.ARV 0x1, 0x80", kinds.ARRIVE, (1, 128)), ("BAR.SYNC R4, 0x40", kinds.BARRIER, (0, 64)),
        ("LDGDEPBAR", kinds.GROUP, (0, 0)), ("DEPBAR.LE SB0, 0x2", kinds.PENDING, (0, 2)),
        ("WARPGROUP.ARRIVE", kinds.FIXED, (0, 0)), ("WARPGROUP.DEPBAR.LE gsb0, 0x1", kinds.PRODUCTS, (0, 1)),
        ("UCGABAR_ARV", kinds.CLUSTER_ARRIVE, (0, 0)), ("UCGABAR_WAIT", kinds.CLUSTER_WAIT, (0, 0)),
        ("SYNCS.ARRIVE.TRANS64 RZ, [R4], R5", kinds.SYNC, (0, 0)), ("UTMALDG.2D [UR8], [UR4]", kinds.TMA, (0, 0)),
        ("STS [R4], R5", kinds.MEMORY, (0, 0)), ("MUFU.RCP R0, R1", kinds.VARIABLE, (0, 0)),
        ("FADD R0, R1, R2", kinds.FIXED, (0, 0)), ("NANOSLEEP 0x40", kinds.SLEEP, (0, 0)),
    ],
)  # fmt: skip
def test_how_an_instruction_is_dealt_with(text: str, kind: int, group: tuple[int, int]) -> None:
    timing = timed(text, "h100")
    assert (timing.kind, timing.group) == (kind, group)


def test_what_is_loaded_may_be_kept_in_l1() -> None:
    loads = {
        "LDG.E R0, [R4.64]": (True, True, False), "LDG.E.STRONG.GPU R0, [R4.64]": (True, False, False),
        "LDGSTS.E.BYPASS.128 [R2], [R4.64]": (True, False, True), "LDGSTS.E [R2], [R4.64]": (True, True, True),
        "ATOMG.E.ADD R0, [R4.64], R6": (True, False, False), "RED.E.ADD [R4.64], R6": (False, False, False),
        "STG.E [R4.64], R6": (False, False, False),
    }  # fmt: skip
    for text, want in loads.items():
        timing = timed(text)
        assert (timing.loads, timing.cached, timing.copies) == want, text


def test_what_a_chip_has_not_is_refused_by_name() -> None:
    for text in ("UTMALDG.2D [UR8], [UR4]", "UCGABAR_ARV", "SYNCS.ARRIVE.TRANS64 RZ, [R4], R5"):
        with pytest.raises(Unsupported, match=r"no timing is known of .* on RTX 3090"):
            timed(text)
    for text in ("NEWOP R0, R1", "HMMA.1616.F32 R0, R1, R2, R3", "OMMA.16864.F32 R0, R4, R8, R0"):
        with pytest.raises(Unsupported, match="no timing is known"):
            timed(text)
    with pytest.raises(Unsupported, match="for how long"):
        timed("NANOSLEEP R4")
