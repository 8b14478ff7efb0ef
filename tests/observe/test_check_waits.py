"""Waits at mbarriers whose answer nothing looks at, which may have given up."""

from __future__ import annotations

import pytest

from ptxlab.device.opening import open_device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport

TRY = "mbarrier.try_wait.parity.shared.b64 p, [bar], 0"
TEST = "mbarrier.test_wait.parity.shared.b64 p, [bar], 0"

LOOP = "again: {wait};\n    @!p bra again;"
AS_NUMBER = "again: {wait};\n    selp.b32 r, 1, 0, p;\n    setp.eq.s32 q, r, 0;\n    @q bra again;"
FIRST_LOOK = "{wait};\n    @p bra through;\n  again: {wait};\n    @!p bra again;\n  through:"
KEPT = "{wait};\n    selp.b32 r, 1, 0, p;\n    st.global.b32 [out], r;"
COUNTED = "mov.b32 r, 0;\n  again: {wait};\n    @p bra through;\n    add.u32 r, r, 1;\n    setp.lt.u32 q, r, 9;\n    @q bra again;\n  through:"

ALONE = "{wait};"
NUMBER_ALONE = "{wait};\n    selp.b32 r, 1, 0, p;"
OVERWRITTEN = "{wait};\n    setp.eq.u32 p, tid, 0;\n    @!p bra through;\n  through:"
GOING_ROUND = "mov.b32 r, 0;\n  again: {wait};\n    selp.b32 a, a, 1, p;\n    add.u32 r, r, 1;\n    setp.lt.u32 q, r, 2;\n    @q bra again;"


def checked(body: str) -> CheckReport:
    text = f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 where)
{{
    .reg .pred p, q;
    .reg .b32 r, a, tid;
    .reg .b64 out;
    .shared .b64 bar;
    ld.param.u64 out, [where];
    mov.u32 tid, %tid.x;
    mov.u32 a, 0;
    setp.eq.u32 p, tid, 0;
    @p mbarrier.init.shared.b64 [bar], 32;
    bar.sync 0;
    mbarrier.arrive.shared.b64 _, [bar];
    {body}
    ret;
}}
"""
    device = open_device("emulator", arch="sm_90a")
    return check(
        device.load(text).kernel("k"), LaunchConfig.of(1, 32), [device.zeros(1, "u32")], ["async"]
    )


@pytest.mark.parametrize("wait", [TRY, TEST])
@pytest.mark.parametrize("how", [LOOP, AS_NUMBER, FIRST_LOOK, KEPT, COUNTED])
def test_an_answer_that_something_depends_on(how: str, wait: str) -> None:
    assert checked(how.format(wait=wait)).findings == ()


@pytest.mark.parametrize("wait", [TRY, TEST])
@pytest.mark.parametrize("how", [ALONE, NUMBER_ALONE, OVERWRITTEN, GOING_ROUND])
def test_an_answer_that_nothing_depends_on(how: str, wait: str) -> None:
    report = checked(how.format(wait=wait))
    [finding] = report.findings
    assert (finding.kind, finding.rule, finding.severity) == ("async", "unheeded", "error")
    assert report.source.line(finding.line).strip().removeprefix("again: ") == f"{wait};"
    assert finding.count in (32, 64)
    verb = wait.split(".")[1]
    assert f"mbarrier.{verb} may give up before the phase is complete" in finding.message
    assert f"repeat mbarrier.{verb} until" in finding.hint
