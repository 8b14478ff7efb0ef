"""Kernels that sum rows, right and wrong and cheating: each is judged what it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import evaluate, evaluate_many
from ptxlab.errors import PtxlabError
from ptxlab.judge.arguments import Array
from ptxlab.judge.contained import zygote
from ptxlab.judge.judgement import STAGES, Judgement
from ptxlab.judge.limits import Limits
from tests.together import in_one_test

KERNEL = """
__device__ float kept[64];
__device__ int launches;
extern "C" __global__ void rows(const float* x, float* y, int m, int n) {
    __shared__ float parts[64];
    int row = blockIdx.x, lane = threadIdx.x;
    float sum = 0;
    for (int column = lane; column < n; column += 64) sum += x[row * n + column];
    parts[lane] = sum;
    __syncthreads();
    for (int half = 32; half; half /= 2) {
        if (lane < half) parts[lane] += parts[lane + half];
        __syncthreads();
    }
    if (lane == 0) y[row] = parts[0];
}
"""
CHANGES = {
    "right": ("", ""),
    "does not compile": ("sum += x", "sum += z"),
    "does not launch": ("int row = blockIdx.x", "__trap(); int row = blockIdx.x"),
    "takes others": ("int m, int n)", "int m, int n, int o)"),
    "writes nothing": ("if (lane == 0) y", "if (lane == 99) y"),
    "same answer": ("= parts[0]", "= 1.0f"),
    "old answer": (
        "if (lane == 0) y[row] = parts[0];",
        "if (lane == 0) { if (!launches) kept[row] = parts[0]; y[row] = kept[row]; __threadfence(); launches = 1; }",
    ),
    "reads on": ("column < n;", "column < n + 1;"),
    "one size": ("column < n;", "column < 70;"),
    "writes its inputs": ("float sum = 0;", "float sum = 0; if (!lane) ((float*)x)[row * n] = 0;"),
    "f16 sums": (
        "sum += x[row * n + column]",
        "sum = (float)(_Float16)(sum + x[row * n + column])",
    ),
    "races": ("parts[lane] = sum;\n    __syncthreads();", "parts[lane] = sum;"),
    "few rows": ("int row = blockIdx.x", "if (blockIdx.x > 100) return; int row = blockIdx.x"),
    "asks for poison": ("if (lane == 0) y", "if (lane == 0 && y[row] != y[row]) y"),
    "skips a row": ("if (lane == 0) y", "if (lane == 0 && row < m - 1) y"),
}


def reference(x: Any) -> Any:
    return {"y": x.sum(axis=1)}


TASK: dict[str, Any] = {
    "arguments": lambda m, n: {"x": Array((m, n), "f32", "rand"), "y": Array(m), "m": m, "n": n},
    "grid": lambda m, n: m,
    "block": 64,
    "sizes": {"m": 3, "n": 70},
    "gpus": (),
    "arch": "sm_80",
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    folder = tmp_path_factory.mktemp("judged")
    for name, (old, new) in CHANGES.items():
        text = KERNEL.replace(old, new)
        assert text != KERNEL or name == "right"
        (folder / f"{name}.cu").write_text(text.replace("_Float16", "__half").replace(
            "\n__device__ float", "\n#include <cuda_fp16.h>\n__device__ float", 1))  # fmt: skip
    files = sorted(folder.glob("*.cu"))
    return {Path(each.candidate).stem: each for each in evaluate_many(files, reference, **TASK)}


def test_a_right_kernel_is_all_that_it_has_to_be(judged: dict[str, Judgement]) -> None:
    right = judged["right"]
    assert right.passed, right
    assert right.stages == dict.fromkeys(STAGES, True)
    assert len(right.trials) == 11
    assert right.score == {**dict.fromkeys(STAGES, 1.0), "robust": 1.0, "speedup": None}
    assert any("network" in each for each in right.contained)


@in_one_test(
    ("name", "verdict", "tricks"),
    [
        ("does not compile", "not compiled", []),
        ("does not launch", "not launched", []),
        ("takes others", "not launched", []),
        ("writes nothing", "not right", ["writes nothing"]),
        ("same answer", "not right", ["the same answer always"]),
        ("old answer", "not right", ["an answer of before"]),
        ("reads on", "not launched", []),
        ("one size", "not right", ["only these sizes"]),
        ("writes its inputs", "not right", ["writes its inputs"]),
        ("f16 sums", "not right", []),
        ("few rows", "not right", ["only these sizes"]),
        ("asks for poison", "not right", ["only these numbers"]),
        ("skips a row", "not right", []),
        ("races", "not safe", []),
    ],
)
def test_others_are_what_they_are(
    judged: dict[str, Judgement], name: str, verdict: str, tricks: list[str]
) -> None:
    judgement = judged[name]
    assert judgement.verdict == verdict
    assert [trick.name for trick in judgement.tricks] == tricks
    assert not judgement.passed


@pytest.mark.thorough  # it begins two
def test_what_forks_may_end_and_costs_the_candidates_of_then(tmp_path: Path) -> None:
    file = tmp_path / "right.cu"
    file.write_text(KERNEL)
    results = evaluate_many([file] * 4, reference, **TASK)
    first = next(results)
    os.kill(zygote(modules=False)._process.pid, signal.SIGKILL)
    rest = list(results)
    assert len(rest) == 3
    assert first.passed
    assert {"passed", "not compiled", "not launched"} >= {each.verdict for each in rest}
    assert all("its process is gone" in str(each.error) for each in rest if not each.passed)
    with pytest.raises(PtxlabError, match="there is no file nowhere"):
        next(evaluate_many([file, "nowhere.cu"], reference, **TASK))


def test_a_diagnosis_has_its_line(judged: dict[str, Judgement]) -> None:
    error = judged["does not compile"].error
    assert error is not None
    assert error.location is not None
    assert error.location.line == KERNEL[: KERNEL.index("sum += x")].count("\n") + 2


def test_a_wrong_element_has_who_wrote_it(judged: dict[str, Judgement]) -> None:
    trial = judged["same answer"].trials[0]
    assert trial.compared[0].index == (0,)
    assert trial.compared[0].value == 1.0
    assert trial.writer is not None
    assert trial.writer.thread == "thread (0, 0, 0) of CTA (0, 0, 0)"
    assert Path(trial.writer.path).name == "same answer.cu"
    assert trial.writer.line == KERNEL[: KERNEL.index("if (lane == 0) y")].count("\n") + 2
    assert judged["skips a row"].trials[0].compared[0].unwritten == 1
    assert judged["skips a row"].trials[0].writer is None


def test_what_checks_find_counts(judged: dict[str, Judgement]) -> None:
    report = judged["reads on"].report
    assert report is not None
    assert {finding.kind for finding in report.findings} == {"bounds"}
    assert not judged["reads on"].stages["safe"]
    error = judged["reads on"].error
    assert error is not None
    assert error.location is not None
    assert error.location.path.endswith("reads on.cu")
    assert error.location.line == KERNEL[: KERNEL.index("sum += x")].count("\n") + 2


def test_the_same_seed_gives_the_same_judgement(judged: dict[str, Judgement]) -> None:
    again = evaluate(judged["f16 sums"].candidate, reference, **TASK)
    assert again.trials == judged["f16 sums"].trials
    other = evaluate(judged["f16 sums"].candidate, reference, **{**TASK, "seed": 1})
    assert other.trials != again.trials


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(seconds=2), ""),
        (Limits(instructions=100_000), "executed more than 100,000 instructions"),
    ],
)
def test_a_kernel_that_never_ends_costs_its_limit_alone(
    tmp_path: Path, limits: Limits, message: str
) -> None:
    endless = tmp_path / "endless.ptx"
    endless.write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 x) { again: bra again; }\n"
    )
    judgement = evaluate(
        endless, lambda: {"x": np.zeros(1)}, arguments={"x": Array(1)}, grid=1, block=1, gpus=(),
        arch="sm_80", limits=limits,
    )  # fmt: skip
    assert judgement.verdict == "not launched"
    assert message in str(judgement.error)
    assert judgement.seconds < 60


def test_a_reference_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.touch()
    with pytest.raises(PtxlabError, match="returns 'z'"):
        evaluate(file, lambda x: {"z": x}, **TASK)
    with pytest.raises(PtxlabError, match="no target"):
        evaluate(file, reference, **{**TASK, "arch": "sm_1"})
