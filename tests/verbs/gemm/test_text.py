"""A GEMM result as text and as JSON, and the numbers of all views."""

from __future__ import annotations

import dataclasses
import json
import math

import ml_dtypes
import numpy as np

from ptxlab.device.protocol import LaunchResult
from ptxlab.gemm import LADDER
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.reference import Comparison
from ptxlab.gemm.run import GemmResult
from ptxlab.gemm.survey import LadderSurvey
from ptxlab.gemm.verification import Verdict
from ptxlab.verbs.gemm.text import as_json, text, text_of_all
from ptxlab.view.json import write
from ptxlab.view.text import aligned, number, values
from tests.together import in_one_test

RESULT = GemmResult(
    rung=LADDER["tensor_core"],
    problem=Problem(64, 48, 32, "bf16", "f32"),
    device="emulator",
    arch="sm_80",
    tile={},
    verdict=Verdict(Comparison(2.5e-8, (3, 40), 1.5, 1.25), 1e-6),
    launched=LaunchResult(0.25, {"instructions": 12345}),
)


def judged(error: float, value: float = 1.25) -> Verdict:
    return Verdict(Comparison(error, (3, 40), 1.5, value), 1e-6)


def test_text_of_a_right_result() -> None:
    shown = text(RESULT)
    for part in (
        "64 x 48 x 32",
        "bf16 in, f32 out",
        "emulator, sm_80",
        "right",
        "D[3,40]",
        "12,345",
    ):
        assert part in shown
    assert "TFLOP/s" not in shown
    assert shown.isascii()


def test_text_of_a_wrong_result_on_a_gpu() -> None:
    problem = dataclasses.replace(RESULT.problem, m=4000, n=3000, k=2500)
    launched = LaunchResult(1e-4)  # 6e10 FLOP: 600 TFLOP/s
    shown = text(
        dataclasses.replace(
            RESULT, problem=problem, verdict=judged(0.5), device="cuda", launched=launched
        )
    )
    assert "WRONG" in shown
    assert "beyond the bound" in shown
    assert "100.0 us, 600.00 TFLOP/s" in shown
    assert "counters" not in shown


def test_each_column_of_all_is_what_its_head_says() -> None:
    wrong = dataclasses.replace(RESULT, rung=LADDER["naive"], verdict=judged(0.5))
    survey = LadderSurvey("emulator", "sm_80", RESULT.problem, (RESULT, wrong), (), ())
    shown = text_of_all(survey).splitlines()
    head, first, second = shown[2:5]
    begins = [head.index(name) for name in ("result", "max error", "tolerance", "time")]

    def cells(line: str) -> list[str]:
        return [line[begin:].split()[0] for begin in begins]

    assert cells(first) == ["right", "2.50e-08", "1.00e-06", "0.25"]
    assert cells(second) == ["WRONG", "5.00e-01", "1.00e-06", "0.25"]


def test_json_is_the_contract() -> None:
    data = json.loads(json.dumps(as_json(RESULT), allow_nan=False))
    expected = {
        "schema": "ptxlab.gemm/2", "algorithm": "tensor_core", "device": "emulator", "arch": "sm_80",
        "m": 64, "n": 48, "k": 32, "dtype": "bf16", "acc": "f32", "passed": True,
        "max_error": 2.5e-8, "tolerance": 1e-6, "seconds": 0.25, "tflops": None,
        "counters": {"instructions": 12345},
    }  # fmt: skip
    assert expected.items() <= data.items()
    assert data["baselines"] == []
    assert data["worst"] == {"row": 3, "col": 40, "expected": 1.5, "found": 1.25}


def test_json_of_what_is_not_finite_or_not_there() -> None:
    nan = dataclasses.replace(RESULT, verdict=judged(math.nan, value=math.inf))
    data = json.loads(write(as_json(nan)))
    assert (data["max_error"], data["worst"]["found"]) == ("nan", "inf")
    nothing = Verdict(Comparison(0.0, None, None, None), 1e-6)
    empty = dataclasses.replace(RESULT, verdict=nothing)
    assert as_json(empty)["worst"] is None
    assert "no elements" in text(empty)


@in_one_test(
    ("value", "shown"),
    [
        (3, "3"),
        (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.float16(65504), "65504"),
        (np.float32(-0.0), "-0"),
        (np.float32(-2.5), "-2.5"),
        (np.float32(np.inf), "inf"),
        (np.float16(np.nan), "nan"),
        (ml_dtypes.bfloat16(136), "136"),
        (ml_dtypes.bfloat16(0.1), "0.100098"),
        (np.uint32(7), "7"),
    ],
)
def test_numbers(value: object, shown: str) -> None:
    assert number(value) == shown


def test_values_reads_wide_words_as_narrow_patterns() -> None:
    patterns = np.array([0x3F80, 0x4300], np.uint32)
    assert list(values(patterns, np.dtype(ml_dtypes.bfloat16)).astype(float)) == [1.0, 128.0]


def test_aligned_columns() -> None:
    assert aligned([("a", "bbb"), ("22", "3")]) == [" a  bbb", "22    3"]
