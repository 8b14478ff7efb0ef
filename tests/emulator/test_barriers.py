"""Barriers of a CTA: reductions, producers and consumers, partial warps, and every wrong use.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import LaunchError, PtxSyntaxError
from tests.together import in_one_test


@pytest.mark.parametrize("block", [32, 70, 256])
@pytest.mark.parametrize("opcode", ["bar", "barrier.cta"])
def test_reductions_over_the_cta(run: Any, block: int, opcode: str) -> None:
    # CTA c asks whether a thread's number is at least 20 c; c = 0 is all, a large c none.
    body = f"""
    mov.u32 r4, %ctaid.x;
    mul.lo.u32 r4, r4, 20;
    setp.ge.u32 p1, r0, r4;
    {opcode}.red.popc.u32 r5, 0, p1;
    {opcode}.red.and.pred p2, 0, p1;
    {opcode}.red.or.pred p3, 0, !p1;
    selp.u32 r6, 1, 0, p2;
    selp.u32 r7, 1, 0, p3;
    st.global.v4.u32 [d1], {{r5, r6, r7, r0}};
"""
    words = run(body, grid=15, block=block, words=4).reshape(15, block, 4)
    for cta in range(15):
        holds = np.arange(block) >= 20 * cta
        assert (words[cta, :, :3] == [holds.sum(), holds.all(), not holds.all()]).all()


def test_who_waits_keeps_what_it_has_said_while_others_come_the_same_way(emulate: Any) -> None:
    # The first half waits at the reduction, its predicate read by nobody else, when the second comes there.
    body = """
    mov.u32 r9, 0;
    setp.ge.u32 p3, r0, 64;
    @p3 bra second;
    bar.arrive 2, 128;
meet:
    mov.u32 r8, %clock;
    setp.eq.u32 p1, r9, 0;
    add.u32 r9, r9, 1;
    and.b32 r4, r0, 1;
    setp.ne.u32 p2, r4, 0;
    mov.u32 r5, 5;
    @p2 add.u32 r5, r5, r0;
    st.global.u32 [d1], r5;
    bar.red.popc.u32 r7, 0, p1;
    st.global.u32 [d1+4], r7;
    st.global.u32 [d1+8], r8;
    st.global.u32 [d1+12], r9;
    bra done;
second:
    bar.sync 2, 128;
    bra meet;
done:
"""
    words = emulate(body, block=128, words=4)
    threads = np.arange(128)
    guarded = 5 + threads * (threads % 2)
    assert (words[:, [0, 1, 3]] == np.stack([guarded, [128] * 128, [1] * 128], 1)).all()
    clocks = words[:, 2].reshape(2, 64)
    assert (clocks == clocks[:, :1]).all()
    assert clocks[0, 0] < clocks[1, 0]


def test_the_reduced_predicate_may_be_its_own_result(run: Any) -> None:
    # Warps come one after the other, and CTAs complete at different times.
    body = """
    mov.u32 r4, %ctaid.x;
    shr.u32 r5, r0, 5;
    add.u32 r6, r5, r4;
    mul.lo.u32 r6, r6, 3;
rounds:
    setp.eq.u32 p2, r6, 0;
    @p2 bra meet;
    sub.u32 r6, r6, 1;
    bra rounds;
meet:
    setp.ne.u32 p1, r5, r4;
    barrier.sync 1;
    bar.red.and.pred p1, 0, p1;
    selp.u32 r7, 1, 0, p1;
    st.global.u32 [d1], r7;
"""
    words = run(body, grid=6, block=128)[:, 0].reshape(6, 128)
    assert (words == np.array([[0], [0], [0], [0], [1], [1]])).all()


def test_a_counted_reduction_is_of_some_warps(run: Any) -> None:
    body = """
    setp.ge.u32 p1, r0, 96;
    @p1 ret;
    and.b32 r4, r0, 1;
    setp.eq.u32 p2, r4, 1;
    setp.ge.u32 p1, r0, 64;
    @p1 bra alone;
    bar.red.popc.u32 r5, 2, 64, p2;
    bra done;
alone:
    bar.red.popc.u32 r5, 3, 32, !p2;
done:
    st.global.u32 [d1], r5;
"""
    assert run(body, block=128)[:, 0].tolist() == [32] * 64 + [16] * 32 + [0] * 32


PIPE = """
    setp.ge.u32 p1, r0, 32;
    mov.u32 r4, 0;
    mov.u32 r8, 0;
    mov.u32 r10, cells;
    and.b32 r9, r0, 31;
    mad.lo.u32 r9, r9, 4, r10;
    @p1 bra consumer;
producer:
    mad.lo.u32 r5, r4, 100, r0;
    st.shared.u32 [r9], r5;
    bar.arrive 1, 64;
    bar.sync 2, 64;
    add.u32 r4, r4, 1;
    setp.lt.u32 p2, r4, 20;
    @p2 bra producer;
    ret;
consumer:
    bar.sync 1, 64;
    ld.shared.u32 r6, [r9];
    mad.lo.u32 r8, r8, 3, r6;
    bar.arrive 2, 64;
    add.u32 r4, r4, 1;
    setp.lt.u32 p2, r4, 20;
    @p2 bra consumer;
    st.global.u32 [d1], r8;
"""


def test_producer_and_consumer(run: Any) -> None:
    words = run(PIPE, grid=3, block=64, before=".shared .b32 cells[32];")[:, 0].reshape(3, 64)
    for lane in range(32):
        total = 0
        for step in range(20):
            total = (3 * total + 100 * step + lane) % (1 << 32)
        assert (words[:, 32 + lane] == total).all()


def test_a_counted_barrier_counts_warps_whose_other_threads_have_ended(run: Any) -> None:
    # Source: "waits for all non-exited threads from its warp and marks warps' arrival".
    body = """
    and.b32 r4, r0, 31;
    setp.ge.u32 p1, r4, 9;
    @p1 ret;
    bar.sync 1, 64;
    st.global.u32 [d1], 5;
"""
    assert run(body, block=64).sum() == 5 * 18
    assert run(body, block=40).sum() == 5 * 17


# Source: "When the barrier completes, the waiting threads are restarted without delay, and the
# barrier is reinitialized so that it can be immediately reused."


@in_one_test("warps", [1, 2, 3])
@in_one_test("rounds", [1, 2, 5])
def test_more_warps_than_a_barrier_is_for_arrive_at_once(
    emulate: Any, warps: int, rounds: int
) -> None:
    # They take turns of so many warps; each turn has a count of its own, of its odd threads.
    body = f"""
    and.b32 r4, r0, 1;
    setp.eq.u32 p1, r4, 1;
    bar.red.popc.u32 r5, 1, {32 * warps}, p1;
    st.global.u32 [d1], r5;
"""
    assert (emulate(body, grid=2, block=32 * warps * rounds) == 16 * warps).all()
    if warps > 1:
        with pytest.raises(LaunchError, match="deadlock: 32 threads wait at the barrier"):
            emulate(body, block=32 * (warps * rounds + 1))


def test_every_cta_uses_a_barrier_in_its_own_way(run: Any) -> None:
    # Two warps of every CTA wait for the third, which ends, in all CTAs at once.
    body = """
ways: .branchtargets plain, every, some;
    setp.ge.u32 p1, r0, 32;
    mov.pred p2, p1;
    setp.ge.u32 p3, r0, 64;
    @p3 bra last;
    mov.u32 r4, %ctaid.x;
    brx.idx r4, ways;
plain:
    bar.sync 1;
    bra done;
every:
    bar.red.and.pred p2, 1, p1;
    bra done;
some:
    bar.red.or.pred p2, 1, p1;
done:
    selp.u32 r5, 1, 0, p2;
    st.global.u32 [d1], r5;
    ret;
last:
    st.global.u32 [d1], 7;
"""
    words = run(body, grid=3, block=96)[:, 0].reshape(3, 3, 32)
    assert (words == np.array([[0, 1, 7], [0, 0, 7], [1, 1, 7]])[:, :, None]).all()


def test_who_arrives_first_goes_first(emulate: Any) -> None:
    # Warp 5 has arrived already when the others come, all at once: it goes on with warp 0, then
    # warps 1 and 2, then 3 and 4. The predicate holds in warp 0 alone.
    body = """
    setp.lt.u32 p2, r0, 32;
    setp.lt.u32 p1, r0, 160;
    @p1 bra others;
    bar.red.popc.u32 r5, 1, 64, p2;
    bra done;
others:
    bar.red.popc.u32 r5, 1, 64, p2;
done:
    st.global.u32 [d1], r5;
"""
    words = emulate(body, block=192).reshape(6, 32)
    assert (words == np.array([32, 0, 0, 0, 0, 32])[:, None]).all()


def test_the_number_of_a_barrier_may_be_in_a_register(run: Any) -> None:
    before = ".shared .b32 cells[4];"
    body = """
    shr.u32 r4, r0, 6;
    add.u32 r5, r4, 7;
    mov.u32 r6, 64;
    mov.u32 r7, cells;
    mad.lo.u32 r7, r4, 4, r7;
    and.b32 r8, r0, 63;
    setp.eq.u32 p1, r8, 0;
    @p1 st.shared.u32 [r7], r5;
    bar.sync r5, r6;
    ld.shared.u32 r9, [r7];
    st.global.u32 [d1], r9;
"""
    assert run(body, block=256, before=before)[:, 0].tolist() == [
        n for n in (7, 8, 9, 10) for _ in range(64)
    ]


def test_barriers_in_a_loop_that_threads_leave_at_their_own_time(run: Any) -> None:
    # Each warp does as many rounds as its number says; who has left no longer counts.
    body = """
    shr.u32 r4, r0, 5;
    mov.u32 r5, 0;
loop:
    bar.red.popc.u32 r6, 0, 1;
    add.u32 r5, r5, r6;
    setp.eq.u32 p1, r4, 0;
    @p1 bra done;
    sub.u32 r4, r4, 1;
    bra loop;
done:
    st.global.u32 [d1], r5;
"""
    words = run(body, grid=2, block=128)[:, 0].reshape(2, 4, 32)
    assert (words == np.array([128, 224, 288, 320])[None, :, None]).all()


TURNS = """
    // Each of three groups waits for its turn at a barrier of its own, and hands it on at the next one's.
    // The first is told to begin by itself.
    .shared .align 4 .b32 told[64];
    mov.u32 r3, {group};
    div.u32 r4, r0, r3;
    shl.b32 r10, r3, 1;
    mov.u32 r5, told;
    rem.u32 r6, r0, r3;
    setp.ne.u32 p1, r6, 0;
    setp.eq.u32 p2, r4, 0;
    @!p1 st.shared.u32 [r5+252], 0;
    bar.sync 0;
    {begin}
    mov.u32 r6, 0;
turn:
    add.u32 r7, r4, 1;
    bar.sync r7, r10;
    @p1 bra hand_on;
    ld.shared.u32 r8, [r5+252];
    mad.lo.u32 r9, r8, 4, r5;
    st.shared.u32 [r9], r4;
    add.u32 r8, r8, 1;
    st.shared.u32 [r5+252], r8;
hand_on:
    add.u32 r7, r4, 1;
    rem.u32 r7, r7, 3;
    add.u32 r7, r7, 1;
    bar.arrive r7, r10;
    add.u32 r6, r6, 1;
    setp.lt.u32 p3, r6, 5;
    @p3 bra turn;
    bar.sync 0;
    setp.lt.u32 p1, r0, 15;
    mad.lo.u32 r9, r0, 4, r5;
    @p1 ld.shared.u32 r9, [r9];
    st.global.u32 [d1], r9;
"""


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_a_warp_may_wait_for_its_own_arrival(run: Any, warps: int) -> None:
    """Warpgroups take turns so in FlashAttention-3: its barriers count arrivals, whoever made them."""
    body = TURNS.format(group=32 * warps, begin="@p2 bar.arrive 1, r10;")
    assert run(body, block=96 * warps)[:15, 0].tolist() == [0, 1, 2] * 5


def test_without_an_arrival_nobody_begins(emulate: Any) -> None:
    with pytest.raises(LaunchError, match=r"barrier 1 of .* 64 of 128 threads have arrived"):
        emulate(TURNS.format(group=64, begin=""), block=192)


@pytest.mark.parametrize(("times", "passes"), [(1, False), (2, True), (5, True)])
def test_a_warp_arrives_as_often_as_it_says(emulate: Any, times: int, passes: bool) -> None:
    # Of five arrivals three are for the next use of the barrier, which nobody waits at.
    body = f"""
    setp.ge.u32 p1, r0, 32;
    @p1 bra wait;
    {"bar.arrive 1, 96;" * times}
    ret;
wait:
    bar.sync 1, 96;
    st.global.u32 [d1], 7;
"""
    if passes:
        assert emulate(body, block=64)[32:, 0].tolist() == [7] * 32
    else:
        with pytest.raises(LaunchError, match="64 of 96 threads have arrived"):
            emulate(body, block=64)


@pytest.mark.parametrize("late", ["", "barrier.arrive 1, 96;", "barrier.sync 1, 96;"])
def test_a_warp_arrives_once_for_all_its_threads(emulate: Any, late: str) -> None:
    # Its lower half arrives a second time before its upper half does, or ends: that is one arrival.
    body = f"""
    setp.ge.u32 p1, r0, 32;
    @p1 bra wait;
    setp.ge.u32 p2, r0, 16;
    barrier.arrive 1, 96;
    @p2 bra late;
    barrier.arrive 1, 96;
    ret;
late:
    {late}
    bra done;
wait:
    barrier.sync 1, 96;
done:
    st.global.u32 [d1], 7;
"""
    words = emulate(body, block=64)[:, 0]
    assert words.tolist() == [0] * 16 + [7] * 48


@in_one_test(
    ("body", "what"),
    [
        ("mov.u32 r4, 16; bar.sync r4;", "barrier 16 of 16"),
        ("mov.u32 r4, 40; bar.sync 1, r4;", "40 threads, which is no number of whole warps"),
        ("mov.u32 r4, 0; bar.sync 1, r4;", "0 threads, which is no number of whole warps"),
        ("bar.arrive 1, 96; bar.arrive 1, 64;", "used in another way"),
        ("setp.lt.u32 p1, r0, 32; @p1 bar.sync 1, 64; @!p1 bar.sync 1;", "used in another way"),
        ("setp.lt.u32 p1, r0, 32; @p1 bar.sync 1; @!p1 bar.red.or.pred p2, 1, p1;", "another way"),
        ("bar.sync 1, 96;", "64 threads wait at the barrier"),
        ("setp.lt.u32 p1, r0, 7; @p1 bar.sync 1, 32; bar.sync 2;", "wait at the barrier on line"),
        (
            "setp.ge.u32 p1, r0, 32; @p1 bra B; bar.arrive 1, 64; bra C; B: bar.sync 1, 32; C: ret;",
            "another way",
        ),
        (
            "and.b32 r4, r0, 31; setp.lt.u32 p1, r4, 16; @p1 bra A; bra B; A: bar.sync 1, 32; B: bar.sync 2;",
            "wait at the barrier on line",
        ),
    ],
)
def test_wrong_use_is_reported(emulate: Any, body: str, what: str) -> None:
    with pytest.raises(LaunchError, match=what) as caught:
        emulate(body, block=64)
    assert caught.value.location is not None
    assert "bar" in caught.value.location.text


@pytest.mark.parametrize(
    "text", ["bar.arrive 1;", "bar.sync;", "bar.sync 1, 32, 32;", "bar.red.and.pred p1;"]
)
def test_operands_are_counted(emulate: Any, text: str) -> None:
    with pytest.raises(PtxSyntaxError):
        emulate(text)
