"""Programs and launches that go wrong: each is stopped with a message, and none hangs or crashes."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from tests.together import in_one_test

ENDLESS = """
.func f(.reg .b32 a);
.func f(.reg .b32 a) { .reg .b32 x; add.u32 x, a, 1; call f, (x); ret; }
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed interrupts also where the tests were started to ignore them, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_endless_loop_can_be_interrupted(emulate: Any) -> None:
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        emulate("again: bra again;")


def test_endless_recursion(emulate: Any) -> None:
    with pytest.raises(LaunchError, match="stack overflow: 4097 calls deep") as caught:
        emulate("call f, (r0);", before=ENDLESS)
    assert caught.value.location is not None
    assert "call f, (x)" in caught.value.location.text


def test_recursion_that_uses_up_local_memory(emulate: Any) -> None:
    before = ENDLESS.replace("{ .reg", "{ .local .b8 room[4096]; .reg")
    with pytest.raises(LaunchError, match="stack overflow: 18 calls deep and 69632 bytes"):
        emulate("call f, (r0);", before=before)


def test_a_large_frame_that_is_not_recursive_has_room(run: Any) -> None:
    before = """
.func (.reg .b32 out) g(.reg .b32 a)
{ .local .b32 room[40000]; st.local.b32 [room+159996], a; ld.local.b32 out, [room+159996]; ret; }
"""
    words = run("call (r4), g, (r0); st.global.u32 [d1], r4;", before=before)
    assert words[:, 0].tolist() == list(range(32))


@pytest.mark.parametrize(
    ("body", "before", "what"),
    [
        (".local .b8 q[600000]; mov.u64 d2, q;", "", "600000 bytes of local memory"),
        (".shared .b8 q[400000]; st.shared.u32 [q], 1;", "", "400000 bytes of shared memory"),
        ("st.global.u32 [q], 1;", ".global .b8 q[400000000000000];", "no memory for q"),
    ],
)
def test_variables_that_do_not_fit(emulate: Any, body: str, before: str, what: str) -> None:
    with pytest.raises(PtxlabError, match=what):
        emulate(body, before=before)


@pytest.mark.parametrize("count", [1 << 45, 1 << 70])
def test_buffers_that_do_not_fit(count: int) -> None:
    with pytest.raises(PtxlabError, match="no memory for buffer"):
        open_device("emulator").zeros(count, "f32")


@pytest.mark.parametrize(
    ("grid", "block"),
    [(0, 32), ((1, 65536), 1), (1, (1024, 2)), (1, (1, 1, 65)), (1 << 31, 1), (-1, 1)],
)
def test_launches_that_no_gpu_takes(grid: Any, block: Any) -> None:
    device = open_device("emulator")
    kernel = device.load(".version 8.0\n.target sm_80\n.visible .entry k() { ret; }").kernel("k")
    with pytest.raises(PtxlabError):
        kernel.launch(grid, block)


def test_threads_that_wait_for_each_other_by_turns(emulate: Any) -> None:
    # Warp 0 waits for warp 1, which waits for warp 2, which stores last: everyone gets a turn.
    before = ".shared .b32 flags[4];"
    body = """
    mov.u32 r10, flags;
    shr.u32 r4, r0, 5;
    mad.lo.u32 r5, r4, 4, r10;
    setp.lt.u32 p1, r0, 4;
    mad.lo.u32 r6, r0, 4, r10;
    @p1 st.shared.u32 [r6], 0;
    bar.sync 0;
    setp.eq.u32 p1, r4, 0;
    @p1 bra first;
    setp.eq.u32 p1, r4, 1;
    @p1 bra second;
    setp.eq.u32 p1, r4, 2;
    @p1 bra third;
    mov.u32 r7, 0;
long:
    add.u32 r7, r7, 1;
    setp.lt.u32 p1, r7, 200;
    @p1 bra long;
    st.volatile.shared.u32 [r5], 1;
    ret;
first:
    ld.volatile.shared.u32 r7, [r5+4];
    setp.eq.u32 p1, r7, 0;
    @p1 bra first;
    st.global.u32 [d1], r7;
    ret;
third:
    ld.volatile.shared.u32 r7, [r5+4];
    setp.eq.u32 p1, r7, 0;
    @p1 bra third;
    st.volatile.shared.u32 [r5], 2;
    ret;
second:
    ld.volatile.shared.u32 r7, [r5+4];
    setp.eq.u32 p1, r7, 0;
    @p1 bra second;
    st.volatile.shared.u32 [r5], 3;
"""
    words = emulate(body, block=128, before=before)[:, 0]
    assert words.tolist() == [3] * 32 + [0] * 96


def test_many_threads_take_a_lock(emulate: Any) -> None:
    before = ".global .b32 lock; .global .b32 count;"
    body = """
    mov.u64 d5, lock;
    mov.u64 d6, count;
again:
    atom.global.acquire.gpu.cas.b32 r4, [d5], 0, 1;
    setp.ne.u32 p1, r4, 0;
    @p1 bra again;
    ld.global.u32 r5, [d6];
    add.u32 r6, r5, 1;
    st.global.u32 [d6], r6;
    atom.global.release.gpu.exch.b32 r7, [d5], 0;
    st.global.u32 [d1], r5;
"""
    words = emulate(body, grid=4, block=48, before=before)[:, 0]
    assert sorted(words.tolist()) == list(range(192))


@in_one_test(
    "text",
    [
        *(f"ld{q}.global.u32 r4, [d0];" for q in (".weak", ".volatile", ".relaxed.gpu", ".acquire.sys")),
        *(f"ld.global{q}.u32 r4, [d0];" for q in (".ca", ".cg", ".cs", ".lu", ".cv", ".nc", ".nc.L1::no_allocate.L2::256B",
                                                  ".L1::evict_first", ".L1::evict_last", ".L2::64B")),
        "ld.global.L2::cache_hint.u32 r4, [d0], d5;",
        "ldu.global.u32 r4, [d0];",
    ],
)  # fmt: skip
def test_loads_in_every_order_and_through_every_cache(run: Any, text: str) -> None:
    body = "mov.u64 d5, 0; mov.u32 r3, 77; st.global.u32 [d0], r3; bar.sync 0;\n" + text
    assert (run(body + "\nbar.sync 0; st.global.u32 [d1], r4;") == 77).all()


@in_one_test(
    "text",
    [
        *(f"st{q}.global.u32 [d1], r0;" for q in (".weak", ".volatile", ".relaxed.cta", ".release.gpu")),
        *(f"st.global{q}.u32 [d1], r0;" for q in (".wb", ".cg", ".cs", ".wt", ".L1::no_allocate")),
        "st.global.L2::cache_hint.u32 [d1], r0, d5;",
    ],
)  # fmt: skip
def test_stores_in_every_order_and_through_every_cache(run: Any, text: str) -> None:
    assert np.array_equal(run("mov.u64 d5, 0;\n" + text)[:, 0], np.arange(32))


@in_one_test(
    "text",
    [
        "ld.relaxed.global.u32 r4, [d0];", "ld.gpu.global.u32 r4, [d0];",
        "ld.release.gpu.global.u32 r4, [d0];", "ld.volatile.global.cg.u32 r4, [d0];",
        "ld.shared.nc.u32 r4, [d0];", "ld.nc.u32 r4, [d0];", "ld.global.wb.u32 r4, [d0];",
        "ld.global.L1::evict_bogus.u32 r4, [d0];", "ld.shared.L2::128B.u32 r4, [d0];",
        "st.acquire.gpu.global.u32 [d0], r4;", "st.global.ca.u32 [d0], r4;",
        "st.global.L2::64B.u32 [d0], r4;", "st.const.u32 [d0], r4;", "ldu.shared.u32 r4, [d0];",
        "ld.global.v8.b32 {r0, r1, r2, r3, r4, r5, r6, r7}, [d0];",
        "ld.global.v4.b64 {d0, d1, d2, d3}, [d0];",
        "stacksave.u64 d2;", "alloca.u64 d2, d3;",
    ],
)  # fmt: skip
def test_what_is_refused_by_name(emulate: Any, text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        emulate(text)
    assert caught.value.location is not None
    assert caught.value.location.text.strip() == text


TABLES = """
.func (.reg .b32 out) one(.reg .b32 a) { add.u32 out, a, 1; ret; }
.func (.reg .b32 out) two(.reg .b32 a) { mul.lo.u32 out, a, 2; ret; }
.func (.reg .b32 sum, .reg .b32 product) both(.reg .b32 a, .reg .b32 b)
{ add.u32 sum, a, b; mul.lo.u32 product, a, b; ret; }
.const .u64 fixed[2] = {two, one};
.global .u64 table[2] = {one, two};
"""


def test_function_tables_and_several_results(run: Any) -> None:
    body = """
    and.b32 r3, r0, 1;
    mov.u64 d5, table;
    mad.wide.u32 d5, r3, 8, d5;
    ld.global.u64 d6, [d5];
    mov.u64 d5, fixed;
    mad.wide.u32 d5, r3, 8, d5;
    ld.const.u64 d7, [d5];
    shape: .callprototype (.reg .b32 _) _ (.reg .b32 _);
    call (r4), d6, (r0), shape;
    names: .calltargets one, two;
    call (r5), d7, (r4), names;
    call (r6, r7), both, (r5, r0);
    st.global.v2.u32 [d1], {r6, r7};
"""
    words = run(body, before=TABLES, words=2)
    for lane, row in enumerate(words.tolist()):
        value = 2 * lane + 1 if lane % 2 else 2 * (lane + 1)
        assert row == [value + lane, value * lane]


def test_a_call_of_what_is_no_function(emulate: Any) -> None:
    body = """
    mov.u64 d5, 4096;
    shape: .callprototype (.reg .b32 _) _ (.reg .b32 _);
    call (r4), d5, (r0), shape;
"""
    with pytest.raises(LaunchError, match="call of address 0x1000, which is no function"):
        emulate(body, before=TABLES)


def test_a_branch_table_without_the_index(emulate: Any) -> None:
    body = "targets: .branchtargets one, two;\nbrx.idx r0, targets;\none: ret;\ntwo: ret;"
    with pytest.raises(LaunchError, match="index 2 of 2 targets"):
        emulate(body)
