from __future__ import annotations

import json

import pytest

from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.predicted import predict_rung
from ptxlab.main import main
from ptxlab.prediction.chip import find


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["gemm", "--predict", "--gpu", "rtx3090", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_rungs_are_predicted_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "512", "--algorithm", "naive,tiled,wgmma")
    found = json.loads(predicted(capsys, *words, "--json"))
    assert found["schema"] == "ptxlab.gemm-predict/1"
    naive, tiled, wgmma = found["algorithms"]
    assert naive["tflops"] < tiled["tflops"] < find("rtx3090").gpu.tflops(256)
    assert wgmma["tflops"] is None
    assert "wgmma is for sm_90a" in wgmma["reason"]
    assert "lsu" in predicted(capsys, *words)


def test_a_larger_product_takes_longer_in_step() -> None:
    chip, tiled = find("a100"), ALGORITHMS["tiled"]
    small, large = (predict_rung(Problem(n, n, n, "f32"), tiled, chip) for n in (1024, 2048))
    assert large.cycles / small.cycles == pytest.approx(8, rel=0.35)


def test_the_clock_counts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "512", "--algorithm", "tiled", "--json")
    slow, fast = (
        json.loads(predicted(capsys, *words, "--clock", mhz))["algorithms"][0]["seconds"]
        for mhz in ("500", "1000")
    )
    assert 1.5 < slow / fast < 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--predict"], "say which: --gpu"),
        (["--predict", "--gpu", "rtx9"], "is not known"),
        (["--predict", "--list", "--gpu", "a100"], "--list"),
        (["--clock", "1000"], "--clock and --tiles are for --predict"),
        (["--predict", "--gpu", "a100", "--tile", "BM=64"], "for one --algorithm"),
        (["--predict", "--gpu", "a100", "--algorithm", "tiled", "--size", "0"], "empty D"),
    ],
)
def test_what_cannot_be_predicted_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gemm", *words]) in (2, 4)
    assert told in capsys.readouterr().err


def test_tiles_are_predicted_the_fastest_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["gemm", "--predict", "--gpu", "a100", "--size", "64"]
    words += ["--algorithm", "tiled", "--tiles", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["algorithms"]
    rates = [one["tflops"] for one in found if one["tflops"]]
    assert len({str(one["tile"]) for one in found}) == len(found) > 2
    assert rates == sorted(rates, reverse=True)
    monkeypatch.setattr("ptxlab.prediction.predict.modelled", None)  # what is kept is not made anew
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["algorithms"] == found


def test_tiles_are_of_one_algorithm() -> None:
    assert main(["gemm", "--predict", "--gpu", "a100", "--all", "--tiles"]) == 2
    assert main(["gemm", "--tiles", "--algorithm", "tiled", "--size", "64"]) == 2
