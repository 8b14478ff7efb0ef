"""Divergence, loops, calls and barriers: who runs, and that everyone arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import LaunchError, Unsupported


def test_branches_split_and_join(run: Any) -> None:
    body = """
    and.b32 r3, r0, 3;
    setp.eq.u32 p1, r3, 0;
    @p1 bra zero;
    setp.eq.u32 p2, r3, 1;
    @p2 bra one;
    mov.u32 r4, 20;
    bra join;
zero:
    mov.u32 r4, 100;
    bra join;
one:
    mov.u32 r4, 7;
join:
    add.u32 r4, r4, r0;
    st.global.u32 [d1], r4;
    ret;
"""
    lane = np.arange(64)
    expected = np.choose(lane % 4, [100, 7, 20, 20]) + lane
    assert np.array_equal(run(body, block=64)[:, 0], expected)


def test_each_thread_has_its_own_trip_count(run: Any) -> None:
    # Collatz steps: the loop's trip count depends on the data of each thread.
    body = """
    add.u32 r3, r1, 1;
    mov.u32 r4, 0;
loop:
    setp.le.u32 p1, r3, 1;
    @p1 bra done;
    and.b32 r5, r3, 1;
    setp.eq.u32 p2, r5, 0;
    @p2 shr.u32 r3, r3, 1;
    @!p2 mad.lo.u32 r3, r3, 3, 1;
    add.u32 r4, r4, 1;
    bra loop;
done:
    st.global.u32 [d1], r4;
"""

    def steps(number: int) -> int:
        count = 0
        while number > 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            count += 1
        return count

    words = run(body, grid=3, block=50)[:, 0]
    assert words.tolist() == [steps(i + 1) for i in range(150)]


def test_nested_loops_with_breaks_and_early_return(run: Any) -> None:
    body = """
    mov.u32 r4, 0;
    mov.u32 r5, 0;
outer:
    setp.ge.u32 p1, r5, r0;
    @p1 bra after;
    mov.u32 r6, 0;
inner:
    setp.ge.u32 p2, r6, 8;
    @p2 bra next;
    add.u32 r4, r4, r6;
    setp.eq.u32 p3, r4, 100;
    @p3 bra leave;
    add.u32 r7, r5, 2;
    setp.gt.u32 p4, r6, r7;
    @p4 bra next;
    add.u32 r6, r6, 1;
    bra inner;
next:
    add.u32 r5, r5, 1;
    bra outer;
leave:
    mov.u32 r8, 999;
    st.global.u32 [d1], r8;
    ret;
after:
    st.global.u32 [d1], r4;
"""

    def model(lane: int) -> int:
        total = 0
        for i in range(lane):
            for j in range(8):
                total += j
                if total == 100:
                    return 999
                if j > i + 2:
                    break
        return total

    assert run(body)[:, 0].tolist() == [model(lane) for lane in range(32)]


def test_irreducible_flow(run: Any) -> None:
    # Two entries into one loop.
    body = """
    mov.u32 r3, 0;
    and.b32 r4, r0, 1;
    setp.eq.u32 p1, r4, 1;
    @p1 bra second;
first:
    add.u32 r3, r3, 10;
second:
    add.u32 r3, r3, 1;
    setp.lt.u32 p2, r3, 50;
    @p2 bra first;
    st.global.u32 [d1], r3;
"""

    def model(lane: int) -> int:
        total = 0 if lane % 2 else 10
        while True:
            total += 1
            if total >= 50:
                return total
            total += 10

    assert run(body)[:, 0].tolist() == [model(lane) for lane in range(32)]


def test_labels_belong_to_their_block(run: Any) -> None:
    body = """
    mov.u32 r3, 0;
    { .reg .b32 r3; mov.u32 r3, 5; again: sub.u32 r3, r3, 1; setp.ne.u32 p1, r3, 0; @p1 bra again; }
    { again: add.u32 r3, r3, 1; setp.lt.u32 p1, r3, 9; @p1 bra again; }
    st.global.u32 [d1], r3;
"""
    assert (run(body) == 9).all()


FUNCTION = """
.func (.param .b32 result) triangle(.param .b32 number)
{
    .reg .b32 n, rest, total;
    .reg .pred stop;
    ld.param.b32 n, [number];
    setp.eq.u32 stop, n, 0;
    mov.u32 total, 0;
    @stop bra done;
    {
        .param .b32 argument;
        .param .b32 answer;
        sub.u32 rest, n, 1;
        st.param.b32 [argument], rest;
        call.uni (answer), triangle, (argument);
        ld.param.b32 total, [answer];
    }
    add.u32 total, total, n;
done:
    st.param.b32 [result], total;
    ret;
}
"""


def test_recursion_to_a_depth_of_each_threads_own(run: Any) -> None:
    body = """
    {
        .param .b32 argument;
        .param .b32 answer;
        st.param.b32 [argument], r0;
        call (answer), triangle, (argument);
        ld.param.b32 r5, [answer];
    }
    st.global.u32 [d1], r5;
"""
    words = run(body, block=48, before=FUNCTION)[:, 0]
    assert words.tolist() == [n * (n + 1) // 2 for n in range(48)]


def test_divergent_call_with_register_parameters(run: Any) -> None:
    before = """
.func (.reg .u32 out) twice(.reg .u32 in) { add.u32 out, in, in; ret; }
"""
    body = """
    mov.u32 r4, 5;
    setp.gt.u32 p1, r0, 9;
    @p1 call (r4), twice, (r0);
    st.global.u32 [d1], r4;
"""
    words = run(body, before=before)[:, 0]
    assert words.tolist() == [2 * n if n > 9 else 5 for n in range(32)]


def test_barrier_in_a_loop_makes_stores_visible(run: Any) -> None:
    # Each round every thread reads its right neighbour's value of the round before.
    before = ".shared .align 4 .b32 ring[96];"
    body = """
    mov.u32 r10, ring;
    mad.lo.u32 r3, r0, 4, r10;
    add.u32 r4, r0, 1;
    rem.u32 r4, r4, 96;
    mad.lo.u32 r4, r4, 4, r10;
    mov.u32 r5, 0;
    st.shared.u32 [r3], r0;
loop:
    bar.sync 0;
    ld.shared.u32 r6, [r4];
    bar.sync 0;
    st.shared.u32 [r3], r6;
    add.u32 r5, r5, 1;
    setp.lt.u32 p1, r5, 10;
    @p1 bra loop;
    st.global.u32 [d1], r6;
"""
    words = run(body, grid=2, block=96, before=before)[:, 0].reshape(2, 96)
    assert (words == (np.arange(96) + 10) % 96).all()


def test_ended_threads_are_not_waited_for(run: Any) -> None:
    body = """
    setp.ge.u32 p1, r0, 20;
    @p1 ret;
    bar.sync 0;
    st.global.u32 [d1], 1;
"""
    assert run(body, grid=2, block=40).sum() == 40


def test_barrier_with_a_thread_count(run: Any) -> None:
    # Warp 1 waits for warp 0 at barrier 1; warp 2 takes no part.
    before = ".shared .b32 cell;"
    body = """
    setp.ge.u32 p1, r0, 64;
    @p1 bra done;
    setp.ge.u32 p2, r0, 32;
    @p2 bra reader;
    st.shared.u32 [cell], 77;
    bar.sync 1, 64;
    bra done;
reader:
    bar.sync 1, 64;
    ld.shared.u32 r5, [cell];
    st.global.u32 [d1], r5;
done:
    ret;
"""
    words = run(body, block=96, before=before)[:, 0]
    assert words.tolist() == [0] * 32 + [77] * 32 + [0] * 32


def test_deadlock_names_who_waits_where(emulate: Any) -> None:
    body = """
    setp.ge.u32 p1, r0, 10;
    @p1 bra other;
    bar.sync 0;
    bra done;
other:
    bar.sync 1;
done:
    ret;
"""
    with pytest.raises(LaunchError, match="deadlock") as caught:
        emulate(body)
    text = str(caught.value)
    assert "10 threads wait at the barrier" in text
    assert "22 threads wait at the barrier" in text
    assert "thread (0, 0, 0) of CTA (0, 0, 0)" in text
    assert caught.value.location is not None
    assert "bar.sync 0" in caught.value.location.text


def test_a_spinning_thread_does_not_starve_the_one_it_waits_for(run: Any) -> None:
    before = ".shared .b32 flag;"
    body = """
    st.shared.u32 [flag], 0;
    bar.sync 0;
    setp.eq.u32 p1, r0, 5;
    @p1 bra setter;
spin:
    ld.volatile.shared.u32 r5, [flag];
    setp.eq.u32 p2, r5, 0;
    @p2 bra spin;
    st.global.u32 [d1], r5;
    ret;
setter:
    st.volatile.shared.u32 [flag], 3;
    st.global.u32 [d1], 4;
"""
    words = run(body, before=before)[:, 0]
    assert words.tolist() == [4 if lane == 5 else 3 for lane in range(32)]


def test_results_do_not_depend_on_the_wave_size(emulate: Any, monkeypatch: Any) -> None:
    body = """
    xor.b32 r3, r1, 0x5a;
    and.b32 r4, r3, 7;
    mov.u32 r5, 1;
loop:
    setp.eq.u32 p1, r4, 0;
    @p1 bra done;
    mul.lo.u32 r5, r5, 3;
    sub.u32 r4, r4, 1;
    bra loop;
done:
    st.global.u32 [d1], r5;
"""
    words = emulate(body, grid=40, block=33)
    monkeypatch.setattr("ptxlab.emulator.run.grid.WAVE_THREADS", 100)
    assert np.array_equal(emulate(body, grid=40, block=33), words)
    assert words[:, 0].tolist() == [3 ** ((i ^ 0x5A) & 7) for i in range(40 * 33)]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("suq.width.b32 r3, [d1];", "suq"),
        ("add.u32.bogus r3, r3, 1;", "bogus"),
        ("mov.u32 r3, %reserved_smem_offset_2;", "%reserved_smem_offset_2"),
    ],
)
def test_what_is_not_modelled_is_refused_before_the_launch(
    emulate: Any, line: str, what: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        emulate(f"    bra end;\n    {line}\nend:\n    ret;")
    assert what in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.text.strip() == line


def test_plain_values_where_the_function_has_param_formals(run: Any) -> None:
    body = """
    call (r5), triangle, (r0);
    call (r6), triangle, (4);
    add.u32 r5, r5, r6;
    st.global.u32 [d1], r5;
"""
    words = run(body, before=FUNCTION)[:, 0]
    assert words.tolist() == [n * (n + 1) // 2 + 10 for n in range(32)]


def test_warp_barrier_gathers_the_lanes_it_names(run: Any) -> None:
    before = ".shared .b32 cells[32];"
    body = """
    mov.u32 r10, cells;
    mad.lo.u32 r3, r0, 4, r10;
    setp.lt.u32 p1, r0, 16;
    @p1 bra store;
    mov.u32 r5, 0;
waste:
    add.u32 r5, r5, 1;
    setp.lt.u32 p2, r5, r0;
    @p2 bra waste;
store:
    st.shared.u32 [r3], r0;
    bar.warp.sync 0xffffffff;
    xor.b32 r6, r0, 31;
    mad.lo.u32 r6, r6, 4, r10;
    ld.shared.u32 r7, [r6];
    st.global.u32 [d1], r7;
"""
    assert run(body, before=before)[:, 0].tolist() == [31 - lane for lane in range(32)]


def test_warp_barrier_whose_lanes_wait_elsewhere_is_a_deadlock(emulate: Any) -> None:
    body = """
    setp.ge.u32 p1, r0, 8;
    @p1 bra other;
    bar.warp.sync 0x1ff;
    bra done;
other:
    bar.sync 1;
done:
    ret;
"""
    with pytest.raises(LaunchError, match="8 threads wait for the rest of their warp") as caught:
        emulate(body)
    assert "24 threads wait at the barrier" in str(caught.value)


def test_ended_lanes_are_not_waited_for_by_their_warp(run: Any) -> None:
    # Source: PTX ISA, "shfl.sync", "vote.sync": all non-exited threads of the membermask.
    body = """
    setp.ge.u32 p1, r0, 40;
    @p1 ret;
    bar.warp.sync 0xffffffff;
    vote.sync.ballot.b32 r5, 1, 0xffffffff;
    st.global.u32 [d1], r5;
"""
    words = run(body, grid=2, block=50)[:, 0].reshape(2, 50)
    assert (words == [0xFFFFFFFF] * 32 + [0xFF] * 8 + [0] * 10).all()
