"""The table of algorithms, certified by the compilers: every type, every target, several tiles."""

from __future__ import annotations

import re

import pytest

from ptxlab import resources
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.gemm import ALGORITHMS, Tile, find_algorithm
from ptxlab.toolchain import Resources, compile_cuda, link_ptx

CASES = [(name, *types) for name, algorithm in ALGORITHMS.items() for types in algorithm.types]


def resources_of(name: str, tile: Tile, dtype: str, acc: str, arch: str) -> Resources:
    algorithm = ALGORITHMS[name]
    file = resources.path(algorithm.file)
    options = algorithm.options(tile, dtype, acc)
    ptx = compile_cuda(file.read_text(), path=str(file), arch="sm_80", options=options)
    return link_ptx(ptx, arch=arch).kernels[algorithm.entry]


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_120a"])
@pytest.mark.parametrize(("name", "dtype", "acc"), CASES)
def test_compiles_for_its_types_without_spills(name: str, dtype: str, acc: str, arch: str) -> None:
    algorithm = ALGORITHMS[name]
    used = resources_of(name, algorithm.tile, dtype, acc, arch)
    assert used.spill_stores == used.spill_loads == used.stack == used.shared == 0
    threads = 1
    for size in algorithm.launch(algorithm.tile, 100, 100).block:
        threads *= size
    assert used.registers * threads <= 65536


TILES = [
    Tile(64, 64, 32, 32, 32, 2),
    Tile(128, 128, 64, 64, 32, 4),
    Tile(256, 128, 32, 64, 64, 4),
    Tile(128, 256, 32, 64, 64, 3),
]


@pytest.mark.parametrize("tile", TILES)
def test_tensor_core_compiles_for_other_tiles(tile: Tile) -> None:
    used = resources_of("tensor_core", tile, "bf16", "f32", "sm_90a")
    assert used.spill_stores == used.spill_loads == 0


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        (Tile(128, 128, 16, 64, 64, 3), "alternate"),
        (Tile(128, 128, 32, 64, 64, 1), "one stage is read"),
        (Tile(96, 128, 32, 64, 64, 3), "whole warp tiles"),
        (Tile(128, 32, 32, 64, 32, 3), "fills all banks"),
    ],
)
def test_tensor_core_refuses_tiles_it_cannot_do(tile: Tile, said: str) -> None:
    with pytest.raises(ToolchainError, match=said):
        resources_of("tensor_core", tile, "bf16", "f32", "sm_90a")


def test_the_default_tile_is_the_one_in_the_file() -> None:
    tile = ALGORITHMS["tensor_core"].tile
    text = resources.path(ALGORITHMS["tensor_core"].file).read_text()
    defaults = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\n", text)}
    assert {f"-D{name}={value}" for name, value in defaults.items()} == set(tile.options)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (128, 128), (129, 127), (1000, 3000)])
def test_the_grid_covers_d_and_no_more(m: int, n: int) -> None:
    naive = ALGORITHMS["naive"]
    shape = naive.launch(naive.tile, m, n)
    for size, grid, block in zip((m, n), shape.grid, shape.block, strict=True):
        assert (grid - 1) * block < size <= grid * block
    vectorized = ALGORITHMS["block_tiled_vectorized"]
    shape = vectorized.launch(vectorized.tile, m, n)
    assert shape.grid == ((m + 127) // 128, (n + 127) // 128)
    assert (shape.block, shape.shared) == ((256,), 4 * (8 * 132 + 8 * 128))
    tensor_core = ALGORITHMS["tensor_core"]
    shape = tensor_core.launch(tensor_core.tile, m, n)
    assert shape.grid == (((m + 127) // 128) * ((n + 127) // 128),)
    assert (shape.block, shape.shared) == ((128,), 3 * (128 * 32 + 32 * 128) * 2)


def test_an_unknown_name_gets_all_names_and_the_nearest() -> None:
    with pytest.raises(PtxlabError) as caught:
        find_algorithm("tensorcore")
    assert "naive, block_tiled_vectorized, tensor_core" in caught.value.message
    assert caught.value.hint == "did you mean tensor_core?"
    with pytest.raises(PtxlabError) as caught:
        find_algorithm("zzz")
    assert caught.value.hint is None


def test_types_an_algorithm_does_not_take() -> None:
    with pytest.raises(PtxlabError) as caught:
        ALGORITHMS["naive"].require("f16", "f16")
    assert "f32 -> f32, bf16 -> f32, f16 -> f32" in caught.value.message
    assert caught.value.hint == "tensor_core can"
    with pytest.raises(PtxlabError) as caught:
        ALGORITHMS["tensor_core"].require("bf16", "f16")
    assert caught.value.hint is None
