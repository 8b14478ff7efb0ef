"""``ptxlab judge``: its screen, its JSON, and what stands on a line of a pull request."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from ptxlab.main import main
from ptxlab.toolchain.nvrtc import compile_cuda
from ptxlab.verbs.judge.verb import _reference

KERNEL = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) y[i] = 3.0f * x[i];
}
"""
LAUNCH = [
    "--reference", "ref.py", "--size", "n=40", "--grid", "{(n+31)//32}", "--block", "32",
    "--arg", "x=randn({n},f32)", "--arg", "y=zeros({n},f32)", "--arg", "n={n}",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.cu").write_text(KERNEL)
    (tmp_path / "wrong.cu").write_text(KERNEL.replace("3.0f", "3.00001f"))
    (tmp_path / "ref.py").write_text("def reference(x):\n    return {'y': 3.0 * x}\n")
    return tmp_path


def test_a_right_kernel_is_one_screen(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "right.cu", *LAUNCH, "--baseline", "right.cu"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert out.startswith("judged         scale of right.cu for sm_80: passed\n")
    assert "1.00 times as fast as the baseline; bound by" in lines["a100"]
    assert "speedup 1" in lines["score"]
    assert "not" not in lines["robust"]


def test_a_wrong_one_says_where(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "wrong.cu", *LAUNCH, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "ptxlab.judge/1"
    assert (told["verdict"], told["passed"], told["stages"]["compiled"]) == (
        "not right",
        False,
        True,
    )
    (given, *_) = told["trials"]
    assert given["writer"]["line"] == 3
    assert given["compared"][0]["wrong"] > 30
    assert given["compared"][0]["error"] > 10
    assert told["score"]["right"] == 0
    assert told["speeds"][0]["seconds"] > 1e-6


def test_a_trusted_kernel_says_what_is_right(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "trusted.cu").write_text(KERNEL.replace("* 32", "* blockDim.x"))
    trusted = [
        "--reference",
        "trusted.cu",
        "--reference-grid",
        "{(n+7)//8}",
        "--reference-block",
        "8",
    ]
    assert main(["judge", "right.cu", *trusted, *LAUNCH[2:]]) == 0
    assert "times as fast as the baseline" in capsys.readouterr().out
    assert main(["judge", "wrong.cu", *trusted, *LAUNCH[2:]]) == 1
    assert "of wrong.cu for sm_80: not right" in capsys.readouterr().out
    ptx = compile_cuda((here / "trusted.cu").read_text(), path="trusted.cu", arch="sm_80")
    (here / "trusted.ptx").write_text(ptx)
    trusted[1] = "trusted.ptx"
    assert main(["judge", "wrong.cu", *trusted, *LAUNCH[2:]]) == 1
    assert "of wrong.cu for sm_80: not right" in capsys.readouterr().out


def test_what_does_not_compile_is_rejected(here: Path) -> None:
    (here / "wrong.cu").write_text(KERNEL.replace("3.0f", "nowhere"))
    assert main(["judge", "wrong.cu", *LAUNCH]) == 4


def test_it_stands_on_its_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "wrong.cu", *LAUNCH, "--format", "github"]) == 1
    first = capsys.readouterr().out.split("\n")[0]
    assert first.startswith("::error file=wrong.cu,line=3,title=right::given")
    launch = [
        "--block",
        "64",
        "--arg",
        "x=zeros(40,f32)",
        "--arg",
        "y=zeros(32,f32)",
        "--arg",
        "n=40",
    ]
    assert main(["check", "right.cu", *launch, "--format", "sarif"]) == 1
    result, unchecked = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert unchecked["level"] == "warning"
    assert result["ruleId"] == "bounds.fault"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["right.cu"], "what is right?"),
        (["right.cu", *LAUNCH, "--size", "n=0"], "is not NAME=N"),
        (["right.cu", *LAUNCH, "--reference", "trusted.ptx"], "trusted.ptx"),
        (["right.cu", *LAUNCH, "--gpu", "h1000"], "h1000"),
        (["right.cu", *LAUNCH, "--arg", "m=tma(x,box=8)"], "tensor map"),
        (["right.cu", *LAUNCH, "--grid", "{k}"], "there is no 'k'"),
        (["right.cu", *LAUNCH, "--grid", "{n/7}x"], "--grid"),
    ],
)
def test_what_does_not_fit_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["judge", *arguments]) != 0
    assert message in capsys.readouterr().err


def test_an_argument_may_be_called_as_python_calls_something() -> None:
    function = _reference("out=in.T + bias")
    assert callable(function)
    told = function(**{"in": np.arange(6.0).reshape(2, 3), "bias": np.ones(1), "n": 3})
    assert told["out"].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert {p.kind.name for p in inspect.signature(function).parameters.values()} == {
        "KEYWORD_ONLY", "VAR_KEYWORD",
    }  # fmt: skip
