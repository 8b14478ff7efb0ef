"""Bulk copies: who may touch what they read and write, from their beginning to a wait."""

from __future__ import annotations

import pytest

from tests.observe.hopper.conftest import Check, lines, only

INIT = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
"""
FETCH = """
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 1024, [r2];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
"""
WAIT = """
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
"""
USE = """
    mad.lo.u32 r5, r0, 4, r3;
    ld.shared.u32 r6, [r5];
    mad.wide.u32 d2, r0, 4, d0;
    st.global.u32 [d2], r6;
"""
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 1024, [r2]"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [d0], [r3], 512"
WRITE = """
    mad.lo.u32 r5, r0, 4, r3;
    st.shared.u32 [r5], r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""
SEND = f"""
    @!p0 bra E;
    {STORE};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
E:  bar.sync 0;
"""
AGAIN = "    st.shared.u32 [r5], 7;\n"


def test_a_copy_that_is_waited_for_by_those_who_read_it(checked: Check) -> None:
    assert checked(INIT + FETCH + USE).verdict == "clean"


def test_one_waits_and_tells_the_others_at_a_barrier(checked: Check) -> None:
    waits = FETCH.replace("@!p0 bra W;", "@!p0 bra X;") + "X: bar.sync 0;\n"
    assert checked(INIT + waits + USE).verdict == "clean"
    report = checked(INIT + waits.replace("bar.sync 0;", "") + USE)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("async", "RAW", 4 * 127)
    assert lines(report, finding) == ("ld.shared.u32 r6, [r5]", LOAD)
    assert finding.message.startswith("RAW: thread (1, 0, 0) of CTA (0, 0, 0) reads buffer+0x4")
    assert "which the copy of line" in finding.message
    assert "mbarrier.try_wait" in finding.hint


def test_a_copy_that_nobody_waits_for(checked: Check) -> None:
    report = checked(INIT + FETCH.replace(WAIT, "\nW:\n") + USE)
    end, early = report.findings
    assert (end.severity, end.rule, lines(report, end)) == ("error", "end", (LOAD, None))
    assert "can end while its shared memory is still written to" in end.message
    assert (early.rule, early.count) == ("RAW", 4 * 128)


def test_the_thread_that_copies_writes_there_without_waiting(checked: Check) -> None:
    writes = FETCH.replace("W:  mbar", "    @p0 st.shared.u32 [r3], 1;\nW:  mbar")
    finding = only(checked(INIT + writes + USE))
    assert (finding.rule, finding.count) == ("WAW", 4)


def test_a_store_whose_source_is_written_after_the_wait(checked: Check) -> None:
    assert checked(WRITE + SEND + AGAIN).verdict == "clean"
    by_issuer = WRITE.replace("fence.proxy.async.shared::cta;\n", "")
    by_issuer += "    fence.proxy.async.shared::cta;\n"
    assert checked(by_issuer + SEND + AGAIN).verdict == "clean"


def test_written_and_copied_with_no_fence_of_the_proxies(checked: Check) -> None:
    report = checked(WRITE.replace("fence.proxy.async.shared::cta;", "") + SEND + AGAIN)
    finding = only(report)
    assert (finding.severity, finding.rule, finding.count) == ("error", "proxy", 512)
    assert lines(report, finding) == (STORE, "st.shared.u32 [r5], r0")
    assert finding.message == (
        "this copy reads buffer+0x0 in shared memory, which thread (0, 0, 0) of CTA (0, 0, 0) wrote, "
        "and no fence.proxy.async lies between the two"
    )
    assert finding.hint.startswith("fence.proxy.async.shared::cta between the two")
    only_global = WRITE.replace("async.shared::cta", "async.global")
    assert only(checked(only_global + SEND + AGAIN)).rule == "proxy"


def test_what_a_copy_has_written_over_needs_no_fence_any_more(checked: Check) -> None:
    write, fetch = WRITE.replace("fence.proxy.async.shared::cta;", ""), FETCH + "    bar.sync 0;\n"
    report = checked(INIT + write + fetch + SEND)
    finding = only(report)
    assert (finding.severity, finding.rule, finding.count) == ("warning", "proxy", 512)
    assert lines(report, finding) == (LOAD, "st.shared.u32 [r5], r0")
    report = checked(INIT + fetch + write + SEND + SEND.replace("E", "F"))
    assert len(report.findings) == 2
    for finding in report.findings:
        assert (finding.severity, finding.rule, finding.count) == ("error", "proxy", 512)
        assert lines(report, finding) == (STORE, "st.shared.u32 [r5], r0")


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("cp.async.bulk.wait_group.read 0;\nE:  bar.sync 0;", "E: bar.sync 0;", 512),
        (".read 0", ".read 1", 512),
        ("cp.async.bulk.wait_group.read 0;\nE:", "E: cp.async.bulk.wait_group 1;", 512),
        ("E:  bar.sync 0;", "E:", 4 * 127),
    ],
)
def test_a_source_that_is_written_too_early(checked: Check, old: str, new: str, count: int) -> None:
    assert old in SEND
    report = checked(WRITE + SEND.replace(old, new) + AGAIN)
    finding, *_ = report.findings
    assert (finding.rule, finding.count) == ("WAR", count)
    assert lines(report, finding) == ("st.shared.u32 [r5], 7", STORE)
    assert "a wait by another thread waits for nothing" in finding.hint


def test_a_wait_by_another_thread_is_none(checked: Check) -> None:
    send = SEND.replace("@!p0 bra E;", "setp.ne.u32 p2, r0, 32;\n@!p0 bra V;").replace(
        "cp.async.bulk.wait_group.read 0;", "V: @p2 bra E;\ncp.async.bulk.wait_group.read 0;"
    )
    early, end = checked(WRITE + send + AGAIN).findings
    assert (early.rule, end.rule) == ("WAR", "end")
    assert "cp.async.bulk.wait_group.read 0 by the threads that began" in end.hint


def test_a_store_under_way_where_its_cta_ends(checked: Check) -> None:
    """Persistent programs that run right on H100 leave out the last wait, so that no error is made of it."""
    assert checked(WRITE + SEND).findings == ()
    finding = only(checked(WRITE + SEND.replace("cp.async.bulk.wait_group.read 0;", "")))
    assert (finding.severity, finding.rule) == ("warning", "end")
    assert "can end while its shared memory is still read" in finding.message


def test_global_memory_is_there_after_a_full_wait(checked: Check) -> None:
    read = "    mad.wide.u32 d2, r0, 4, d0;\n    ld.global.u32 r6, [d2];\n"
    assert checked(WRITE + SEND.replace(".read", "") + read).verdict == "clean"
    report = checked(WRITE + SEND + read)
    finding = only(report)
    assert (finding.rule, finding.count) == ("reads", 512)
    assert lines(report, finding) == ("ld.global.u32 r6, [d2]", STORE)
    assert "without .read" in finding.hint


def test_who_waits_for_a_store_waits_for_its_own_alone(checked: Check) -> None:
    body = f"""
        {WRITE}
        setp.lt.u32 p3, r0, 2;
        mad.lo.u32 r5, r0, 256, r3;
        mad.wide.u32 d3, r0, 256, d0;
        @p3 cp.async.bulk.global.shared::cta.bulk_group [d3], [r5], 256;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        cp.async.bulk.wait_group 0;
        bar.sync 0;
        mad.wide.u32 d2, r0, 4, d0;
        ld.global.u32 r6, [d2];
    """
    assert checked(body).verdict == "clean"
    for waits, count in (("@p0", 256), ("@!p3", 512)):
        finding = only(
            checked(
                body.replace("cp.async.bulk.wait_group 0", f"{waits} cp.async.bulk.wait_group 0")
            )
        )
        assert (finding.rule, finding.count) == ("reads", count)


def test_reading_before_a_copy_overwrites_is_information(checked: Check) -> None:
    body = (
        INIT + FETCH + USE + "    bar.sync 0;\n" + FETCH.replace("W", "V").replace("], 0", "], 1")
    )
    report = checked(body)
    [finding] = report.findings
    assert (report.verdict, finding.severity, finding.rule) == ("clean", "info", "proxy")
    assert "which thread (0, 0, 0) of CTA (0, 0, 0) read, and no" in finding.message


def test_cp_async_feeds_a_bulk_copy_without_a_fence(checked: Check) -> None:
    copy = """
    mad.wide.u32 d2, r0, 4, d1;
    mad.lo.u32 r5, r0, 4, r3;
    cp.async.ca.shared.global [r5], [d2], 4;
    cp.async.wait_all;
    FENCE
    bar.sync 0;
    """
    fenced = copy.replace("FENCE", "fence.proxy.async.shared::cta;")
    assert checked(fenced + SEND + AGAIN).verdict == "clean"
    finding = only(checked(copy.replace("FENCE", "") + SEND + AGAIN))
    assert (finding.severity, finding.rule, finding.count) == ("warning", "proxy", 512)


HALF = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r5], [d2], 512, [r2];"


def test_copies_of_several_threads_that_land_at_once(checked: Check) -> None:
    """Both are counted: the phase ends when the last of them has landed."""
    body = f"""
        {INIT} setp.ge.u32 p3, r0, 2; @p3 bra W;
        @p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024; bar.warp.sync 3;
        mad.lo.u32 r5, r0, 512, r3; mad.wide.u32 d2, r0, 512, d1;
        {HALF} {WAIT} {USE}"""
    report = checked(body, block=256)
    assert (report.verdict, report.findings) == ("clean", ())


def test_a_phase_without_its_bytes_counts_those_of_no_other(checked: Check) -> None:
    again = """
        @!p0 bra V;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024; mov.u32 r5, r3; mov.u64 d2, d1;
        HALF
    V:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 1;
        @!p1 bra V;"""
    finding = next(
        finding
        for finding in checked(INIT + FETCH + again.replace("HALF", HALF)).findings
        if "expects" in finding.message
    )
    assert (
        "expects 1024 bytes in this phase, and the copies that it hears of have 512"
        in finding.message
    )
