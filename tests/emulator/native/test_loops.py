"""Turns of a loop in one call are the turns of the array engine: registers, memory, faults, counts."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.emulator.native import dispatch_loop
from ptxlab.emulator.native.dispatch_loop import DispatchLoop
from ptxlab.emulator.run import grid, wave_memory
from ptxlab.emulator.run.wave import Wave
from ptxlab.errors import LaunchError
from ptxlab.native import compiler
from tests.emulator.native.test_engines import kernel

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

Both = Callable[..., tuple[bytes, int, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects how many tasks each dispatch loop has done, of which every run has one at least."""
    done: list[int] = []
    run = DispatchLoop.run

    def noting(self: DispatchLoop, *args: Any) -> Any:
        try:
            return run(self, *args)
        finally:
            done.append(self.tasks)

    monkeypatch.setattr(DispatchLoop, "run", noting)
    return done


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Run kernel ``k(data)`` on both engines; return data, count of instructions and message of both.

    What the dispatch loop runs from the beginning on it does when it runs again.
    """

    def run(text: str, grid: int = 2, block: int = 128) -> tuple[bytes, int, str]:
        endings = []
        for engine in ("array", "native", "native")[: 3 if dispatch_loop.WORTH == 1 else 2]:
            monkeypatch.setenv("PTXLAB_ENGINE", engine)
            device: Any = open_device("emulator", arch="sm_90a")
            buffer, count, message = device.upload(np.arange(256, dtype=np.uint32) * 17), 0, ""
            try:
                ran = device.load(text).kernel("k").launch(grid, block, [buffer])
                count = ran.counters["thread_instructions"]
            except LaunchError as error:
                message = str(error)
            endings.append((buffer.numpy().tobytes(), count, message))
        assert all(result == endings[0] for result in endings)
        return endings[0]

    return run


def turns(
    body: str, count: int, test: str = "setp.lt.u32 p1, r20, {};", branch: str = "@p1"
) -> str:
    """Return a kernel that has so many turns of a body, with r20 their number and r21 the result."""
    return kernel(f"""
        mov.u32 r20, 0; mov.u32 r21, r0; mov.u32 r22, 1; mov.u64 d9, d1;
        mov.u32 r23, %tid.x; shl.b32 r24, r23, 2; mov.u32 r25, s; add.u32 r24, r24, r25;
        xor.b32 r26, r24, 64;
    AGAIN:
        {body}
        add.u32 r20, r20, 1; {test.format(count)} {branch} bra AGAIN;
        st.global.u32 [d1], r21;""")


SHARED = """st.shared.u32 [r24], r21; bar.sync 0; ld.shared.u32 r3, [r26]; mad.lo.u32 r21, r3, 5, r21;
    bar.sync 0;"""
BODIES = {
    "arithmetic": "mad.lo.u32 r21, r21, 3, r20; xor.b32 r21, r21, r22;",
    "shared memory and barriers": SHARED,
    "registers that change places": "mov.u32 r3, r21; add.u32 r21, r21, r22; mov.u32 r22, r3;",
    "what the next turn reads": "st.global.u32 [d1], r21; ld.global.u32 r3, [d1]; add.u32 r21, r3, 1;",
    "a branch that nobody takes": """
        add.u32 r21, r21, r20; setp.gt.u32 p2, r20, 5000; @p2 bra NEVER; shl.b32 r21, r21, 1;
    NEVER: add.u32 r21, r21, 7;""",
    "guarded": "and.b32 r3, r0, 1; setp.eq.u32 p2, r3, 0; @p2 mad.lo.u32 r21, r21, 3, 1;",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_turns_are_those_of_the_array_engine(both: Both, calls: list[int], body: str) -> None:
    for count in (9, 40, 101):
        both(turns(body, count))
    assert max(calls) > 60


def test_threads_that_only_fill_up_a_warp_decide_nothing(both: Both, calls: list[int]) -> None:
    body = "st.shared.u32 [r24], 60; ld.shared.u32 r9, [r24]; add.u32 r21, r21, r9;"
    both(turns(body, 0, "setp.lt.u32 p1, r20, r9;"), block=40)
    assert max(calls) > 100


@pytest.mark.parametrize(
    "test",
    [
        "and.b32 r9, r0, 31; add.u32 r9, r9, {}; setp.lt.u32 p1, r20, r9;",
        "setp.ge.u32 p1, r20, {}; not.pred p1, p1;",
    ],
    ids=["not all together", "a test that is turned round"],
)
def test_who_leaves_a_loop_leaves_it_when_it_is_time(
    both: Both, calls: list[int], test: str
) -> None:
    both(turns(BODIES["arithmetic"], 50, test))
    assert max(calls) > 40


def test_a_loop_that_is_left_by_the_branch_that_is_not_taken(both: Both, calls: list[int]) -> None:
    both(turns(BODIES["arithmetic"], 50, "setp.ge.u32 p1, r20, {};", "@!p1"))
    assert max(calls) > 40


def test_a_fault_in_the_middle_is_the_same_and_so_is_memory_then(
    both: Both, calls: list[int]
) -> None:
    body = """st.global.u32 [d9], r21; ld.global.u32 r3, [d1]; add.u32 r21, r21, r3;
        st.global.u32 [d0], r20; add.u64 d9, d9, 32;"""
    _, _, message = both(turns(body, 1000), grid=1, block=32)
    assert "out of bounds" in message
    assert max(calls) > 40


def test_a_call_ends_so_that_somebody_can_look_at_the_clock(
    monkeypatch: pytest.MonkeyPatch, both: Both, calls: list[int]
) -> None:
    """It takes as long for a thread of each CTA as for all."""
    monkeypatch.setattr(dispatch_loop, "BUDGET_OF_THREADS", 256 * 200)
    alone = turns(SHARED.replace("bar.sync 0;", ""), 400)
    alone = alone.replace("AGAIN:", "setp.ne.u32 p3, r23, 0; @p3 bra L; AGAIN:")
    alone = alone.removesuffix("}\n") + "L: ret; }"
    for text in (turns(SHARED, 300), alone):
        calls.clear()
        both(text)
        assert max(calls) <= 100
        assert len(calls) > 10


@pytest.mark.parametrize("guard", ["", "@p4"])
def test_a_barrier_for_some_warps_is_not_one_for_all(
    monkeypatch: pytest.MonkeyPatch, both: Both, guard: str
) -> None:
    """Of three warps any two go on together: who comes last waits for ever, unless only two ever come."""
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    body = f"""st.global.u32 [d0], r21; {guard} bar.sync 1, 64; ld.global.u32 r3, [d0];
        mad.lo.u32 r21, r3, 3, r21;"""
    text = turns(body, 21).replace("AGAIN:", "setp.lt.u32 p4, r23, 64; AGAIN:", 1)
    assert both(text, grid=1, block=128)[2] == ""
    assert ("deadlock" in both(text, grid=1, block=96)[2]) == (guard == "")


def test_loops_in_loops(both: Both, calls: list[int]) -> None:
    body = """mov.u32 r10, 0;
    INNER: mad.lo.u32 r21, r21, 3, r10; add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 30; @p3 bra INNER;"""
    both(turns(body, 20))
    assert max(calls) > 500


NESTS = {
    "a fault of one thread, turns later, in the inner loop": """
        mov.u32 r10, 0; mad.lo.u32 r11, r20, 4096, 0; setp.ne.u32 p5, r0, 37; @p5 mov.u32 r11, 0;
    INNER: ld.global.u32 r3, [d1]; add.u32 r21, r21, r3; st.global.u32 [d1], r21;
        cvt.u64.u32 d10, r11; add.u64 d10, d10, d1; setp.gt.u32 p6, r20, 15; @p6 ld.global.u32 r4, [d10];
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "some threads branch in the inner loop": """
        mov.u32 r10, 0;
    INNER: and.b32 r11, r10, 7; and.b32 r12, r0, 7; setp.eq.u32 p4, r11, r12; @p4 bra APART;
        mad.lo.u32 r21, r21, 3, r10; bra.uni TOGETHER;
    APART: mad.lo.u32 r21, r21, 5, r20; st.global.u32 [d1], r21;
    TOGETHER: add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 30; @p3 bra INNER;""",
    "some turns branch in the inner loop": """
        mov.u32 r10, 0;
    INNER: and.b32 r11, r10, 7; setp.eq.u32 p4, r11, 3; @p4 bra APART;
        mad.lo.u32 r21, r21, 3, r10; bra.uni TOGETHER;
    APART: mad.lo.u32 r21, r21, 5, r20; st.global.u32 [d1], r21;
    TOGETHER: add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 30; @p3 bra INNER;""",
    "a register that all share becomes one a thread, or does not": """
        mov.u32 r10, 0; mov.u32 r13, 7;
    INNER: add.u32 r21, r21, r13; setp.eq.u32 p4, r10, 9; @!p4 bra STAYS; mov.u32 r13, r0;
    STAYS: add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "registers written for some threads alone, and read by nobody": """
        mov.u32 r10, 0; and.b32 r12, r0, 3; setp.eq.u32 p4, r12, 1;
    INNER: @p4 mov.u32 r14, r10; @p4 add.u32 r21, r21, r10;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "what has no machine code": """
        mov.u32 r10, 0; cvt.rn.f32.u32 f1, r0; mul.f32 f1, f1, 0f3B800000; mov.f32 f2, f1;
    INNER: and.b32 r14, r10, 3; setp.eq.u32 p4, r14, 2; fma.rn.f32 f2, f2, 0f3F000000, f1;
        @p4 sin.approx.f32 f2, f1; fma.rn.f32 f1, f2, 0f3F000000, f1; cos.approx.f32 f1, f1;
        shfl.sync.bfly.b32 r11, r21, 5, 31, -1; add.u32 r21, r21, r11; mov.b32 r12, f1; xor.b32 r13, r21, r10;
        @p4 shfl.sync.down.b32 r13|p5, r21, 3, 31, -1; @p5 add.u32 r21, r21, 1; add.u32 r21, r21, r13; xor.b32 r21, r21, r12;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;
        mov.u32 r15, %clock; xor.b32 r21, r21, r15;""",
    "shuffles": """
        mov.u32 r10, 0; mov.u32 r3, -1; and.b32 r4, r0, 31; mov.u32 r5, 31;
    INNER: shfl.sync.idx.b32 r11|p4, r21, r4, r5, r3; shfl.sync.up.b32 r12|p5, r11, r20, 0x1800, r3;
        selp.b32 r13, r11, r12, p5; shfl.sync.down.b32 r14, r13, 3, 0x101f, -1; shfl.sync.bfly.b32 r14, r14, r12, 31, -1;
        mad.lo.u32 r4, r4, 5, r14; shfl.sync.up.b32 r6|p6, r4, r14, r21, -1; @p6 add.u32 r6, r6, r10;
        shfl.sync.down.b32 r7|p7, r6, r4, r11, r3; @!p7 xor.b32 r7, r7, r13; add.u32 r21, r21, r7; @p4 add.u32 r21, r21, 1;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "shuffles of half a warp, now and then": """
        mov.u32 r10, 0; and.b32 r4, r0, 16; setp.ne.u32 p4, r4, 0; selp.b32 r5, 0xFFFF0000, 0xFFFF, p4;
    INNER: and.b32 r6, r10, 15; setp.eq.u32 p5, r6, 11; selp.b32 r7, r5, -1, p5;
        shfl.sync.idx.b32 r11, r21, r10, 0x1f, r7; mad.lo.u32 r21, r11, 3, r0;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "lanes that name each other differently": """
        mov.u32 r10, 0; setp.eq.u32 p4, r0, 37; setp.gt.and.u32 p4, r20, 13, p4;
    INNER: selp.b32 r7, 0x20, -1, p4; shfl.sync.idx.b32 r11, r21, 5, 31, r7; mad.lo.u32 r21, r21, 3, r11;
        add.u32 r21, r21, r0; add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "carries": """
        mov.u32 r10, 0; and.b32 r12, r0, 3; setp.eq.u32 p4, r12, 1;
    INNER: @p4 add.cc.u32 r3, r21, 0xC0000000; and.b32 r13, r20, 7; setp.ne.u32 p5, r13, 5; @p5 bra NEXT;
        addc.cc.u32 r21, r21, r10; madc.lo.u32 r21, r21, 3, r20;
    NEXT: setp.ne.u32 p5, r13, 6; @p5 bra PAST; addc.u32 r21, r21, r10;
    PAST: addc.u32 r3, r3, r22; add.u32 r21, r21, r3; add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "atomics": """
        mov.u32 r10, 0;
    INNER: atom.global.add.u32 r11, [d0], 3; xor.b32 r21, r21, r11; atom.global.exch.b32 r12, [d0+4], r21;
        add.u32 r21, r21, r12; add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "matrices": """
        mov.u32 r10, 0; mov.f32 f0, 0f00000000; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;
    INNER: st.shared.v4.u32 [r27], {r21, r20, r10, r0}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r3, r4, r5, r6}, [r27];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {r7, r8}, [r27]; bar.sync 0;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0, f1, f2, f3}, {r3, r4, r5, r6}, {r7, r8},
            {f0, f1, f2, f3};
        mov.b32 r11, f0; mov.b32 r12, f3; xor.b32 r21, r21, r11; add.u32 r21, r21, r12;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 6; @p3 bra INNER;""",
    "a fault behind what is added up": """
        mov.u32 r10, 0; setp.eq.u32 p5, r0, 37; setp.gt.and.u32 p5, r20, 13, p5; mov.u32 r11, r24;
        @p5 mov.u32 r11, 0;
    INNER: add.u32 r21, r21, 7; st.global.u32 [d1], r21; ld.shared.u32 r4, [r11]; add.u32 r10, r10, 1;
        setp.lt.u32 p3, r10, 6; @p3 bra INNER;""",
    "matrices that have no machine code": """
        mov.u32 r10, 0; mov.b32 f0, 0; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;
        mov.f32 f4, f0; mov.f32 f5, f0; mov.f32 f6, f0; mov.f32 f7, f0;
    INNER: cvt.rn.f32.u32 f0, r21; mul.f32 f0, f0, 0f2F800000; and.b32 r3, r21, 0x3BFF3BFF; xor.b32 r4, r3, 0x10001;
        mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {f0, f1, f2, f3, f4, f5, f6, f7}, {r3, r4}, {r4, r3},
            {f0, f1, f2, f3, f4, f5, f6, f7};
        mov.b32 r11, f0; mov.b32 r12, f5; mad.lo.u32 r21, r21, 3, r11; add.u32 r21, r21, r12;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "a row of a matrix that is none": """
        mov.u32 r10, 0; mov.u32 r11, 0; setp.ne.u32 p5, r0, 69; @p5 mov.u32 r11, r27; shl.b32 r12, r20, 8;
        @p5 mov.u32 r12, 0; add.u32 r11, r27, r12;
    INNER: ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r3}, [r11+16]; add.u32 r21, r21, r3; st.global.u32 [d1], r21;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 6; @p3 bra INNER;""",
    "a row of a matrix that is not aligned": """
        mov.u32 r10, 0; add.u32 r11, r27, r20; setp.lt.u32 p5, r20, 13; @p5 mov.u32 r11, r27;
    INNER: ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r3, r4}, [r11]; add.u32 r21, r21, r4; st.global.u32 [d1], r21;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 6; @p3 bra INNER;""",
    "copies that land later": """
        mov.u32 r10, 0; cvta.to.global.u64 d11, d1;
    INNER: st.global.u32 [d1], r21; cp.async.ca.shared.global [r24], [d11], 4; cp.async.commit_group;
        ld.shared.u32 r11, [r24]; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 r12, [r26];
        mad.lo.u32 r21, r12, 3, r21; bar.sync 0;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "copies in several groups, that race": """
        mov.u32 r10, 0; and.b32 r13, r23, 31; mul.wide.u32 d10, r13, 16; add.u64 d10, d10, d0;
        and.b32 r15, r23, 7; shl.b32 r15, r15, 4; add.u32 r15, r15, r25; cvt.u64.u32 d11, r24;
    INNER: st.global.u32 [d1], r21; cp.async.cg.shared.global [r27], [d10], 16;
        cp.async.ca.shared.global [r15+2048], [d10+8], 8; cp.async.commit_group; st.global.u32 [d1], r10;
        cp.async.ca.shared.global [d11+3072], [d1], 4; cp.async.wait_group 1; ld.shared.u32 r11, [r27];
        ld.shared.v2.u32 {r12, r16}, [r15+2048]; cp.async.commit_group; xor.b32 r21, r21, r11;
        mad.lo.u32 r21, r12, 3, r21; cp.async.wait_group 0; ld.shared.u32 r11, [r24+3072]; add.u32 r21, r21, r11;
        cp.async.ca.shared.global [r24+3072], [d0], 4; cp.async.wait_all; add.u32 r21, r21, r16;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "more copies than there is room for": """
        mov.u32 r10, 0;
    INNER: st.global.u32 [d1], r21; cp.async.ca.shared.global [r24], [d1], 4; cp.async.commit_group;
        cp.async.wait_group 70; ld.shared.u32 r11, [r26]; mad.lo.u32 r21, r21, 3, r11; st.shared.u32 [r26], r10;
        add.u32 r21, r21, r11;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "copies of some threads among those of all": """
        mov.u32 r10, 0; and.b32 r12, r0, 3;
    INNER: and.b32 r13, r20, 3; setp.eq.u32 p4, r12, r13; st.global.u32 [d1], r21; setp.eq.u32 p5, r13, 1;
        cp.async.ca.shared.global [r24], [d1], 4; @p5 cp.async.ca.shared.global [r26], [d0], 4;
        @p4 cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 r11, [r26]; add.u32 r21, r21, r11;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER; cp.async.commit_group;""",
    "a copy from an address that is none": """
        mov.u32 r10, 0; setp.eq.u32 p5, r0, 37; setp.gt.and.u32 p5, r20, 13, p5; mov.u64 d10, d1; @p5 mov.u64 d10, 0;
    INNER: add.u32 r21, r21, 7; st.global.u32 [d1], r21; cp.async.ca.shared.global [r24], [d10], 4;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 6; @p3 bra INNER; cp.async.wait_all;""",
    "a copy to an address that is not aligned": """
        mov.u32 r10, 0; setp.eq.u32 p5, r0, 37; setp.gt.and.u32 p5, r20, 13, p5; mov.u32 r11, r24; @p5 add.u32 r11, r24, 2;
    INNER: add.u32 r21, r21, 7; st.global.u32 [d1], r21; cp.async.ca.shared.global [r11], [d1], 4;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 6; @p3 bra INNER; cp.async.wait_all;""",
    "copies that a barrier in memory hears of": """
        mov.u32 r10, 0; add.u32 r14, r25, 4088; setp.eq.u32 p5, r23, 0; @p5 mbarrier.init.shared.b64 [r14], r2; bar.sync 0;
    INNER: st.global.u32 [d1], r21; cp.async.ca.shared.global [r24], [d1], 4;
        cp.async.mbarrier.arrive.noinc.shared.b64 [r14]; and.b32 r13, r10, 1;
    WAIT: mbarrier.test_wait.parity.shared.b64 p6, [r14], r13; @!p6 bra WAIT; ld.shared.u32 r11, [r24];
        cp.async.ca.shared.global [r24], [d0], 4; cp.async.wait_all; ld.shared.u32 r12, [r24];
        add.u32 r21, r21, r11; mad.lo.u32 r21, r12, 3, r21;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER; bar.sync 0;""",
    "an exit in the middle": """
        mov.u32 r10, 0; shr.u32 r13, r0, 5; add.u32 r13, r13, 8;
    INNER: mad.lo.u32 r21, r21, 3, r10; setp.gt.u32 p4, r20, r13; st.global.u32 [d1], r21; @p4 exit;
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
    "a call": """
        mov.u32 r10, 0;
    INNER: { .param .b32 a; .param .b32 b; st.param.b32 [a], r21; call (b), twice, (a); ld.param.b32 r21, [b]; }
        add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 12; @p3 bra INNER;""",
}  # fmt: skip

TWICE = """
.func (.param .b32 b) twice(.param .b32 a) {
    .reg .b32 x, i; .reg .pred p; ld.param.b32 x, [a]; mov.u32 i, 0;
MORE: mad.lo.u32 x, x, 2, i; add.u32 i, i, 1; setp.lt.u32 p, i, 20; @p bra MORE;
    st.param.b32 [b], x; ret; }
.visible .entry"""


# Who come later, some of them threads that only fill up a warp: those always run that branch, that name lanes, that
# end early and that copy in groups. From the beginning on every nest always runs.
LATER = {
    "a fault of one thread, turns later, in the inner loop",
    "some threads branch in the inner loop",
    "shuffles of half a warp, now and then",
    "carries",
    "copies in several groups, that race",
    "a call",
}


@pytest.mark.parametrize(
    ("body", "block"),
    [
        pytest.param(
            body, block, id=f"{name}-{block}",
            marks=[pytest.mark.thorough] * (block == 40 and name not in LATER),
        )
        for name, body in NESTS.items()
        for block in (128, 40)
    ],
)  # fmt: skip
def test_nests_of_loops_end_alike(
    monkeypatch: pytest.MonkeyPatch, both: Both, calls: list[int], body: str, block: int
) -> None:
    if block == 128:
        monkeypatch.setattr(dispatch_loop, "WORTH", 1)  # from the beginning of the kernel on
    begin = "shl.b32 r27, r23, 4; add.u32 r27, r27, r25;"
    text = turns(body, 17).replace("AGAIN:", f"{begin} AGAIN:", 1)
    _, _, message = both(text.replace(".visible .entry", TWICE, 1), block=block)
    parted = "some threads branch in the inner loop", "copies that a barrier in memory hears of"
    together = body not in map(NESTS.get, parted)
    assert "warp" in message or max(calls, default=1) > 15 * together


@pytest.mark.parametrize("schedule", ["early", "random:5"])
def test_copies_that_land_at_other_times_do_so_in_a_dispatch_loop(
    monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    body = NESTS["copies in several groups, that race"]
    begin = "shl.b32 r27, r23, 4; add.u32 r27, r27, r25;"
    text = turns(body, 4).replace("AGAIN:", f"{begin} AGAIN:", 1)
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    outputs = {}
    for engine, when in (("native", "late"), ("native", schedule), ("array", schedule)):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        device: Any = open_device("emulator", arch="sm_90a", schedule=when)
        buffer = device.upload(np.arange(256, dtype=np.uint32) * 17)
        device.load(text).kernel("k").launch(2, 128, [buffer])
        outputs[engine, when] = buffer.numpy().tolist()
    assert outputs["native", schedule] == outputs["array", schedule]
    assert outputs["native", schedule] != outputs["native", "late"]


PRODUCTS = """
    mov.u32 r20, 0; mov.u32 r21, r0; mov.u32 r23, %tid.x; shl.b32 r24, r23, 4; mov.u32 r25, s; add.u32 r24, r24, r25;
    and.b32 r3, r0, 7; add.u32 r3, r3, 0x3F803F80; st.shared.v4.u32 [r24], {{r3, r3, r3, r3}};
    shr.u32 r5, r25, 4; cvt.u64.u32 d4, r5; or.b64 d4, d4, 0x1000080000; setp.eq.u32 p2, r0, r0;
    mov.f32 f0, 0f00000000; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0; fence.proxy.async.shared::cta; bar.sync 0;
    AGAIN: add.u32 r21, r21, 3; xor.b32 r21, r21, r20;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{f0, f1, f2, f3}}, d4, d4, p2, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; {}
        mov.b32 r8, f1; add.u32 r21, r21, r8; add.u32 r20, r20, 1; setp.lt.u32 p1, r20, 24; @p1 bra AGAIN;
    wgmma.wait_group.sync.aligned 0; st.global.u32 [d1], r21;"""


def test_memory_that_is_freed_between_launches_is_not_found(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    device: Any = open_device("emulator", arch="sm_90a")
    loaded = device.load(
        kernel("""
        ld.global.u64 d3, [d0]; mov.u32 r20, 0; mov.u32 r21, 0;
        AGAIN: ld.global.u32 r3, [d3]; add.u32 r21, r21, r3; add.u32 r20, r20, 1; setp.lt.u32 p1, r20, 24; @p1 bra AGAIN;
        st.global.u32 [d0+8], r21;""")
    ).kernel("k")
    for count in (3, 5):
        other = device.upload(np.full(1, count, np.uint32))
        data = device.upload(np.array([other.address, 0], np.uint64))
        for _ in range(2):
            loaded.launch(1, 32, [data])
        assert data.numpy()[1] == 24 * count
        other.close()
        with pytest.raises(LaunchError, match="out of bounds"):
            loaded.launch(1, 32, [data])
    assert max(calls) > 15


@pytest.mark.parametrize("wait", ["wgmma.wait_group.sync.aligned 0;", "bra.uni ON; ON:"])
def test_products_that_land_between_jobs_are_seen_by_the_next(
    monkeypatch: pytest.MonkeyPatch, both: Both, wait: str
) -> None:
    """They write registers when they are waited for, or when who has not waited reads one."""
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    text = kernel(PRODUCTS.format(wait)).replace(".target sm_80", ".target sm_90a")
    assert not both(text)[2]


def test_a_wave_and_its_memory_end_with_its_launch(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    """Memory that waits for Python to look for circles is not there for the next wave."""
    begin = "shl.b32 r27, r23, 4; add.u32 r27, r27, r25;"
    body = NESTS["copies in several groups, that race"]
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    waves: list[weakref.ref[Any]] = []
    begun = Wave.__post_init__

    def noted(self: Wave) -> None:
        begun(self)
        waves.extend([weakref.ref(self), weakref.ref(self.copies)])

    monkeypatch.setattr(Wave, "__post_init__", noted)
    device: Any = open_device("emulator", arch="sm_90a")
    loaded = device.load(turns(body, 4).replace("AGAIN:", f"{begin} AGAIN:", 1)).kernel("k")
    buffer = device.zeros(256, "u32")
    gc.disable()
    try:
        for _ in range(3):
            loaded.launch(2, 128, [buffer])
        assert [wave() for wave in waves] == [None] * 6
    finally:
        gc.enable()
    assert max(calls) > 15


MEMORY = """
    .local .align 8 .b8 own[64]; mov.u32 r4, own; ld.local.u32 r5, [r4+8]; ld.shared.u32 r6, [r24];
    add.u32 r7, r0, 5; st.local.u32 [r4+8], r7; st.shared.u32 [r24], r7; add.u32 r6, r6, r5;
    ld.global.u32 r8, [d1]; mad.lo.u32 r6, r8, 3, r6; st.global.u32 [d1], r6; cp.async.ca.shared.global [r24], [d1], 4;
    cp.async.commit_group;
    AGAIN: add.u32 r20, r20, 1; add.u32 r21, r21, r20; cp.async.ca.shared.global [r26], [d1], 4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.u32 r9, [r26]; mad.lo.u32 r6, r6, 5, r9; setp.lt.u32 p1, r20, 12;
        @p1 bra AGAIN;
    st.global.u32 [d1], r6;"""


def test_a_wave_begins_with_new_memory_and_without_copies_though_it_has_that_of_another(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    """What was made for a wave serves the next one; what it wrote is gone, and what it had under way."""
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    monkeypatch.setattr(wave_memory, "_KEPT", deque(maxlen=2))
    monkeypatch.setattr(grid, "WAVE_THREADS", 128)
    made: list[DispatchLoop] = []
    make = DispatchLoop.__init__

    def noted(self: DispatchLoop, *args: Any) -> None:
        made.append(self)
        make(self, *args)

    monkeypatch.setattr(DispatchLoop, "__init__", noted)
    text = kernel(
        "mov.u32 r20, 0; mov.u32 r21, r0; mov.u32 r23, %tid.x; shl.b32 r24, r23, 2; mov.u32 r25, s;"
        "add.u32 r24, r24, r25; xor.b32 r26, r24, 512;" + MEMORY
    )
    outputs = []
    for engine in ("array", "native"):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        device: Any = open_device("emulator", arch="sm_90a")
        buffer = device.upload(np.arange(320, dtype=np.uint32) * 17)
        loaded = device.load(text).kernel("k")
        others = [buffer]
        for _ in range(4):
            loaded.launch(5, 64, [buffer])
            others.append(device.zeros(1, "u32"))
        outputs.append(buffer.numpy().tolist())
    assert outputs[1] == outputs[0]
    assert max(calls) > 15
    # Twelve waves: eight of two CTAs, four of the one that is left; each size has made what it needs once or twice.
    assert 2 <= len(made) <= 6
    # Local memory is as large as the next kernel has it.
    less = kernel(".local .align 8 .b8 own[16]; mov.u32 r4, own; ld.local.u32 r5, [r4+32];")
    with pytest.raises(LaunchError, match="local"):
        device.load(less).kernel("k").launch(5, 64, [buffer])


def test_what_was_made_for_single_ctas_is_not_for_clusters(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    """Of a cluster's second CTA the address is the first one's, which only shared::cluster reaches."""
    text = kernel("""
        mov.u32 r20, 0; mov.u32 r24, %tid.x; mad.lo.u32 r24, r24, 4, 0x400;
    AGAIN: setp.gt.u32 p2, r20, 20; @p2 st.shared.u32 [r24], r20; st.global.u32 [d1], r20;
        add.u32 r20, r20, 1; setp.lt.u32 p1, r20, 40; @p1 bra AGAIN; """)
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    device: Any = open_device("emulator", arch="sm_90a")
    loaded, buffer = device.load(text).kernel("k"), device.zeros(256, "u32")
    for _ in range(2):
        loaded.launch(2, 128, [buffer])
    assert max(calls) > 30
    with pytest.raises(LaunchError, match="CTA 1 of a cluster of 2"):
        loaded.launch(2, 128, [buffer], cluster=2)


def test_threads_of_a_cluster_have_machine_code_for_their_own_shared_memory(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    """Who asks for nothing of the other CTAs has what single CTAs have."""
    monkeypatch.setattr(dispatch_loop, "WORTH", 1)
    results = []
    for engine, clusters in (("array", {}), ("native", {"cluster": 2})):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        device: Any = open_device("emulator", arch="sm_90a")
        buffer = device.upload(np.arange(512, dtype=np.uint32) * 17)
        device.load(turns(SHARED, 60)).kernel("k").launch(4, 128, [buffer], **clusters)
        results.append(buffer.numpy().tolist())
    assert results[0] == results[1]
    assert max(calls) > 60
