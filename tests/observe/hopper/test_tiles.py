"""Tiles that a tensor copy lays out and a product reads: their swizzles, where they begin, and boxes outside."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.device.protocol import Device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport
from tests.emulator.hopper.conftest import hopper_text
from tests.observe.hopper.conftest import lines, only

COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r10], [d1, {r6, r7}], [r2]"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, d4, d5, 0, 1, 1, 0, 0"
BODY = f"""
    @p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    mov.u32 r6, 0;
    mov.u32 r7, FIRST;
    add.u32 r10, r3, BEHIND;
    add.u32 r11, r10, 3072;
    cvt.u64.u32 d3, r10;
    and.b64 d3, d3, 0x3ffff;
    shr.u64 d3, d3, 4;
    or.b64 d4, d3, DESCRIPTOR;
    add.u64 d5, d4, 128;
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 3072;
C:  {COPY};
    add.u32 r10, r10, 1024;
    add.u32 r7, r7, STEP;
    setp.lt.u32 p1, r10, r11;
    @p1 bra C;
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    CHANGE
    wgmma.fence.sync.aligned;
    {PRODUCT};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mad.wide.u32 d2, r0, 4, d0;
    st.global.f32 [d2], f0;
"""
"""Three boxes of 1024 bytes: A is 64 rows in the first two, B the first 8 rows of the last."""

SWIZZLED = {"box": (32, 16), "swizzle": "32B"}
CORES = {"box": (64, 8)}


def descriptor(code: int, leading: int, stride: int) -> int:
    return code << 62 | (stride >> 4) << 32 | (leading >> 4) << 16


IN_32B, IN_64B = descriptor(3, 16, 256), descriptor(2, 16, 512)
PLAIN = descriptor(0, 1024, 128)


def checked(
    hopper: Device,
    made: dict[str, Any],
    word: int,
    *,
    behind: int = 0,
    first: int = 0,
    step: int = 32,
    change: str = "",
    grid: int = 1,
) -> CheckReport:
    tensor = hopper.tensor_map(hopper.zeros((96, 16), "f16"), **made)
    there = hopper.upload(bytearray(tensor.data))
    body = BODY.replace("DESCRIPTOR", f"{word:#x}").replace("BEHIND", str(behind))
    body = body.replace("FIRST", str(first)).replace("STEP", str(step)).replace("CHANGE", change)
    kernel = hopper.load(hopper_text(body)).kernel("k")
    return check(kernel, LaunchConfig.of(grid, 128), [hopper.zeros(128, "f32"), there])


def test_a_map_and_a_descriptor_of_one_swizzle(hopper: Device) -> None:
    report = checked(hopper, SWIZZLED, IN_32B)
    assert (report.verdict, report.findings) == ("clean", ())


def test_rows_of_16_bytes_are_what_a_descriptor_without_swizzle_reads(hopper: Device) -> None:
    assert checked(hopper, CORES, PLAIN, step=0).findings == ()


@pytest.mark.parametrize(
    ("made", "word", "said", "remedy"),
    [
        (
            SWIZZLED,
            IN_64B,
            ("a descriptor of swizzle 64B", "a tensor map of swizzle 32B"),
            "3 in bits 62 to 63 of the descriptor, or swizzle 64B in the tensor map",
        ),
        (
            SWIZZLED,
            PLAIN,
            ("a descriptor of rows of 16 bytes without swizzle", "a tensor map of swizzle 32B"),
            "3 in bits 62 to 63 of the descriptor, or swizzle none in the tensor map",
        ),
        (
            SWIZZLED | {"swizzle": "none"},
            IN_32B,
            ("a descriptor of swizzle 32B", "a tensor map of rows of 32 bytes without swizzle"),
            "swizzle 32B in the tensor map, as in the descriptor",
        ),
        (
            SWIZZLED | {"swizzle": "none"},
            PLAIN,
            ("of rows of 16 bytes without swizzle", "map of rows of 32 bytes without swizzle"),
            "a box of 16 bytes along dimension 0, as 8 rows of those",
        ),
    ],
)
def test_a_map_and_a_descriptor_of_two(
    hopper: Device, made: dict[str, Any], word: int, said: tuple[str, str], remedy: str
) -> None:
    report = checked(hopper, made, word)
    finding = only(report)
    assert (finding.kind, finding.severity, finding.rule) == ("async", "warning", "swizzle")
    assert lines(report, finding) == (PRODUCT, f"C:  {COPY}")
    assert "this product reads buffer+0x" in finding.message
    assert all(words in finding.message for words in said)
    assert finding.hint.startswith(remedy)


ANEW = """
    mad.lo.u32 r12, r0, 16, r3;
    ld.shared.v4.b32 {r13, r14, r15, r16}, [r12];
    ld.shared.v4.b32 {r17, r18, r19, r20}, [r12+2048];
    st.shared.v4.b32 [r12], {r13, r14, r15, r16};
    st.shared.v4.b32 [r12+2048], {r17, r18, r19, r20};
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""


def test_what_a_thread_stores_has_no_layout(hopper: Device) -> None:
    """It may arrange a tile anew for the product."""
    report = checked(hopper, SWIZZLED, IN_64B, change=ANEW)
    assert [finding.rule for finding in report.findings if finding.kind == "async"] == []


def test_a_stage_in_the_middle_of_its_pattern(hopper: Device) -> None:
    report = checked(hopper, SWIZZLED, IN_32B, behind=128)
    [copy] = report.findings
    assert (copy.kind, copy.severity, copy.rule) == ("alignment", "warning", "swizzle")
    assert (copy.count, lines(report, copy)) == (3, (f"C:  {COPY}", None))
    assert copy.message == (
        "the tile of this copy begins at buffer+0x80 in shared memory, 128 bytes behind a multiple of 256, "
        "where the pattern of its 32B swizzle begins"
    )
    assert copy.hint.startswith("have every tile and stage begin at a multiple of 256")
    assert checked(hopper, CORES, PLAIN, step=0, behind=128).verdict == "clean"


def test_tiles_of_each_cta_begin_in_memory_of_its_own(hopper: Device) -> None:
    """That of the second does so behind that of the first, which ends where no tile could begin."""
    odd = ".shared .align 16 .b8 odd[16];\nmov.u32 r12, odd;"
    report = checked(hopper, SWIZZLED, IN_32B, change=odd, grid=2)
    assert [finding for finding in report.findings if finding.rule == "swizzle"] == []
    moved = checked(hopper, SWIZZLED, IN_32B, change=odd, grid=2, behind=128)
    assert [finding.count for finding in moved.findings if finding.rule == "swizzle"] == [6]


def test_a_product_of_what_threads_stored_in_the_middle_of_a_pattern(hopper: Device) -> None:
    """They may have gone by where the tile begins; what a copy filled goes by the same addresses."""
    report = checked(hopper, SWIZZLED, IN_32B, behind=128, change=ANEW)
    [product] = [
        finding for finding in report.findings if lines(report, finding) == (PRODUCT, None)
    ]
    assert (product.severity, product.rule, product.count) == ("warning", "swizzle", 2)
    assert product.message.endswith("begins, and the descriptor's base offset is 0")


def test_a_descriptor_may_begin_inside_a_row(hopper: Device) -> None:
    """As the next k does in the same rows."""
    word = IN_32B + 1
    assert checked(hopper, SWIZZLED, word).verdict == "clean"
    stored = checked(hopper, SWIZZLED, word, change=ANEW)
    assert "swizzle" not in [finding.rule for finding in stored.findings]


@pytest.mark.parametrize(
    ("first", "outside", "severity"),
    [(63, 0, ""), (64, 1, "info"), (96, 3, "warning"), (-31, 0, ""), (-32, 1, "info")],
)
def test_a_box_wholly_outside_its_tensor(
    hopper: Device, first: int, outside: int, severity: str
) -> None:
    """At the edge of a matrix some are; where all of a tensor are, nothing is copied."""
    report = checked(hopper, SWIZZLED, IN_32B, first=first, step=16)
    if not outside:
        assert report.findings == ()
        return
    [finding] = report.findings
    assert (finding.kind, finding.severity, finding.rule) == ("bounds", severity, "outside")
    assert (finding.count, lines(report, finding)) == (outside, (f"C:  {COPY}", None))
    where = {64: 96, 96: 96, -32: -32}[first]
    many = "all boxes of this tensor" if outside == 3 else "1 of the 3 boxes of this tensor"
    assert finding.message == (
        f"thread (0, 0, 0) of CTA (0, 0, 0) has a box at (0, {where}) copied, wholly outside a tensor of "
        f"16 x 96, dimension 0 first, as are {many}"
    )


def test_boxes_of_a_tensor_are_counted_at_all_copies_of_it(hopper: Device) -> None:
    tensor = hopper.tensor_map(hopper.zeros((96, 16), "f16"), (8, 16))
    there = hopper.upload(bytearray(tensor.data))
    copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r3+AT], [d1, {r5, r6}], [r2];"
    body = f"""
        @p0 mbarrier.init.shared.b64 [bar], 1; mov.u32 r5, 0; bar.sync 0; @!p0 bra W;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 768;
        mov.u32 r6, 96; {copy.replace("AT", "0")}
        mov.u32 r6, 0; {copy.replace("AT", "256")}
        mov.u32 r6, 200; {copy.replace("AT", "512")}
    W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0; @!p1 bra W;"""
    kernel = hopper.load(hopper_text(body)).kernel("k")
    report = check(kernel, LaunchConfig.of(1, 128), [hopper.zeros(128, "f32"), there])
    findings = [finding for finding in report.findings if finding.rule == "outside"]
    assert [finding.severity for finding in findings] == ["info", "info"]
    assert all("as are 2 of the 3 boxes of this tensor" in finding.message for finding in findings)
