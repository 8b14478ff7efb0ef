"""What is left out of a long kernel: its prediction takes little memory, and comes out as if all were run."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.isa.targets import TARGETS
from ptxlab.prediction.following import accesses, trace
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.trace import Loop, SampledLoop
from ptxlab.prediction.following.turns import Issued, Part, Passed, Turns
from ptxlab.prediction.memory import sector_map, walk
from ptxlab.prediction.memory.sector_map import SectorMap
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.warps import Warp, Window
from ptxlab.prediction.unfilled import UnfilledDevice
from tests.together import thorough

SOFTMAX = Path(__file__).parent / "softmax.cu"
THREADS = {"thread_a_row": 128, "warp_a_row": 128, "cta_a_row": 256}
ROWS = {"thread_a_row": 128, "warp_a_row": 4, "cta_a_row": 1}
"""Rows of a CTA."""
COLUMNS = {"thread_a_row": 16, "warp_a_row": 16 * 32, "cta_a_row": 4 * 256}
"""Columns that a turn of the longest loop takes: the compiler unrolls."""

NONE = np.zeros(0, int)

PRODUCT = """
extern "C" __global__ void __launch_bounds__(256) product(int n, const float* a, const float* b, float* c) {
  __shared__ float as[128 * 8], bs[8 * 128];
  int t = threadIdx.x, row = t / 16, column = t % 16;
  float sum[8][8] = {};
  a += blockIdx.y * 128 * n;
  b += blockIdx.x * 128;
  for (int k = 0; k < n; k += 8) {
    for (int i = t; i < 1024; i += 256) {
      as[i] = a[i / 8 * n + k + i % 8];
      bs[i] = b[(k + i / 128) * n + i % 128];
    }
    __syncthreads();
    for (int p = 0; p < 8; ++p)
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) sum[i][j] += as[(row * 8 + i) * 8 + p] * bs[p * 128 + column * 8 + j];
    __syncthreads();
  }
  c += blockIdx.y * 128 * n + blockIdx.x * 128;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) c[(row * 8 + i) * n + column * 8 + j] = sum[i][j];
}
"""
"""A product of matrices of which a thread sums up 8 x 8 numbers."""

UNEVEN = """\
.version 7.1
.target sm_86
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .b32 t, i, a; .reg .b64 q, r; .reg .f32 f; .reg .pred u;
  ld.param.u64 q, [p]; mov.u32 t, %tid.x; mov.u32 i, 0;
more:
  mul.lo.u32 a, t, i; mul.wide.u32 r, a, 4; add.u64 r, q, r;
  ld.volatile.global.f32 f, [r]; add.u32 i, i, 1;
  setp.lt.u32 u, i, 128; @u bra more;
  ret;
}
"""
"""A warp whose lanes lie further apart from turn to turn."""


def softmax(kernel: str, rows: int, columns: int) -> Prediction:
    """Predict a softmax of rows that nobody writes to: zeros take no memory."""
    x, y = (np.zeros((rows, columns), np.float32) for _ in range(2))
    grid, block = rows // ROWS[kernel], THREADS[kernel]
    return predict(SOFTMAX, "rtx3090", grid, block, [x, y, columns], kernel=kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "thread_a_row",
        *thorough(("warp_a_row", "cta_a_row")),
    ],
)
def test_turns_that_are_left_out_of_several_loops_cost_what_they_would(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if only the hottest loop were shortened, and the others run whole."""
    rows, columns = 82 * ROWS[kernel], 24 * COLUMNS[kernel]
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    monkeypatch.setattr(trace, "ENOUGH", 1)
    monkeypatch.setattr(trace, "LESS", 1)
    monkeypatch.setattr(trace, "MOST", 1 << 60)
    whole = softmax(kernel, rows, columns)
    monkeypatch.setattr(trace, "MOST", 1)
    short = softmax(kernel, rows, columns)
    assert short.cycles == pytest.approx(whole.cycles, rel=0.03)
    assert short.used["dram"] == pytest.approx(whole.used["dram"], rel=0.05)
    assert short.used == pytest.approx(whole.used, abs=0.03)
    assert short.stalls == pytest.approx(whole.stalls, abs=0.03)


@pytest.mark.thorough
def test_more_turns_of_a_loop_say_the_same_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two CTAs of an SM, the youngest of which is served first: when the last ends differs with the turns by 4 %."""
    source, n = tmp_path / "product.cu", 2048
    source.write_text(PRODUCT)
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    monkeypatch.setattr(trace, "ENOUGH", 1)
    monkeypatch.setattr(trace, "LESS", 1)
    matrices = [np.zeros((n, n), np.float32) for _ in range(3)]
    cycles = []
    for turns in (4, 8, 16):
        monkeypatch.setattr(trace, "FEW_TURNS", turns)
        cycles.append(predict(source, "rtx3090", (n // 128, n // 128), 256, [n, *matrices]).cycles)
    assert max(cycles) < 1.01 * min(cycles)


def test_of_long_turns_half_as_many_show_what_all_cost() -> None:
    """Of 3,000 instructions a turn: 48,000 of 16 warps, 51,000 of 17."""
    numbers = np.array([*range(5), *[*range(5, 3005)] * 20, 3005])
    few = [trace.sampled(numbers, NONE, warps)[0].few for warps in (16, 17)]
    assert few == [4, 2]


def ran(cycles: float, issued: float) -> Run:
    """What came of an SM, of which one pipe was held half of the time."""
    return Run(cycles, issued, {(1, "wait"): cycles}, {"lsu": cycles / 2}, {"asked": issued})


def test_what_is_left_out_costs_what_as_much_does_while_all_are_in_the_loop() -> None:
    """Two warps of 5 + 40 turns of 3 + 2 instructions, 39 of which go back; each takes 30 cycles in the window."""
    numbers = np.array([*range(5), *[5, 6, 7] * 40, 8, 9])
    loops = trace.sampled(numbers, NONE, 2)
    few = loops[0].few
    left = 39 - 2 * few
    turns = Turns(Issued(numbers, [np.arange(len(numbers))], [0, 0]), loops, NONE, 0)
    told: list[tuple[tuple[int, ...], bool]] = []

    def run(parts: Sequence[Part], window: Window | None = None) -> tuple[Passed, Run]:
        told.append((tuple(parts[0].marks), window is not None))
        assert window is not None
        window.opened, window.closed = ran(100, 60), ran(160, 72)  # two turns of both warps
        return {}, ran(1000, 2 * len(parts[0].steps))

    whole = turns.run(run, {})
    # A warp begins its turn number few / 2 and ends its last one.
    assert told == [((5 + 3 * (few // 2), 4 + 3 * 2 * few), True)]
    assert whole.cycles == pytest.approx(1000 + 30 * left)
    assert whole.issued == pytest.approx(2 * len(numbers))
    assert whole.stalls == pytest.approx({(1, "wait"): 1000 + 30 * left})
    assert whole.busy == pytest.approx({"lsu": 500 + 15 * left})


def test_where_warps_are_too_far_ahead_of_each_other_fewer_turns_say_what_the_rest_costs() -> None:
    numbers = np.array([*range(5), *[5, 6, 7] * 40, 8, 9])
    loops = trace.sampled(numbers, NONE, 2)
    turns = Turns(Issued(numbers, [np.arange(len(numbers))], [0, 0]), loops, NONE, 0)

    def run(parts: Sequence[Part], window: Window | None = None) -> tuple[Passed, Run]:
        kept = (len(parts[0].steps) - 7) // 3
        return {}, ran(100 + 20 * kept, 2 * len(parts[0].steps))

    assert turns.run(run, {}).cycles == pytest.approx(100 + 20 * 40)


@pytest.mark.parametrize(
    ("order", "between"),
    [
        ("ABab", (2, 3)), ("AaBb", (1, 2)), ("ABb", (2, 3)), ("AB", None), ("AaB", (1, 2)),
        ("ABCDab", (4, 5)), ("ABCaD", (2, 4)), ("ABab" + "CDcd", (2, 3)), ("AaBCD", None),
    ],
)  # fmt: skip
def test_a_window_is_open_from_the_last_that_comes_to_the_first_that_leaves(
    order: str, between: tuple[int, int] | None
) -> None:
    """Warps come to their first mark, as A to D, and to their second, as a to d; half of them may have to be enough."""
    count = len(set(order.lower()))
    window, at = Window(count), iter(range(1, 2 * count + 1))
    warps = {"abcd"[n]: Warp(n, [], marks=[1, 2]) for n in range(count)}
    for letter in order:
        warp = warps[letter.lower()]
        warp.marks.pop(0)
        now = next(at)
        window.come(warp, lambda now=now: ran(now, now))  # type: ignore[misc]
    told = window.between
    assert (told and tuple(run.cycles for run in told)) == between


@pytest.mark.parametrize(
    ("rows", "columns", "most"), [(1024, 64, 6 << 20), *thorough([(4096, 256, 20 << 20)])]
)
def test_a_prediction_needs_little_memory(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, most: int
) -> None:
    """A thread a row, and many elements: what is issued, asked for and loaded is not kept whole."""
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    softmax("thread_a_row", 128, 16)  # compiles it
    tracemalloc.start()
    softmax("thread_a_row", rows, columns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (
        peak - 2 * 2 * 4 * rows * columns < most
    )  # the arrays, and where they would be on the GPU


def test_a_map_of_sectors_counts_each_once_by_the_least_kind() -> None:
    sectors, other = SectorMap(1 << 20, 4096 + 1), SectorMap(1 << 20, 4096 + 1)
    first = (1 << 20) // 32
    sectors.add(np.array([first, first + 3, first + 3, first + 128]), 1)
    sectors.add(np.array([first + 3, first + 4]), 0)
    sectors.add(np.array([first + 4]), 2)
    other.add(np.array([first, first + 4, first + 5]), 0)
    assert [sectors.count(kind) for kind in range(3)] == [2, 2, 0]
    assert [sectors.pieces(kind) for kind in range(3)] == [1, 2, 0]
    assert [sectors.pieces(kind, 2) for kind in range(3)] == [1, 2, 0]
    assert sectors.known(first + np.arange(3, 6)) == 2
    assert sectors.shared(other, but=1) == 1 / 3
    assert sectors.shared(other, but=2) == 2 / 3


def test_a_piece_beside_what_another_turn_loads_is_a_part_of_one() -> None:
    """Of 64 bytes that are fetched together a turn takes 32, of 128 so many 32 or 64; alone, or as large, a piece is whole."""
    sectors = SectorMap(0, 4096)
    sectors.add(np.array([0, 16, 17, 32, 33, 48]), 0)
    sectors.add(np.array([1, 18, 19, 34, 35, 36, 37, 60]), 1)
    assert [sectors.pieces(1, fetched) for fetched in (1, 2, 4)] == [4, 3.5, 2.75]
    assert [sectors.pieces(0, fetched) for fetched in (1, 2, 4)] == [4, 3.5, 2.25]


def test_of_a_large_region_some_blocks_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 16 KiB of which a quarter was loaded; one of 16 blocks of 128 sectors is looked at."""
    monkeypatch.setattr(sector_map, "MOST_SECTORS", 1 << 16)
    every = np.arange(1 << 20)
    sampled, other = (SectorMap(1 << 20, 32 << 20) for _ in range(2))
    sampled.add((1 << 15) + every[every % 512 < 128], 0)
    other.add((1 << 15) + every, 0)
    assert sampled.count(0) == pytest.approx(len(every) / 4, rel=0.05)
    assert sampled.pieces(0) == pytest.approx(len(every) / 512, rel=0.05)
    assert sampled.shared(other, but=1) == pytest.approx(1 / 4, rel=0.05)


def test_loops_are_found_by_where_a_warp_goes_back() -> None:
    """An inner loop of 2 to 3, twice in each turn of an outer one of 1 to 5; what comes once is none."""
    turn = [1, 2, 3, 2, 3, 2, 3, 4, 5]
    numbers = np.array([0, *turn, *turn, 6])
    loops = {loop.head: loop for loop in trace.loops(numbers, NONE)}
    assert loops[2] == Loop(2, (((2, 4), (4, 6)), ((11, 13), (13, 15))))
    assert loops[1] == Loop(1, (((1, 10),),))


def test_arrays_are_not_made_before_somebody_asks_for_their_numbers() -> None:
    class Told:
        shape, dtype = (2, 3), np.dtype(np.float32)
        made = 0

        def __array__(self, dtype: object = None, copy: bool | None = None) -> object:
            self.made += 1
            return np.arange(6, dtype=np.float32).reshape(2, 3)

    told = Told()
    with closing(UnfilledDevice(TARGETS["sm_80"])) as device:
        buffer, other = device.upload(told), device.upload([1, 2])  # type: ignore[arg-type]
        assert told.made == 0
        assert buffer.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert other.numpy().tolist() == [1, 2]
        assert device.zeros(3, "u32").numpy().tolist() == [0, 0, 0]
        held = sys.getrefcount(told)
        buffer.close()
        assert sys.getrefcount(told) == held - 1  # what is closed is not kept
    assert told.made == 1


def test_patterns_of_addresses_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn's lanes lie otherwise: the memory is that of some patterns, not of all."""
    sizes: list[int] = []
    remember = Accesses._remember

    def watched(self: Accesses, *seen: Any) -> None:
        remember(self, *seen)
        sizes.append(sum(request.nbytes for _, request in self._seen.values()))

    monkeypatch.setattr(accesses, "_PATTERN_BYTES", 4096)
    monkeypatch.setattr(Accesses, "_remember", watched)
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    predict(UNEVEN, "rtx3090", 1, 32, [np.zeros(1 << 14, np.float32)])
    assert len(sizes) > 20
    assert 4096 < max(sizes) < 3 * 4096


def test_loops_that_walk_the_same_rows_see_the_same_part_of_them() -> None:
    """Of 128 turns 32 are asked about, and of one of 16 that takes as far a step 4."""
    hot, long, short = (
        SampledLoop(Loop(head, (tuple((n, n + 1) for n in range(turns)),)), 4)
        for head, turns in ((1, 500), (2, 128), (3, 16))
    )
    loops = [hot, long, short]
    assert [walk._spread(trace.loop.runs[0], loops) for trace in (long, short)] == [32, 4]
    assert walk.turns_for_one(loops) == [1, 499, 127 / 31, 15 / 3]


def test_other_loops_are_shortened_only_where_much_is_issued_and_something_is_gained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loops of 300 and of 100 turns, and one of ten runs of three turns, none of which can be spared."""
    numbers = np.array([0, *[1, 2] * 300, *[3, 4] * 100, *[5, *[6, 7] * 3] * 10, 8])

    def heads(most: int) -> list[int]:
        monkeypatch.setattr(trace, "MOST", most)
        return [sample.loop.head for sample in trace.sampled(numbers, NONE, 1)]

    assert heads(1000) == [1]
    assert heads(len(numbers) - 2 * (299 - 32)) == [1]
    assert heads(len(numbers) - 2 * (299 - 32) - 1) == [1, 3]
    assert heads(1) == [1, 3]  # and no more, though the outer of the last has nine turns
    assert [sample.few for sample in trace.sampled(numbers, NONE, 2000)][:2] == [6, 6]
    monkeypatch.setattr(trace, "MOST", 1 << 30)
    assert [sample.few for sample in trace.sampled(numbers, NONE, 2000)] == [15]
