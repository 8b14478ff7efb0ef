"""The whole ladder on the same inputs: every rung that takes them, and whether all rungs agree."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxlab.arrays import Array, Doubles
from ptxlab.device.protocol import Device
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.gemm.ladder import LADDER
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import Computed, GemmResult, compute, judge
from ptxlab.gemm.scaled import SCALED
from ptxlab.gemm.side_by_side import Absent, RungJob, each, lacking
from ptxlab.gemm.verification import Verification
from ptxlab.workers import Progress


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far apart the results of one problem are: ``spread`` is the largest difference of two
    rungs at one element, in units of (|A| |B|)_ij or what the epilogue makes of it; ``tolerance`` is
    what two of them may have.
    """

    dtype: str
    acc: str
    algorithms: tuple[str, ...]
    passed: bool
    spread: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class LadderSurvey:
    """What all rungs made of a problem, for each pair of types."""

    device: str
    arch: str
    problem: Problem
    results: tuple[GemmResult, ...]
    absent: tuple[Absent, ...]
    agreements: tuple[Agreement, ...]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results) and all(
            agreement.passed for agreement in self.agreements
        )


def all_types() -> list[tuple[str, str]]:
    """Return every (type of A and B, type of D) that a rung takes, in the order of the ladder."""
    return list(dict.fromkeys(types for rung in LADDER.values() for types in rung.types))


def survey(
    device: Device,
    problem: Problem,
    types: Sequence[tuple[str, str]],
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> LadderSurvey:
    """Run every rung that takes ``problem``, once for each of ``types``.

    A library that is not there or needs another device is ``absent``, and so is a kernel with an
    instruction that the target lacks. With an ``executor`` the rungs run on emulators side by side; ``progress`` is told
    how many of them are done.
    """
    results: list[GemmResult] = []
    absent: list[Absent] = []
    agreements: list[Agreement] = []
    for dtype, acc in types:
        packed: dict[str, Any] = {"lda": None, "ldb": None} if dtype in SCALED else {}
        typed = replace(problem, dtype=dtype, acc=acc, **packed)
        verification, extent = Verification(typed, typed.inputs()), _Extent()
        jobs = [RungJob(rung, typed) for rung in LADDER.values() if rung.takes(typed)]
        computing = each(
            device, _computed, jobs, executor, excused=_is_elsewhere, progress=progress
        )
        for job, computed in zip(jobs, computing, strict=True):
            if isinstance(computed, Absent):
                absent.append(computed)
                continue
            results.append(judge(device, verification, job.rung, computed))
            extent.add(results[-1], computed.d)
        if len(extent.results) > 1:
            agreements.append(extent.agreement(verification))
    return LadderSurvey(
        device.kind,
        device.target.name,
        problem,
        tuple(results),
        tuple(absent),
        tuple(agreements),
    )


def _computed(device: Device, job: RungJob) -> Computed:
    return compute(device, job.problem, job.problem.inputs(), job.rung)


def _is_elsewhere(error: PtxlabError) -> bool:
    return isinstance(error, DeviceUnavailable) or bool(lacking(error))


class _Extent:
    """The least and the largest value that any rung found for each element of D."""

    def __init__(self) -> None:
        self.results: list[GemmResult] = []
        self.least: Array = np.array(np.inf, np.float32)
        self.largest: Array = np.array(-np.inf, np.float32)

    def add(self, result: GemmResult, d: Array) -> None:
        values = d.astype(np.float32)
        self.least = np.minimum(self.least, values)
        self.largest = np.maximum(self.largest, values)
        self.results.append(result)

    def agreement(self, verification: Verification) -> Agreement:
        """Compare the two; where both are the same infinity, they agree."""
        worst = 0.0
        for part in verification.expected():
            least = self.least[part.rows, part.columns].astype(np.float64)
            largest = self.largest[part.rows, part.columns].astype(np.float64)
            worst = max(worst, float(_apart(least, largest, part.magnitude).max(initial=0)))
        tolerance = sum(sorted(result.verdict.tolerance for result in self.results)[-2:])
        problem, names = verification.problem, tuple(result.rung.name for result in self.results)
        return Agreement(problem.dtype, problem.acc, names, worst <= tolerance, worst, tolerance)


def _apart(least: Doubles, largest: Doubles, magnitude: Doubles) -> Doubles:
    """Return how far apart two values are, in units of their magnitude; NaN is infinitely far."""
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where(least == largest, 0.0, (largest - least) / magnitude)
    apart[np.isnan(apart)] = np.inf
    return apart
