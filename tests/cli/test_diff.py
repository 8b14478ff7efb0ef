"""``ptxlab diff``: rounding between targets, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxlab.cli.main import main

MMA = "ptx/mma_m16n8k16_bf16_f32.ptx"


def test_two_targets_round_differently(capsys: pytest.CaptureFixture[str]) -> None:
    """sm_80 keeps fewer bits of a sum than sm_90 (shared by all public models of both)."""
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    first = found["first"]
    assert first["instruction"].startswith("mma.sync")
    assert first["verdict"] == "rounding"
    assert first["type"] == "f32"
    bits = np.array([int(word, 16) for word in first["bits"]], np.uint32).view(np.float32)
    assert [[float(value)] for value in bits] == first["values"]
    assert not found["same"]
    assert {output["name"]: output["differing"] > 0 for output in found["outputs"]} == {
        "a": False,
        "b": False,
        "d": True,
    }


def test_the_same_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_86"]) == 0
    out = capsys.readouterr().out
    assert "the same to the bit" in out
    assert "first difference" not in out


def test_text_names_line_lane_register_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a"]) == 1
    out = capsys.readouterr().out
    assert f"first difference: {MMA}:" in out
    assert "register d" in out
    assert "rounding: " in out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--device", "emulator"], 2, "two devices"),
        (["--grid", "2", "--cluster", "2"], 4, "clusters are not emulated"),
        (["--arg", "d=zeros(1x8,f32)"], 4, f"{MMA}:"),  # the fault is in the file, not in a copy
    ],
)
def test_what_a_launch_is_refused_for(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a", *words]
    assert main(command) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_the_target_of_an_emulator_that_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "diff",
        MMA,
        "--a",
        "emulator",
        "--b",
        "emulator:sm_90a",
        "--arch",
        "sm_80",
        "--json",
    ]
    assert main(command) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"]) == ("emulator:sm_80", "emulator:sm_90a")


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["diff", MMA, "--a", "emulator", "--b", "cuda:77"])
    assert status == 3
    assert "GPU" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["emulator:sm_12", "gpu", "cuda:x"])
def test_what_is_refused(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert main(["diff", MMA, "--a", word]) == 2
    assert capsys.readouterr().out == ""
