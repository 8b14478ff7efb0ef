"""Barriers of a CTA: reductions, producers and consumers, partial warps, and every wrong use.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import LaunchError, PtxSyntaxError


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
    found = run(body, grid=15, block=block, words=4).reshape(15, block, 4)
    for cta in range(15):
        holds = np.arange(block) >= 20 * cta
        assert (found[cta, :, :3] == [holds.sum(), holds.all(), not holds.all()]).all()


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
    found = run(body, grid=6, block=128)[:, 0].reshape(6, 128)
    assert (found == np.array([[0], [0], [0], [0], [1], [1]])).all()


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
    found = run(PIPE, grid=3, block=64, before=".shared .b32 cells[32];")[:, 0].reshape(3, 64)
    for lane in range(32):
        total = 0
        for step in range(20):
            total = (3 * total + 100 * step + lane) % (1 << 32)
        assert (found[:, 32 + lane] == total).all()


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
    found = run(body, grid=2, block=128)[:, 0].reshape(2, 4, 32)
    assert (found == np.array([128, 224, 288, 320])[None, :, None]).all()


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("mov.u32 r4, 16; bar.sync r4;", "barrier 16 of 16"),
        ("mov.u32 r4, 40; bar.sync 1, r4;", "40 threads, which is no number of whole warps"),
        ("bar.arrive 1, 96; bar.arrive 1, 96;", "a second arrival at barrier 1"),
        ("setp.lt.u32 p1, r0, 32; @p1 bar.sync 1, 64; @!p1 bar.sync 1;", "used in another way"),
        ("setp.lt.u32 p1, r0, 32; @p1 bar.sync 1; @!p1 bar.red.or.pred p2, 1, p1;", "another way"),
        ("bar.sync 1, 96;", "64 threads wait at the barrier"),
        ("setp.lt.u32 p1, r0, 7; @p1 bar.sync 1, 32; bar.sync 2;", "wait at the barrier on line"),
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
