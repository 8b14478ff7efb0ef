"""Waves: nothing a program computes depends on how many CTAs run together, and memory stays small."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.run import grid
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.problem import DeviceOperands
from ptxlab.gemm.run import launch
from ptxlab.isa.targets import TARGETS
from ptxlab.numbers.types import TYPES
from tests.together import in_one_test

Run = Callable[..., Array]

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 r<4>;
    .reg .b64 d<2>;
BODY
}
"""

# Every thread takes its own number of turns, some leave early, and neighbours meet in between.
DIVERGING = """
    .shared .b32 cell[64];
    setp.gt.u32 p0, r1, 1000;
    @p0 bra Done;
    mul.lo.u32 r2, r1, 2654435761;
    shr.u32 r3, r2, 26;
    mov.u32 r4, 0;
Loop:
    setp.ge.u32 p1, r4, r3;
    @p1 bra Out;
    and.b32 r5, r2, 1;
    setp.eq.u32 p2, r5, 0;
    @p2 shr.u32 r2, r2, 1;
    @!p2 mad.lo.u32 r2, r2, 3, r1;
    add.u32 r4, r4, 1;
    bra Loop;
Out:
    mov.u32 r6, cell;
    mad.lo.u32 r6, r0, 4, r6;
    st.shared.u32 [r6], r2;
    bar.warp.sync 0xffffffff;
    xor.b32 r7, r0, 1;
    mov.u32 r8, cell;
    mad.lo.u32 r8, r7, 4, r8;
    ld.shared.u32 r9, [r8];
    st.global.u32 [d1], r9;
Done:
    ret;
"""


def test_results_do_not_depend_on_the_wave(emulate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for threads in (1, 64, 640, 16384):
        monkeypatch.setattr(grid, "WAVE_THREADS", threads)
        outputs.append(emulate(DIVERGING, grid=16, block=64))
    assert len(np.unique(outputs[0])) > 500
    for other in outputs[1:]:
        np.testing.assert_array_equal(other, outputs[0])


@pytest.mark.parametrize(
    "name",
    [
        "naive",
        "block_tiled_vectorized",
        pytest.param("warp_tiled", marks=pytest.mark.thorough),
        "tensor_core",
        "wgmma_cluster",
        pytest.param("wgmma_persistent", marks=pytest.mark.thorough),
    ],
)
def test_products_do_not_depend_on_the_wave(
    emulator: Device, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    algorithm = ALGORITHMS[name]
    dtype, acc = algorithm.types[0]
    problem = Problem(150, 140, 16, dtype, acc)
    inputs = problem.inputs()
    a, b = emulator.upload(inputs.a), emulator.upload(inputs.b)
    results = []
    for threads in (256, 16384):
        monkeypatch.setattr(grid, "WAVE_THREADS", threads)
        d = emulator.zeros((150, 140), acc)
        operands = DeviceOperands(problem, a, b, d)
        counters = launch(emulator, operands, algorithm, algorithm.tile).counters
        results.append((d.numpy().tobytes(), counters))
    assert results[0] == results[1]


def test_the_first_error_does_not_depend_on_the_wave(
    emulate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only thread 77 is wrong; what the inactive ones hold is no address at all, and no matter."""
    body = """
    setp.eq.u32 p0, r1, 77;
    and.b32 r2, r1, 1;
    setp.eq.u32 p1, r2, 1;
    mov.b64 d2, 3;
    @p1 mov.b64 d2, d1;
    @p0 add.u64 d2, d2, 2;
    @p1 ld.global.u32 r3, [d2];
    st.global.u32 [d1], r3;
    """
    said = set()
    for threads in (32, 128, 16384):
        monkeypatch.setattr(grid, "WAVE_THREADS", threads)
        with pytest.raises(LaunchError) as caught:
            emulate(body, grid=4)
        said.add(caught.value.message.partition(" by ")[2])
    assert said == {"thread (13, 0, 0) of CTA (2, 0, 0) is misaligned"}


def test_most_lanes_load_and_the_others_keep_their_value(run: Run) -> None:
    """Threads that do not load hold 3, which is no address; so does every thread of the last warp."""
    body = """
    mov.b64 d2, 3;
    setp.lt.u32 p0, r1, 60;
    @p0 mov.b64 d2, d1;
    st.global.u32 [d1], r1;
    mov.u32 r3, 7;
    @p0 ld.global.u32 r3, [d2];
    st.global.u32 [d1], r3;
    """
    expected = np.where(np.arange(128) < 60, np.arange(128), 7)
    np.testing.assert_array_equal(run(body, grid=4)[:, 0], expected)


class Seen(Watcher):
    """Keeps how many threads are at the addition, and whether they may overwrite whole registers."""

    def __init__(self) -> None:
        self.threads: list[tuple[int, bool]] = []

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        if site.instruction.opcode == "add":
            self.threads.append((threads.size, threads.full))


def test_threads_that_left_do_not_slow_down_the_rest() -> None:
    """They end before the others go on, who may then overwrite whole registers."""
    text = """
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k()
    {
        .reg .pred p;
        .reg .b32 r;
        mov.u32 r, %tid.x;
        setp.ge.u32 p, r, 20;
        @p bra Done;
        add.u32 r, r, 1;
    Done:
        ret;
    }
    """
    seen = Seen()
    kernel = EmulatorDevice(TARGETS["sm_80"]).load(text).kernel()
    assert isinstance(kernel, EmulatorKernel)
    kernel.watch(seen).launch(grid=1, block=32)
    assert seen.threads == [(20, True)]


def test_a_huge_grid_of_small_ctas() -> None:
    told: list[tuple[int, int]] = []
    device = open_device("emulator", progress=lambda done, total: told.append((done, total)))
    body = """
    mov.u32 r0, %ctaid.x;
    mov.u32 r1, %tid.x;
    mad.lo.u32 r2, r0, 32, r1;
    ld.param.u64 d0, [out];
    mad.wide.u32 d1, r2, 4, d0;
    st.global.u32 [d1], r2;
    """
    ctas = 1 << 16
    out = device.zeros(32 * ctas, "u32")
    device.load(TEXT.replace("BODY", body)).kernel("k").launch(ctas, 32, [out])
    np.testing.assert_array_equal(out.numpy(), np.arange(32 * ctas))
    assert told == sorted(told)
    assert told[-1] == (ctas, ctas)
    assert len({done for done, _ in told}) > 50


def test_a_launch_that_lasts_too_long_between_two_waves() -> None:
    def impatient(done: int, total: int) -> None:
        if done:
            raise TimeoutError("not at its end after 3 s")

    device = open_device("emulator", progress=impatient)
    with pytest.raises(LaunchError, match=r"not at its end after 3 s: \d+ of 65536 CTAs"):
        device.load(TEXT.replace("BODY", "")).kernel("k").launch(1 << 16, 32, [0])


@pytest.mark.parametrize("kind", ["shared", "local"])
def test_a_wave_has_little_memory(emulator: Device, kind: str) -> None:
    """All CTAs together have 256 MiB of it; a wave takes a quarter of that."""
    if kind == "shared":
        ctas, block, body = 4096, 32, ".shared .b8 big[65536];\n"
    else:
        ctas, block, body = 128, 64, ".local .b8 big[32768];\n"
    body += f"mov.u32 r0, big;\nst.{kind}.u32 [r0+4096], r0;\n"
    kernel = emulator.load(TEXT.replace("BODY", body)).kernel("k")
    out = emulator.zeros(1, "u32")
    tracemalloc.start()
    kernel.launch(ctas, block, [out])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1 << 25 < peak < 1 << 27


# ---- lanes --------------------------------------------------------------------------------------


@in_one_test("dtype", ["?", "u1", "i2", "u4", "f4", "i8", "f8", "V16", "rows"])
def test_merge_and_fill_choose_by_the_mask(dtype: str) -> None:
    generator = np.random.default_rng(3)
    mask = generator.random(96) < 0.4
    size = 16 if dtype == "rows" else np.dtype(dtype).itemsize
    old, new = (
        generator.integers(0, 2 if dtype == "?" else 256, (96, size), np.uint8) for _ in "ab"
    )
    expected = np.where(mask[:, None], new, old)
    filled = np.where(mask[:, None], new, new[np.argmax(mask)])

    def value(rows: Array) -> Array:
        return rows if dtype == "rows" else rows.view(dtype).reshape(96)

    lanes = Threads(96, mask=mask)
    assert lanes.merge(value(old), value(new)).tobytes() == expected.tobytes()
    if size <= 8:
        assert lanes.fill(value(new)).tobytes() == filled.tobytes()
        alike = lanes.merge(value(old)[:1], value(new)[:1])
        assert alike.tobytes() == np.where(mask[:, None], new[:1], old[:1]).tobytes()


def test_lanes_count_themselves() -> None:
    mask = np.arange(64) % 3 == 0
    for lanes in (Threads(64, mask=mask), Threads(64, index=np.flatnonzero(mask))):
        assert (lanes.size, lanes.size) == (22, 22)
        assert np.array_equal(lanes.mask, mask)
    assert Threads(64).size == 64
    assert TYPES["b128"].dtype.itemsize == 16  # what merge does not take as one word
