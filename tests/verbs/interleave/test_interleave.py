"""``ptxlab interleave``: on a GPU that multiplies in numpy, and refused without one."""

from __future__ import annotations

import json

import pytest

from ptxlab.main import main
from tests.gemm.fake_gpu import installed

GPU = ["interleave", "--device", "cuda", "--algorithm", "tiled", "--sizes", "16,24", "--turns", "2"]


def test_turns_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = installed(monkeypatch)
    assert main([*GPU, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["passed"]) == ("ptxlab.interleave/2", True)
    assert [result["size"] for result in data["results"]] == [16, 24]
    for result in data["results"]:
        assert [kind["kind"] for kind in result["kinds"]] == ["copied", "mapped", "managed"]
        for kind in result["kinds"]:
            assert kind["sum"] == pytest.approx(kind["gpu"] + kind["cpu"] + kind["copies"])
    driver.spoil["tiled"] = lambda d, before: d.fill(1)
    assert main([*GPU, "--activity", "touch"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_it_needs_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interleave", "--device", "emulator"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "need a GPU, and this is ptxlab emulator, sm_90a" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sizes", "0"], "1 or more"),
        (["--activity", "dance"], "dance"),
        (["--turns", "x"], "'x'"),
    ],
)
def test_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interleave", *arguments]) == 2
    assert words in capsys.readouterr().err
