"""Rungs on problems as independent jobs: on the device at hand, or each on an emulator of its own elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.ladder import Baseline
from ptxlab.gemm.problem import Problem
from ptxlab.workers import Progress, results

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RungJob:
    """One rung on one problem; ``sizes`` change its tile."""

    rung: Algorithm | Baseline
    problem: Problem
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Absent:
    """A rung that could not be run, and why."""

    algorithm: str
    dtype: str
    acc: str
    reason: str

    @classmethod
    def of(cls, rung: Rung, problem: Problem, error: PtxlabError) -> Absent:
        return cls(rung.name, problem.dtype, problem.acc, lacking(error) or error.message)


def lacking(error: PtxlabError) -> str:
    """Return what a kernel needs that its target lacks, in the words of who says so; else ""."""
    if isinstance(error, Unsupported):
        return error.message
    match = re.search(r"Feature .* requires \.target .*", error.message)
    return match[0] if match and isinstance(error, ToolchainError) else ""


def each(
    device: Device,
    work: Callable[[Device, RungJob], Result],
    jobs: Sequence[RungJob],
    executor: Executor | None = None,
    *,
    excused: Callable[[PtxlabError], object] = lacking,
    progress: Progress | None = None,
) -> Iterator[Result | Absent]:
    """Do the jobs, and yield the result of each in their order, or why there is none where that is ``excused``.

    Raises other errors that a job is refused with. With an ``executor`` they are done on emulators like ``device``, which must be one; ``work`` is then
    a function of a module. ``progress`` is told how many are done.
    """
    there = partial(_elsewhere, work, device.target.name)
    here = partial(_attempt, work, device)
    done = results(executor, there if executor else here, jobs)
    for number, (job, result) in enumerate(zip(jobs, done, strict=True), 1):
        if progress is not None:
            progress(number, len(jobs))
        if not isinstance(result, PtxlabError):
            yield result
        elif excused(result):
            yield Absent.of(job.rung, job.problem, result)
        else:
            raise result


def _elsewhere(
    work: Callable[[Device, RungJob], Result], target: str, job: RungJob
) -> Result | PtxlabError:
    with closing(open_device("emulator", arch=target)) as device:
        return _attempt(work, device, job)


def _attempt(
    work: Callable[[Device, RungJob], Result], device: Device, job: RungJob
) -> Result | PtxlabError:
    try:
        return work(device, job)
    except PtxlabError as error:
        return error
