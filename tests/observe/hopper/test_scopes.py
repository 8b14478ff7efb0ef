"""Relaxed arrivals and waits, and scopes too narrow: they hand nothing over."""

from __future__ import annotations

import pytest

from tests.observe.hopper.conftest import Check, lines, only
from tests.observe.hopper.test_clusters import ARRIVE, GRID, MEET
from tests.observe.hopper.test_clusters import START as IN_CLUSTER
from tests.observe.hopper.test_copies import FETCH, INIT, LOAD, USE

FENCE = "    fence.acq_rel.cta;\n"
HANDED = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @!p0 bra W;
    st.shared.u32 [r3], 5;
    FENCED
    mbarrier.arrive.SEM.shared.b64 _, [bar];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    ld.shared.u32 r5, [r3];
"""


@pytest.mark.parametrize("wait", ["try_wait.parity", "test_wait.parity"])
@pytest.mark.parametrize("scope", ["cta", "cluster"])
def test_a_relaxed_wait_for_a_copy(checked: Check, wait: str, scope: str) -> None:
    relaxed = FETCH.replace("try_wait.parity", f"{wait}.relaxed.{scope}")
    report = checked(INIT + relaxed + USE)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("async", "RAW", 4 * 128)
    assert lines(report, finding) == ("ld.shared.u32 r6, [r5]", LOAD)
    assert "a relaxed wait needs a fence after it" in finding.hint
    assert checked(INIT + relaxed + FENCE + USE).verdict == "clean"
    assert only(checked(INIT + relaxed.replace("W:  ", "W:" + FENCE) + USE)).rule == "RAW"


def test_a_relaxed_wait_for_what_a_thread_stored(checked: Check) -> None:
    body = HANDED.replace("SEM", "release.cta").replace("FENCED", "")
    assert checked(body).verdict == "clean"
    relaxed = body.replace("try_wait.parity", "try_wait.parity.relaxed.cta")
    assert [finding.rule for finding in checked(relaxed).findings] == ["RAW", "RAW"]
    assert checked(relaxed.replace("    ld.shared", FENCE + "    ld.shared")).verdict == "clean"
    released = relaxed.replace(
        "    ld.shared", "    fence.release.sync_restrict::shared::cta.cluster;\n    ld.shared"
    )
    assert [finding.rule for finding in checked(released).findings] == ["RAW", "RAW"]


@pytest.mark.parametrize("fence", ["fence.acq_rel.cta;", "membar.cta;", "fence.sc.gpu;"])
def test_a_relaxed_arrival_tells_what_came_before_a_fence(checked: Check, fence: str) -> None:
    relaxed = HANDED.replace("SEM", "relaxed.cta")
    assert checked(relaxed.replace("FENCED", fence)).verdict == "clean"
    late = relaxed.replace("    st.shared", f"    {fence}\n    st.shared")
    for body in (relaxed, late):
        finding, in_warp = checked(body.replace("FENCED", "")).findings
        assert (finding.kind, finding.rule, finding.severity) == ("race", "RAW", "error")
        assert (in_warp.severity, in_warp.count) == ("warning", 4 * 31)


MAKE = IN_CLUSTER + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n" + MEET


def test_a_release_of_the_scope_of_its_cta_tells_another_cta_nothing(checked: Check) -> None:
    assert checked(MAKE + ARRIVE, **GRID).findings == ()
    narrow = ARRIVE.replace("release.cluster", "release.cta")
    report = checked(MAKE + narrow + MEET, **GRID)
    finding = only(report)
    assert (finding.kind, finding.rule) == ("race", "RAW")
    assert lines(report, finding) == (
        "ld.shared.u32 r9, [r3]",
        "st.shared::cluster.u32 [r8], 5",
    )
    [scope] = [finding for finding in report.findings if finding.rule == "scope"]
    assert scope.message == (
        "thread (0, 0, 0) of CTA (0, 0, 0) arrives at an mbarrier of another CTA, and releases to its own "
        "CTA alone, .cta"
    )


def test_an_arrival_that_names_no_scope_is_information(checked: Check) -> None:
    report = checked(MAKE + ARRIVE.replace(".release.cluster", ""), **GRID)
    [finding] = report.findings
    assert (report.verdict, finding.severity, finding.rule, finding.count) == (
        "clean",
        "info",
        "scope",
        4,
    )
    assert "names no scope, which is .cta in PTX: taken to be wide enough here" in finding.message


def test_a_relaxed_arrival_at_another_cta_needs_a_wide_fence(checked: Check) -> None:
    relaxed = ARRIVE.replace(
        "    mbarrier.arrive.release", "    FENCE\n    mbarrier.arrive.relaxed"
    )
    assert checked(MAKE + relaxed.replace("FENCE", "fence.acq_rel.cluster;"), **GRID).findings == ()
    for fence in ("", "fence.acq_rel.cta;"):
        assert only(checked(MAKE + relaxed.replace("FENCE", fence) + MEET, **GRID)).rule == "RAW"
