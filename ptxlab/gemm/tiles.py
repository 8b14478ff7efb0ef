"""Other tiles for a kernel: which ones there are, why some cannot be, and which one is best.

Candidates are the kernel's own tile with one or, on a GPU, two of its sizes halved or doubled (the
number of stages one less or more, the group one of a few), and the other tiles it has. A GPU checks
and times them; the emulator counts what they do, and times nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.protocol import Device
from ptxlab.device.stopwatch import Stopwatch, Work
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung, kernel_of
from ptxlab.gemm.facts import KernelFacts, facts
from ptxlab.gemm.problem import Problem, uploaded
from ptxlab.gemm.run import queue
from ptxlab.gemm.tile import Sizes, Tile
from ptxlab.gemm.timing import Procedure, Timing, sustained, warmed
from ptxlab.gemm.verification import Verification, checked

GROUPS = (1, 4, 8, 16)
"""The orders of CTAs to try."""

WRONG = "its result is wrong"

Progress = Callable[[int, int], None]


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
        counts = self.facts.counts
        return counts.sectors, counts.shared_wavefronts, counts.executed


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tiles of an algorithm on a problem, the best first; ``own`` is what it usually has."""

    algorithm: Algorithm
    device: str
    arch: str
    problem: Problem
    own: Sizes
    candidates: tuple[Candidate, ...]


def candidates(algorithm: Algorithm, own: Tile, together: int) -> Iterator[dict[str, int]]:
    """Yield the tiles to compare by their macros: ``own``, what is near it, and the algorithm's others.

    ``together`` sizes at most differ from ``own``. Many of them cannot be.
    """
    others = {name: _others(name, size) for name, size in own.macros.items()}
    found = [
        {**own.macros, **dict(zip(names, sizes, strict=True))}
        for count in range(together + 1)
        for names in combinations(others, count)
        for sizes in product(*(others[name] for name in names))
    ]
    found += [tile.macros for tile in (algorithm.tile, *(tile for _, tile in algorithm.larger))]
    yield from {tuple(macros.items()): macros for macros in found}.values()


def compare_counted(device: Device, problem: Problem, rung: Rung, progress: Progress) -> Comparison:
    """Compare the tiles of a kernel by what they move and hold, on the emulator.

    The best move the least. Raises PtxlabError for what has no tile.
    """
    algorithm = _cuttable(rung, problem)
    own = algorithm.tile_for(problem, device.target)
    several = list(candidates(algorithm, own, together=1))
    found: list[Candidate] = []
    for number, macros in enumerate(several):
        progress(number, len(several))
        try:
            counted = facts(device, problem, algorithm, macros)
        except PtxlabError as error:
            found.append(Candidate(macros, _reason(error)))
        else:
            found.append(Candidate(macros, _why_not(counted), facts=counted))
    progress(len(several), len(several))
    return _ordered(device, problem, algorithm, own, found)


def compare_timed(
    device: CudaDevice,
    stopwatch: Stopwatch,
    problem: Problem,
    rung: Rung,
    procedure: Procedure,
    progress: Progress,
) -> Comparison:
    """Compare the tiles of a kernel by their time on a GPU, all in turns on the same matrices."""
    algorithm = _cuttable(rung, problem)
    own = algorithm.tile_for(problem, device.target)
    several = list(candidates(algorithm, own, together=2))
    inputs = problem.inputs()
    verification = Verification(problem, inputs, sampled=True)
    refused: list[Candidate] = []
    right: list[tuple[dict[str, int], Work]] = []
    with uploaded(device, problem, inputs) as operands:
        for number, macros in enumerate(several):
            progress(number, len(several))
            try:
                tile = algorithm.cut(macros)
                work = queue(device, operands, algorithm, tile)
                verdict = checked(device, operands, work, verification, algorithm.method)
            except PtxlabError as error:
                if device.lost:
                    raise
                refused.append(Candidate(macros, _reason(error)))
                continue
            if verdict.passed:
                right.append((macros, work))
            else:
                refused.append(Candidate(macros, WRONG))
        progress(len(several), len(several))
        arms = [warmed(stopwatch, work, procedure) for _, work in right]
        timings = sustained(stopwatch, arms, procedure)[0] if arms else []
    timed = [
        Candidate(macros, "", timing=timing)
        for (macros, _), timing in zip(right, timings, strict=True)
    ]
    return _ordered(device, problem, algorithm, own, [*timed, *refused])


def _cuttable(rung: Rung, problem: Problem) -> Algorithm:
    """Return the kernel of a rung that takes ``problem`` and has a tile to change."""
    algorithm = kernel_of(rung, ": it has no tile to change")
    algorithm.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    algorithm.cut(algorithm.tile.macros)  # refuses where there is nothing to change
    return algorithm


def _others(name: str, size: int) -> list[int]:
    if name == "GROUP":
        return [group for group in GROUPS if group != size]
    if name == "STAGES":
        return [size - 1, size + 1]
    return [size // 2, 2 * size]


def _reason(error: PtxlabError) -> str:
    return error.message.splitlines()[0]


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
    device: Device, problem: Problem, algorithm: Algorithm, own: Tile, found: list[Candidate]
) -> Comparison:
    able = sorted((one for one in found if not one.refused), key=lambda one: one.cost)
    refused = [one for one in found if one.refused]
    return Comparison(
        algorithm,
        device.kind,
        device.target.name,
        problem,
        own.macros,
        (*able, *refused),
    )
