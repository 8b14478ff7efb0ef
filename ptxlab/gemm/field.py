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
from ptxlab.device.stopwatch import Stopwatch, Work
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.baselines import GpuBaseline
from ptxlab.gemm.bench import Bench, BenchResult, Speed, Timed, limit
from ptxlab.gemm.ladder import find_algorithm
from ptxlab.gemm.machine import Machine
from ptxlab.gemm.plan import Entry
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import prepare
from ptxlab.gemm.storage import Operands, uploaded
from ptxlab.gemm.survey import Absent
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.timing import Procedure, Timing, burst, cold, sustained, warmed
from ptxlab.gemm.verification import Verdict, Verification, checked

LIBRARIES = ("cublas", "cublaslt")
"""What is timed beside the kernels, and takes turns with them: the first that is there."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contender:
    """A kernel or a library, ready to compute a problem again and again."""

    name: str
    rung: Rung
    tile: dict[str, int]
    work: Work


def bench(
    device: CudaDevice,
    stopwatch: Stopwatch,
    machine: Machine,
    entries: Sequence[Entry],
    procedure: Procedure,
    say: Say,
) -> Bench:
    """Time every entry; ``say`` is told what is being done."""
    results: list[BenchResult] = []
    absent: list[Absent] = []
    for entry in entries:
        field = Field(device, stopwatch, machine, entry.problem, procedure, say)
        results += field.run(entry.algorithms)
        absent += field.absent
    return Bench(machine, procedure, tuple(results), tuple(dict.fromkeys(absent)))


class Field:
    """All that are timed on one problem; ``absent`` are those that cannot be."""

    def __init__(
        self,
        device: CudaDevice,
        stopwatch: Stopwatch,
        machine: Machine,
        problem: Problem,
        procedure: Procedure,
        say: Say,
    ) -> None:
        self.device = device
        self.stopwatch = stopwatch
        self.problem = problem
        self.limit = limit(machine, problem)
        self.procedure = procedure
        self.say = say
        self.absent: list[Absent] = []

    def run(self, names: Sequence[str]) -> list[BenchResult]:
        """Check and time the rungs of these names, and a library beside them.

        What is not right after it was timed has no time either, and nothing is compared with it.
        """
        self._tell("making the matrices and the reference")
        inputs = self.problem.inputs()
        verification = Verification(self.problem, inputs)
        with uploaded(self.device, self.problem, inputs) as operands, ExitStack() as stack:
            judged = list(self._ready(names, operands, verification, stack))
            right = [contender for contender, verdict in judged if verdict.passed]
            timed = self._time(right)
            again = {each.name: self._check(each, operands, verification) for each in right}
        results = []
        for contender, verdict in judged:
            name = contender.name
            verdict = again.get(name, verdict)
            of_it = _standing(timed[name], again) if verdict.passed else None
            results.append(
                BenchResult(name, self.problem, self.limit, contender.tile, verdict, of_it)
            )
        return results

    # ---- getting ready ----

    def _ready(
        self,
        names: Sequence[str],
        operands: Operands,
        verification: Verification,
        stack: ExitStack,
    ) -> Iterator[tuple[Contender, Verdict]]:
        """Yield what can be timed, with its first verdict; libraries to compare with come first."""
        libraries = [name for name in LIBRARIES if find_algorithm(name).takes(self.problem)]
        for name in dict.fromkeys((*libraries, *names)):
            self._tell(f"preparing {name}")
            try:
                contender = self._contender(name, operands, stack)
                verdict = self._check(contender, operands, verification)
            except PtxlabError as error:
                if self.device.lost:
                    raise
                p = self.problem
                self.absent.append(Absent(name, p.dtype, p.acc, error.message))
            else:
                yield contender, verdict

    def _contender(self, name: str, operands: Operands, stack: ExitStack) -> Contender:
        rung = find_algorithm(name)
        if isinstance(rung, GpuBaseline):
            work = stack.enter_context(rung.ready(self.device, self.problem, operands))
            return Contender(name, rung, {}, work)
        if not isinstance(rung, Algorithm):
            raise PtxlabError("it runs on the CPU, and is timed by ptxlab gemm")
        tile = tile_for(self.device, rung, self.problem)
        ready = prepare(self.device, self.problem, rung, operands, tile)
        return Contender(name, rung, tile.macros, ready.queue())

    # ---- measuring ----

    def _check(
        self, contender: Contender, operands: Operands, verification: Verification
    ) -> Verdict:
        self._tell(f"checking {contender.name}")
        method = contender.rung.method
        return checked(self.device, operands, contender.work, verification, method)

    def _time(self, contenders: Sequence[Contender]) -> dict[str, Timed]:
        """Time all: bursts of all in turns, then each in turns with the library."""
        stopwatch, procedure = self.stopwatch, self.procedure
        self._tell("warming up")
        arms = {each.name: warmed(stopwatch, each.work, procedure) for each in contenders}
        everyone = list(arms.values())
        self._tell("timing bursts")
        bursts = dict(zip(arms, burst(stopwatch, everyone, procedure), strict=True))
        colds: dict[str, Timing] = {}
        if procedure.cold:
            self._tell("timing with a cold cache")
            colds = dict(zip(arms, cold(stopwatch, everyone, procedure), strict=True))
        libraries = [name for name in LIBRARIES if name in arms]
        timed = {}
        for name, arm in arms.items():
            pair = {name: arm, **{library: arms[library] for library in libraries[:1]}}
            self._tell(f"timing {' and '.join(pair)}")
            timings, reading = sustained(stopwatch, list(pair.values()), procedure)
            speeds = {
                who: Speed(bursts[who], timing, colds.get(who))
                for who, timing in zip(pair, timings, strict=True)
            }
            library = next((who for who in pair if who != name), None)
            beside = None if library is None else speeds[library]
            timed[name] = Timed(arm.kernels, speeds[name], library, beside, reading)
        return timed

    def _tell(self, text: str) -> None:
        p = self.problem
        self.say(f"{p.m} x {p.n} x {p.k} {p.dtype} -> {p.acc}: {text}")


def _standing(timed: Timed, verdicts: Mapping[str, Verdict]) -> Timed:
    """Return what was measured, not beside a library that is wrong."""
    if timed.library is None or verdicts[timed.library].passed:
        return timed
    return replace(timed, library=None, beside=None)
