"""Products that other cores compute are as if they were done when they land, however late a core gets to them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.emulator.run.background import Background
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.run import compute
from ptxlab.native import compiler, cores
from tests.emulator.blackwell.cells import after
from tests.emulator.blackwell.operands import Problem as TensorProblem
from tests.emulator.hopper.conftest import hopper_text
from tests.native.engines import multiply_by

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")


@pytest.fixture
def at_last(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Has no core do anything of a task before it must be finished; the list gets all tasks."""
    begun: list[bytes] = []

    def begin(pool: cores.Pool, task: bytes) -> cores.Begun:
        begun.append(task)
        return cores.Begun(task, 1)

    def finish(pool: cores.Pool, task: cores.Begun) -> None:
        pool.run(task.task)

    monkeypatch.setattr(cores.Pool, "begin", begin)
    monkeypatch.setattr(cores.Pool, "is_done", lambda pool, task: False)
    monkeypatch.setattr(cores.Pool, "finish", finish)
    return begun


# ---- wgmma ----

OPERANDS = """
    mad.lo.u32 r5, r0, 16, r3;
    mad.wide.u32 d5, r0, 16, d1;
    ld.global.v4.b32 {r8, r9, r10, r11}, [d5];
    st.shared.v4.b32 [r5], {r8, r9, r10, r11};
    @p0 mbarrier.init.shared.b64 [bar], 1;
    OBJECT
    fence.proxy.async;
    bar.sync 0;
    and.b32 r6, r3, 0x3ffff;
    shr.u32 r6, r6, 4;
    cvt.u64.u32 d6, r6;
    or.b64 d6, d6, 0x1000080000;
    add.u64 d7, d6, 128;
    setp.eq.u32 p1, 0, 0;
    mov.f32 f0, 0f3f800000; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0; mov.f32 f4, f0;
"""
SUM = "{f0, f1, f2, f3}, d6, d7, p1, 1, 1, 0, 0;"
MULTIPLY = f"""
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {SUM}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
"""
COPY = """
    @p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 2048;
    @p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1+2048], 2048, [bar];
Copied:
    mbarrier.try_wait.parity.shared.b64 p2, [bar], 0;
    @!p2 bra Copied;
"""
FUNCTION = """
.func (.reg .f32 sum) multiply(.reg .b64 a, .reg .b64 b)
{
    .reg .f32 e<3>; .reg .pred no;
    setp.ne.u32 no, 0, 0;
    mov.f32 sum, 0f00000000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {sum, e0, e1, e2}, a, b, no, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}
"""
BEHIND = {
    "nothing": "",
    "a store": "st.shared.b32 [r5], r0;",
    "a store to a generic address": "cvt.u64.u32 d8, r5;cvta.shared.u64 d8, d8; st.b32 [d8], r0;",
    "an atomic": "red.shared.add.u32 [r5], 77;",
    "an atomic before a branch": "red.shared.add.u32 [r5], 77; bra.uni Next; Next:",
    "a copy of the thread's own": "cp.async.ca.shared.global [r5], [d5+16], 16; cp.async.wait_all;",
    "a bulk copy": COPY,
    "a bulk store": """
        @p0 cp.async.bulk.global.shared::cta.bulk_group [d1], [r3], 1024;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    """,
    "clusters that meet": "barrier.cluster.arrive; barrier.cluster.wait;",
    "an object": "@p0 mbarrier.arrive.shared.b64 _, [r3+8];",
    "another object": "bar.sync 0; @p0 mbarrier.init.shared.b64 [r3+64], 3;",
    "a register": "mov.f32 f4, f0;",
    "another product": MULTIPLY,
    "a register between": f"{MULTIPLY} mov.f32 f4, f1; {MULTIPLY} add.f32 f4, f4, f0; {MULTIPLY}",
    "some threads": f"setp.lt.u32 p2, r0, 128; @p2 bra Some; bra.uni All; Some: {MULTIPLY} All:",
    "a function": f"call (f4), multiply, (d6, d7); {MULTIPLY}",
    "stores of a loop": f"""
        mov.u32 r6, 60;
    More: {MULTIPLY}
        or.b32 r7, r6, 0x3f803f80;
        st.shared.b32 [r5], r7;
        fence.proxy.async;
        bar.sync 0;
        sub.u32 r6, r6, 1;
        setp.ne.u32 p2, r6, 0;
        @p2 bra More;
    """,
}


EARLY = "a store", "a copy of the thread's own", "a bulk copy", "a bulk store", "another product"
"""What is always behind a product that lands early: another of each that lands when it likes."""


@pytest.mark.parametrize(
    ("schedule", "between"),
    [
        *(("late", between) for between in BEHIND),
        *(
            pytest.param("early", between, marks=[pytest.mark.thorough] * (between not in EARLY))
            for between in BEHIND
        ),
    ],
)
def test_nothing_shows_behind_a_wait(
    monkeypatch: pytest.MonkeyPatch, at_last: list[bytes], between: str, schedule: str
) -> None:
    def sums(engine: str) -> Array:
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        device = open_device("emulator", arch="sm_90a", schedule=schedule)
        stores = "".join(f"st.global.f32 [d9+{4 * i}], f{i};" for i in range(5))
        held = "@p0 mbarrier.init.shared.b64 [r3+8], 9;" if between == "an object" else ""
        body = f"""{OPERANDS.replace("OBJECT", held)} {MULTIPLY} {BEHIND[between]}
            mad.lo.u32 r7, r1, 256, r0; mad.wide.u32 d9, r7, 20, d0; {stores}"""
        out = device.zeros((2, 256, 5), "f32")
        device.load(hopper_text(body, before=FUNCTION)).kernel("k").launch(
            grid=2, block=256, args=[out, device.upload(DATA)]
        )
        return out.numpy()

    by_arrays = sums("array")
    assert not at_last
    np.testing.assert_array_equal(sums("native").view(np.uint32), by_arrays.view(np.uint32))
    assert at_last
    assert len(np.unique(by_arrays)) > 100


DATA = np.random.default_rng(4).integers(0x3F00, 0x4080, 4096, dtype=np.uint16)
"""Numbers of bfloat16 between a half and four."""


# ---- tcgen05 ----

ISSUE = """
    .reg .b32 idesc, d; .reg .pred p;
    cvt.u32.u64 idesc, x2;
    add.u32 d, t, 32;
    setp.ne.b64 p, x3, 0;
    MULTIPLY p; MULTIPLY yes; MULTIPLY yes; MULTIPLY yes; MULTIPLY yes; MULTIPLY yes;
    MULTIPLY no; MULTIPLY yes;
    add.u32 d, d, 64;
    MULTIPLY yes; MULTIPLY yes;
    BETWEEN
    MULTIPLY yes;
"""
AMONG = {
    "nothing": "",
    "a copy to D": "add.u64 x5, x0, 8; tcgen05.cp.cta_group::1.128x128b [d], x5;",
}


@pytest.mark.parametrize(
    ("adds", "between"),
    [
        *((0, between) for between in AMONG),
        (1, "nothing"),
        pytest.param(1, "a copy to D", marks=pytest.mark.thorough),  # as 0 has it
    ],
)
def test_products_of_a_chain_are_added_up_in_turn(
    monkeypatch: pytest.MonkeyPatch, at_last: list[bytes], between: str, adds: int
) -> None:
    """More of them than are added up at once, with another D and a new beginning among them."""
    problem = TensorProblem("f16", 128, 24, "bf16", "bf16")
    body = ISSUE.replace("BETWEEN", AMONG[between]).replace(
        "MULTIPLY", "tcgen05.mma.cta_group::1.kind::f16 [d], x0, x1, idesc,"
    )
    rng = np.random.default_rng(3)
    shared = rng.integers(0, 256, (2, 1 << 15), np.uint8) & 0x8F | 0x30
    before = rng.integers(0, 1 << 32, (2, 128, 512), dtype=np.uint32) & 0x8F8F8F8F | 0x30303030
    results = []
    for engine in ("array", "native"):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        words = [*problem.words(), adds]
        results.append(after(body, before, shared, words, group=1))
    np.testing.assert_array_equal(results[1], results[0])
    assert 3 <= len(at_last) <= 5


# ---- rungs of the ladder, whose copies with tensor maps land meanwhile ----


@pytest.mark.parametrize(
    ("name", "arch"), [("wgmma_pipelined", "sm_90a"), ("tcgen05_specialised", "sm_100a")]
)
def test_a_pipeline_has_the_bits_of_arrays(
    monkeypatch: pytest.MonkeyPatch, at_last: list[bytes], name: str, arch: str
) -> None:
    results, problem = [], Problem(128, 128, 512, dtype="bf16")
    for engine in ("array", "native"):
        multiply_by(monkeypatch, engine)
        device = open_device("emulator", arch=arch)
        results.append(compute(device, problem, problem.inputs(), ALGORITHMS[name]).d)
    np.testing.assert_array_equal(results[1], results[0])
    assert len(at_last) >= 8


# ---- the tasks themselves ----


class _Task:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told, self.done = name, told, False

    def start(self) -> None:
        self.told.append(f"{self.name} starts")

    def is_done(self) -> bool:
        return self.done

    def finish(self) -> None:
        self.told.append(f"{self.name} ends")


def _background(*objects: int, may_see: bool = False) -> Background:
    words = np.zeros((2, 64), bool)
    words[1, list(objects)] = True
    return Background(words.reshape(-1), 2, may_see=may_see)


def test_tasks_follow_each_other() -> None:
    told: list[str] = []
    background, first, second = _background(), _Task("first", told), _Task("second", told)
    assert not background
    background.begin(first, [(0, 64)])
    background.begin(second, [(128, 192)])
    background.go_on()
    assert told == ["first starts"]
    first.done = True
    background.go_on()
    assert told == ["first starts", "first ends", "second starts"]
    assert background
    background.finish()
    assert told[3:] == ["second ends"]
    assert not background


@pytest.mark.parametrize(
    ("span", "meets"),
    [((0, 128), False), ((0, 129), True), ((191, 200), True), ((192, 300), False), (None, True)],
)
def test_only_who_writes_what_is_read_waits(span: tuple[int, int] | None, meets: bool) -> None:
    background = _background()
    background.begin(_Task("it", []), [(128, 160), (160, 192)])
    background.about_to_write(span)
    assert bool(background) is not meets


def test_who_writes_waits_for_no_task_behind_the_last_that_reads_there() -> None:
    told: list[str] = []
    background = _background()
    for name, first in (("first", 128), ("second", 64), ("third", 192)):
        background.begin(_Task(name, told), [(first, first + 64)])
    background.about_to_write((64, 72))
    assert told == ["first starts", "first ends", "second starts", "second ends", "third starts"]
    background.about_to_write((128, 136))
    assert background
    background.about_to_write(None)
    assert not background


@pytest.mark.parametrize(("word", "meets"), [(15, False), (16, True), (23, True), (24, False)])
def test_no_task_reads_objects_meanwhile(word: int, meets: bool) -> None:
    background = _background(word)
    background.begin(_Task("it", []), [(128, 192)])
    assert bool(background) is not meets


def test_there_is_none_where_somebody_sees_all() -> None:
    told: list[str] = []
    background = _background(may_see=True)
    background.begin(_Task("it", told), [(128, 192)])
    assert told == ["it starts", "it ends"]
    assert not background
