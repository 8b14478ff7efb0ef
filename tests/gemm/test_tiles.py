"""Tiles compared: which there are, why some cannot be, and what is kept of the best."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.opening import open_device
from ptxlab.device.stopwatch import Stopwatch
from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, LADDER, Problem, run, tile_file, tiles
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.tile import Sizes, Tile
from ptxlab.gemm.tile_file import keep, shape_class, tile_for
from ptxlab.gemm.tiles import candidates, compare_counted, compare_timed
from ptxlab.gemm.timing import Procedure
from ptxlab.verbs.bench import tiles as view
from tests.gemm.fake_gpu import FakeGpu, installed

NAIVE, TILED = ALGORITHMS["naive"], ALGORITHMS["tiled"]
PROBLEM = Problem(40, 48, 24, "f32", "f32")


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_file, "path", lambda: tmp_path / "tiles.json")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return installed(monkeypatch)


@pytest.fixture
def gpu(driver: FakeGpu) -> Iterator[CudaDevice]:
    with CudaDevice() as device:
        yield device


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


# ---- candidates ------------------------------------------------------------------------------


def test_candidates_differ_from_the_usual_tile_by_one_or_two_sizes() -> None:
    own = TILED.tile
    near = list(candidates(TILED, "f32", own, together=1))
    assert near[0] == own.macros
    assert changed(own, near[2]) == {"BM": 64}
    assert all(len(changed(own, tile)) <= 1 for tile in near)
    assert {tile["GROUP"] for tile in near} == {1, 4, 8, 16}
    wide = list(candidates(TILED, "f32", own, together=2))
    assert {"BM": 16, "BK": 64} in [changed(own, tile) for tile in wide]
    assert len({tuple(tile.items()) for tile in wide}) == len(wide)
    core = ALGORITHMS["tensor_core"]
    assert {2, 3, 4} <= {
        candidate["STAGES"] for candidate in candidates(core, "bf16", core.tile, together=1)
    }


def changed(own: Tile, macros: Sizes) -> dict[str, int]:
    return {name: size for name, size in macros.items() if own.macros[name] != size}


def only(monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm, *several: dict[str, int]) -> None:
    """Have the usual tile compared with what differs from it like this, and with nothing else."""
    tried = [{**algorithm.tile.macros, **sizes} for sizes in ({}, *several)]
    monkeypatch.setattr(tiles, "candidates", lambda *_, **__: tried)


def test_counted_tiles_and_why_others_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, TILED, {"BM": 64}, {"BM": 16})
    with open_device("emulator", arch="sm_86") as device:
        comparison = compare_counted(device, Problem(64, 64, 32, "f32"), TILED, silent)
    changes = [changed(TILED.tile, candidate.tile) for candidate in comparison.candidates]
    assert changes == [{}, {"BM": 16}, {"BM": 64}], "a tile half as high reads B twice as often"
    usual, half, refused = comparison.candidates
    assert usual.facts is not None
    assert half.facts is not None
    assert (usual.facts.counts.sectors, half.facts.counts.sectors) == (1536, 2048)
    assert refused.refused == "a CTA of this tile has 2048 threads, it can be 1 to 1024"
    text, data = view.text(comparison, ""), view.as_json(comparison, "")
    assert "refused\n  BM=64: a CTA of this tile has 2048 threads" in text
    assert "nothing is kept" in text
    assert data["kept"] is None
    assert all(tile["seconds"] is None for tile in data["tiles"])
    assert json.loads(json.dumps(data)) == data
    assert not tile_file.path().exists()


@pytest.mark.parametrize(
    ("name", "dtype", "reasons"),
    [
        (
            "block_tiled",
            "f32",
            [({"TM": 16}, r"registers are not enough: \d+ bytes a thread spill")],
        ),
        (
            "tensor_core",
            "bf16",
            [
                ({"STAGES": 9}, "needs 147456 bytes of shared memory, and sm_89 has"),
                ({"WM": 48}, "BM = 128 is not a multiple of WM = 48"),
                ({"BK": 16}, "cannot be cut like that"),
            ],
        ),
    ],
    ids=["f32", "bf16"],
)
def test_refusals_name_what_is_missing(
    name: str,
    dtype: str,
    reasons: list[tuple[dict[str, int], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = ALGORITHMS[name]
    only(monkeypatch, algorithm, *(sizes for sizes, _ in reasons))
    with open_device("emulator", arch="sm_89") as device:
        comparison = compare_counted(device, Problem(64, 64, 32, dtype), algorithm, silent)
    for sizes, reason in reasons:
        [refused] = [
            candidate.refused
            for candidate in comparison.candidates
            if changed(algorithm.tile, candidate.tile) == sizes
        ]
        assert re.search(reason, refused)


def test_what_has_no_tile_is_no_comparison() -> None:
    with open_device("emulator") as device:
        for name, words in (("numpy", "no kernel"), ("tensor_core_ptx", "handwritten")):
            with pytest.raises(PtxlabError, match=words):
                compare_counted(device, Problem(8, 8, 8, "bf16"), LADDER[name], silent)


# ---- on a GPU --------------------------------------------------------------------------------


def test_the_fastest_right_tile_is_first(
    gpu: CudaDevice, driver: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, NAIVE, {"BM": 16}, {"BN": 16}, {"BM": 64})

    def by_block(function: str, *rest: int) -> float:
        return {(32, 32): 4e-3, (16, 32): 1e-3, (32, 16): 2e-3}[rest[3], rest[4]]

    driver.cost = by_block
    with Stopwatch(gpu, "") as stopwatch:
        comparison = compare_timed(gpu, stopwatch, PROBLEM, NAIVE, Procedure(seconds=0.0), silent)
    assert [changed(NAIVE.tile, candidate.tile) for candidate in comparison.candidates] == [
        {"BM": 16}, {"BN": 16}, {}, {"BM": 64},
    ]  # fmt: skip
    times = [candidate.timing and candidate.timing.median for candidate in comparison.candidates]
    assert times == [pytest.approx(1e-3), pytest.approx(2e-3), pytest.approx(4e-3), None]
    assert "2048 threads" in comparison.candidates[-1].refused
    text = view.text(comparison, "tiles.json")
    assert "400.0 %" in text
    assert "kept for small problems on this GPU, in tiles.json" in text


def test_a_wrong_tile_is_refused_however_fast(
    gpu: CudaDevice, driver: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, NAIVE, {"BM": 16})
    driver.spoil["naive"] = lambda d, before: d.fill(0) if before == 1 else None
    with Stopwatch(gpu, "") as stopwatch:
        comparison = compare_timed(gpu, stopwatch, PROBLEM, NAIVE, Procedure(seconds=0.0), silent)
    assert comparison.candidates[1].refused == "its result is wrong"
    assert comparison.candidates[1].timing is None


# ---- the file --------------------------------------------------------------------------------


def test_the_best_tile_is_used_by_gemm_on_that_gpu_alone(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = TILED.cut({"BM": 16, "GROUP": 4}, "f32")
    assert tile_for(gpu, TILED, PROBLEM) == TILED.tile
    keep(gpu, TILED, PROBLEM, best.macros, 1.0)
    keep(gpu, NAIVE, PROBLEM, NAIVE.tile.macros, 1.0)
    assert tile_for(gpu, TILED, PROBLEM) == best
    assert run(gpu, PROBLEM, TILED).tile == best.macros
    assert run(gpu, PROBLEM, TILED, {"BM": 8}).tile == TILED.cut({"BM": 8}, "f32").macros
    for other in (Problem(40, 48, 24, "f32", layout="tn"), Problem(2000, 2000, 8, "f32")):
        assert tile_for(gpu, TILED, other) == TILED.tile
    with open_device("emulator") as emulator:
        assert tile_for(emulator, TILED, PROBLEM) == TILED.tile
    monkeypatch.setattr(gpu, "_name", "NVIDIA Other")
    assert tile_for(gpu, TILED, PROBLEM) == TILED.tile


def test_a_file_that_is_not_sound_is_as_good_as_none(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(gpu, TILED, PROBLEM, TILED.cut({"BM": 16}, "f32").macros, 1.0)
    sound = tile_file.path().read_text()
    spoiled = ["", "[]", "{", sound.replace("tiles/1", "tiles/9"), sound.replace('"BM": 16', '"BM": 7.5'),
               sound.replace('"BM"', '"XX"'), sound.replace('"BM": 16', '"BM": "x"')]  # fmt: skip
    for text in spoiled:
        tile_file.path().write_text(text)
        assert tile_for(gpu, TILED, PROBLEM) == TILED.tile, text
    tile_file.path().write_text(sound)
    assert tile_for(gpu, TILED, PROBLEM) != TILED.tile
    monkeypatch.setattr("ptxlab.gemm.tile_file._digest", lambda algorithm: "of another kernel")
    assert tile_for(gpu, TILED, PROBLEM) == TILED.tile


@pytest.mark.parametrize(
    ("m", "n", "name"),
    [(1, 1, "small"), (1023, 1024, "small"), (1024, 1024, "medium"), (4096, 4096, "large")],
)
def test_classes_of_shapes(m: int, n: int, name: str) -> None:
    assert shape_class(Problem(m, n, 9, "f32")) == name
