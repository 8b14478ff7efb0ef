"""``ptxlab bench``: counted on the emulator, timed on a GPU that multiplies in numpy, and refused."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest

from ptxlab.cli.progress import StatusLine
from ptxlab.gemm import tile_file
from ptxlab.gemm.machine import read_runs
from ptxlab.main import main
from tests.gemm.fake_gpu import LIBRARY, FakeGpu, installed

EMULATOR = ["bench", "--device", "emulator"]
GPU = ["bench", "--device", "cuda", "--rest", "0", "--seconds", "0", "--sizes", "48x40x24"]
TWO = ["--algorithm", "coalescing,tiled"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return installed(monkeypatch)


# ---- on the emulator -------------------------------------------------------------------------


def test_the_emulator_counts_and_invents_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EMULATOR, *TWO, "--sizes", "64", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["device"], data["arch"]) == (
        "ptxlab.bench/2",
        "emulator",
        "sm_90a",
    )
    coalescing, tiled = data["results"]
    for result in (coalescing, tiled):
        assert result["passed"] is True
        for name in ("seconds", "tflops", "burst", "sustained", "cold", "beside", "ratio"):
            assert result[name] is None
    facts = tiled["facts"]
    # By hand: 2 x 2 CTAs of 32 x 32 threads go over two tiles of 32: a thread has 32 fma for each
    # of both, and one product with alpha, two barriers a tile; every byte asked for is used.
    assert (facts["ctas"], facts["threads"], facts["barriers"]) == (4, 1024, 16)
    assert facts["flops_per_thread"] == 2 * 64 + 1
    assert facts["counts"]["sectors"] == facts["counts"]["sectors_ideal"]
    assert facts["counts"]["shared_wavefronts"] == facts["counts"]["shared_ideal"]
    assert facts["counts"]["global_read"] == 4 * 2 * 2 * 32 * 32 * 4
    assert facts["bytes_per_flop"]["global"] < coalescing["facts"]["bytes_per_flop"]["global"]
    assert facts["spill_stores"] == facts["spill_loads"] == 0
    assert facts["shared"] == 2 * 32 * 32 * 4
    # 32 warps a CTA, of 64 that an SM has, and registers for no more than one.
    assert facts["occupancy"]["most_warps"] == 64
    assert facts["occupancy"]["warps"] == 32 * facts["occupancy"]["ctas"]
    assert facts["opcode"] == "FFMA"
    assert 0 < facts["main_loop_share"] < 1


def test_other_forms_on_the_emulator(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*EMULATOR, *TWO, "--sizes", "32,64"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.count("nothing is timed") == 2
    assert "TFLOP/s" not in out
    assert main([*arguments, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["algorithm"], row["m"]) for row in rows] == [
        ("coalescing", "32"), ("tiled", "32"), ("coalescing", "64"), ("tiled", "64"),
    ]  # fmt: skip
    assert {row["seconds"] for row in rows} == {""}
    assert int(rows[3]["facts.counts.flops"]) == 4 * 1024 * 129
    assert main([*arguments, "--format", "svg"]) == 0
    assert xml.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_what_is_predicted_stands_beside_what_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*EMULATOR, "--algorithm", "tiled", "--sizes", "32", "--predict", "--gpu", "t4"]
    assert main([*arguments, "--json"]) == 0
    (tiled,) = json.loads(capsys.readouterr().out)["results"]
    assert tiled["tflops"] is None, "it is no measurement"
    tflops = tiled["predicted"]["tflops"]
    assert tflops == pytest.approx(2 * 32**3 / tiled["predicted"]["seconds"] / 1e12)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert f"{tflops:.3g}" in out
    assert "predicted TFLOP/s are for T4" in out


def test_a_wrong_result_is_told_and_has_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptxlab.gemm import problem

    def gathered(memory: object, m: int, n: int, leading: int) -> tuple[object, int]:
        return np.full((m, n), 7, np.float32), 0

    monkeypatch.setattr(problem, "gathered", gathered)
    assert main([*EMULATOR, "--algorithm", "tiled", "--sizes", "32"]) == 1
    assert "tiled is WRONG: largest error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--algorithm", "tild"], 2, "no algorithm 'tild'"),
        (["--sizes", "big"], 2, "'big' is no size"),
        (["--algorithm", "numpy"], 2, "no kernel"),
        (["--dtype", "f16", "--acc", "f16", "--algorithm", "naive"], 2, "does not compute"),
        (["--dtype", "f8"], 2, "no algorithm takes this"),
        (["--record"], 2, "a speed needs a GPU"),
        (["--tiles"], 2, "of one --algorithm"),
        (["--tiles", "--algorithm", "tiled", "--sizes", "32,64"], 2, "of one size"),
        (["--tiles", "--algorithm", "tiled", "--format", "svg"], 2, "no picture"),
        (["--tiles", "--profile"], 2, "not allowed with"),
        (["--rounds", "0"], 2, "1 or more"),
        (["--predict"], 2, "say which: --gpu rtx3090"),
        (["--predict", "--gpu", "h10"], 2, "did you mean h100"),
        (["--predict", "--gpu", "a100", "--profile"], 2, "ptxlab gemm --predict --tiles"),
        (["--gpu", "a100"], 2, "--gpu says what to --predict for"),
    ],
)
def test_what_is_refused(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*EMULATOR, *arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_without_a_gpu_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    from ptxlab.device.cuda_driver import _find_driver

    if _find_driver()[0] is not None:
        pytest.skip("there is a driver")
    assert main(["bench", "--device", "cuda"]) == 3
    assert "no GPU can be used" in capsys.readouterr().err


def test_the_line_for_nsight_compute(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--profile", "--algorithm", "tiled,tensor_core", "--layout", "tn"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("ncu ")
    assert (
        "--kernel-name tiled --launch-count 1 ptxlab gemm --device cuda --algorithm tiled" in first
    )
    assert "--m 4096 --n 4096 --k 4096 --dtype bf16 --acc f32 --layout tn" in second
    # What it names can be run as it is.
    words = second[second.index("ptxlab gemm") :].split()[1:]
    words[words.index("cuda")] = "emulator"
    assert main([word if word != "4096" else "32" for word in words]) == 0


# ---- on a GPU --------------------------------------------------------------------------------


def test_a_gpu_times_and_records(
    driver: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.seconds = {"coalescing": 4e-3, "tiled": 2e-3, LIBRARY: 1e-3}
    arguments = [*GPU, *TWO, "--record", str(tmp_path), "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert {result["algorithm"]: result["ratio"] for result in data["results"]} == {
        "cublas": None,
        "coalescing": pytest.approx(0.25),
        "tiled": pytest.approx(0.5),
    }
    (file,) = tmp_path.iterdir()
    assert f"results are in {file}" in err
    assert main(arguments) == 0
    first, _ = read_runs(file)
    assert first["results"] == data["results"]
    capsys.readouterr()
    assert main([*GPU, *TWO, "--format", "svg"]) == 0
    assert "limit" in capsys.readouterr().out


def test_what_is_predicted_stands_beside_what_a_gpu_took(
    driver: FakeGpu,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ptxlab.gemm import ALGORITHMS, Problem
    from ptxlab.gemm.predicted import predict_rung
    from ptxlab.prediction.chip import find

    monkeypatch.setattr(driver, "_cuDeviceGetName", lambda *_: b"NVIDIA H200")
    predicted = predict_rung(Problem(48, 40, 24, "f32"), ALGORITHMS["tiled"], find("h200"))
    driver.seconds = {"tiled": 2 * predicted.seconds}
    arguments = [*GPU, "--algorithm", "tiled", "--predict"]
    assert main([*arguments, "--json", "--record", str(tmp_path)]) == 0
    library, tiled = json.loads(capsys.readouterr().out)["results"]
    assert library["predicted"] is library["prediction_error"] is None
    assert tiled["predicted"]["gpu"] == "H200 SXM"
    assert tiled["predicted"]["seconds"] == pytest.approx(predicted.seconds)
    assert tiled["prediction_error"] == pytest.approx(-0.5, abs=1e-3)
    (run,) = read_runs(next(tmp_path.iterdir()))
    assert run["results"] == [library, tiled]
    assert main(arguments) == 0
    assert "-50.0 %" in capsys.readouterr().out
    monkeypatch.setattr(driver, "_cuDeviceGetName", lambda *_: b"NVIDIA H300")
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "nothing is predicted: ptxlab knows no NVIDIA H300 with 132 SMs" in err
    assert "predicted" not in out


def test_a_wrong_kernel_has_status_1_and_no_speed(
    driver: FakeGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.spoil["tiled"] = lambda d, before: d.fill(1)
    assert main([*GPU, *TWO]) == 1
    out = capsys.readouterr().out
    assert "tiled is WRONG, and has no speed" in out
    assert not any(line.strip().startswith("tiled  ") for line in out.splitlines())


def test_the_best_tile_is_kept_on_a_gpu(
    driver: FakeGpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ptxlab.gemm import ALGORITHMS, tiles

    usual = ALGORITHMS["tiled"].tile.macros
    monkeypatch.setattr(tile_file, "path", lambda: tmp_path / "tiles.json")
    monkeypatch.setattr(tiles, "candidates", lambda *_, **__: [usual, {**usual, "BM": 16}])
    driver.cost = lambda *launch: 1e-3 * launch[5]  # the rows of a CTA
    assert main([*GPU, "--algorithm", "tiled", "--tiles", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [tile["tile"]["BM"] for tile in data["tiles"]] == [16, 32]
    assert data["kept"] == str(tmp_path / "tiles.json")
    size = ["--m", "48", "--n", "40", "--k", "24"]
    assert main(["gemm", "--device", "cuda", "--algorithm", "tiled", *size, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tile"]["BM"] == 16


# ---- what is told meanwhile ------------------------------------------------------------------


def test_the_status_is_one_line_of_a_terminal_and_now_and_then_one_of_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("ptxlab.cli.progress.monotonic", lambda: now)
    status = StatusLine()
    for now in (0.5, 1.5, 2.5, 12.0):
        status(f"at {now}")
    status.clear()
    assert capsys.readouterr().err == "ptxlab: at 1.5\nptxlab: at 12.0\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    status = StatusLine()
    for now in (12.5, 13.5, 13.9):
        status(f"at {now}")
    status.clear()
    status.clear()
    line = "\r\x1b[Kptxlab: at "
    assert capsys.readouterr().err == f"{line}13.5{line}13.9\r\x1b[K"
