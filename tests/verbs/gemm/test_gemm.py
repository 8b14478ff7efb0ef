from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxlab.cli.progress import LaunchProgress
from ptxlab.gemm import LADDER
from ptxlab.gemm.ladder import HostBaseline
from ptxlab.gemm.reference import ErrorBound
from ptxlab.main import main

ROOT = Path(__file__).parents[3]
EMULATOR = ("--device", "emulator")


def test_a_right_result(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algorithm", "tensor_core", "--m", "40", "--n", "24", "--size", "32", "--json"]
    assert main(["gemm", *EMULATOR, *words]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.gemm/2"
    assert (output["m"], output["n"], output["k"]) == (40, 24, 32)
    assert (output["dtype"], output["acc"], output["passed"]) == ("bf16", "f32", True)
    assert 0 < output["max_error"] <= output["tolerance"]


def test_text_says_that_it_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", *EMULATOR, "--algorithm", "naive", "--size", "8"]) == 0
    assert "right" in capsys.readouterr().out


def test_the_seed_decides_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    def error(seed: str) -> float:
        words = ["--algorithm", "naive", "--size", "8", "--json", "--seed", seed]
        assert main(["gemm", *EMULATOR, *words]) == 0
        largest: float = json.loads(capsys.readouterr().out)["max_error"]
        return largest

    assert error("1") == error("1") != error("2")


def test_a_wrong_result_is_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_tolerance(*args: object) -> ErrorBound:
        return ErrorBound(coefficient=1e-30, floor=0.0, largest=1e30)

    monkeypatch.setattr(sys.modules["ptxlab.gemm.verification"], "error_bound", no_tolerance)
    words = ["gemm", *EMULATOR, "--algorithm", "naive", "--size", "8"]
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert main(words) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "tensorcore"], "tensor_core"),
        (["--algorithm", "naive", "--acc", "f16"], "naive does not compute f32 -> f16"),
        (["--algorithm", "tiled", "--dtype", "bf16"], "tiled does not compute bf16 -> f32"),
        (["--dtype", "f8"], "f32, tf32, bf16, f16"),
        (["--layout", "nx"], "nn, nt, tn, tt"),
        (["--alpha", "one"], "one"),
        (["--lda", "3", "--size", "8"], "lda = 3 is not between 8"),
        (["--tile", "BM"], "'BM' is not NAME=VALUE"),
        (["--tile", "BM=65", "--size", "8"], "BM = 65 is not a multiple of WM = 64"),
        (["--group", "0", "--size", "8"], "GROUP = 0 is not at least 1"),
        (["--all", "--tile", "BM=64"], "for one --algorithm"),
        (["--all", "--dtype", "bf16", "--acc", "f16"], "no algorithm computes bf16 -> f16"),
        (["--all", "--list"], "not allowed with"),
        (["--size", "-1"], "-1"),
        (["--m", "x"], "'x' is not an integer"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gemm", *EMULATOR, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_all_that_a_problem_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--algorithm tiled --m 33 --n 20 --k 40 --layout tn --epilogue bias+relu --alpha 0.5"
    more = "--beta 2 --lda 35 --ldb 21 --ldd 27 --tile bm=8,BK=16 --group 3 --json"
    assert main(["gemm", *EMULATOR, *words.split(), *more.split()]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["passed"] is True
    expected = {
        "dtype": "f32", "layout": "tn", "epilogue": "bias+relu", "alpha": 0.5, "beta": 2.0,
        "lda": 35, "ldb": 21, "ldd": 27, "strays": 0,
        "tile": {"BM": 8, "BN": 32, "BK": 16, "GROUP": 3},
    }  # fmt: skip
    assert expected.items() <= output.items()


def test_types_are_those_of_the_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    """What is not given is what the algorithm takes first, among what fits the rest."""
    for words, dtype, acc in [
        ([], "bf16", "f32"),
        (["--acc", "f16"], "f16", "f16"),
        (["--dtype", "f16"], "f16", "f32"),
        (["--algorithm", "naive"], "f32", "f32"),
    ]:
        assert main(["gemm", *EMULATOR, "--size", "8", "--json", *words]) == 0
        output = json.loads(capsys.readouterr().out)
        assert (output["dtype"], output["acc"]) == (dtype, acc)


def test_the_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--list"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["algorithm", *LADDER]
    assert "BM=64 BN=64 BK=8 TM=8" in lines[1 + list(LADDER).index("tiled_register")]
    assert "512 threads, 4 KiB shared" in out
    assert "MAX recipe, A100 SXM, 4096: 7.08 TFLOP/s" in out

    assert main(["gemm", "--list", "--dtype", "f16", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.gemm.list/1"
    by_name = {each["algorithm"]: each for each in output["algorithms"]}
    assert by_name.keys() == {name for name, rung in LADDER.items() if "f16" in dict(rung.types)}
    assert by_name["numpy"]["file"] is None
    assert by_name["naive"]["tile"] == {"BM": 32, "BN": 32, "GROUP": 1}
    assert by_name["naive"]["threads"] == 1024
    assert {"dtype": "f16", "acc": "f32"} in by_name["naive"]["types"]


def test_all_of_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("cpu_naive", "numpy", "cublas", "naive", "tiled")
    few = {name: LADDER[name] for name in names}
    monkeypatch.setattr("ptxlab.gemm.survey.LADDER", few)
    words = ["gemm", *EMULATOR, "--all", "--size", "20", "--epilogue", "none", "--layout", "nt"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 x 20 x 20 (m x n x k) on emulator, sm_90a; B stored transposed"
    rows = [line.split()[:5] for line in lines[3:]]
    assert ["naive", "bf16", "->", "f32", "right"] in rows
    assert ["tiled", "f32", "->", "f32", "right"] in rows
    assert "cublas is left out: cuBLAS needs a GPU, and this is ptxlab emulator, sm_90a" in lines
    assert any(line.startswith("f32 -> f32: 4 algorithms agree, differing by") for line in lines)

    assert main([*words, "--json", "--dtype", "bf16"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.gemm.all/2"
    assert (output["passed"], output["device"], output["arch"]) == (True, "emulator", "sm_90a")
    assert [each["algorithm"] for each in output["results"]] == ["cpu_naive", "numpy", "naive"]
    assert {each["schema"] for each in output["results"]} == {"ptxlab.gemm/2"}
    assert [each["device"] for each in output["results"]] == ["cpu", "cpu", "emulator"]
    assert output["absent"][0]["algorithm"] == "cublas"
    (agreement,) = output["agreements"]
    assert agreement["algorithms"] == ["cpu_naive", "numpy", "naive"]
    assert agreement["passed"] is True


def test_one_wrong_rung_is_exit_status_1_of_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
        return a[:, ::2] @ b[::2]

    numpy = LADDER["numpy"]
    assert isinstance(numpy, HostBaseline)
    few = {name: LADDER[name] for name in ("cpu_naive", "naive")}
    few["numpy"] = replace(numpy, multiply=half)
    monkeypatch.setattr("ptxlab.gemm.survey.LADDER", few)
    words = ["gemm", *EMULATOR, "--all", "--size", "20", "--dtype", "f32"]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line.split()[4] for line in lines[3:6]}
    assert shown == {"cpu_naive": "right", "naive": "right", "numpy": "WRONG"}
    (verdict,) = (line for line in lines if line.startswith("f32 -> f32: 3 algorithms"))
    assert " DISAGREE, differing by at most " in verdict
    assert ", beyond " in verdict
    assert main([*words, "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["passed"] is False
    assert [result["passed"] for result in output["results"]] == [True, True, False]
    assert output["agreements"][0]["passed"] is False


def test_what_needs_a_gpu_is_exit_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", *EMULATOR, "--algorithm", "cublaslt", "--size", "8"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "cublasLt needs a GPU" in err


def test_interrupted_in_the_middle_it_says_so_and_nothing_else() -> None:
    words = ["gemm", *EMULATOR, "--algorithm", "naive", "--size", "1024"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ptxlab", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "CTAs" in line:  # the emulation is under way
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "ptxlab: interrupted"
    assert "Traceback" not in err


def test_progress_speaks_after_a_while_and_cleans_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("ptxlab.cli.progress.monotonic", lambda: now)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = LaunchProgress()
    progress(0, 4)
    progress(0, 4)
    assert capsys.readouterr().err == ""
    now = 1.5
    progress(2, 4)
    assert capsys.readouterr().err == "\r\x1b[Kptxlab: 2 of 4 CTAs, about 2 s left"
    progress(3, 4)
    assert capsys.readouterr().err == ""
    progress(4, 4)
    assert capsys.readouterr().err == "\r\x1b[K"
    progress(1, 4)  # another launch begins
    assert capsys.readouterr().err == ""


def test_progress_in_a_log_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("ptxlab.cli.progress.monotonic", lambda: now)
    progress = LaunchProgress()
    for step in range(1, 41):
        now += 0.5
        progress(step, 40)
    assert capsys.readouterr().err == (
        "ptxlab: 3 of 40 CTAs, about 12 s left\nptxlab: 23 of 40 CTAs, about 8 s left\n"
    )
    for done in 3 * (*range(5),):  # three launches, one after the other
        now += 0.5
        progress(done, 4)
    assert capsys.readouterr().err.count("\n") == 1


def test_rungs_that_the_target_lacks_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--all", "--size", "16", "--dtype", "f16", "--arch", "sm_75"]) == 0
    table = capsys.readouterr().out
    assert "tensor_core" in table
    assert "does not exist on sm_75" in table
