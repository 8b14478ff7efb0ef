"""The table of algorithms, certified by the compilers: every layout, epilogue, target, several tiles."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, LADDER, Algorithm, Problem, Tile, find_algorithm, run
from ptxlab.gemm.problem import memory_type
from ptxlab.gemm.tile import require
from ptxlab.isa.targets import TARGETS
from ptxlab.toolchain import Resources, compile_cuda, link_ptx
from tests.gemm.simt import KERNELS
from tests.together import in_one_test

CHIPS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")

# test_simt_cost has the upper SIMT rungs on all chips, test_wgmma those for one chip.
ELSEWHERE = [name for name, each in ALGORITHMS.items() if name not in KERNELS and not each.maps]


def resources_of(algorithm: Algorithm, problem: Problem, tile: Tile, arch: str) -> Resources:
    file = resources.path(algorithm.file)
    text = file.read_text()
    if file.suffix == ".cu":
        options = algorithm.options(problem, tile)
        text = compile_cuda(text, path=str(file), arch="sm_80", options=options)
    return link_ptx(text, arch=arch).kernels[algorithm.entry]


def often(name: str, choice: int) -> bool:
    """Whether a case always runs: test_tensor_core has assembled these types of the rung that takes longest."""
    types = ALGORITHMS[name].types
    return name != "tensor_core" or types[choice % len(types)][0] not in ("bf16", "tf32")


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        pytest.param(name, choice, marks=[pytest.mark.thorough] * (not often(name, choice)))
        for name in ELSEWHERE
        for choice in range(4)
    ],
)
def test_compiles_without_spills(name: str, choice: int) -> None:
    """Chips, types, layouts and epilogues by turns."""
    algorithm = ALGORITHMS[name]
    turn = choice + list(ALGORITHMS).index(name)
    arch = CHIPS[(turn + choice) % 6]
    problem = Problem(
        100,
        100,
        100,
        *algorithm.types[choice % len(algorithm.types)],
        layout=algorithm.layouts[choice % len(algorithm.layouts)],
        epilogue=algorithm.epilogues[turn % len(algorithm.epilogues)],
    )
    used = resources_of(algorithm, problem, algorithm.tile, arch)
    assert used.spill_stores == used.spill_loads == used.stack == used.shared == 0
    config = algorithm.launch(problem, algorithm.tile)
    require(config, TARGETS[arch])
    assert used.registers * np.prod(config.block) <= 65536


SIZES = [(1, 1), (128, 128), (129, 127), (1000, 3000)]


@in_one_test(("m", "n"), SIZES)
@in_one_test("name", ALGORITHMS)
def test_the_grid_covers_d_and_no_more(name: str, m: int, n: int) -> None:
    algorithm = ALGORITHMS[name]
    grid = algorithm.launch(Problem(m, n, 1, *algorithm.types[0]), algorithm.tile).grid
    together = algorithm.tile.cluster or 1
    rows, columns = range(0, m, algorithm.tile.bm * together), range(0, n, algorithm.tile.bn)
    ctas = together * len(rows) * len(columns)
    assert grid == (min(ctas, algorithm.resident or ctas), 1, 1)


@in_one_test("name", ALGORITHMS)
def test_macros_are_those_of_the_file(name: str) -> None:
    """The table's tile has every macro of the kernel and no other; its first rung has its defaults."""
    algorithm = ALGORITHMS[name]
    if algorithm.file.endswith(".ptx"):
        return
    text = resources.path(algorithm.file).read_text()
    defaults = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\n", text)}
    macros = algorithm.tile.macros
    assert defaults.keys() | {"GROUP"} == macros.keys()
    first = next(rung for rung in ALGORITHMS.values() if rung.file == algorithm.file)
    if first is algorithm:
        assert {"GROUP": macros["GROUP"], **defaults} == macros


@in_one_test("name", LADDER)
def test_each_rung_says_what_it_is(name: str) -> None:
    rung = LADDER[name]
    assert rung.name == name
    assert 20 < len(rung.idea) < 70
    assert len(set(rung.types)) == len(rung.types) > 0
    for dtype, acc in rung.types:
        Problem(1, 1, 1, dtype, acc)


# ---- other tiles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("naive", {"BM": 16, "BN": 8}),
        ("coalescing", {"BM": 4, "BN": 64}),
        ("tiled", {"BM": 8, "BN": 16, "BK": 5}),
        ("tiled_register", {"BM": 32, "BN": 16, "TM": 4, "BK": 3}),
        ("thread_tiled_4x4", {"BM": 16, "BN": 24, "TM": 2, "TN": 3}),
    ],
)
def test_other_tiles_are_right(device: Device, name: str, sizes: dict[str, int]) -> None:
    result = run(device, Problem(41, 50, 33, "f32", layout="tn"), ALGORITHMS[name], sizes)
    assert result.passed
    assert sizes.items() <= result.tile.items()


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("naive", {"BM": 64}, "a CTA of this tile has 2048 threads"),
        ("naive", {"TM": 2}, "no TM, it is cut by BM, BN, GROUP"),
        ("naive", {"BN": 0}, "BN = 0 is not at least 1"),
        ("tiled_register", {"BM": 60}, "BM = 60 is not a multiple of TM = 8"),
        ("tensor_core", {"WN": 48}, "BN = 128 is not a multiple of WN = 48"),
        ("tiled", {"BK": 4096}, "1048576 bytes of shared memory, and sm_90a has 232448"),
        ("tensor_core", {"STAGES": 1}, "one stage is read"),
        ("numpy", {"BM": 64}, "no tile to change"),
    ],
)
def test_tiles_that_cannot_be(device: Device, name: str, sizes: dict[str, int], said: str) -> None:
    if device.kind != "emulator":
        pytest.skip("the bounds are those of sm_90a")
    types = LADDER[name].types[0]
    with pytest.raises(PtxlabError, match=re.escape(said)) as caught:
        run(device, Problem(64, 64, 64, *types), LADDER[name], sizes)
    assert caught.value.exit_status == 2
    assert "\n" not in caught.value.message


# ---- names and types ------------------------------------------------------------------------


def test_an_unknown_name_gets_all_names_and_the_nearest() -> None:
    with pytest.raises(PtxlabError) as caught:
        find_algorithm("tensorcore")
    assert ", ".join(LADDER) in caught.value.message
    assert caught.value.hint == "did you mean tensor_core?"
    with pytest.raises(PtxlabError) as caught:
        find_algorithm("zzz")
    assert caught.value.hint is None


def test_what_an_algorithm_does_not_take() -> None:
    naive = ALGORITHMS["naive"]
    with pytest.raises(PtxlabError) as caught:
        naive.require("f16", "f16")
    assert "f32 -> f32, bf16 -> f32, f16 -> f32" in caught.value.message
    assert caught.value.hint == "tensor_core can"
    with pytest.raises(PtxlabError) as caught:
        ALGORITHMS["tensor_core"].require("bf16", "f16")
    assert caught.value.hint is None
    with pytest.raises(PtxlabError, match="cublas has no epilogue relu, only none"):
        LADDER["cublas"].require("f32", "f32", "tt", "relu")


def test_elements_in_memory() -> None:
    assert [memory_type(name).itemsize for name in ("f32", "tf32", "bf16", "f16")] == [4, 4, 2, 2]


def test_the_page_has_every_rung() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    rows = [f"| `{rung.name}` | {rung.idea} | {rung.reference or ''} |" for rung in LADDER.values()]
    assert "\n".join(rows) in page
