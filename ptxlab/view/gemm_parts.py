"""What views of GEMMs have in common: the name of a problem, in words and as data, and who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.gemm.problem import Problem
from ptxlab.gemm.side_by_side import Absent
from ptxlab.gemm.verification import Verdict
from ptxlab.view.json import members


def sizes(problem: Problem) -> str:
    return f"{problem.m} x {problem.n} x {problem.k} (m x n x k)"


def title(problem: Problem, *more: str) -> str:
    """Return the sizes and types of a problem, what is unusual of it, and ``more``."""
    return ", ".join([f"{sizes(problem)}, {problem.types}", *unusual(problem), *more])


def unusual(problem: Problem) -> list[str]:
    """Return the layout and the epilogue where they are not those of most problems."""
    parts = [f"layout {problem.layout}"] if problem.layout != "nn" else []
    return parts + ([f"epilogue {problem.epilogue}"] if problem.epilogue != "none" else [])


def problem_as_json(problem: Problem) -> dict[str, Any]:
    return members(problem, "m", "n", "k", "dtype", "acc", "layout", "epilogue")


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {"passed": verdict.passed, "max_error": verdict.error, "tolerance": verdict.tolerance}


def wrong(verdict: Verdict) -> str:
    return f"largest error {verdict.error:.3g}, the bound is {verdict.tolerance:.3g}"


def left_out(several: Sequence[Absent]) -> list[str]:
    """Return a line for everyone that is missing, after an empty one if there are any."""
    lines = dict.fromkeys(f"{result.algorithm} is left out: {result.reason}" for result in several)
    return ["", *lines] if lines else []
