"""Clusters: the shared memory of other CTAs, from their beginning to their end."""

from __future__ import annotations

import pytest

from tests.observe.hopper.conftest import Check, lines, only

START = """
    mov.u32 r4, %cluster_ctarank;
    xor.b32 r7, r4, 1;
    mad.lo.u32 r5, r0, 4, r3;
    mad.lo.u32 r6, r1, 128, r0;
    mad.wide.u32 d2, r6, 4, d0;
"""
MEET = "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n"
WRITE = "    st.shared.u32 [r5], r0;\n"
READ = """
    mapa.shared::cluster.u32 r8, r5, r7;
    ld.shared::cluster.u32 r9, [r8];
    st.global.u32 [d2], r9;
"""
EXCHANGE = START + WRITE + MEET + READ + MEET
GRID = {"grid": 4, "cluster": 2}


def test_ctas_read_what_others_wrote(checked: Check) -> None:
    report = checked(EXCHANGE, **GRID)
    assert (report.verdict, report.findings) == ("clean", ())


def test_a_relaxed_arrival_tells_nothing_without_a_fence(checked: Check) -> None:
    relaxed = EXCHANGE.replace("arrive;", "arrive.relaxed;", 1)
    report = checked(relaxed, **GRID)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("race", "RAW", 4 * 512)
    assert "of CTA (1, 0, 0)" in finding.message
    fenced = relaxed.replace("barrier", "fence.acq_rel.cluster;\n    barrier", 1)
    assert checked(fenced, **GRID).verdict == "clean"


def test_between_arrival_and_wait_nothing_is_known(checked: Check) -> None:
    between = (
        START + WRITE + MEET + MEET.replace("barrier.cluster.wait", READ + "barrier.cluster.wait")
    )
    assert checked(between + MEET, **GRID).verdict == "clean"
    early = (
        START + MEET + WRITE + MEET.replace("barrier.cluster.wait", READ + "barrier.cluster.wait")
    )
    finding = only(checked(early + MEET, **GRID))
    assert (finding.rule, finding.count) == ("RAW", 4 * 512)


def test_another_cta_that_need_not_have_started(checked: Check) -> None:
    remote = START + READ.replace(
        "ld.shared::cluster.u32 r9, [r8]", "st.shared::cluster.u32 [r8], r0"
    )
    remote = remote.replace("st.global.u32 [d2], r9;", "")
    report = checked(remote + MEET, **GRID)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("async", "not started", 512)
    assert "CTA (1, 0, 0), which need not have started" in finding.message
    assert checked(MEET + remote + MEET, **GRID).verdict == "clean"


def test_a_cta_that_may_have_ended(checked: Check) -> None:
    report = checked(START + WRITE + MEET + READ, **GRID)
    finding = only(report)
    assert (finding.rule, finding.count) == ("end", 512)
    assert lines(report, finding) == ("ld.shared::cluster.u32 r9, [r8]", None)
    assert finding.message.startswith(
        "CTA (0, 0, 0) can end before thread (0, 0, 0) of CTA (1, 0, 0)"
    )
    assert finding.hint.startswith("barrier.cluster.arrive and .wait at the end")


ARRIVE = """
    @!p0 bra W;
    mapa.shared::cluster.u32 r8, r5, r7;
    st.shared::cluster.u32 [r8], 5;
    mapa.shared::cluster.u32 r8, r2, r7;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r8];
W:  mbarrier.try_wait.parity.acquire.cluster.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    ld.shared.u32 r9, [r3];
    st.global.u32 [d2], r9;
"""


def test_an_mbarrier_of_another_cta(checked: Check) -> None:
    """Whoever waits knows of the store and of the arrival, so that nothing more is to be met at the end."""
    make = START + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n"
    assert checked(make + MEET + ARRIVE, **GRID).verdict == "clean"
    early = ARRIVE.replace("    ld.shared.u32 r9, [r3];\n", "").replace(
        "W:  mbar", "W:  ld.shared.u32 r9, [r3];\n    mbar"
    )
    finding = only(checked(make + MEET + early, **GRID))
    assert (finding.kind, finding.rule) == ("race", "RAW")


@pytest.mark.parametrize("fence", ["", "fence.mbarrier_init.release.cluster;"])
def test_an_mbarrier_is_made_before_another_cta_uses_it(checked: Check, fence: str) -> None:
    make = START + f"    @p0 mbarrier.init.shared.b64 [bar], 1;\n    {fence}\n"
    report = checked(make + MEET.replace("arrive", "arrive.relaxed") + ARRIVE, **GRID)
    made = [finding for finding in report.findings if finding.rule == "makes"]
    assert bool(made) is not bool(fence)
    for finding in made:
        assert "fence.mbarrier_init before an arrival that is relaxed" in finding.hint


def test_nobody_waits_for_an_arrival(checked: Check) -> None:
    make = START + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n"
    arrive = ARRIVE[: ARRIVE.index("W:")].replace("    st.shared::cluster.u32 [r8], 5;\n", "")
    report = checked(make + MEET + arrive + "W:\n", **GRID)
    finding = only(report)
    assert (finding.rule, finding.count) == ("end", 4)
    assert "mbarrier.arrive" in lines(report, finding)[0]
    assert checked(make + MEET + arrive + "W:\n" + MEET, **GRID).verdict == "clean"


MULTICAST = """
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
    setp.ne.u32 p2, r4, 0;
    @p2 bra W;
    mov.u16 h0, 3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [r3], [d1], 512, [r2], h0;
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
"""
TAKE = "    ld.shared.u32 r9, [r5];\n    st.global.u32 [d2], r9;\n"


def test_a_copy_for_all(checked: Check) -> None:
    make = START + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n"
    assert checked(make + MEET + MULTICAST + TAKE, **GRID).verdict == "clean"
    report = checked(make + "bar.sync 0;\n" + MULTICAST + TAKE, **GRID)
    assert {finding.rule for finding in report.findings} == {"not started", "makes"}
    unread = MULTICAST[: MULTICAST.index("W:")]
    report = checked(make + MEET + unread + "W:\n", **GRID)
    assert {finding.rule for finding in report.findings} <= {"end", "ended"}
    assert not report.findings[0].message.endswith("has accessed its shared memory")


FOR_THE_OTHER = f"""
    {WRITE}
    fence.proxy.async.shared::cta;
    @p0 mbarrier.init.shared.b64 [bar], 1;
    {MEET}
    @!p0 bra OVER;
    setp.eq.u32 p2, r4, 0;
    @p2 bra HEAR;
    mapa.shared::cluster.u32 r8, r3, 0;
    mapa.shared::cluster.u32 r9, r2, 0;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r8], [r3], 512, [r9];
    bra OVER;
HEAR: mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    mbarrier.inval.shared.b64 [bar];
OVER:
"""


def test_an_mbarrier_is_given_back_when_a_copy_of_another_cta_has_told_it(checked: Check) -> None:
    whole = START + FOR_THE_OTHER + MEET
    assert checked(whole, **GRID).verdict == "clean"
    wait = whole[whole.index("W:") : whole.index("    mbarrier.inval")]
    report = checked(whole.replace(wait, MEET), **GRID)
    early = next(finding for finding in report.findings if finding.rule == "WAW")
    assert (early.kind, early.severity, early.count) == ("async", "error", 2 * 8)
    assert lines(report, early)[0] == "mbarrier.inval.shared.b64 [bar]"
    assert "an mbarrier that the copy of line" in early.message
    report = checked(whole.replace(MEET, "bar.sync 0;\n", 1), **GRID)
    made = next(finding for finding in report.findings if finding.rule == "makes")
    assert (made.severity, made.count) == ("error", 2 * 8)
    assert made.message.startswith("thread (0, 0, 0) of CTA (1, 0, 0) uses the mbarrier bar+0x0")


HEARD = """
    @p0 mbarrier.arrive.shared.b64 _, [bar];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
"""


def test_a_wait_is_over_for_those_whom_its_thread_meets_then(checked: Check) -> None:
    """A relaxed arrival does for that, as the wait has been answered; it has to come behind it."""
    make = "    @p0 mbarrier.init.shared.b64 [bar], 1;\n" + MEET
    arrive, wait = MEET.replace("arrive", "arrive.relaxed").splitlines(keepends=True)
    gone = "    @p0 mbarrier.inval.shared.b64 [bar];\n"
    assert checked(make + HEARD + arrive + wait + gone, **GRID).findings == ()
    for early in (HEARD, arrive + HEARD + wait):
        report = checked(make + early + gone, **GRID)
        finding = only(report)
        assert (finding.rule, finding.count) == ("WAR", 4 * 8)
        assert lines(report, finding)[0] == gone.strip()[:-1]


ALIGNED = MEET.replace(";", ".aligned;")
LONE = """
    @!p0 bra Z;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 512, [r2];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
Z:
"""


def test_a_lane_that_waits_for_a_copy_comes_later(checked: Check) -> None:
    """The rest of its warp waits for it, before the arrival and between it and the wait."""
    make = START + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n" + ALIGNED
    arrive, wait = ALIGNED.splitlines()
    assert checked(make + LONE + ALIGNED, **GRID).findings == ()
    assert checked(make + arrive + LONE + wait + ALIGNED, **GRID).findings == ()
    apart = LONE.replace("Z:", wait + "bra Y;\nZ:")
    finding = only(checked(make + arrive + apart + wait + "Y:\n" + ALIGNED, **GRID))
    assert (finding.kind, finding.rule, finding.count) == ("barrier", "divergent", 4)


def test_a_lane_that_never_comes(checked: Check) -> None:
    make = START + "    @p0 mbarrier.init.shared.b64 [bar], 1;\n" + ALIGNED
    leaves = LONE.replace("Z:", "exit;\nZ:")
    finding = only(checked(make + leaves + ALIGNED, **GRID))
    assert (finding.kind, finding.rule, finding.count) == ("barrier", "divergent", 4)
    relaxed = make + leaves + MEET
    assert checked(relaxed, **GRID).findings == ()


def test_a_warp_that_is_not_whole(checked: Check) -> None:
    body = "    @p0 bra X;\n    barrier.cluster.arriveALIGNED;\n    bra Y;\nX: barrier.cluster.arriveALIGNED;\nY: barrier.cluster.wait;\n"
    report = checked(body.replace("ALIGNED", ".aligned"), **GRID)
    assert {(finding.kind, finding.rule) for finding in report.findings} == {
        ("barrier", "divergent")
    }
    assert checked(body.replace("ALIGNED", ""), **GRID).verdict == "clean"


def test_a_cta_that_has_ended(checked: Check) -> None:
    """The other one takes its time, and comes when there is nobody any more."""
    late = f"""
        setp.eq.u32 p1, r4, 1; @p1 bra E; mov.u32 r10, 0;
    AGAIN: add.u32 r10, r10, 1; setp.lt.u32 p2, r10, 20; @p2 bra AGAIN;
        {READ} E:"""
    report = checked(START + WRITE + MEET + late, grid=2, cluster=2)
    ended = next(finding for finding in report.findings if finding.rule == "ended")
    assert (ended.kind, ended.severity, ended.count) == ("async", "error", 128)
    assert lines(report, ended)[0] == "ld.shared::cluster.u32 r9, [r8]"
    assert "accesses the shared memory of CTA (1, 0, 0), which has ended" in ended.message
    both = MEET.replace("barrier", "E: barrier", 1)
    assert (
        checked(START + WRITE + MEET + late.replace("E:", "") + both, grid=2, cluster=2).findings
        == ()
    )
