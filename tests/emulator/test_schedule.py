"""Who runs next: who is waited for, by whom, and that whoever can go on gets a turn in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.emulator.run import scheduler
from ptxlab.errors import LaunchError
from tests.together import in_one_test

MOST_BLOCKS = 1_250
FEW_BLOCKS = 250
"""For bodies of which nobody counts far."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give others a turn after an eighth as long as usual."""
    for name in ("PATIENCE", "POLL"):
        monkeypatch.setattr(scheduler, name, getattr(scheduler, name) // 8)


@pytest.fixture
def bounded(run_on: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, impatient: None) -> Any:
    """Run a body as ``emulate`` does, and stop it after so many blocks that it must hang.

    Machine code would go through a hundred thousand at a time.
    """
    monkeypatch.setenv("PTXLAB_ENGINE", "array")

    def run(*args: Any, most: int = MOST_BLOCKS, **named: Any) -> Any:
        blocks = 0

        def progress(done: int, total: int) -> None:
            nonlocal blocks
            blocks += 1
            if blocks > most:
                raise TimeoutError(f"not at its end after {most} blocks")

        return run_on(open_device("emulator", progress=progress))(*args, **named)

    return run


# ---- lanes that end are not waited for ----------------------------------------------------------

# An operation on lanes 0 to 7 that names all of the warp, and what it gives each of them.
TOGETHER = {
    "shfl": ("shfl.sync.bfly.b32 r5, r0, 1, 31, 0xffffffff;", [1, 0, 3, 2, 5, 4, 7, 6]),
    "vote": ("vote.sync.ballot.b32 r5, 1, 0xffffffff;", [0xFF] * 8),
    "match": ("match.any.sync.b32 r5, r0, 0xffffffff;", [1 << lane for lane in range(8)]),
    "redux": ("redux.sync.add.u32 r5, r0, 0xffffffff;", [28] * 8),
    "bar.warp": ("bar.warp.sync 0xffffffff; mov.u32 r5, 9;", [9] * 8),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_lanes_that_take_another_way_and_end_there(run: Any, name: str) -> None:
    # Threads 8 to 31 are still alive when the first eight come to the operation.
    text, expected = TOGETHER[name]
    body = f"""
    setp.ge.u32 p1, r0, 8;
    @p1 bra other;
    {text}
    st.global.u32 [d1], r5;
    ret;
other:
    mul.lo.u32 r5, r0, 100;
    st.global.u32 [d1], r5;
"""
    assert run(body)[:, 0].tolist() == expected + [100 * lane for lane in range(8, 32)]


@pytest.mark.parametrize("name", TOGETHER)
def test_lanes_that_have_ended_while_another_warp_waits(emulate: Any, name: str) -> None:
    text, expected = TOGETHER[name]
    body = f"""
    setp.ge.u32 p1, r0, 32;
    @p1 bra meet;
    setp.ge.u32 p1, r0, 8;
    @p1 {{leave}};
    {text}
    st.global.u32 [d1], r5;
meet:
    bar.sync 0;
"""
    words = emulate(body.format(leave="ret"), block=64)[:, 0]
    assert words.tolist() == expected + [0] * 56
    with pytest.raises(LaunchError, match="8 threads wait for the rest of their warp"):
        emulate(body.format(leave="bra meet"), block=64)


# ---- what waits does not depend on who else lives -----------------------------------------------

ALONE_OR_NOT = pytest.mark.parametrize("block", [32, 64, 96])
BEGIN = "setp.ge.u32 p1, r0, 32; @p1 bra meet;\n"
END = "\nmeet: bar.sync 0; st.global.u32 [d1], r5;"


@ALONE_OR_NOT
def test_lanes_that_name_others_who_do_not_name_them(emulate: Any, block: int) -> None:
    # Source: "waits until all non-exited threads corresponding to membermask have executed
    # shfl.sync with the same qualifiers and same membermask value".
    body = """
    setp.lt.u32 p1, r0, 16;
    selp.u32 r4, {mask}, 0xffff0000, p1;
    shfl.sync.idx.b32 r5, r0, 3, 0x101f, r4;
"""
    words = emulate(BEGIN + body.format(mask="0x0000ffff") + END, block=block)[:, 0]
    assert words[:32].tolist() == [3] * 16 + [19] * 16
    with pytest.raises(LaunchError, match="16 threads wait for the rest of their warp"):
        emulate(BEGIN + body.format(mask="0xffffffff") + END, block=block)


@ALONE_OR_NOT
def test_lanes_that_name_others_whose_guard_fails(emulate: Any, block: int) -> None:
    body = """
    mov.u32 r5, 77;
    setp.lt.u32 p1, r0, 16;
    @p1 shfl.sync.idx.b32 r5, r0, 3, 31, {mask};
"""
    words = emulate(BEGIN + body.format(mask="0x0000ffff") + END, block=block)[:, 0]
    assert words[:32].tolist() == [3] * 16 + [77] * 16
    with pytest.raises(LaunchError, match="16 threads wait for the rest of their warp"):
        emulate(BEGIN + body.format(mask="0xffffffff") + END, block=block)


@pytest.mark.parametrize("block", [64, 96])
def test_warps_at_barriers_with_different_numbers(emulate: Any, block: int) -> None:
    body = "shr.u32 r4, r0, {shift}; bar.sync r4; st.global.u32 [d1], 1;"
    assert emulate(body.format(shift=7), block=block).sum() == block
    with pytest.raises(LaunchError, match=f"deadlock: {block} threads wait at the barrier"):
        emulate(body.format(shift=5), block=block)


def test_a_deadlock_says_who_waits_for_what(emulate: Any) -> None:
    # Ten lanes of warp 1 wait for two who wait with the others for warp 2; warp 0 waits for both.
    body = """
    setp.lt.u32 p1, r0, 32;
    @p1 bra first;
    setp.ge.u32 p1, r0, 42;
    @p1 bra other;
    vote.sync.ballot.b32 r5, 1, 0x00000fff;
    bra first;
other:
    bar.sync 3, 96;
first:
    bar.arrive 2, 128;
    bar.sync 0;
"""
    with pytest.raises(LaunchError) as caught:
        emulate(body, grid=2, block=96)
    assert caught.value.kind == "deadlock"
    assert "vote.sync" in str(caught.value.location and caught.value.location.text)
    assert re.sub(r"on line \d+", "there", caught.value.message) == (
        "deadlock: 20 threads wait for the rest of their warp there "
        "(warp 1 of CTA (0, 0, 0): 10 of 12 threads are here); "
        "108 threads wait at the barrier there "
        "(barrier 3 of CTA (0, 0, 0): 54 of 96 threads have arrived); "
        "64 threads wait at the barrier there "
        "(barrier 0 of CTA (0, 0, 0): 32 of 96 threads have arrived); "
        "the first is thread (0, 0, 0) of CTA (0, 0, 0)"
    )


# ---- nobody starves -----------------------------------------------------------------------------

FLAG = ".shared .b32 flag;\n"
SPIN = """
.func (.reg .b32 out) spin(.reg .b32 a) {
    .reg .b32 x; .reg .pred p;
again:
    ld.volatile.shared.u32 x, [flag];
    setp.eq.u32 p, x, 0;
    @p bra again;
    add.u32 out, x, a;
    ret;
}
"""

# Threads 0 to 15 wait for the flag, in one way or another; the others set it, last in the text.
WAITING = {
    "one group": """
again:
    ld.volatile.shared.u32 r5, [flag];
    setp.eq.u32 p2, r5, 0;
    @p2 bra again;
    add.u32 r5, r5, r0;
""",
    "a group that parts and meets in the loop": """
again:
    ld.volatile.shared.u32 r5, [flag];
    @p3 bra odd;
    call (r6), idle, (r0);
    bra both;
odd:
    call (r6), idle, (r5);
both:
    setp.eq.u32 p2, r5, 0;
    @p2 bra again;
    add.u32 r5, r5, r0;
""",
    "groups in two activations": """
    @p3 bra odd;
    call (r5), spin, (r0);
    bra done;
odd:
    call (r5), spin, (r0);
""",
}
SETTING = {
    "at once": "",
    "after a while": """
    mov.u32 r4, 0;
long:
    add.u32 r4, r4, 1;
    setp.lt.u32 p1, r4, 625;
    @p1 bra long;
""",
    "after they have met": """
    setp.lt.u32 p1, r0, 24;
    @p1 bra meet;
    add.u32 r4, r4, 1;
    bra meet2;
meet2:
    add.u32 r4, r4, 1;
meet:
    bar.warp.sync 0xffff0000;
""",
}


@pytest.mark.parametrize("setting", SETTING)
@pytest.mark.parametrize("waiting", WAITING)
def test_who_waits_for_a_store_does_not_starve_who_makes_it(
    bounded: Any, waiting: str, setting: str
) -> None:
    before = f"{FLAG}{SPIN}.func (.reg .b32 out) idle(.reg .b32 a) {{ mov.u32 out, a; ret; }}"
    body = f"""
    st.shared.u32 [flag], 0;
    bar.sync 0;
    and.b32 r4, r0, 1;
    setp.eq.u32 p3, r4, 1;
    setp.ge.u32 p1, r0, 16;
    @p1 bra set;
    {WAITING[waiting]}
    bra done;
set:
    {SETTING[setting]}
    mov.u32 r5, 3;
    {{store}}
done:
    st.global.u32 [d1], r5;
"""
    words = bounded(body.format(store="st.volatile.shared.u32 [flag], r5;"), before=before)[:, 0]
    assert words.tolist() == [3 + lane for lane in range(16)] + [3] * 16
    with pytest.raises(LaunchError, match=f"stopped, not at its end after {MOST_BLOCKS} blocks"):
        bounded(body.format(store=""), before=before)


@in_one_test("block", [1, 2, 33])
@in_one_test("together", ["bar.sync 0;", "bar.red.popc.u32 r8, 0, p2;", "bar.sync 0; bar.sync 1;"])
@in_one_test("waits_above", [True, False])
def test_who_waits_across_barriers_does_not_starve_another_cta(
    bounded: Any, block: int, together: str, waits_above: bool
) -> None:
    # The first CTA passes a barrier of its own in every round of its loop, and thereby the turn.
    wait = f"""
wait:
    {together}
    atom.global.cas.b32 r5, [d5], 1, 1;
    setp.eq.u32 p2, r5, 0;
    @p2 bra wait;
    bra done;
"""
    body = f"""
    mov.u64 d5, flag;
    mov.u32 r5, 7;
    mov.u32 r4, %ctaid.x;
    setp.eq.u32 p1, r4, 0;
    @p1 bra wait;
    bra set;
{wait if waits_above else ""}
set:
    {{store}}
    bra done;
{"" if waits_above else wait}
done:
    st.global.u32 [d1], r5;
"""
    before = ".global .b32 flag;"
    store = "atom.global.exch.b32 r6, [d5], 1;"
    words = bounded(body.format(store=store), grid=2, block=block, before=before, most=FEW_BLOCKS)[
        :, 0
    ]
    assert words.tolist() == [1] * block + [7] * block
    with pytest.raises(LaunchError, match=f"stopped, not at its end after {FEW_BLOCKS} blocks"):
        bounded(body.format(store=""), grid=2, block=block, before=before, most=FEW_BLOCKS)


def test_the_second_turn_at_a_barrier_does_not_wait_for_what_the_first_does(bounded: Any) -> None:
    # Four warps arrive at once at a barrier for two; the first two wait for what the last store.
    body = """
    st.shared.u32 [flag], 0;
    bar.sync 0;
    bar.sync 1, 64;
    setp.ge.u32 p1, r0, 64;
    @p1 bra set;
again:
    ld.volatile.shared.u32 r5, [flag];
    setp.eq.u32 p2, r5, 0;
    @p2 bra again;
    bra done;
set:
    mov.u32 r5, 3;
    st.volatile.shared.u32 [flag], r5;
done:
    st.global.u32 [d1], r5;
"""
    assert (bounded(body, block=128, before=FLAG) == 3).all()


def test_threads_that_meet_again_stay_together_however_long_they_run(
    emulate: Any, impatient: None
) -> None:
    # The clock counts what is executed, once for all threads that execute it together: every round
    # costs the same, as long as nobody is given a turn while the others are about to catch up.
    body = """
    mov.u32 r4, 0;
    and.b32 r5, r0, 1;
    setp.eq.u32 p3, r5, 1;
    mov.u32 r7, %clock;
round:
    @p3 bra odd;
    call (r6), idle, (r0);
    bra both;
odd:
    call (r6), idle, (r4);
both:
    add.u32 r4, r4, 1;
    setp.lt.u32 p2, r4, {rounds};
    @p2 bra round;
    mov.u32 r8, %clock;
    sub.u32 r8, r8, r7;
    st.global.u32 [d1], r8;
"""
    before = ".func (.reg .b32 out) idle(.reg .b32 a) { mov.u32 out, a; ret; }"
    short, twice, long = (
        int(emulate(body.format(rounds=rounds), before=before)[0, 0]) for rounds in (1, 2, 375)
    )
    assert long - short == 374 * (twice - short)


def test_a_lock_that_is_taken_inside_a_branch_of_the_loop(bounded: Any) -> None:
    # Who has the lock must get on, though the others take turns at trying for it.
    before = ".global .b32 lock; .global .b32 count;"
    body = """
    mov.u64 d5, lock;
    mov.u64 d6, count;
    mov.u32 r9, 0;
again:
    atom.global.acquire.gpu.cas.b32 r4, [d5], 0, 1;
    setp.ne.u32 p1, r4, 0;
    @p1 bra next;
    ld.volatile.global.u32 r5, [d6];
    add.u32 r6, r5, 1;
    st.volatile.global.u32 [d6], r6;
    mov.u32 r9, 1;
    atom.global.release.gpu.exch.b32 r7, [d5], 0;
next:
    setp.eq.u32 p2, r9, 0;
    @p2 bra again;
    st.global.u32 [d1], r5;
"""
    words = bounded(body, grid=2, block=48, before=before)[:, 0]
    assert np.array_equal(np.sort(words), np.arange(96))
