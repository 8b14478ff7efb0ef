# mypy: disable-error-code="no-untyped-def,untyped-decorator,name-defined"
"""Functions of Triton judged by themselves, right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxlab import evaluate
from ptxlab.errors import Unsupported
from ptxlab.judge.arguments import Array
from ptxlab.judge.judgement import Judgement
from tests.clients.needs import need

need("triton")
pytestmark = pytest.mark.thorough  # Triton compiles each

import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def rows(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    numbers = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, factor * tl.sum(numbers, 0))


@triton.jit
def too_far(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row, factor * tl.sum(tl.load(x + row * n + i), 0))  # HERE


@triton.jit
def too_large(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    numbers = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, 1.001 * factor * tl.sum(numbers, 0))


@triton.jit
def unknown(x, y, factor, n, B: tl.constexpr):
    tl.store(y, nothing)  # noqa: F821  # THERE


def reference(x: Any) -> Any:
    return {"y": 1.5 * x.sum(axis=1)}


def judged(function: Any, **more: Any) -> Judgement:
    task: dict[str, Any] = {
        "sizes": {"m": 3, "n": 70}, "grid": lambda m, n: m, "block": 64, "gpus": ("a100",), "seed": 1,
        "arguments": lambda m, n: {
            "x": Array((m, n)), "y": Array(m), "factor": 1.5, "n": n, "B": 128,
        },
    }  # fmt: skip
    return evaluate(function, more.pop("reference", reference), **{**task, **more})


def line(mark: str) -> int:
    return Path(__file__).read_text(encoding="utf-8").split(mark)[0].count("\n") + 1


def test_a_right_function_is_all_that_it_has_to_be() -> None:
    judgement = judged(rows)
    assert judgement.passed, (judgement.error, judgement.trials)
    assert judgement.score["robust"] == 1
    assert judgement.speeds[0].seconds is not None
    assert 1e-6 < judgement.speeds[0].seconds < 6e-6


def test_others_are_told_by_their_line() -> None:
    wrong, far, refused = (judged(each, gpus=()) for each in (too_large, too_far, unknown))
    assert wrong.verdict == "not right"
    assert wrong.trials[0].writer is not None
    assert wrong.trials[0].writer.path.endswith(Path(__file__).name)
    assert far.verdict == "not launched"
    assert far.error is not None
    assert far.error.location is not None
    assert far.error.location.line == line("  # HERE")
    assert refused.verdict == "not compiled"
    assert refused.error is not None
    assert refused.error.location is not None
    assert refused.error.location.line == line("  # noqa: F821  # THERE")


def test_arguments_that_do_not_fit_are_told() -> None:
    few = judged(rows, arguments={"x": Array((1, 1)), "y": Array(1)}, gpus=(), sizes=None, grid=1)
    assert "takes x, y, factor, n, B" in str(few.error)
    with pytest.raises(Unsupported, match="rows is a kernel, and how far from it"):
        judged(rows, reference=rows)
    sized = judged(
        rows, gpus=(), arguments=lambda m, n: {"x": Array((m, n)), "y": Array(m), "factor": 1.5, "n": n, "B": 64 + n // 70 * 64}
    )  # fmt: skip
    assert "B is a constexpr, and depends on the sizes" in str(sized.trials[3].fault), sized
