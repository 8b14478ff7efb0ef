"""The ladder timed on a GPU: every kernel checked before and after, in turns with a library.

All kernels of a problem compute on the same matrices, random and normal. D is filled with NaN before it
is checked, so that no kernel passes with what another one left. What is wrong has no speed.
``ptxlab.gemm.timing`` says what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Stopwatch, Work
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.ladder import BASELINES, GpuBaseline
from ptxlab.gemm.machine import Machine
from ptxlab.gemm.plan import Entry
from ptxlab.gemm.problem import Operands, Problem, uploaded
from ptxlab.gemm.run import queue
from ptxlab.gemm.survey import Absent
from ptxlab.gemm.tile import Sizes
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.timing import Arm, Procedure, Timing, burst, cold, sustained, warmed
from ptxlab.gemm.verification import Verdict, Verification, checked
from ptxlab.isa.gpus import GPUS

LIBRARIES = tuple(rung for rung in BASELINES.values() if isinstance(rung, GpuBaseline))
"""What is timed beside the kernels, and takes turns with them: the first that is there."""

Say = Callable[[str], None]


# ---- what is found ------------------------------------------------------------------------------


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
    library: Rung | None
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

    rung: Rung
    problem: Problem
    limit: float | None
    tile: Sizes
    verdict: Verdict
    timed: Timed | None

    def tflops(self, timing: Timing) -> float:
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
        return all(result.verdict.passed for result in self.results)


# ---- how ----------------------------------------------------------------------------------------


def bench(
    device: CudaDevice,
    stopwatch: Stopwatch,
    machine: Machine,
    entries: Sequence[Entry],
    procedure: Procedure,
    say: Say,
) -> Bench:
    results: list[BenchResult] = []
    absent: list[Absent] = []
    for entry in entries:
        field = Field(device, stopwatch, procedure, entry.problem, say, absent)
        results += field.run(entry.rungs, limit(machine, entry.problem))
    return Bench(machine, procedure, tuple(results), tuple(dict.fromkeys(absent)))


@dataclass(frozen=True, slots=True)
class Contender:
    """A kernel or a library, ready to compute a problem again and again."""

    rung: Rung
    work: Work
    tile: Sizes


@dataclass(frozen=True, slots=True)
class Field:
    """All that are timed on one problem; those that cannot be are added to ``absent``."""

    device: CudaDevice
    stopwatch: Stopwatch
    procedure: Procedure
    problem: Problem
    say: Say
    absent: list[Absent]

    def run(self, rungs: Sequence[Rung], limit: float | None) -> list[BenchResult]:
        """Check and time these rungs, and a library beside them.

        What is not right after it was timed has no time either, and nothing is compared with it.
        """
        self._tell("making the matrices and the reference")
        inputs = self.problem.inputs()
        verification = Verification(self.problem, inputs, sampled=True)
        with uploaded(self.device, self.problem, inputs) as operands, ExitStack() as stack:
            judged = list(self._ready(rungs, operands, verification, stack))
            right = [contender for contender, verdict in judged if verdict.passed]
            timed = self._time(right)
            again = {each.rung: self._check(each, operands, verification) for each in right}
        results = []
        for contender, verdict in judged:
            rung, verdict = contender.rung, again.get(contender.rung, verdict)
            of_it = _standing(timed[rung], again) if verdict.passed else None
            results.append(BenchResult(rung, self.problem, limit, contender.tile, verdict, of_it))
        return results

    def _ready(
        self,
        rungs: Sequence[Rung],
        operands: Operands,
        verification: Verification,
        stack: ExitStack,
    ) -> Iterator[tuple[Contender, Verdict]]:
        """Yield what can be timed, with its first verdict; libraries to compare with come first."""
        libraries = [library for library in LIBRARIES if library.takes(self.problem)]
        for rung in dict.fromkeys((*libraries, *rungs)):
            self._tell(f"preparing {rung.name}")
            try:
                contender = self._contender(rung, operands, stack)
                verdict = self._check(contender, operands, verification)
            except PtxlabError as error:
                if self.device.lost:
                    raise
                p = self.problem
                self.absent.append(Absent(rung.name, p.dtype, p.acc, error.message))
            else:
                yield contender, verdict

    def _contender(self, rung: Rung, operands: Operands, stack: ExitStack) -> Contender:
        if isinstance(rung, GpuBaseline):
            work = stack.enter_context(rung.ready(self.device, operands))
            return Contender(rung, work, {})
        if not isinstance(rung, Algorithm):
            raise PtxlabError("it runs on the CPU, and is timed by ptxlab gemm")
        tile = tile_for(self.device, rung, self.problem)
        return Contender(rung, queue(self.device, operands, rung, tile), tile.macros)

    def _check(
        self, contender: Contender, operands: Operands, verification: Verification
    ) -> Verdict:
        self._tell(f"checking {contender.rung.name}")
        method = contender.rung.method
        return checked(self.device, operands, contender.work, verification, method)

    def _time(self, contenders: Sequence[Contender]) -> dict[Rung, Timed]:
        """Time all: bursts of all in turns, then each in turns with the library."""
        stopwatch, procedure = self.stopwatch, self.procedure
        self._tell("warming up")
        arms = {each.rung: warmed(stopwatch, each.work, procedure) for each in contenders}
        everyone = list(arms.values())
        self._tell("timing bursts")
        bursts = dict(zip(arms, burst(stopwatch, everyone, procedure), strict=True))
        colds: dict[Rung, Timing] = {}
        if procedure.cold:
            self._tell("timing with a cold cache")
            colds = dict(zip(arms, cold(stopwatch, everyone, procedure), strict=True))
        libraries = [library for library in LIBRARIES if library in arms]
        timed = {}
        for rung, arm in arms.items():
            pair: dict[Rung, Arm] = {
                rung: arm,
                **{library: arms[library] for library in libraries[:1]},
            }
            self._tell(f"timing {' and '.join(one.name for one in pair)}")
            timings, reading = sustained(stopwatch, list(pair.values()), procedure)
            speeds = {
                who: Speed(bursts[who], timing, colds.get(who))
                for who, timing in zip(pair, timings, strict=True)
            }
            library = next((who for who in pair if who != rung), None)
            beside = None if library is None else speeds[library]
            timed[rung] = Timed(arm.kernels, speeds[rung], library, beside, reading)
        return timed

    def _tell(self, text: str) -> None:
        self.say(f"{self.problem}: {text}")


def _standing(timed: Timed, verdicts: Mapping[Rung, Verdict]) -> Timed:
    """Return what was measured, not beside a library that is wrong."""
    if timed.library is None or verdicts[timed.library].passed:
        return timed
    return replace(timed, library=None, beside=None)
