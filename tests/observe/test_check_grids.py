"""griddepcontrol: a grid that may begin before the one before it is over."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport
from ptxlab.observe.grid_order import CAVEAT
from ptxlab.verbs.check.text import as_json, text
from tests.emulator.hopper.conftest import hopper_text

LOAD, STORE = "ld.global.u32 r5, [d2]", "st.global.u32 [d3], r5"
WAIT = "griddepcontrol.wait"
BODY = f"""
    mad.wide.u32 d2, r0, 4, d1;
    mad.wide.u32 d3, r0, 4, d0;
    {WAIT};
    {LOAD};
    {STORE};
    griddepcontrol.launch_dependents;
"""
BULK = """
    @!p0 bra E;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 1024, [r2];
    griddepcontrol.wait;
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
E:
"""


def checked(body: str, *checks: str) -> CheckReport:
    device = open_device("emulator", arch="sm_90a")
    kernel = device.load(hopper_text(body)).kernel("k")
    arguments = [device.zeros(256, "u32"), device.upload(np.zeros(256, np.uint32))]
    config = LaunchConfig.of(2, 64)
    return check(kernel, config, arguments, checks or ("race", "bounds"))


def test_what_is_accessed_after_the_wait() -> None:
    report = checked(
        BODY.replace("mad.wide.u32 d3, r0", "mad.lo.u32 r6, r1, 64, r0;\n mad.wide.u32 d3, r6")
    )
    assert (report.verdict, report.findings) == ("clean", ())
    assert report.not_looked_at[-1] == CAVEAT
    assert f"not looked at: {CAVEAT}" in text(report)
    assert as_json(report)["not_looked_at"][-1] == CAVEAT


@pytest.mark.parametrize(("early", "does"), [(LOAD, "reads"), (STORE, "writes")])
def test_what_is_accessed_before_it_is_information(early: str, does: str) -> None:
    body = BODY.replace(f"    {early};\n", "").replace(WAIT, f"{early};\n    {WAIT}")
    body = body.replace("mad.wide.u32 d3", "mov.u32 r5, 0;\n    mad.wide.u32 d3")
    body = body.replace("mad.wide.u32 d3, r0", "mad.lo.u32 r6, r1, 64, r0;\n mad.wide.u32 d3, r6")
    report = checked(body)
    [finding] = report.findings
    assert report.verdict == "clean"
    assert (finding.kind, finding.severity, finding.rule, finding.count) == (
        "race",
        "info",
        "grid",
        128,
    )
    assert report.source.line(finding.line).strip() == f"{early};"
    assert finding.message.startswith(f"thread (0, 0, 0) of CTA (0, 0, 0) {does} byte 0 of buffer")


def test_a_bulk_copy_before_it() -> None:
    [finding] = checked(BULK).findings
    assert (finding.rule, finding.message.count(" reads byte 0 of buffer")) == ("grid", 1)
    after = BULK.replace("    griddepcontrol.wait;\n", "").replace(
        "    @!p0", "griddepcontrol.wait;\n @!p0"
    )
    assert checked(after).findings == ()


def test_a_program_that_has_no_such_wait() -> None:
    without = BODY.replace(f"    {WAIT};\n", "")
    assert [finding.rule for finding in checked(without).findings if finding.rule == "grid"] == []
    assert CAVEAT in checked(without).not_looked_at
    assert CAVEAT not in checked(without, "bounds").not_looked_at
    nothing = without.replace("    griddepcontrol.launch_dependents;\n", "")
    assert CAVEAT not in checked(nothing).not_looked_at
