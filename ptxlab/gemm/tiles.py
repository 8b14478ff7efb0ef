"""Other tiles for a kernel: which ones there are, why some cannot be, and which one is best.

Candidates are the kernel's own tile with one or, on a GPU, two of its sizes halved or doubled (the
number of stages one less or more, the group one of a few), and the other tiles it has. A GPU checks
and times them; the emulator counts what they do, and times nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import combinations, product

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.protocol import Device
from ptxlab.device.stopwatch import Stopwatch, StreamWork, Timing
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung, kernel_of
from ptxlab.gemm.facts import KernelFacts, facts_of
from ptxlab.gemm.problem import Problem, uploaded
from ptxlab.gemm.run import queue
from ptxlab.gemm.side_by_side import Absent, RungJob, each
from ptxlab.gemm.tile import Sizes, Tile
from ptxlab.gemm.timing import Procedure, sustained, warmed
from ptxlab.gemm.verification import Verification, checked
from ptxlab.workers import Progress

GROUPS = (1, 4, 8, 16)
"""The orders of CTAs to try."""

WRONG = "its result is wrong"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tile by its macros: ``refused`` says why it cannot be, and is "" where it can.

    Then there are ``facts``, or on a GPU a ``timing``.
    """

    tile: Sizes
    refused: str
    facts: KernelFacts | None = None
    timing: Timing | None = None

    @property
    def cost(self) -> tuple[float, ...]:
        """What there should be little of, the most important first.

        Seconds or, where nothing is timed, sectors of global memory, wavefronts of shared memory and
        instructions of warps.
        """
        if self.timing is not None:
            return (self.timing.median,)
        if self.facts is None:
            return ()
        return self.facts.sectors, self.facts.shared_wavefronts, self.facts.counts.executed


@dataclass(frozen=True, slots=True)
class RankedTiles:
    """The tiles of an algorithm on a problem, the best first; ``own`` is what it usually has."""

    algorithm: Algorithm
    device: str
    arch: str
    problem: Problem
    own: Sizes
    candidates: tuple[Candidate, ...]

    def tflops(self, candidate: Candidate) -> float:
        assert candidate.timing is not None
        return self.problem.flops / candidate.timing.median / 1e12


def candidates(
    algorithm: Algorithm, dtype: str, own: Tile, together: int
) -> Iterator[dict[str, int]]:
    """Yield the tiles to compare by their macros: ``own``, what is near it, and the algorithm's others.

    ``together`` sizes at most differ from ``own``. Many of them cannot be.
    """
    others = {name: _others(name, size) for name, size in own.macros.items()}
    tiles = [
        {**own.macros, **dict(zip(names, sizes, strict=True))}
        for count in range(together + 1)
        for names in combinations(others, count)
        for sizes in product(*(others[name] for name in names))
    ]
    tiles += [tile.macros for _, tile in algorithm.tiles(dtype)]
    yield from {tuple(macros.items()): macros for macros in tiles}.values()


def compare_counted(
    device: Device,
    problem: Problem,
    rung: Rung,
    progress: Progress,
    executor: Executor | None = None,
) -> RankedTiles:
    """Compare the tiles of a kernel by what they move and hold, on the emulator.

    The best move the least. With an ``executor`` they are counted side by side. Raises PtxlabError for
    what has no tile.
    """
    algorithm = cuttable(rung, problem)
    own = algorithm.tile_for(problem, device.target)
    tiles = candidates(algorithm, problem.dtype, own, together=1)
    jobs = [RungJob(algorithm, problem, macros) for macros in tiles]
    compared = []
    counting = each(device, facts_of, jobs, executor, excused=lambda _: True)
    for job, counted in zip(jobs, counting, strict=True):
        if isinstance(counted, Absent):
            compared.append(_refused(job.sizes, counted.reason))
        else:
            compared.append(Candidate(job.sizes, _why_not(counted), facts=counted))
        progress(len(compared), len(jobs))
    return _ordered(device, problem, algorithm, compared)


def compare_timed(
    device: CudaDevice,
    stopwatch: Stopwatch,
    problem: Problem,
    rung: Rung,
    procedure: Procedure,
    progress: Progress,
) -> RankedTiles:
    """Compare the tiles of a kernel by their time on a GPU, all in turns on the same matrices."""
    algorithm = cuttable(rung, problem)
    inputs = problem.inputs()
    verification = Verification(problem, inputs, sampled=True)
    right: list[StreamWork] = []
    with uploaded(device, problem, inputs) as operands:

        def attempt(macros: Sizes) -> Candidate:
            work = queue(device, operands, algorithm, algorithm.cut(macros, problem.dtype))
            if not checked(device, operands, work, verification, algorithm.method).passed:
                return Candidate(macros, WRONG)
            right.append(work)
            return Candidate(macros, "")

        own = algorithm.tile_for(problem, device.target)
        several = list(candidates(algorithm, problem.dtype, own, together=2))
        compared: list[Candidate] = []
        for macros in several:
            progress(len(compared), len(several))
            try:
                compared.append(attempt(macros))
            except PtxlabError as error:
                if device.lost:
                    raise
                compared.append(_refused(macros, error.message))
        progress(len(several), len(several))
        arms = [warmed(stopwatch, work, procedure) for work in right]
        timings = iter(sustained(stopwatch, arms, procedure)[0] if arms else ())
    timed = [
        candidate if candidate.refused else replace(candidate, timing=next(timings))
        for candidate in compared
    ]
    return _ordered(device, problem, algorithm, timed)


def cuttable(rung: Rung, problem: Problem) -> Algorithm:
    """Return the kernel of a rung that takes ``problem`` and has a tile to change."""
    algorithm = kernel_of(rung, ": it has no tile to change")
    algorithm.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    algorithm.cut(algorithm.tile.macros, problem.dtype)  # refuses where there is nothing to change
    return algorithm


def _others(name: str, size: int) -> list[int]:
    if name == "GROUP":
        return [group for group in GROUPS if group != size]
    if name == "STAGES":
        return [size - 1, size + 1]
    return [size // 2, 2 * size]


def _refused(macros: dict[str, int], reason: str) -> Candidate:
    return Candidate(macros, reason.splitlines()[0])


def _why_not(counted: KernelFacts) -> str:
    """Say what is wrong with a kernel, "" where there is nothing.

    Of registers an SM has enough for one CTA at least: the kernels have ``__launch_bounds__``, within
    which ptxas rather spills.
    """
    if not counted.verdict.passed:
        return WRONG
    used = counted.resources
    if counted.spilled:
        return f"registers are not enough: {used.spill_stores} bytes a thread spill"
    return ""


def _ordered(
    device: Device, problem: Problem, algorithm: Algorithm, candidates: list[Candidate]
) -> RankedTiles:
    candidates.sort(
        key=lambda candidate: (True, ()) if candidate.refused else (False, candidate.cost)
    )
    own = algorithm.tile_for(problem, device.target).macros
    return RankedTiles(algorithm, device.kind, device.target.name, problem, own, tuple(candidates))
