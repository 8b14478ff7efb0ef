from __future__ import annotations

import csv
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.predicted import PredictedRung, predict_ladder, predict_rung
from ptxlab.gemm.side_by_side import RungJob
from ptxlab.isa.gpus import GPUS, Gpu, spelled
from ptxlab.main import main
from ptxlab.prediction.chip import UNKNOWN, find, gpu_called, gpu_driven, names
from ptxlab.verbs.gemm.predicted import as_json, text
from tests.together import in_one_test


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["gemm", "--predict", "--gpu", "rtx3090", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_rungs_are_predicted_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "128", "--algorithm", "naive,tiled,wgmma")
    data = json.loads(predicted(capsys, *words, "--json"))
    assert data["schema"] == "ptxlab.gemm-predict/1"
    naive, tiled, wgmma = data["algorithms"]
    assert naive["tflops"] < tiled["tflops"] < find("rtx3090").gpu.tflops(256)
    assert wgmma["tflops"] is None
    assert "wgmma is for sm_90a" in wgmma["reason"]
    assert "lsu" in predicted(capsys, *words)
    text = predicted(capsys, *words[:-1], "naive", "--gpu", "a100")
    assert re.findall(r"128 on (.*) \(", text) == ["RTX 3090", "A100 SXM"]
    assert text.count("fastest: naive; its CTAs do not fill the GPU") == 2
    rows = list(csv.DictReader(predicted(capsys, *words, "--format", "csv").splitlines()))
    assert [row["tflops"] for row in rows] == [str(naive["tflops"]), str(tiled["tflops"]), ""]


def test_a_larger_product_takes_longer_in_step() -> None:
    chip, tiled = find("a100"), ALGORITHMS["tiled"]
    small, large = (predict_rung(Problem(n, n, n, "f32"), tiled, chip) for n in (512, 1024))
    assert large.cycles / small.cycles == pytest.approx(8, rel=0.35)


def test_the_clock_counts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "128", "--algorithm", "tiled", "--json")
    slow, fast = (
        json.loads(predicted(capsys, *words, "--clock", mhz))["algorithms"][0]["seconds"]
        for mhz in ("500", "1000")
    )
    assert 1.5 < slow / fast < 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--predict"], "say which: --gpu"),
        (["--predict", "--gpu", "rtx309"], "did you mean rtx3090?"),
        (["--predict", "--gpu", "agxorin"], "the time of AGX Orin is not predicted: nobody says"),
        (["--predict", "--list", "--gpu", "a100"], "--list"),
        (["--predict", "--gpu", "a100", "--format", "svg"], "are not for --predict"),
        (["--predict", "--gpu", "a100", "--arch", "sm_80"], "the code is that of --gpu"),
        (["--predict", "--explain", "--gpu", "a100"], "choose one"),
        (["--explain", "--gpu", "a100", "--gpu", "h100"], "the roofline of one GPU"),
        (["--explain", "--format", "csv"], "is for --predict"),
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


RTX_A6000 = find("a6000").gpu


def rung(name: str, seconds: float, *, gpu: Gpu = RTX_A6000, **changes: Any) -> PredictedRung:
    """Return a rung with a made-up time at 4096, as predicted as the view and the shares need it."""
    algorithm, small = (
        ALGORITHMS[name],
        predict_rung(Problem(64, 64, 64, "f32"), ALGORITHMS["tiled"], find("a6000")),
    )
    problem = replace(Problem(4096, 4096, 4096, *algorithm.types[0]), **changes)
    return PredictedRung(algorithm, problem, gpu, replace(small, seconds=seconds))


def test_what_others_published_stands_beside(capsys: pytest.CaptureFixture[str]) -> None:
    """Of siboehm/SGEMM_CUDA's README: naive 309 GFLOP/s, cuBLAS 23249.6, on an A6000."""
    naive = rung("naive", 2 * 4096**3 / 0.6e12)
    (figure,) = naive.published
    assert (figure.rate, figure.kernel) == ("0.309", "Naive")
    assert naive.of_cublas == pytest.approx(0.6 / 23.2496)
    shown = text([naive], 100)
    assert "0.6 " in shown
    assert "3%" in shown
    assert (
        "siboehm/SGEMM_CUDA, RTX A6000, 4096, f32 -> f32: naive 0.309 (Naive), cublas 23.2" in shown
    )
    assert as_json([naive])["algorithms"][0]["cublas"]["tflops"] == 23.2496


def test_the_clocks_that_rungs_are_left_are_told() -> None:
    light, heavy = rung("naive", 1.0), rung("tiled", 1.0)
    assert light.prediction is not None
    heavy = replace(heavy, prediction=replace(light.prediction, clock_mhz=1427))
    assert "on RTX A6000 (sm_86) at 1,800 MHz, predicted" in text([light], 100)
    assert "at 1,427 to 1,800 MHz, predicted" in text([light, heavy], 100)


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 512},
        {"m": 512, "n": 512, "k": 512},
        {"layout": "tn"},
        {"epilogue": "relu"},
        {"k": 8192},
    ],
)
def test_what_was_measured_of_another_product_does_not(changes: dict[str, Any]) -> None:
    other = rung("naive", 1.0, **changes)
    assert (other.published, other.cublas, other.of_cublas) == ((), None, None)
    assert "nobody is known to have published speeds of these on RTX A6000" in text([other], None)


def test_half_of_either_kind_is_compared() -> None:
    """An RTX 4090's tensor cores take bf16 as they take the f16 that was measured, but f32 is not."""
    gpu = find("rtx4090").gpu
    assert [f.rate for f in rung("tensor_core", 1.0, gpu=gpu).published] == ["154"]
    assert rung("naive", 1.0, gpu=gpu).cublas is None


@pytest.mark.parametrize(
    "name", ["A100", "a100", "A100-SXM", "A100 sxm", "RTX A6000", "a6000", "3090"]
)
def test_a_gpu_is_found_however_it_is_spelled(name: str) -> None:
    assert spelled(gpu_called(name).name).endswith(spelled(name))


@in_one_test(
    ("driven", "capability", "sms", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 90, 132, "H100 SXM"),
        ("NVIDIA H200", 90, 132, "H200 SXM"),
        ("NVIDIA GeForce RTX 3090", 86, 82, "RTX 3090"),
        ("NVIDIA RTX A6000", 86, 84, "RTX A6000"),
        ("Tesla T4", 75, 40, "T4"),
        ("NVIDIA H100 PCIe", 90, 114, "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", 80, 108, "A100 SXM"),
        ("NVIDIA A100-SXM4-40GB", 80, 108, "A100 SXM 40GB"),
        ("NVIDIA A100-PCIE-40GB", 80, 108, "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", 80, 108, None),
        ("NVIDIA L40S", 89, 142, "L40S"),
        ("NVIDIA L40", 89, 142, None),
        ("NVIDIA GeForce RTX 4080", 89, 76, "RTX 4080"),
        ("NVIDIA GeForce RTX 3090 Ti", 86, 84, None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120, 188, "RTX PRO 6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 120, 188, "RTX PRO 6000 Max-Q"),
    ],
)
def test_a_gpu_is_known_by_what_its_driver_calls_it(
    driven: str, capability: int, sms: int, name: str | None
) -> None:
    if name is None:
        with pytest.raises(PtxlabError, match=f"ptxlab knows no {driven} with {sms} SMs"):
            gpu_driven(driven, capability, sms)
    else:
        assert gpu_driven(driven, capability, sms).name == name


def test_every_gpu_is_predicted_or_told_why_not() -> None:
    assert {gpu.capability for gpu in GPUS} == {
        find(name).gpu.capability for name in names()
    } | set(UNKNOWN)


def test_tiles_are_predicted_the_fastest_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["gemm", "--predict", "--gpu", "a100", "--size", "64"]
    words += ["--algorithm", "tiled", "--tiles", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["algorithms"]
    rates = [row["tflops"] for row in rows if row["tflops"]]
    assert len({str(row["tile"]) for row in rows}) == len(rows) > 2
    assert rates == sorted(rates, reverse=True)
    monkeypatch.setattr(
        "ptxlab.prediction.predict.LaunchModel", None
    )  # what is kept is not made anew
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["algorithms"] == rows


def test_workers_say_what_one_process_says() -> None:
    """What they are given and give back can be sent, and comes in the order that was asked for."""
    jobs = [
        RungJob(ALGORITHMS[name], Problem(64, 64, 64, "f32"))
        for name in ("tiled", "wgmma", "naive")
    ]
    alone = list(predict_ladder(jobs, find("a6000"), None))
    with ThreadPoolExecutor(2) as executor:
        assert list(predict_ladder(jobs, find("a6000"), None, executor)) == alone
    assert [result.rung.name for result in alone] == ["tiled", "wgmma", "naive"]
    assert pickle.loads(pickle.dumps((jobs, alone))) == (jobs, alone)


def test_tiles_are_of_one_algorithm() -> None:
    assert main(["gemm", "--predict", "--gpu", "a100", "--all", "--tiles"]) == 2
    assert main(["gemm", "--tiles", "--algorithm", "tiled", "--size", "64"]) == 2
