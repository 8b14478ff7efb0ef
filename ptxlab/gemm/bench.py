"""The ladder timed on a GPU: every kernel checked before and after, in turns with a library.

All kernels of a problem compute on the same matrices, random and normal. D is filled with NaN before it
is checked, so that no kernel passes with what another one left. What is wrong has no speed.
``ptxlab.gemm.timing`` says what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.memory import Closing
from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Stopwatch, StreamWork, Timing
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.ladder import BASELINES, GpuBaseline, PlannedProblem
from ptxlab.gemm.machine import MeasuredMachine
from ptxlab.gemm.predicted import PredictedRung, predict_ladder
from ptxlab.gemm.problem import Problem, uploaded
from ptxlab.gemm.run import queue
from ptxlab.gemm.side_by_side import Absent, RungJob
from ptxlab.gemm.tile import AS_IT_IS, Sizes
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.timing import Procedure, burst, cold, sustained, warmed
from ptxlab.gemm.verification import Verdict, Verification, checked
from ptxlab.isa.gpus import GPUS
from ptxlab.prediction.chip import Chip

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
    ``predicted`` is what the model of time says of the same, where it was asked.
    """

    rung: Rung
    problem: Problem
    limit: float | None
    tile: Sizes
    verdict: Verdict
    timed: Timed | None
    predicted: PredictedRung | None = None

    @property
    def error(self) -> float | None:
        """By how much the sustained speed is above what was predicted, None without one or the other."""
        if self.timed is None or self.predicted is None or self.predicted.tflops is None:
            return None
        return self.tflops(self.timed.speed.sustained) / self.predicted.tflops - 1

    def tflops(self, timing: Timing) -> float:
        return self.problem.flops / timing.median / 1e12


def limit(machine: MeasuredMachine, problem: Problem) -> float | None:
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

    machine: MeasuredMachine
    procedure: Procedure
    results: tuple[BenchResult, ...]
    absent: tuple[Absent, ...]

    @property
    def passed(self) -> bool:
        return all(result.verdict.passed for result in self.results)


def beside_measured(bench: Bench, chip: Chip) -> Bench:
    """Return what was measured with what is predicted of the same, tile by tile, at the clock it ran at."""

    def predicted(result: BenchResult) -> BenchResult:
        if not isinstance(result.rung, Algorithm):
            return result
        mhz = result.timed.reading.clock if result.timed else None
        sizes = AS_IT_IS if result.rung.handwritten else result.tile
        job = RungJob(result.rung, result.problem, dict(sizes))
        [told] = predict_ladder([job], chip, round(mhz) if mhz else None)
        return replace(result, predicted=told)

    return replace(bench, results=tuple(map(predicted, bench.results)))


# ---- how ----------------------------------------------------------------------------------------


def bench(
    device: CudaDevice,
    stopwatch: Stopwatch,
    machine: MeasuredMachine,
    entries: Sequence[PlannedProblem],
    procedure: Procedure,
    say: Say,
) -> Bench:
    results: list[BenchResult] = []
    absent: list[Absent] = []
    for entry in entries:
        with TimedField(device, stopwatch, procedure, entry.problem, say) as field:
            for rung in dict.fromkeys((*LIBRARIES, *entry.rungs)):
                field.enter(rung)
            results += field.results(limit(machine, entry.problem))
            absent += field.absent
    return Bench(machine, procedure, tuple(results), tuple(dict.fromkeys(absent)))


class TimedField(Closing):
    """All that are timed on one problem, ready to compute it again and again; and who is ``absent``."""

    def __init__(
        self,
        device: CudaDevice,
        stopwatch: Stopwatch,
        procedure: Procedure,
        problem: Problem,
        say: Say,
    ) -> None:
        self.device, self.stopwatch, self.procedure = device, stopwatch, procedure
        self.problem, self.say = problem, say
        self.absent: list[Absent] = []
        self.works: dict[Rung, StreamWork] = {}
        self.tiles: dict[Rung, Sizes] = {}
        self.verdicts: dict[Rung, Verdict] = {}
        self._tell("making the matrices and the reference")
        inputs = problem.inputs()
        self.verification = Verification(problem, inputs, sampled=True)
        self._stack = ExitStack()
        self.operands = self._stack.enter_context(uploaded(device, problem, inputs))

    def enter(self, rung: Rung) -> None:
        """Prepare and check what is to be timed; a library that does not take this is passed over."""
        if isinstance(rung, GpuBaseline) and not rung.takes(self.problem):
            return
        self._tell(f"preparing {rung.name}")
        try:
            self.works[rung], self.tiles[rung] = self._work(rung)
            self._check(rung)
        except PtxlabError as error:
            if self.device.lost:
                raise
            self.absent.append(Absent.of(rung, self.problem, error))

    def _work(self, rung: Rung) -> tuple[StreamWork, Sizes]:
        if isinstance(rung, GpuBaseline):
            return self._stack.enter_context(rung.ready(self.device, self.operands)), {}
        if not isinstance(rung, Algorithm):
            raise PtxlabError("it runs on the CPU, and is timed by ptxlab gemm")
        tile = tile_for(self.device, rung, self.problem)
        return queue(self.device, self.operands, rung, tile), tile.macros

    def _check(self, rung: Rung) -> None:
        self._tell(f"checking {rung.name}")
        work, method = self.works[rung], rung.method
        self.verdicts[rung] = checked(self.device, self.operands, work, self.verification, method)

    def results(self, limit: float | None) -> list[BenchResult]:
        """Time what is right.

        What is not right after it was timed has no time either, and nothing is compared with it.
        """
        right = [rung for rung, verdict in self.verdicts.items() if verdict.passed]
        timed = self._time(right)
        for rung in right:
            self._check(rung)
        return [self._result(rung, limit, timed.get(rung)) for rung in self.verdicts]

    def _result(self, rung: Rung, limit: float | None, timed: Timed | None) -> BenchResult:
        verdict = self.verdicts[rung]
        if not verdict.passed:
            timed = None
        elif timed and timed.library and not self.verdicts[timed.library].passed:
            timed = replace(timed, library=None, beside=None)
        return BenchResult(rung, self.problem, limit, self.tiles[rung], verdict, timed)

    def _time(self, rungs: Sequence[Rung]) -> dict[Rung, Timed]:
        """Time all: bursts of all in turns, then each in turns with the library."""
        stopwatch, procedure = self.stopwatch, self.procedure
        self._tell("warming up")
        arms = {rung: warmed(stopwatch, self.works[rung], procedure) for rung in rungs}
        everyone = list(arms.values())
        self._tell("timing bursts")
        bursts = dict(zip(arms, burst(stopwatch, everyone, procedure), strict=True))
        colds: dict[Rung, Timing] = {}
        if procedure.cold:
            self._tell("timing with a cold cache")
            colds = dict(zip(arms, cold(stopwatch, everyone, procedure), strict=True))
        library = next((library for library in LIBRARIES if library in arms), None)
        timed = {}
        for rung in rungs:
            pair = list(dict.fromkeys((rung, library or rung)))
            self._tell(f"timing {' and '.join(arm.name for arm in pair)}")
            timings, reading = sustained(stopwatch, [arms[arm] for arm in pair], procedure)
            speeds = {
                arm: Speed(bursts[arm], timing, colds.get(arm))
                for arm, timing in zip(pair, timings, strict=True)
            }
            other = library if library != rung else None
            beside = speeds[other] if other else None
            timed[rung] = Timed(arms[rung].kernels, speeds[rung], other, beside, reading)
        return timed

    def _tell(self, text: str) -> None:
        self.say(f"{self.problem}: {text}")

    def close(self) -> None:
        self._stack.close()
