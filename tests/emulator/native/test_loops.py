"""Turns of a loop in one call are the turns of the array engine: registers, memory, faults, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.emulator.native import loop
from ptxlab.errors import LaunchError
from ptxlab.native import compiler
from ptxlab.native.cores import Pool
from tests.emulator.native.test_engines import kernel

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

Both = Callable[..., tuple[bytes, int, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects how many operations each call has done, of which every turn has two at least."""
    done: list[int] = []
    follow = Pool.follow

    def noting(self: Pool, *args: Any) -> int:
        done.append(follow(self, *args))
        return done[-1]

    monkeypatch.setattr(Pool, "follow", noting)
    return done


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Run kernel ``k(data)`` on both engines; return data, count of instructions and message of both."""

    def run(text: str, grid: int = 2, block: int = 128) -> tuple[bytes, int, str]:
        found = []
        for engine in ("array", "native"):
            monkeypatch.setenv("PTXLAB_ENGINE", engine)
            device: Any = open_device("emulator", arch="sm_90a")
            buffer, count, message = device.upload(np.arange(256, dtype=np.uint32) * 17), 0, ""
            try:
                ran = device.load(text).kernel("k").launch(grid, block, [buffer])
                count = ran.counters["thread_instructions"]
            except LaunchError as error:
                message = str(error)
            found.append((buffer.numpy().tobytes(), count, message))
        assert found[0] == found[1]
        return found[1]

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
    assert max(calls) > 150


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
    assert max(calls) > 60


def test_a_loop_that_is_left_by_the_branch_that_is_not_taken(both: Both, calls: list[int]) -> None:
    both(turns(BODIES["arithmetic"], 50, "setp.ge.u32 p1, r20, {};", "@!p1"))
    assert max(calls) > 60


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
    monkeypatch.setattr(loop, "INSTRUCTIONS", 256 * 200)
    both(turns(SHARED, 300))
    assert max(calls) <= 100
    assert len(calls) > 10


def test_loops_in_loops(both: Both, calls: list[int]) -> None:
    body = """mov.u32 r10, 0;
    INNER: mad.lo.u32 r21, r21, 3, r10; add.u32 r10, r10, 1; setp.lt.u32 p3, r10, 30; @p3 bra INNER;"""
    both(turns(body, 20))
    assert sum(done > 40 for done in calls) > 10
