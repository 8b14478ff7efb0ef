from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ptxlab.cli.main import main
from ptxlab.cli.progress import Progress
from ptxlab.gemm.reference import Bound

ROOT = Path(__file__).parents[2]
EMULATOR = ("--device", "emulator")


def test_a_right_result(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algorithm", "tensor_core", "--m", "40", "--n", "24", "--size", "32", "--json"]
    assert main(["gemm", *EMULATOR, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ptxlab.gemm/1"
    assert (found["m"], found["n"], found["k"]) == (40, 24, 32)
    assert (found["dtype"], found["acc"], found["passed"]) == ("bf16", "f32", True)
    assert 0 < found["max_error"] <= found["tolerance"]


def test_text_says_that_it_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", *EMULATOR, "--algorithm", "naive", "--size", "8"]) == 0
    assert "right" in capsys.readouterr().out


def test_the_seed_decides_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    def error(seed: str) -> float:
        words = ["--algorithm", "naive", "--size", "8", "--json", "--seed", seed]
        assert main(["gemm", *EMULATOR, *words]) == 0
        found: float = json.loads(capsys.readouterr().out)["max_error"]
        return found

    assert error("1") == error("1") != error("2")


def test_a_wrong_result_is_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_tolerance(*args: object) -> Bound:
        return Bound(coefficient=1e-30, floor=0.0, largest=1e30)

    monkeypatch.setattr(sys.modules["ptxlab.gemm.run"], "error_bound", no_tolerance)
    words = ["gemm", *EMULATOR, "--algorithm", "naive", "--size", "8"]
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert main(words) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "tensorcore"], "tensor_core"),
        (["--algorithm", "naive", "--acc", "f16"], "naive does not compute bf16 -> f16"),
        (["--dtype", "f8"], "bf16, f16, f32"),
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
    progress = Progress()
    progress(0, 4)
    progress(0, 4)
    assert capsys.readouterr().err == ""
    now = 1.5
    progress(2, 4)
    assert capsys.readouterr().err == "\rptxlab: 2 of 4 CTAs"
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
    progress = Progress()
    for step in range(1, 41):
        now += 0.5
        progress(step, 40)
    assert capsys.readouterr().err == "ptxlab: 3 of 40 CTAs\nptxlab: 23 of 40 CTAs\n"
