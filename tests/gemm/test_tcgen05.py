"""The rungs of Blackwell: right on every problem, to the bit those of mma.sync, and fast by their machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.facts import facts, main_loop
from ptxlab.gemm.predicted import predict_rung
from ptxlab.gemm.problem import LAYOUTS
from ptxlab.gemm.run import compute
from ptxlab.gemm.tile import Sizes
from ptxlab.prediction.chip import find
from tests.gemm.conftest import Keeping
from tests.gemm.mapped import (
    PROBLEM,
    Rewrite,
    assembled,
    by_turns,
    checked,
    expected,
    is_right,
    problems,
    rewrite,
    rung,
    whole_numbers,
)
from tests.gemm.simt import one_of_each
from tests.together import thorough

__all__ = ["rewrite"]

RUNGS = [name for name in ALGORITHMS if name.startswith("tcgen05")]
PAIRS = [name for name in RUNGS if ALGORITHMS[name].pair]


@pytest.fixture(scope="module")
def blackwell() -> Iterator[Device]:
    with contextlib.closing(open_device("emulator", arch="sm_100a")) as device:
        yield cast(Device, Keeping(device))


@pytest.fixture(autouse=True)
def _few_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the emulator run one pair of CTAs at a time, where others are to be taken over."""
    if "tcgen05_persistent" in request.node.name:
        monkeypatch.setattr("ptxlab.emulator.run.grid.WAVE_THREADS", 2 * 192)


def quick(name: str) -> Sizes:
    """A tile that is soon multiplied."""
    width = 128 if name in PAIRS else 64
    return {"BN": width, "WN": width}


# ---- right --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "turn"), by_turns(RUNGS))
def test_every_problem(blackwell: Device, name: str, turn: int) -> None:
    for problem in problems(RUNGS.index(name) + 2 * turn, turn):
        assert is_right(blackwell, problem, rung(name), quick(name)), problem


# One CTA and a pair always run.
@pytest.mark.parametrize(
    "rungs",
    [(RUNGS[0], RUNGS[-1]), pytest.param(tuple(RUNGS[1:-1]), marks=pytest.mark.thorough)],
    ids=",".join,
)
def test_random_numbers_are_added_up_as_by_mma_sync(
    blackwell: Device, rungs: tuple[str, ...]
) -> None:
    """Both take 16 products at a time in increasing k, and round alike."""
    problem = Problem(130, 260, 136)
    inputs = problem.inputs()
    results = {
        compute(blackwell, problem, inputs, rung(name)).d.tobytes()
        for name in ("tensor_core", *rungs)
    }
    assert len(results) == 1


TYPES = ("e4m3", "e5m2", "tf32", "s8")


@pytest.mark.parametrize(
    ("name", "dtype", "layout"),
    [
        pytest.param(name, dtype, LAYOUTS[(i + j) % 4], marks=[pytest.mark.thorough] * (i != j))
        for i, name in enumerate(RUNGS)
        for j, dtype in enumerate(TYPES)
    ],
)
def test_numbers_of_8_and_of_32_bits(blackwell: Device, name: str, dtype: str, layout: str) -> None:
    """Whose panels have other lines, and which are turned in other ways, against products in float64."""
    for m, n, k in ((1, 1, 1), (129, 257, 65)):
        result = run(blackwell, Problem(m, n, k, dtype, layout=layout), ALGORITHMS[name])
        assert result.passed, (m, n, k)
        assert result.verdict.error < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_races_with_numbers_of_8_and_of_32_bits(name: str, dtype: str) -> None:
    results = set()
    for schedule in ("late", "early", "random:1"):
        with open_device("emulator", arch="sm_100a", schedule=schedule) as device:
            problem = Problem(130, 500, 136, dtype, beta=1, layout=LAYOUTS[len(dtype) % 4])
            report, d = checked(device, rung(name), {}, problem)
            assert report.verdict == "clean", report.findings
            results.add(d.tobytes())
    assert len(results) == 1


# The least and the most that may land: what is between them is checked for races in every rung below.
@pytest.mark.parametrize(
    "name",
    [RUNGS[0], *thorough(RUNGS[1:-1]), RUNGS[-1]],
)
def test_whenever_products_and_copies_land(name: str) -> None:
    problem = Problem(130, 136, 200)
    inputs = problem.inputs()
    results = set()
    for schedule in ("late", "early", "random:1"):
        with open_device("emulator", arch="sm_103a", schedule=schedule) as device:
            computed = compute(device, problem, inputs, rung(name), quick(name))
            results.add(computed.d.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("name", [*thorough(RUNGS[:-1]), RUNGS[-1]])
def test_a_larger_one(blackwell: Device, name: str) -> None:
    result = run(blackwell, Problem(256, 512, 256), ALGORITHMS[name])
    assert result.passed
    assert result.verdict.error > 0


def test_products_of_integers_are_not_on_every_chip() -> None:
    with pytest.raises(Unsupported, match="tcgen05 with s8 is for sm_100a, and this is sm_103a"):
        run(open_device("emulator", arch="sm_103a"), Problem(8, 8, 8, "s8"), ALGORITHMS["tcgen05"])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_120a"])
def test_elsewhere_they_are_left_out(arch: str) -> None:
    with pytest.raises(Unsupported, match=f"tcgen05 is for sm_100f, and this is {arch}") as caught:
        run(open_device("emulator", arch=arch), Problem(8, 8, 8), ALGORITHMS["tcgen05"])
    assert caught.value.exit_status == 4
    assert caught.value.hint == "--device emulator --arch sm_100a is one"


@pytest.mark.parametrize(
    "name",
    ["tcgen05", pytest.param("tcgen05_pair", marks=pytest.mark.thorough), "tcgen05_persistent"],
)
def test_their_time_is_no_less_than_that_of_their_products(name: str) -> None:
    """A CTA multiplies 256 FLOP of a column in a cycle and lane pair: 8192 in all."""
    chip = find("b200")
    prediction = predict_rung(Problem(256, 256, 1024), ALGORITHMS[name], chip)
    ctas = 4 if name == "tcgen05" else 2
    least = 2 * 256 * 256 * 1024 / ctas / 8192
    assert least < prediction.cycles < 8 * least
    assert prediction.used["tensor"] == pytest.approx(least / prediction.cycles, rel=0.05)


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("tcgen05", {"BK": 32}, "a tile is as deep as a panel"),
        ("tcgen05", {"BM": 64}, "a CTA has as many rows as Tensor Memory has lanes"),
        ("tcgen05", {"BN": 512, "WN": 512}, "a product is 64, 128 or 256 columns wide"),
        ("tcgen05", {"STAGES": 2}, "tiles are copied one at a time"),
        ("tcgen05_pipelined", {"WM": 64}, "a warp has 32 rows"),
        ("tcgen05_pair", {"CLUSTER": 4}, "two CTAs multiply as one"),
    ],
)
def test_tiles_that_cannot_be(blackwell: Device, name: str, sizes: Sizes, said: str) -> None:
    with pytest.raises(PtxlabError, match=said):
        run(blackwell, Problem(64, 64, 64), ALGORITHMS[name], sizes)


# ---- what a slip of the pen would be ------------------------------------------------------------

SLIPS = [
    ("tcgen05", "!first || step > 0", "!first"),
    ("tcgen05", "!TRANSPOSE_B << 16", "TRANSPOSE_B << 16"),
    ("tcgen05", "row + down + i % 2 * 8", "row + down + i / 4 * 8"),
    ("tcgen05", "a, b, tile, BK * i, full", "a, b, tile, BK, full"),
    (
        "tcgen05_pipelined",
        "multiply(sums, ring.tiles(), i == 0)",
        "multiply(sums, ring.tiles(), true)",
    ),
    ("tcgen05_specialised", "return turn / 2 % 2", "return turn % 2"),
    ("tcgen05_pair", "tile.column + rank * WIDTH", "tile.column"),
    ("tcgen05_pair", "CTAS * BM / 16 << 24", "BM / 16 << 24"),
    ("tcgen05_persistent", "cta / CLUSTER", "cta"),
]


def _method(slip: tuple[str, str, str]) -> str:
    return ALGORITHMS[slip[0]].method


@pytest.mark.parametrize(("name", "old", "new"), one_of_each(SLIPS, _method))
def test_a_slip_is_noticed(
    blackwell: Device, rewrite: Rewrite, name: str, old: str, new: str
) -> None:
    slipped = rewrite(rung(name), old, new)
    with contextlib.suppress(LaunchError):
        assert not is_right(blackwell, PROBLEM, slipped, quick(name))


def tiles(name: str) -> Problem:
    """Return several tiles: of CTAs that go on to others, each accumulator and each answer comes around again.

    A pair has all rows, and three tiles of 128 columns; two CTAs have six of 64.
    """
    return Problem(130, 330 if name in PAIRS else 150, 136, beta=1)


# The last is a pair, and goes on to other tiles.
@pytest.mark.parametrize(
    "name",
    [RUNGS[0], *thorough(("tcgen05_pipelined", "tcgen05_pair")), "tcgen05_specialised", RUNGS[-1]],
)
def test_without_a_slip_it_works_and_nothing_races(blackwell: Device, name: str) -> None:
    problem = tiles(name)
    report, d = checked(blackwell, rung(name), quick(name), problem)
    assert report.verdict == "clean", report.findings
    assert "pair" not in {finding.rule for finding in report.findings}
    np.testing.assert_array_equal(d, expected(problem, whole_numbers(problem)))


WAITS = [
    ("tcgen05", "            mbarrier_wait(read, i % 2);", ""),
    ("tcgen05_pipelined", "        mbarrier_wait(done, 0);", ""),
    ("tcgen05_specialised", "        mbarrier_wait(empty(), parity() ^ 1);", ""),
    ("tcgen05_specialised", "memory + turn % 2 * BN", "memory"),
    ("tcgen05_pair", "}\n    cluster_barrier();", "}"),
    ("tcgen05_persistent", "        mbarrier_wait(heard(), parity() ^ 1);", ""),
]


def _waiting(slip: tuple[str, str, str]) -> bool:
    """Whether it is the barrier of a cluster that is waited for, or an mbarrier."""
    return "cluster_barrier" in slip[1]


@pytest.mark.parametrize(("name", "old", "new"), one_of_each(WAITS, _waiting))
def test_a_missing_wait_is_found(
    blackwell: Device, rewrite: Rewrite, name: str, old: str, new: str
) -> None:
    report, _ = checked(blackwell, rewrite(rung(name), old, new), quick(name), tiles(name))
    assert report.verdict != "clean"


# ---- what they do, and what the compilers make of them ------------------------------------------


# What is counted depends on the tile and on how many CTAs multiply as one: one CTA and a pair always run.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name not in ("tcgen05", PAIRS[-1])))
        for name in RUNGS
    ],
)
def test_what_is_counted_follows_from_the_tile(name: str) -> None:
    """A product takes 16 of k, and reads 32 bytes of each row of A and column of B that its CTAs have."""
    algorithm, problem = rung(name), Problem(256, 256, 128)
    with open_device("emulator", arch="sm_100a") as device:
        of_rung = facts(device, problem, algorithm, quick(name))
    width, ctas = of_rung.tile["BN"], of_rung.tile.get("CLUSTER", 1)
    assert of_rung.verdict.passed
    assert of_rung.counts.flops == problem.flops + problem.m * problem.n  # and the epilogue's
    assert of_rung.products == problem.flops // (2 * 128 * ctas * width * 16)
    assert of_rung.counts.tensor_shared == of_rung.products * 32 * (128 * ctas + width)
    assert of_rung.counts.tensor_wavefronts == of_rung.counts.tensor_ideal
    assert of_rung.share is not None


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, marks=[pytest.mark.thorough] * ((i + j) % 2))
        for i, name in enumerate(RUNGS)
        for j, arch in enumerate(("sm_100a", "sm_103a"))
    ],
)
def test_one_thread_issues_products_one_after_the_other(name: str, arch: str) -> None:
    """No loop of ptxas's own over the lanes that might issue, and no spills; chips by turns."""
    algorithm, turn = ALGORITHMS[name], RUNGS.index(name) + (arch == "sm_103a")
    _, function = assembled(algorithm, arch, turn)
    opcodes, loop = function.opcodes(), main_loop(function, "UTCHMMA")
    assert opcodes["UTCHMMA"] == algorithm.tile.bk // 16
    assert loop is not None
    assert loop.count("UTCHMMA") == opcodes["UTCHMMA"]
    assert len(loop.instructions) < 70
    assert loop.count("BAR") == 0
