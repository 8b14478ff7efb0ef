"""Rungs on problems as independent jobs: on the device at hand, or each on an emulator of its own elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.ladder import Baseline
from ptxlab.gemm.problem import Problem
from ptxlab.workers import results

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RungJob:
    """One rung on one problem; ``sizes`` change its tile."""

    rung: Algorithm | Baseline
    problem: Problem
    sizes: dict[str, int] = field(default_factory=dict)


def each(
    device: Device,
    work: Callable[[Device, RungJob], Result],
    jobs: Sequence[RungJob],
    executor: Executor | None = None,
) -> Iterator[Result | PtxlabError]:
    """Do the jobs, and yield the result of each, or the error that it is refused with, in their order.

    With an ``executor`` they are done on emulators like ``device``, which must be one; ``work`` is then
    a function of a module.
    """
    there = partial(_elsewhere, work, device.target.name)
    here = partial(_attempt, work, device)
    return results(executor, there if executor else here, jobs)


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
