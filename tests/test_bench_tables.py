"""The table that is made from what GPUs gave: what is on record is there, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.predicted import PredictedRung
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import MODELLED
from scripts import bench_ladder as ladder
from scripts import bench_predict
from scripts import bench_tables as tables

ROOT = Path(__file__).parents[1]

RUN: dict[str, Any] = {
    "machine": {
        "gpu": "Test GPU", "driver": "1.2", "cuda": "13.0", "cublas": None, "date": "2026-01-02",
    },
    "results": [
        {
            "algorithm": "tiled", "m": 64, "n": 64, "k": 64, "dtype": "f32", "acc": "f32",
            "layout": "nn", "epilogue": "none", "passed": True, "burst": {"tflops": 5.1234},
            "tflops": 4.5, "ratio": 0.987, "limit_tflops": 9.0,
            "predicted": {"tflops": 5.0, "seconds": 1e-7}, "prediction_error": -0.1,
        },
        {
            "algorithm": "naive", "m": 64, "n": 32, "k": 16, "dtype": "f32", "acc": "f32",
            "layout": "tn", "epilogue": "none", "passed": True, "burst": {"tflops": 1.0},
            "tflops": 1.0, "ratio": None, "limit_tflops": None,
        },
    ],
}  # fmt: skip


def test_the_page_has_what_is_on_record() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.with_tables(page, tables.runs(tables.FOLDER)) == page


def test_a_table_of_results() -> None:
    page = "before\n" + "".join(tables.MARKS) + "after\n"
    made = tables.with_tables(page, [RUN])
    assert made.splitlines() == [
        "before",
        "<!-- gpu, from benchmarks/ -->",
        "| Test GPU, driver 1.2, CUDA 13.0, cuBLAS absent, 2026-01-02 | TFLOP/s in a burst "
        "| sustained | of cuBLAS | of the limit | predicted |",
        "|---|---|---|---|---|---|",
        "| tiled f32 -> f32, 64^3 | 5.123 | 4.5 | 98.7 % | 50.0 % | 5 (-10.0%) |",
        "| naive f32 -> f32, 64 x 32 x 16 tn | 1 | 1 |  |  |  |",
        "<!-- /gpu -->",
        "after",
    ]
    assert tables.with_tables(made, [RUN]) == made
    assert "| tiled" not in tables.with_tables(made, [])
    assert "Nothing has been measured yet" in tables.with_tables(made, [])


def test_the_last_run_counts_and_what_is_wrong_has_no_row() -> None:
    page = "".join(tables.MARKS)
    later = copy.deepcopy(RUN)
    later["results"][0]["tflops"] = 8.1
    later["results"][1]["passed"] = False
    made = tables.with_tables(page, [RUN, later])
    assert "| 8.1 |" in made
    assert "90.0 %" in made
    assert "naive" not in made


def test_results_need_a_place() -> None:
    for page in ("text", tables.MARKS[0], tables.MARKS[1]):
        with pytest.raises(PtxlabError, match="no place for results"):
            tables.with_tables(page, [RUN])


def test_what_gpus_gave_is_as_predictions_promise() -> None:
    assert tables.as_promised(tables.prediction_errors(tables.runs(tables.FOLDER)))


def test_a_promise_that_was_not_kept_is_seen() -> None:
    run = copy.deepcopy(RUN)
    measured = run["results"][0]
    assert tables.prediction_errors([run]) == [], "a launch is most of a small product's time"
    measured |= {"m": 1024, "n": 1024, "k": 1024}
    assert tables.prediction_errors([run]) == [-0.1]
    off = 2 * MODELLED
    other = {**measured, "prediction_error": off}
    run["results"] += [other, {**other, "passed": False}, {**other, "prediction_error": None}]
    assert tables.prediction_errors([run]) == [-0.1, off]
    assert not tables.as_promised([-MODELLED, 1.1 * MODELLED])
    assert tables.as_promised([-MODELLED, 0.9 * MODELLED])


def test_the_predicted_ladder_has_what_others_published() -> None:
    gpus = [find(name).gpu for name in ("a100", "rtxa6000")]
    problem = Problem(4096, 4096, 4096, "f32", "f32")
    rungs = [(gpu, [PredictedRung(ALGORITHMS["naive"], problem, gpu, None)]) for gpu in gpus]
    head, _, *cublas = ladder.table(rungs).splitlines()
    assert head == "| TFLOP/s | A100 SXM, 1410 MHz | RTX A6000, 1800 MHz |"
    assert cublas == [
        "| cuBLAS f32 -> f32 | (17.6) | (23.2) |",
        "| cuBLAS bf16 -> f32 | (244) |  |",
    ]
    page = "before\n" + "".join(ladder.MARKS) + "after\n"
    made = ladder.with_table(page, "table\n")
    assert made.count("table") == 1
    assert ladder.with_table(made, "table\n") == made
    with pytest.raises(PtxlabError, match="no place"):
        ladder.with_table("before", "table")


def test_the_order_of_predicted_times_is_told_of_those_that_are_apart() -> None:
    """Published and predicted; 100 and 101 are too near for anybody to say which is first."""
    pairs = [(100.0, 9.0), (101.0, 8.0), (110.0, 7.0), (120.0, 10.0)]
    assert bench_predict.orders(pairs, 0.02) == [False, False, True, True, True]
    assert bench_predict.kendall(pairs) == 0.0
    assert bench_predict.kendall([(a, -b) for a, b in pairs]) == 0.0
    assert bench_predict.kendall(pairs[2:]) == 1.0
    assert bench_predict.kendall([(a, 9.0) for a, _ in pairs]) == 0.0, "no order is told"


def test_of_what_an_author_tried_the_fastest_is_held_against_the_time(tmp_path: Path) -> None:
    """One of two instances stores 64 times."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "fill.cu").write_text(
        "template <int of> __global__ void fill(float *c, int n) {\n"
        "    for (int i = 0; i < of; i++)\n"
        "        ((volatile float *)c)[blockIdx.x * 64 + threadIdx.x] = n;\n}\n"
    )
    row = {
        "name": "fill", "repository": "nobody/kernels", "file": "fill.cu", "gpu": "a100",
        "args": "C n", "block": [64], "times": {"512": 1.0},
    }  # fmt: skip
    slow, fast = ({"kernel": f"fill<{of}>", "grid": ["n*n/64"]} for of in (64, 1))
    (alone,) = bench_predict.sizes(row | fast)
    (tried,) = bench_predict.sizes(row | {"tried": [slow, fast]})
    assert tried["seconds"] == 1e-6
    least, best = (bench_predict.predicted(each, tmp_path)[0].seconds for each in (alone, tried))
    assert best == least < bench_predict.predicted(alone | slow, tmp_path)[0].seconds
