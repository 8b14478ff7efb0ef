"""Stages that are filled again, and slots that are stored from again: nobody may still read what was there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport
from tests.emulator.hopper.conftest import hopper_text
from tests.together import thorough

Schedules = Callable[..., CheckReport]

# ---- a stage that a product reads is filled again ----------------------------------------------

STEPS = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    @p0 mbarrier.init.shared.b64 [bar+8], 1;
    @p0 mbarrier.init.shared.b64 [bar+16], GROUPS;
    @p0 mbarrier.init.shared.b64 [bar+24], GROUPS;
    bar.sync 0;
    and.b32 r4, r0, 127;
    setp.eq.u32 p1, r4, 0;
    mov.f32 f0, 0f00000000;
    mov.f32 f1, f0;
    mov.f32 f2, f0;
    mov.f32 f3, f0;
    @!p0 bra FILLED;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 2048, [r2];
    add.u32 r5, r2, 8;
    add.u32 r6, r3, 2048;
    mbarrier.arrive.expect_tx.shared.b64 _, [r5], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r6], [d1], 2048, [r5];
FILLED:
    mov.u32 r7, 0;
STEP:
    and.b32 r8, r7, 1;
    shr.u32 r9, r7, 1;
    and.b32 r9, r9, 1;
    mad.lo.u32 r5, r8, 8, r2;
    mad.lo.u32 r6, r8, 2048, r3;
F:  mbarrier.try_wait.parity.shared.b64 p2, [r5], r9;
    @!p2 bra F;
    shr.u32 r10, r6, 4;
    cvt.u64.u32 d4, r10;
    or.b64 d4, d4, 0x1000080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, d4, d4, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    MEET
    setp.lt.u32 p3, r7, 4;
    and.pred p3, p3, p0;
    @!p3 bra NEXT;
    AGAIN
    mbarrier.arrive.expect_tx.shared.b64 _, [r5], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r6], [d1], 2048, [r5];
NEXT:
    add.u32 r7, r7, 1;
    setp.lt.u32 p3, r7, 6;
    @p3 bra STEP;
    mad.wide.u32 d5, r0, 4, d0;
    st.global.f32 [d5], f0;
"""
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
BARRIER = "bar.sync 0;"
ARRIVE = "@p1 mbarrier.arrive.shared.b64 _, [r5+16];"
ARRIVE_EACH = ARRIVE.replace("@p1 ", "")
DRAINED = "E:  mbarrier.try_wait.parity.shared.b64 p4, [r5+16], r9;\n    @!p4 bra E;"


def stages(groups: int, meet: str, again: str = "") -> str:
    arrivals = 128 * groups if meet == ARRIVE_EACH else groups
    text = STEPS.replace("MEET", meet).replace("AGAIN", again)
    return text.replace("GROUPS", str(arrivals))


@pytest.fixture(params=["late", *thorough(("early", "random:7"))])
def checked(request: pytest.FixtureRequest) -> Schedules:
    """Check a body under a schedule, with 16 KiB of output and of input."""
    device = open_device("emulator", arch="sm_90a", schedule=request.param)

    def check_body(body: str, block: int) -> CheckReport:
        kernel = device.load(hopper_text(body)).kernel("k")
        data = device.upload(np.zeros(1 << 12, np.uint32))
        arguments = [device.zeros(1 << 12, "u32"), data]
        return check(kernel, LaunchConfig.of(1, block), arguments)

    return check_body


def findings_of(report: CheckReport) -> set[tuple[str, str]]:
    return {
        (finding.severity, finding.rule)
        for finding in report.findings
        if finding.severity != "info"
    }


@pytest.mark.parametrize("groups", [1, 2])
def test_a_barrier_before_a_stage_is_filled_again(checked: Schedules, groups: int) -> None:
    assert checked(stages(groups, BARRIER), 128 * groups).verdict == "clean"
    report = checked(stages(groups, ""), 128 * groups)
    if groups == 2:  # the other one may not even have seen that the stage was full
        assert findings_of(report) == {("error", "WAR"), ("error", "phase")}
        return
    # Programs that run right on H100 leave out what is missing within a warpgroup.
    assert findings_of(report) == {("warning", "WAR")}
    [finding] = report.findings
    assert "until it is waited for by each warp of its warpgroup" in finding.message
    assert finding.count == 4 * 2048


@pytest.mark.parametrize("arrive", [ARRIVE, ARRIVE_EACH])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_stage_is_freed_by_arrivals(checked: Schedules, groups: int, arrive: str) -> None:
    """As in CUTLASS, where one thread arrives for its warpgroup, or all do."""
    right = stages(groups, arrive, DRAINED)
    assert checked(right, 128 * groups).verdict == "clean"
    early = right.replace(WAIT + f"    {arrive}", f"{arrive}\n    {WAIT}")
    assert early != right
    severities = findings_of(checked(early, 128 * groups))
    assert ("error" if groups == 2 else "warning", "WAR") in severities


def test_a_warp_writes_over_operands_behind_its_own_wait(checked: Schedules) -> None:
    right = stages(1, BARRIER)
    over = "    mad.lo.u32 r11, r0, 16, r3;\n    st.shared.u32 [r11], 7;\n"
    assert right.count("    mad.wide.u32 d5") == 1
    after = right.replace("    mad.wide.u32 d5", over + "    mad.wide.u32 d5")
    assert checked(after, 128).verdict == "clean"
    early = after.replace("    MEET", "").replace(f"    {BARRIER}\n    setp.lt", "    setp.lt")
    assert ("warning", "WAR") in findings_of(checked(early, 128))


# ---- a slot that a bulk copy stores from is written again --------------------------------------

PINGPONG = """
    @p0 mbarrier.init.shared.b64 [bar], 128;
    @p0 mbarrier.init.shared.b64 [bar+8], 128;
    bar.sync 0;
    shr.u32 r4, r0, 7;
    and.b32 r5, r0, 127;
    setp.eq.u32 p1, r5, 0;
    add.u32 r6, r4, 1;
    mad.lo.u32 r7, r4, 8, r2;
    xor.b32 r8, r4, 1;
    mad.lo.u32 r8, r8, 8, r2;
    mov.u32 r9, r4;
    mov.u32 r10, 0;
    setp.eq.u32 p2, r4, 1;
TILE:
    sub.u32 r11, r10, 1;
    @p2 mov.u32 r11, r10;
    and.b32 r11, r11, 1;
    setp.eq.u32 p3, r9, 0;
    @p3 bra TURN;
T:  mbarrier.try_wait.parity.shared.b64 p4, [r7], r11;
    @!p4 bra T;
TURN:
    mov.u32 r12, 0;
PART:
    and.b32 r13, r12, 1;
    mad.lo.u32 r13, r13, 512, r3;
    mad.lo.u32 r14, r5, 4, r13;
    mad.lo.u32 r15, r9, 4, r12;
    st.shared.u32 [r14], r15;
    fence.proxy.async.shared::cta;
    bar.sync r6, 128;
    @!p1 bra NEXT;
    mul.wide.u32 d4, r15, 512;
    add.u64 d4, d4, d0;
    STORE
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;
NEXT:
    bar.sync r6, 128;
    add.u32 r12, r12, 1;
    setp.lt.u32 p5, r12, 4;
    @p5 bra PART;
    @p1 cp.async.bulk.wait_group.read 0;
    mbarrier.arrive.shared.b64 _, [r8];
    add.u32 r9, r9, 2;
    add.u32 r10, r10, 1;
    setp.lt.u32 p5, r9, 4;
    @p5 bra TILE;
"""
"""Two warpgroups take turns on tiles; each part of one goes through one of two slots of shared memory."""
IN_TURN = "cp.async.bulk.wait_group.read 1;"
TAIL = "@p1 cp.async.bulk.wait_group.read 0;"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [d4], [r13], 512;"
REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d4], [r13], 512;"


@pytest.mark.parametrize("store", [STORE, REDUCE])
def test_an_epilogue_in_turns(checked: Schedules, store: str) -> None:
    right = PINGPONG.replace("STORE", store)
    assert checked(right, 256).verdict == "clean"
    again, end = ("error", "WAR"), ("warning", "end")
    for waits, expected in [
        ([IN_TURN], {again}),
        ([TAIL], {again, end}),
        ([IN_TURN, TAIL], {again, end}),
    ]:
        twin = right
        for wait in waits:
            assert twin.count(wait) == 1
            twin = twin.replace(wait, "")
        assert findings_of(checked(twin, 256)) == expected


SOURCE = """
    mad.lo.u32 r5, r0, 4, r3;
    st.shared.u32 [r5], r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!p0 bra S;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d0], [r3], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
S:  bar.sync 0;
    OVER
"""


@pytest.mark.parametrize(
    "over",
    [
        "st.shared.u32 [r5], 7;",
        "st.release.cta.shared.u32 [r5], 7;",
        "red.shared.add.u32 [r5], 7;",
        "atom.shared.add.u32 r6, [r5], 7;",
    ],
)
def test_the_source_of_a_reduction_is_just_read(checked: Schedules, over: str) -> None:
    """It is the destination that is changed at once: an atomic races with the source as a store does."""
    right = SOURCE.replace("OVER", over)
    assert checked(right, 128).verdict == "clean"
    early = right.replace("cp.async.bulk.wait_group.read 0;", "")
    assert ("error", "WAR") in findings_of(checked(early, 128))
