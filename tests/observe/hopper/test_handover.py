"""mbarriers hand data over: a ring of two slots, filled by a producer and read by consumers."""

from __future__ import annotations

import pytest

from tests.observe.hopper.conftest import Check, lines, only

START = """
    @!p0 bra S;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.init.shared.b64 [bar+8], 1;
    mbarrier.init.shared.b64 [bar+16], 96;
    mbarrier.init.shared.b64 [bar+24], 96;
S:  bar.sync 0;
    mov.u32 r10, 0;
    mov.u32 r20, 0;
    setp.lt.u32 p2, r0, 96;
    @p2 bra CONSUME;
    setp.ne.u32 p3, r0, 96;
    @p3 bra END;
"""
SLOT = """
    and.b32 r11, r10, 1;
    shr.u32 r12, r10, 1;
    and.b32 r12, r12, 1;
    shl.b32 r14, r11, 3;
    add.u32 r14, r14, r2;
    shl.b32 r15, r11, 10;
    add.u32 r15, r15, r3;
"""
PRODUCE = f"""
PRODUCE:{SLOT}
    xor.b32 r13, r12, 1;
P:  mbarrier.try_wait.parity.shared.b64 p4, [r14+16], r13;
    @!p4 bra P;
    FILL
    add.u64 d1, d1, 1024;
    add.u32 r10, r10, 1;
    setp.lt.u32 p5, r10, 6;
    @p5 bra PRODUCE;
    bra END;
"""
COPY = """
    mbarrier.arrive.expect_tx.shared.b64 _, [r14], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r15], [d1], 1024, [r14];
"""
STORES = """
    ld.global.v4.u32 {r21, r22, r23, r24}, [d1];
    st.shared.v4.u32 [r15], {r21, r22, r23, r24};
    mbarrier.arrive.shared.b64 _, [r14];
"""
CONSUME = f"""
CONSUME:{SLOT}
C:  mbarrier.try_wait.parity.shared.b64 p4, [r14], r12;
    @!p4 bra C;
    READ
    add.u32 r20, r20, r17;
    RELEASE
    add.u32 r10, r10, 1;
    setp.lt.u32 p5, r10, 6;
    @p5 bra CONSUME;
    mad.wide.u32 d2, r0, 4, d0;
    st.global.u32 [d2], r20;
END:
"""
READ = """
    mad.lo.u32 r16, r0, 4, r15;
    ld.shared.u32 r17, [r16];
"""
READ_FIRST = "    ld.shared.u32 r17, [r15+4];\n"
RELEASE = "    mbarrier.arrive.shared.b64 _, [r14+16];\n"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r15], [d1], 1024, [r14]"


def ring(fill: str = COPY, read: str = READ, release: str = RELEASE) -> str:
    consume = CONSUME.replace("READ", read).replace("RELEASE", release)
    return START + PRODUCE.replace("FILL", fill) + consume


def test_a_ring_filled_by_copies(checked: Check) -> None:
    report = checked(ring())
    assert report.verdict == "clean"
    assert [finding.rule for finding in report.findings] == ["proxy"]


def test_a_ring_filled_by_a_thread(checked: Check) -> None:
    report = checked(ring(STORES, READ_FIRST))
    assert (report.verdict, report.findings) == ("clean", ())


def test_what_is_stored_after_the_arrival_is_not_handed_over(checked: Check) -> None:
    store, arrive = STORES.splitlines(keepends=True)[2:4]
    report = checked(ring(STORES.replace(store + arrive, arrive + store), READ_FIRST))
    race, *_ = report.findings
    assert (race.kind, race.rule, race.severity) == ("race", "RAW", "error")
    assert lines(report, race)[0] == "ld.shared.u32 r17, [r15+4]"


@pytest.mark.parametrize("fill", [COPY, STORES])
def test_a_slot_released_before_it_is_read(checked: Check, fill: str) -> None:
    early = ring(fill, RELEASE + READ_FIRST, "")
    finding = only(checked(early))
    assert (finding.severity, finding.rule) == ("error", "WAR")
    assert "nothing orders the two" in finding.message


def test_one_arrives_for_its_warp(checked: Check) -> None:
    first_lane = (
        "and.b32 r18, r0, 31;\n setp.eq.u32 p6, r18, 0;\n bar.warp.sync -1;\n @p6 " + RELEASE
    )
    body = ring(release=first_lane).replace("], 96", "], 3")
    assert checked(body).verdict == "clean"
    finding, phase, _ = checked(body.replace("bar.warp.sync -1;", "")).findings
    assert (finding.severity, finding.rule, finding.count) == ("error", "WAR", 4 * 93 * 4)
    assert (phase.severity, phase.rule, phase.count) == ("warning", "phase", 93 * 4)
    assert "thread (1, 0, 0) of CTA (0, 0, 0) read" in finding.message


MADE_TWICE = """
    setp.lt.u32 p1, r0, 2;
    mov.u32 r5, COUNT;
    @p1 mbarrier.init.shared.b64 [bar], r5;
    bar.sync 0;
"""


def test_threads_that_make_an_mbarrier_together(checked: Check) -> None:
    report = checked(MADE_TWICE.replace("COUNT", "7"))
    [finding] = report.findings
    assert (report.verdict, finding.severity, finding.rule) == ("clean", "info", "again")
    assert finding.message.startswith(
        "thread (0, 0, 0) of CTA (0, 0, 0) and thread (1, 0, 0) of CTA"
    )
    other = checked(MADE_TWICE.replace("COUNT", "%tid.x;\n    add.u32 r5, r5, 1"))
    finding = only(other)
    assert (finding.severity, finding.rule) == ("error", "makes")


def test_an_mbarrier_is_made_before_others_use_it(checked: Check) -> None:
    report = checked(ring().replace("S:  bar.sync 0;", "S:"))
    made = [finding for finding in report.findings if finding.rule == "makes"]
    assert {finding.kind for finding in made} == {"async"}
    assert "mbarrier.init.shared.b64 [bar], 1" in {lines(report, finding)[1] for finding in made}
    assert "nothing orders that with line" in made[0].message
    assert "after mbarrier.init a barrier of the CTA" in made[0].hint


def test_bytes_that_do_not_come_out_even(checked: Check) -> None:
    report = checked(ring(COPY.replace("[r14], 1024;", "[r14], 2048;")))
    uneven, deadlock = report.findings
    assert (uneven.rule, uneven.count, deadlock.kind) == ("bytes", 1024 * 2, "deadlock")
    assert uneven.message == (
        "the mbarrier bar+0x0 in shared memory expects 2048 bytes in this phase, and the copies that it "
        "hears of have 1024"
    )
    assert lines(report, uneven) == (
        "mbarrier.arrive.expect_tx.shared.b64 _, [r14], 2048",
        LOAD,
    )


def test_bytes_that_nobody_expects(checked: Check) -> None:
    report = checked(
        ring(COPY.replace(".expect_tx.shared.b64 _, [r14], 1024", ".shared.b64 _, [r14]"))
    )
    early = next(finding for finding in report.findings if finding.rule == "early")
    assert lines(report, early) == (LOAD, None)
    assert "a phase of the mbarrier bar+0x0 in shared memory ends before this copy" in early.message


def test_plain_accesses_to_an_mbarrier(checked: Check) -> None:
    report = checked(START + "END: CONSUME:\n    @p0 ld.shared.u32 r5, [bar+12];\n")
    finding = only(report)
    assert (finding.rule, finding.count) == ("object", 4)
    assert "loads bar+0x8 in shared memory, which is an mbarrier" in finding.message
    gone = "@p0 mbarrier.inval.shared.b64 [bar+8];\n@p0 st.shared.u64 [bar+8], d0;\n"
    assert checked(START + "END: CONSUME:\n" + gone).verdict == "clean"


def test_an_mbarrier_made_twice(checked: Check) -> None:
    twice = "END: CONSUME:\n    bar.sync 0;\n    @p0 mbarrier.init.shared.b64 [bar], 1;\n"
    finding = only(checked(START + twice))
    assert (finding.rule, finding.count) == ("again", 1)
    gone = twice.replace(
        "@p0 mbarrier.init", "@p0 mbarrier.inval.shared.b64 [bar];\n@p0 mbarrier.init"
    )
    assert checked(START + gone).verdict == "clean"


def test_cp_async_arrives_when_its_copies_have_landed(checked: Check) -> None:
    body = """
    @p0 mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    mad.lo.u32 r5, r0, 4, r3;
    mad.wide.u32 d2, r0, 4, d1;
    setp.ge.u32 p2, r0, 64;
    @p2 bra W;
    cp.async.ca.shared.global [r5], [d2], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    bra E;
    W: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    ld.shared.u32 r6, [r5+-256];
    E:
    """
    assert checked(body).verdict == "clean"
    early = body.replace("W: mbarrier", "W: ld.shared.u32 r6, [r5+-256];\nL: mbarrier").replace(
        "@!p1 bra W;", "@!p1 bra L;"
    )
    finding = only(checked(early))
    assert (finding.kind, finding.rule, finding.count) == ("async", "reads", 4 * 64)


def test_a_phase_that_ends_before_all_have_seen_the_one_before(checked: Check) -> None:
    """One more warp looks at each slot when it is full, and frees none."""
    looks = ring().replace(
        "setp.lt.u32 p2, r0, 96;", "setp.lt.u32 p2, r0, 96;\n setp.ge.u32 p7, r0, 64;"
    )
    looks = looks.replace(
        "    mbarrier.arrive.shared.b64 _, [r14+16];",
        "    @!p7 mbarrier.arrive.shared.b64 _, [r14+16];",
    )
    looks = looks.replace(
        "    ld.shared.u32 r17", "    mov.u32 r17, 0;\n    @!p7 ld.shared.u32 r17"
    ).replace("], 96", "], 64")
    report = checked(looks)
    finding = only(report)
    assert (finding.severity, finding.rule) == ("error", "phase")
    assert lines(report, finding)[0] == "C:  mbarrier.try_wait.parity.shared.b64 p4, [r14], r12"
    assert finding.message.startswith(
        "thread (64, 0, 0) of CTA (0, 0, 0) waits here for a phase of"
    )
    met = looks.replace("    @!p7 mbarrier.arrive", "    bar.sync 1, 96;\n    @!p7 mbarrier.arrive")
    assert checked(met).verdict == "clean"


REARMED = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
    @p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 512, [r2];
C:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra C;
    @p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
    bar.sync 0;
    @p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3+512], [d1], 512, [r2];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 1;
    @!p1 bra W;
"""


def test_a_phase_ends_when_its_copy_does_although_it_was_armed_before_all_had_looked(
    checked: Check,
) -> None:
    """Who arrives for the second phase has not met the others, who begins its copy has."""
    report = checked(REARMED)
    assert (report.verdict, report.findings) == ("clean", ())
    meet, copy = REARMED.splitlines(keepends=True)[8:10]
    error, warning = checked(REARMED.replace(meet + copy, copy + meet)).findings
    assert [(each.severity, each.rule, each.count) for each in (error, warning)] == [
        ("error", "phase", 96),
        ("warning", "phase", 31),
    ]
    assert lines(report, error)[0] == "C:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0"
