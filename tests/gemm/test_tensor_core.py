"""tensor_core and tensor_core_ptx: what is hard to get right in them, and what the compilers make of it.

Inputs are whole numbers, with which nothing is rounded: numpy knows D to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.facts import SassLoop, main_loop
from ptxlab.gemm.problem import LAYOUTS, Inputs, memory_type, uploaded
from ptxlab.gemm.run import compute
from ptxlab.gemm.tile import Tile, require
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.sass import sass
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport
from ptxlab.toolchain import compile_cuda, link_ptx
from tests.gemm.simt import EACH_WAY, QUICK, one_of_each
from tests.together import in_one_test, thorough

KERNEL = ALGORITHMS["tensor_core"]
SMALL = QUICK["tensor_core"]


def whole_numbers(problem: Problem) -> Inputs:
    """Small ones: their sums of products are f16, too."""
    random = np.random.default_rng(problem.seed)
    m, n, k = problem.m, problem.n, problem.k

    def some(shape: tuple[int, ...], dtype: str) -> Array:
        return random.integers(-3, 4, shape).astype(memory_type(dtype))

    d = some((m, n), problem.acc)
    bias = some((n,), "f32") if "bias" in problem.epilogue else None
    return Inputs(some((m, k), problem.dtype), some((k, n), problem.dtype), d, bias)


def product(inputs: Inputs) -> Array:
    return inputs.a.astype(np.float64) @ inputs.b.astype(np.float64)


# ---- right --------------------------------------------------------------------------------------


# Each layout always runs, with tf32 that of words; test_tf32_is_rounded_to_nearest has its others.
@pytest.mark.parametrize(
    ("dtype", "acc", "layout"),
    [
        pytest.param(*types, layout, marks=[pytest.mark.thorough] * (layout not in often))
        for *types, often in (
            ("bf16", "f32", ("nn",)),
            ("f16", "f16", ("nt",)),
            ("tf32", "f32", ("tn",)),
        )
        for layout in LAYOUTS
    ],
)
def test_every_way_of_copying(keeping: Device, dtype: str, acc: str, layout: str) -> None:
    """Tiles inside, moved back inside, filled up with zeros, and copied element by element."""
    for m, n, k, room in ((72, 136, 160, 0), (67, 40, 107, 8), (65, 131, 40, 1)):
        tight = Problem(m, n, k, dtype, acc, layout=layout, alpha=2, beta=-1)
        lda, ldb, ldd = (-(-width // 8) * 8 + room for width in tight.leading)
        problem = replace(tight, lda=lda, ldb=ldb, ldd=ldd)
        inputs = whole_numbers(problem)
        computed = compute(keeping, problem, inputs, KERNEL, SMALL)
        expected = 2 * product(inputs) - inputs.d.astype(np.float64)
        np.testing.assert_array_equal(computed.d, expected)
        assert computed.strays == 0


@pytest.mark.parametrize("name", ["tensor_core", "tensor_core_ptx"])
def test_matrices_that_begin_at_any_element(keeping: Device, name: str) -> None:
    m, n, k = 72, 80, 40
    algorithm, problem = ALGORITHMS[name], Problem(m, n, k, beta=-1)
    inputs, tile = whole_numbers(problem), algorithm.tile
    if not algorithm.handwritten:
        tile = algorithm.cut(SMALL, problem.dtype)
    options, config = algorithm.options(problem, tile), algorithm.launch(problem, tile)
    kernel = keeping.load(resources.path(algorithm.file), options=options).kernel(algorithm.entry)
    for skipped in (1, 2, 3, 4):
        buffers = [
            keeping.upload(np.pad(array.reshape(-1), (skipped, 0), constant_values=np.nan))
            for array in (inputs.a, inputs.b, inputs.d)
        ]
        places = [
            buffer.address + size * skipped for buffer, size in zip(buffers, (2, 2, 4), strict=True)
        ]
        a, b, d = places
        arguments = [m, n, k, a, k, b, n, d, n, 2.0, -1.0, 0]
        kernel.run(config, arguments)
        stored = buffers[2].numpy()
        assert np.isnan(stored[:skipped]).all()
        np.testing.assert_array_equal(
            stored[skipped:].reshape(m, n), 2 * product(inputs) - inputs.d
        )


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize(("m", "n"), [(70, 67), (136, 72)])
def test_infinities_stay_in_their_row_and_column(
    keeping: Device, m: int, n: int, layout: str
) -> None:
    """What is computed beyond an edge, or twice, meets nothing that exists."""
    problem = Problem(m, n, 35, layout=layout)
    inputs = whole_numbers(problem)
    inputs.a[-1, -1] = inputs.b[-1, -1] = np.inf
    d = compute(keeping, problem, inputs, KERNEL, SMALL).d
    assert np.isfinite(d[:-1, :-1]).all()
    assert not np.isfinite(d[-1]).any()
    assert not np.isfinite(d[:, -1]).any()


@pytest.mark.parametrize("layout", EACH_WAY)
def test_tf32_is_rounded_to_nearest(keeping: Device, layout: str) -> None:
    """Times one: D is A and then B with 10 bits after the point, ties away from zero."""
    size = 64
    problem = Problem(size, size, size, "tf32", layout=layout)
    random = np.random.default_rng(3)
    bits = random.integers(0x30000000, 0x4F000000, (size, size), np.uint32)
    bits[:, :4] = bits[:, :4] & 0xFFFFE000 | [0x0FFF, 0x1000, 0x1001, 0x1FFF]
    bits[::2] |= 0x80000000
    kept = bits & 0xFFFFE000
    rounded = np.where(bits & 0x1FFF < 0x1000, kept, kept + 0x2000).astype(np.uint32)
    values, identity = bits.view(np.float32), np.eye(size, dtype=np.float32)
    for a, b in ((values, identity), (identity, values)):
        inputs = Inputs(a, b, np.zeros_like(a), None)
        d = compute(keeping, problem, inputs, KERNEL, SMALL).d
        np.testing.assert_array_equal(d.view(np.uint32), rounded)


# ---- other tiles --------------------------------------------------------------------------------

OTHER_TILES = [
    ("bf16", "f32", "tt", {"STAGES": 2}),
    ("tf32", "f32", "nn", {"STAGES": 4, "BK": 16}),
    ("f16", "f32", "tn", {"BM": 192, "BN": 64, "WM": 96, "WN": 32, "BK": 64}),
    ("f16", "f16", "nt", {"WN": 128, "STAGES": 2}),
    ("tf32", "f32", "tt", {"BM": 64, "BN": 96, "WM": 16, "WN": 96, "BK": 64}),
    ("bf16", "f32", "nt", {"BM": 64, "BN": 64, "WM": 32, "WN": 16, "BK": 128, "STAGES": 5}),
]


# Always: five stages, and slabs of an odd width, words and pairs of numbers.
@pytest.mark.parametrize(
    ("dtype", "acc", "layout", "sizes"),
    [
        pytest.param(*tile, marks=[pytest.mark.thorough] * (number < 4))
        for number, tile in enumerate(OTHER_TILES)
    ],
)
def test_other_tiles(
    device: Device, dtype: str, acc: str, layout: str, sizes: dict[str, int]
) -> None:
    problem = Problem(200, 67, 150, dtype, acc, layout=layout)
    inputs = whole_numbers(problem)
    d = compute(device, problem, inputs, KERNEL, sizes).d
    np.testing.assert_array_equal(d, product(inputs))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"STAGES": 1}, "one stage is read while another one is filled"),
        ({"WM": 8}, "a warp's tile is made of whole fragments"),
        ({"BK": 16}, "fragments of even and odd steps alternate"),
        ({"BK": 96}, "a row is made of whole lines of 128 bytes"),
        ({"BM": 192}, "all threads copy equally much"),
        ({"BM": 64, "BN": 64, "WM": 16, "STAGES": 2}, "the ring has room for the slabs"),
    ],
)
def test_tiles_that_are_refused(device: Device, sizes: dict[str, int], said: str) -> None:
    problem = Problem(8, 8, 8)
    with pytest.raises(PtxlabError, match=said):
        compute(device, problem, whole_numbers(problem), KERNEL, sizes)


@in_one_test(
    ("size", "dtype", "arch", "bm", "bn"),
    [
        (1024, "bf16", "sm_90a", 64, 64),
        (1536, "bf16", "sm_90a", 128, 128),
        (2048, "bf16", "sm_90a", 256, 128),
        (8192, "bf16", "sm_80", 256, 128),
        (8192, "bf16", "sm_120a", 128, 128),
        (8192, "tf32", "sm_80", 256, 128),
        (8192, "tf32", "sm_89", 128, 128),
        (256, "tf32", "sm_89", 64, 64),
    ],
)
def test_larger_problems_have_larger_tiles(
    size: int, dtype: str, arch: str, bm: int, bn: int
) -> None:
    problem = Problem(size, size, size, dtype)
    tile = KERNEL.tile_for(problem, TARGETS[arch])
    assert (tile.bm, tile.bn) == (bm, bn)
    require(KERNEL.launch(problem, tile), TARGETS[arch])


@pytest.mark.parametrize(
    ("layout", "epilogue", "said"),
    [("nt", "none", "has no layout nt, only nn"), ("nn", "relu", "has no epilogue relu")],
)
def test_what_is_handwritten_says_what_it_takes(layout: str, epilogue: str, said: str) -> None:
    with pytest.raises(PtxlabError, match=said):
        ALGORITHMS["tensor_core_ptx"].require("bf16", "f32", layout, epilogue)


# ---- what a slip of the pen would be ------------------------------------------------------------

SLIPS = [
    ("uncopied >= DEPTH", "uncopied > 0"),
    ("part.load_b(stage, after, pair)", "part.load_b(reading, after, pair)"),
    ("left > DEPTH", "left > 2 * DEPTH"),
    ("total % 8 == 0 ? min", "true ? min"),
    ("row + down(i) < rows ?", "row + down(i) <= rows ?"),
    ("min(max(existing, 0), CHUNK)", "CHUNK"),
    ("aligned && extent", "extent"),
    ("extent >= Tile::EXTENT", "extent > 0"),
    ("byte / LINE * PANEL", "byte / LINE * 0"),
    ("i / PLACES * Tile::PANEL", "0"),
    ("first + 8 * beside", "8 * beside"),
]
SLIPPERY = {"BM": 192, "BN": 32, "WM": 96, "WN": 16}  # quickly compiled, and of several panels
PROBLEMS = [
    Problem(200, 40, 136, layout="tn"),
    Problem(67, 70, 96, layout="tn", lda=72, ldb=72, ldd=80),
    Problem(200, 41, 40, layout="tn", lda=201, ldb=43, ldd=42),
    Problem(200, 40, 72, layout="nt"),
]


@pytest.fixture
def works(device: Device) -> Callable[[Path, Problem], bool]:
    """Say whether the kernel in a file computes D, and all of it."""

    def check(file: Path, problem: Problem) -> bool:
        tile, inputs = KERNEL.cut(SLIPPERY, problem.dtype), whole_numbers(problem)
        config = KERNEL.launch(problem, tile)
        kernel = device.load(file, options=KERNEL.options(problem, tile)).kernel()
        with uploaded(device, problem, inputs) as x:
            try:
                kernel.run(config, x.arguments())
            except LaunchError:
                return False
            d, strays = x.result()
        return not strays and np.array_equal(d, product(inputs))

    return check


FILES = ("tensor_core.cu", "operand.cuh", "result.cuh")


def shipped(name: str) -> str:
    return (resources.path(KERNEL.file).parent / name).read_text()


def file_with(old: str) -> str:
    """Return the one file of the kernel that has a text."""
    [name] = [name for name in FILES if old in shipped(name)]
    return name


def changed(folder: Path, old: str, new: str) -> Path:
    """Return the kernel in ``folder``, with another text in the one of its files that has it."""
    for name in FILES:
        (folder / name).write_text(shipped(name))
    (folder / file_with(old)).write_text(shipped(file_with(old)).replace(old, new))
    return folder / "tensor_core.cu"


def test_without_a_slip_it_works(works: Callable[[Path, Problem], bool]) -> None:
    assert all(works(resources.path(KERNEL.file), problem) for problem in PROBLEMS)


@pytest.mark.parametrize(("old", "new"), one_of_each(SLIPS, lambda slip: file_with(slip[0])))
def test_a_slip_is_noticed(
    works: Callable[[Path, Problem], bool], tmp_path: Path, old: str, new: str
) -> None:
    file = changed(tmp_path, old, new)
    assert not all(works(file, problem) for problem in PROBLEMS)


# ---- what waits for what ------------------------------------------------------------------------


@pytest.fixture
def checked(device: Device) -> Callable[[Path, Problem, int], CheckReport]:
    """Look for races and missing waits in the order that the kernel in a file enforces."""
    if device.kind != "emulator":
        pytest.skip("compute-sanitizer checks a GPU")

    def run(file: Path, problem: Problem, stages: int) -> CheckReport:
        tile = KERNEL.cut({**SMALL, "STAGES": stages}, problem.dtype)
        config = KERNEL.launch(problem, tile)
        kernel = device.load(file, options=KERNEL.options(problem, tile)).kernel()
        with uploaded(device, problem, whole_numbers(problem)) as x:
            return check(kernel, config, x.arguments())

    return run


# Two have waits of their own; four are as three, with a tile more on its way.
@pytest.mark.parametrize("stages", [2, *thorough((3, 4))])
def test_nothing_races(checked: Callable[[Path, Problem, int], CheckReport], stages: int) -> None:
    for problem in (
        Problem(64, 72, 200),
        Problem(67, 33, 140, lda=144, ldb=40, ldd=40),
        Problem(35, 65, 75, lda=77, ldb=65, ldd=65),
    ):
        report = checked(resources.path(KERNEL.file), problem, stages)
        assert report.verdict == "clean", report.findings


@pytest.mark.parametrize(
    ("stages", "kind", "old", "new"),
    one_of_each(
        [
            (2, "async", "STAGES == 2 ? DOWN - 1 : 0", "0"),
            (3, "async", "cp_async_wait<AHEAD - 2>", "cp_async_wait<AHEAD - 1>"),
            (3, "async", "cp_async_wait<AHEAD - 2>();\n                __sync", "__sync"),
            (3, "async", "STAGES == 2 ? 2 : STAGES - 1", "STAGES"),
            (3, "race", "<AHEAD - 2>();\n                __syncthreads();", "<AHEAD - 2>();"),
            (3, "race", "    __syncthreads();  // the ring", "    // the ring"),
            (4, "race", "i % 2 * (16 * PITCH)", "0"),
        ],
        itemgetter(1),
    ),
)
def test_a_missing_wait_is_found(
    checked: Callable[[Path, Problem, int], CheckReport],
    tmp_path: Path,
    stages: int,
    kind: str,
    old: str,
    new: str,
) -> None:
    file = changed(tmp_path, old, new)
    report = checked(file, Problem(64, 64, 200), stages)
    assert kind in {finding.kind for finding in report.findings}


# ---- what the compilers make of it --------------------------------------------------------------


def main(problem: Problem, tile: Tile, arch: str) -> SassLoop:
    """Return the main loop of a kernel that needs no more registers than there are."""
    file = resources.path(KERNEL.file)
    options = KERNEL.options(problem, tile)
    ptx = compile_cuda(file.read_text(), path=str(file), arch=arch, options=options)
    cubin = link_ptx(ptx, arch=arch)
    used, function = cubin.kernels[KERNEL.entry], sass(cubin)[KERNEL.entry]
    assert used.spill_stores == used.spill_loads == used.stack == used.shared == 0
    assert not {"LDL", "STL"} & set(function.opcodes())
    assert used.registers * tile.threads <= 65536
    loop = main_loop(function, "HMMA")
    assert loop is not None
    return loop


[[_, LARGER]] = KERNEL.larger


@pytest.mark.parametrize(
    ("layout", "tile", "arch"),
    [
        ("nn", KERNEL.tile, "sm_80"),
        pytest.param("nt", KERNEL.tile, "sm_86", marks=pytest.mark.thorough),
        pytest.param("tn", KERNEL.tile, "sm_90a", marks=pytest.mark.thorough),
        ("tt", KERNEL.tile, "sm_120a"),
        pytest.param("nn", LARGER, "sm_80", marks=pytest.mark.thorough),
        ("nt", LARGER, "sm_90a"),
        pytest.param("tn", LARGER, "sm_100a", marks=pytest.mark.thorough),
    ],
)
def test_the_main_loop_is_mma_and_loads(layout: str, tile: Tile, arch: str) -> None:
    """By hand: steps of 16 along k, each with a fragment of A or two of B in a load."""
    loop = main(Problem(1, 1, 1, layout=layout), tile, arch)
    steps = tile.bk // 16
    products, loads = steps * (tile.wm // 16) * (tile.wn // 8), steps * (tile.wm + tile.wn) // 16
    copies = 2 * tile.bk * (tile.bm + tile.bn) // 16 // tile.threads
    assert (loop.count("HMMA"), loop.count("LDSM")) == (products, loads)
    wide = [instruction for instruction in loop.instructions if instruction.opcode == "LDGSTS"]
    assert len(wide) == copies
    assert all({"BYPASS", "128"} <= set(load.modifiers) for load in wide)
    assert (loop.count("BAR"), loop.count("LDG"), loop.count("STS")) == (1, 0, 0)
    # Addresses of copies, the ring and the loop; nothing of it is the swizzle's.
    rest = len(loop.instructions) - products - loads - copies
    assert rest <= 0.7 * products
    assert loop.count("S2R") == loop.count("CALL") == 0
    turned = sum("MT88" in instruction.modifiers for instruction in loop.instructions)
    assert turned == steps * (tile.wm * (layout[0] == "t") + tile.wn * (layout[1] == "n")) // 16


@pytest.mark.parametrize(("layout", "arch"), [("nn", "sm_90a"), ("tt", "sm_80")])
def test_tf32_lies_in_words_where_ldmatrix_cannot_turn_it(layout: str, arch: str) -> None:
    tile = KERNEL.tile
    loop = main(Problem(1, 1, 1, "tf32", layout=layout), tile, arch)
    steps, of_a, of_b = tile.bk // 8, tile.wm // 16, tile.wn // 16
    by_word = of_a * (layout[0] == "t") + of_b * (layout[1] == "n")
    assert loop.count("HMMA") == steps * of_a * 2 * of_b
    assert loop.count("LDSM") == steps * (of_a + of_b - by_word)
    words = [
        instruction
        for instruction in loop.instructions
        if instruction.opcode == "LDS" and not instruction.guard
    ]
    assert len(words) == 4 * steps * by_word
