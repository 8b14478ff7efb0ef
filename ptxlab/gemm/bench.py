"""What a benchmark of the ladder on a GPU is made of: what is timed, and what is found."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.device.stopwatch import Reading
from ptxlab.gemm.machine import Machine
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.survey import Absent
from ptxlab.gemm.timing import Procedure, Timing
from ptxlab.gemm.verification import Verdict
from ptxlab.isa.gpus import GPUS


@dataclass(frozen=True, slots=True)
class Speed:
    """The times of a kernel: in bursts, sustained, and cold where that was asked for."""

    burst: Timing
    sustained: Timing
    cold: Timing | None


@dataclass(frozen=True, slots=True)
class Timed:
    """What was measured of a kernel.

    ``kernels`` are the names of what ran on the GPU. ``beside`` are the times of ``library`` in the
    same turns, None where there is none. ``reading`` is the mean clock and power while sustained.
    """

    kernels: tuple[str, ...]
    speed: Speed
    library: str | None
    beside: Speed | None
    reading: Reading

    @property
    def ratio(self) -> float | None:
        """How much faster than the library it is when sustained: 1 is as fast."""
        if self.beside is None:
            return None
        return self.beside.sustained.median / self.speed.sustained.median


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One rung on one problem. What was not right before and after has not been ``timed``.

    ``limit`` is what the GPU could do at most with these types, in TFLOP/s, None if nobody is sure.
    """

    algorithm: str
    problem: Problem
    limit: float | None
    tile: dict[str, int]
    verdict: Verdict
    timed: Timed | None

    def tflops(self, timing: Timing) -> float:
        """Return the TFLOP/s of a time of this problem."""
        return self.problem.flops / timing.median / 1e12


def limit(machine: Machine, problem: Problem) -> float | None:
    """Return the peak of all SMs at their highest clock in TFLOP/s; see ``ptxlab.isa.gpus``."""
    for gpu in GPUS:
        if gpu.capability == machine.capability:
            types = (problem.dtype, problem.acc)
            flop = gpu.fp32 if problem.dtype == "f32" else gpu.tensor.get(types)
            return flop and flop * machine.multiprocessors * machine.clock / 1e6
    return None


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured, how, and on which machine."""

    machine: Machine
    procedure: Procedure
    results: tuple[BenchResult, ...]
    absent: tuple[Absent, ...]

    @property
    def passed(self) -> bool:
        """Whether every kernel was right."""
        return all(result.verdict.passed for result in self.results)
