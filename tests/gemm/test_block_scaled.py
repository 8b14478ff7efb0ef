"""Matrices of numbers that share scales, and the rungs that multiply them on Blackwell's two kinds of chips."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.gemm import ALGORITHMS, Algorithm, Problem, run
from ptxlab.gemm.facts import facts
from ptxlab.gemm.problem import Inputs, uploaded
from ptxlab.gemm.run import compute, prepare
from ptxlab.gemm.scaled import SCALED, ScaledMatrix, quantized
from ptxlab.gemm.survey import survey
from ptxlab.gemm.tile import AS_IT_IS, Sizes
from ptxlab.gemm.verification import Verification
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.sass import sass
from ptxlab.observe import check
from ptxlab.toolchain import assemble_cuda
from tests.gemm.conftest import Keeping
from tests.gemm.mapped import SIZES, Rewrite, rewrite
from tests.gemm.simt import one_of_each
from tests.together import thorough

__all__ = ["rewrite"]

RUNG = ALGORITHMS["block_scaled"]
TYPES = [dtype for dtype, _ in RUNG.types]
CHIPS = {"block_scaled": ("sm_100a", "sm_103a"), "tensor_core": ("sm_120a", "sm_121a")}


@pytest.fixture(scope="module")
def blackwell() -> Iterator[Device]:
    with closing(open_device("emulator", arch="sm_100a")) as device:
        yield cast(Device, Keeping(device))


@pytest.fixture(scope="module")
def rtx() -> Iterator[Device]:
    with closing(open_device("emulator", arch="sm_120a")) as device:
        yield cast(Device, Keeping(device))


BOTH = [(name, dtype) for name in CHIPS for dtype in TYPES]
ONCE = [("block_scaled", "nvfp4"), ("tensor_core", "mxfp8")]
OTHERWISE = [("block_scaled", "mxfp8"), ("tensor_core", "nvfp4")]
IN_ONE_TYPE = [
    pytest.param(*both, marks=[pytest.mark.thorough] * (both not in ONCE)) for both in BOTH
]
"""Both rungs and both types always run, each with one of the other."""


@pytest.fixture(params=CHIPS)
def rung(request: pytest.FixtureRequest) -> Algorithm:
    return ALGORITHMS[request.param]


@pytest.fixture
def chip(rung: Algorithm, blackwell: Device, rtx: Device) -> Device:
    """The first chip of the rung."""
    return blackwell if rung is RUNG else rtx


# ---- numbers and scales -------------------------------------------------------------------------

# By the OCP's tables: all numbers of a type, by code without the sign.
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E4M3 = [
    (1 + f / 8) * 2.0 ** (e - 7) if e else f / 8 * 2.0**-6 for e in range(16) for f in range(8)
][:-1]
MAGNITUDES = {"nvfp4": E2M1, "mxfp8": E4M3}


def number(dtype: str, code: int) -> float:
    table, sign = MAGNITUDES[dtype], 8 if dtype == "nvfp4" else 128
    return -table[code - sign] if code >= sign else table[code]


def scale(dtype: str, code: int) -> float:
    return E4M3[code] if dtype == "nvfp4" else 2.0 ** (code - 127)


def fixed(value: float) -> int:
    """Return a float in units of 2**-200, exactly."""
    units = Fraction(value) * (1 << 200)
    assert units.denominator == 1
    return units.numerator


@cache
def numbers(dtype: str, by: float) -> list[int]:
    """Return all numbers of a type times a scale, in the same units."""
    return [fixed(sign * value * by) for value in MAGNITUDES[dtype] for sign in (1, -1)]


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_the_nearest_that_their_scale_has(dtype: str) -> None:
    kind, most = SCALED[dtype], max(MAGNITUDES[dtype])
    values = np.random.default_rng(1).standard_normal((3, 70)).astype(np.float32) * 3
    values[1, :32], values[2, 40] = 0, 1000
    scaled = quantized(values, kind)
    assert scaled.scales.shape == (3, math.ceil(70 / kind.block))
    for row, k in np.ndindex(values.shape):
        block = values[row, k - k % kind.block :][: kind.block]
        by = scale(dtype, int(scaled.scales[row, k // kind.block]))
        largest = float(np.abs(block).max())
        if largest and dtype == "mxfp8":
            assert by == 2.0 ** (math.floor(math.log2(largest)) - 8)
        elif largest:
            assert min(E4M3, key=lambda value: abs(value - largest / most)) == by
        value = number(dtype, int(scaled.codes[row, k])) * by
        assert value == scaled.values[row, k]
        exact = fixed(float(values[row, k]))
        assert abs(exact - fixed(value)) == min(abs(exact - near) for near in numbers(dtype, by))


def test_where_scales_lie() -> None:
    """Row 32 r + l, scale 4 b + s: block b, byte 16 l + 4 r + s of its 512; as many as lines of 128 bytes need."""
    kind = SCALED["nvfp4"]
    scales = np.random.default_rng(2).integers(1, 127, (150, 18)).astype(np.uint8)
    blocks = ScaledMatrix(kind, np.zeros((150, 288), np.uint8), scales).scale_blocks()
    assert blocks.shape == (2, 8, 512)
    for row, j in np.ndindex(scales.shape):
        byte = 16 * (row % 32) + 4 * (row % 128 // 32) + j % 4
        assert blocks[row // 128, j // 4, byte] == scales[row, j]
    assert np.count_nonzero(blocks) == scales.size


def test_two_numbers_of_four_bits_are_a_byte() -> None:
    codes = np.arange(33, dtype=np.uint8).reshape(1, -1) % 16
    packed = ScaledMatrix(SCALED["nvfp4"], codes, np.ones((1, 3), np.uint8)).packed()
    assert packed.shape == (1, 32)
    assert packed[0, :17].tolist() == [*(0x10 + 0x22 * i for i in range(7)), 0xFE] * 2 + [0]


# ---- the rung -----------------------------------------------------------------------------------


def small(problem: Problem) -> Inputs:
    """Small numbers with scales of 0.5, 1 and 2, of which no sum is rounded."""
    rng, kind = np.random.default_rng(problem.seed), SCALED[problem.dtype]
    numbers = [c for c in range(256) if (c & 127) < 127 or kind.bits == 4]
    codes = [c for c in numbers[: 1 << kind.bits] if number(problem.dtype, c) in (0, 1, -2, 3)]
    factors = {"nvfp4": (0x30, 0x38, 0x40), "mxfp8": (126, 127, 128)}[problem.dtype]

    def some(rows: int) -> ScaledMatrix:
        scales = rng.choice(factors, (rows, -(-problem.k // kind.block))).astype(np.uint8)
        return ScaledMatrix(kind, rng.choice(codes, (rows, problem.k)).astype(np.uint8), scales)

    a, b = some(problem.m), some(problem.n)
    bias = rng.integers(-9, 9, problem.n).astype(np.float32) if "bias" in problem.epilogue else None
    d = rng.integers(-9, 9, (problem.m, problem.n)).astype(np.float32)
    return Inputs(a.values, b.values.T, d, bias, (a, b))


def is_right(
    device: Device, problem: Problem, rung: Algorithm = RUNG, sizes: Sizes = AS_IT_IS
) -> bool:
    inputs = small(problem)
    expected = problem.alpha * (inputs.a.astype(np.float64) @ inputs.b) + problem.beta * inputs.d
    if inputs.bias is not None:
        expected = np.maximum(expected + inputs.bias, 0)
    result = compute(device, problem, inputs, rung, sizes)
    return not result.strays and np.array_equal(result.d, expected)


# What an epilogue does to D does not depend on the type either.
@pytest.mark.parametrize(
    ("rung", "dtype", "epilogue"),
    [
        *(
            pytest.param(*both, epilogue, marks=[pytest.mark.thorough] * (both not in once))
            for epilogue, once in (("none", OTHERWISE), ("bias+relu", ONCE))
            for both in BOTH
        ),
    ],
    indirect=["rung"],
)
def test_every_problem(chip: Device, rung: Algorithm, dtype: str, epilogue: str) -> None:
    # What an epilogue does to D does not depend on k, and no CTA goes on to another tile.
    sizes = (*SIZES[:4], (20, 150, 1100)) if epilogue == "none" else SIZES[:3]
    for number_, (m, n, k) in enumerate(sizes):
        alpha, beta = ((1, 0), (2, -1))[(number_ + (epilogue == "none")) % 2]
        room = (None, n + 3)[number_ % 2]
        problem = Problem(
            m, n, k, dtype, epilogue=epilogue, alpha=alpha, beta=beta, ldd=room, seed=number_
        )
        assert is_right(chip, problem, rung), problem


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        *thorough([("nvfp4", {"BM": 128, "BN": 128, "WM": 64, "WN": 64, "BK": 128})]),
        ("mxfp8", {"BM": 256, "BN": 64, "WM": 128, "WN": 32, "BK": 64, "STAGES": 2}),
        # A part of a block as above, but of A.
        pytest.param(
            "mxfp8",
            {"BM": 32, "BN": 128, "WM": 32, "WN": 32, "BK": 64, "STAGES": 4},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_tiles_with_a_part_of_a_block_of_scales_or_several(
    rtx: Device, dtype: str, sizes: dict[str, int]
) -> None:
    m = max(sizes["BM"], 128) + 40  # beyond a tile, and beyond a block of 128 rows
    problem = Problem(m, sizes["BN"] + 8, 328, dtype, beta=1)
    assert is_right(rtx, problem, ALGORITHMS["tensor_core"], sizes)


def test_tiles_that_blocks_of_scales_do_not_fit(rtx: Device) -> None:
    problem, rung = Problem(8, 8, 8, "nvfp4"), ALGORITHMS["tensor_core"]
    for sizes, said in (
        ({"BM": 192, "WM": 64}, "a tile begins where a block of scales does, or is a part of one"),
        ({"BM": 64, "BN": 64, "WM": 16, "STAGES": 4}, "a word of scales is for 32 rows"),
        (
            {"BK": 512, "STAGES": 2, "BM": 64, "BN": 32, "WN": 32},
            "blocks of scales are there for 128 bytes of k",
        ),
    ):
        with pytest.raises(PtxlabError, match=said):
            compute(rtx, problem, small(problem), rung, sizes)


# What lands at random lies between the two that always run.
@pytest.mark.parametrize(
    "schedules",
    [("late", "early"), pytest.param(("late", "random:1"), marks=pytest.mark.thorough)],
    ids=",".join,
)
@pytest.mark.parametrize(("rung", "dtype"), IN_ONE_TYPE, indirect=["rung"])
def test_random_numbers_are_within_the_bound_and_nothing_races(
    rung: Algorithm, dtype: str, schedules: tuple[str, ...]
) -> None:
    """In whatever order copies and products land, on both chips."""
    problem = Problem(40, 72, 600, dtype)
    inputs = problem.inputs()
    results = set()
    for number_, schedule in enumerate(schedules):
        with (
            open_device("emulator", arch=CHIPS[rung.name][number_ % 2], schedule=schedule) as chip,
            uploaded(chip, problem, inputs) as x,
        ):
            report = check(*prepare(chip, x, rung, rung.tile_for(problem, chip.target)))
            assert report.verdict == "clean", report.findings
            d, strays = x.result()
            results.add(d.tobytes())
            verdict = Verification(problem, inputs).verdict(
                d, rung.method, chip.target.dot16, strays
            )
            assert verdict.passed
            assert verdict.tolerance < 1e-4
    assert len(results) == 1


SLIPS = [
    ("block_scaled", "mxfp8", "which << 29", "0 << 29"),
    ("block_scaled", "nvfp4", "sb + there", "sb"),
    ("block_scaled", "nvfp4", "scales + SCALE_BYTES + i", "scales + i"),
    ("block_scaled", "nvfp4", "tile.column, number * LINE", "tile.column, number"),
    ("block_scaled", "mxfp8", "sb += s64(tile.column / BN) * tiles * SCALE_BYTES;", ""),
    ("block_scaled", "mxfp8", "ring.stage * 2 * SCALE_BYTES, i == 0", "0, i == 0"),
    ("tensor_core", "nvfp4", "scales_b.of(step, j, 4), j % 4", "scales_b.of(step, j, 4), 0"),
    ("tensor_core", "mxfp8", "scales_a.of(step, i, 2), i % 2", "scales_a.of(step, i, 2), 0"),
    ("tensor_core", "nvfp4", "step / TURNS * BLOCK_BYTES", "0"),
    ("tensor_core", "mxfp8", "(p / 32 + step) % TURNS", "0"),
    ("tensor_core", "nvfp4", "scales_b(tile.column % BLOCK_ROWS + column)", "scales_b(column)"),
    ("tensor_core", "nvfp4", "16 * (line ^ line % 32 / 8 * 2)", "16 * (line ^ line / 8 * 2)"),
    ("tensor_core", "mxfp8", "s64(p / (128 / Tile::IN_LINE))", "s64(0)"),
    ("tensor_core", "nvfp4", "from = scales + first / BLOCK_ROWS * pitch;", "from = scales;"),
    ("tensor_core", "nvfp4", "!SHARING && ", ""),
]


@pytest.mark.parametrize(("name", "dtype", "old", "new"), one_of_each(SLIPS))
def test_a_slip_is_noticed(
    blackwell: Device, rtx: Device, rewrite: Rewrite, name: str, dtype: str, old: str, new: str
) -> None:
    device, rung = blackwell if name == RUNG.name else rtx, ALGORITHMS[name]
    assert not is_right(device, Problem(40, 200, 600, dtype), rewrite(rung, old, new))


def test_a_wait_less_is_found(blackwell: Device, rewrite: Rewrite) -> None:
    told = "SCALE_BYTES, i == 0);\n            commit(ring.empty());"
    slipped = rewrite(RUNG, told, told.replace("commit", "mbarrier_arrive"))
    problem = Problem(40, 40, 1400, "nvfp4")
    with uploaded(blackwell, problem, small(problem)) as x:
        tile = slipped.tile_for(problem, blackwell.target)
        assert check(*prepare(blackwell, x, slipped, tile)).verdict == "findings"


OPCODES = {
    "block_scaled": {"nvfp4": "UTCOMMA", "mxfp8": "UTCQMMA"},
    "tensor_core": {"nvfp4": "OMMA", "mxfp8": "QMMA"},
}


# The test below has the opcodes of all four.
@pytest.mark.parametrize(("rung", "dtype"), IN_ONE_TYPE, indirect=["rung"])
def test_what_it_counts_and_is_compiled_to(rung: Algorithm, dtype: str) -> None:
    problem = Problem(128, 128, 512, dtype)
    with open_device("emulator", arch=CHIPS[rung.name][0]) as device:
        of_rung = facts(device, problem, rung)
    of_all = 1 if rung is RUNG else 128 // 16 * 128 // 8
    assert of_rung.verdict.passed
    assert of_rung.products == of_all * 512 * SCALED[dtype].bits // 256
    assert of_rung.counts.flops == problem.flops + 128 * 128
    assert of_rung.opcode == OPCODES[rung.name][dtype]
    assert of_rung.share is not None
    assert of_rung.conflicts == of_rung.spilled == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_it_is_assembled_for_both_chips(rung: Algorithm, dtype: str) -> None:
    file, target = resources.path(rung.file), TARGETS[CHIPS[rung.name][1]]
    problem, tile = Problem(1, 1, 1, dtype), rung.cut({}, dtype)
    options = rung.options(problem, tile)
    _, cubin = assemble_cuda(file.read_text(), path=str(file), arch=target.name, options=options)
    used = cubin.kernels[rung.entry]
    assert used.spill_stores == used.spill_loads == used.stack == 0
    products = 4 if rung is RUNG else 2 * tile.wm // 16 * tile.wn // 8
    there = sass(cubin)[rung.entry].opcodes()[OPCODES[rung.name][dtype]]
    assert there == (1 if rung is RUNG else 2) * products  # in two loops


def test_where_they_are_not() -> None:
    problem = Problem(8, 8, 8, "nvfp4")
    for name, arch, needed, hint in (
        ("block_scaled", "sm_120a", "sm_100f", "tensor_core does it here"),
        ("tensor_core", "sm_100a", "sm_120f", "block_scaled does it here"),
        ("tensor_core", "sm_90a", "sm_120f", "--device emulator --arch sm_120a is one"),
    ):
        with pytest.raises(Unsupported, match=f"is for {needed}, and this is {arch}") as caught:
            run(open_device("emulator", arch=arch), problem, ALGORITHMS[name])
        assert caught.value.hint == hint
    for name, (arch, _) in CHIPS.items():
        with pytest.raises(PtxlabError, match=f"{name} has no layout tn, only nn"):
            run(open_device("emulator", arch=arch), replace(problem, layout="tn"), ALGORITHMS[name])
    with pytest.raises(PtxlabError, match="A and B of nvfp4 are packed along k"):
        Problem(8, 8, 8, "nvfp4", lda=16)


@pytest.mark.parametrize("more", [{"layout": "tn"}, {"lda": 30, "ldb": 40}])
def test_the_ladder_goes_on_without_it_or_with_its_own_rows(more: dict[str, Any]) -> None:
    problem = Problem(20, 24, 28, **more)
    with open_device("emulator", arch="sm_100a") as device:
        surveyed = survey(device, problem, [("nvfp4", "f32"), ("f16", "f16")])
    ran = {result.rung.name for result in surveyed.results}
    assert surveyed.passed
    assert ran == {"tensor_core"} | (set() if "layout" in more else {"block_scaled"})
