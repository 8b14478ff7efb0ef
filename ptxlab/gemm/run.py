"""Run one rung of the ladder on a device and check every element of what it computes."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import Any

from ptxlab import resources
from ptxlab.device.protocol import Device, Kernel, LaunchResult, Module
from ptxlab.device.stopwatch import Work
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.baselines import GpuBaseline, HostBaseline
from ptxlab.gemm.ladder import find_algorithm
from ptxlab.gemm.problem import Array, Inputs, Problem
from ptxlab.gemm.reference import (
    TF32_CONVERSION,
    compare,
    epilogue_of,
    error_bound,
    factors_of,
)
from ptxlab.gemm.storage import Operands, gathered, uploaded
from ptxlab.gemm.tile import Tile, require
from ptxlab.gemm.tile_file import tile_for
from ptxlab.launch_config import LaunchConfig

Sizes = Mapping[str, int]
"""The macros of a tile that are to be other than usual, by name: ``{"BM": 64}``."""

AS_IT_IS: Sizes = MappingProxyType({})
_REFUSED = re.compile(r'static assertion failed with "([^"]+)"')


@dataclass(frozen=True, slots=True)
class GemmResult:
    """What a run showed. ``max_error`` and ``tolerance`` are relative to (|A| |B|)_ij, or to what the
    epilogue makes of it, as ``ptxlab.gemm.reference`` explains; ``worst`` is the place of the worst
    element, ``expected`` and ``found`` its values, None when D is empty. ``strays`` counts elements
    written between the rows of D. ``seconds`` is the kernel's time on a GPU, the product's on the CPU
    for a baseline there, and the emulation's on the emulator, where ``tflops`` is None.
    """

    algorithm: str
    device: str
    arch: str
    m: int
    n: int
    k: int
    dtype: str
    acc: str
    passed: bool
    max_error: float
    tolerance: float
    seconds: float
    tflops: float | None
    worst: tuple[int, int] | None
    expected: float | None
    found: float | None
    counters: dict[str, int] = field(default_factory=dict)
    layout: str = "nn"
    epilogue: str = "none"
    alpha: float = 1.0
    beta: float = 0.0
    lda: int = 0
    ldb: int = 0
    ldd: int = 0
    tile: dict[str, int] = field(default_factory=dict)
    strays: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """What a rung made of a problem: D, elements written outside of it, the time, and where."""

    d: Array
    strays: int
    launched: LaunchResult
    device: str
    arch: str
    tile: dict[str, int]


def run(device: Device, problem: Problem, algorithm: str, sizes: Sizes = AS_IT_IS) -> GemmResult:
    """Compute ``problem`` with the algorithm of that name and compare it with float64.

    ``sizes`` changes the kernel's tile. Raises PtxlabError for an unknown algorithm and for what it
    does not take; a wrong result is no error but ``passed`` False.
    """
    inputs = problem.inputs()
    computed = compute(device, problem, inputs, algorithm, sizes)
    return judge(device, problem, inputs, algorithm, computed)


def compute(
    device: Device, problem: Problem, inputs: Inputs, algorithm: str, sizes: Sizes = AS_IT_IS
) -> Computed:
    """Compute ``problem``; see ``run`` for what is raised."""
    chosen = find_algorithm(algorithm)
    chosen.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    if isinstance(chosen, Algorithm):
        tile = chosen.cut(sizes) if sizes else tile_for(device, chosen, problem)
        macros = tile.macros
    elif sizes:
        raise PtxlabError(f"{algorithm} is no kernel of ptxlab's: it has no tile to change")
    else:
        macros = {}
    if isinstance(chosen, HostBaseline):
        began = perf_counter()
        d = chosen.compute(problem, inputs)
        took = LaunchResult(perf_counter() - began)
        return Computed(d, 0, took, "cpu", platform.machine(), macros)
    with uploaded(device, problem, inputs) as operands:
        if isinstance(chosen, GpuBaseline):
            launched = chosen.compute(device, problem, operands)
        else:
            launched = launch(device, problem, chosen, operands, tile)
        d, strays = gathered(operands.d.numpy(), problem.m, problem.n, operands.ldd)
    return Computed(d, strays, launched, device.kind, device.target.name, macros)


def judge(
    device: Device, problem: Problem, inputs: Inputs, algorithm: str, computed: Computed
) -> GemmResult:
    """Compare what was computed with float64, element by element."""
    method = find_algorithm(algorithm).method
    a, b = factors_of(problem, inputs)
    epilogue = epilogue_of(problem, inputs)
    conversion = TF32_CONVERSION if (method, problem.dtype) == ("any", "tf32") else 0.0
    bound = error_bound(method, device.target.dot16, a, b, problem.acc, epilogue, conversion)
    worst = compare(computed.d, a, b, bound, epilogue)
    seconds = computed.launched.seconds
    timed = computed.device != "emulator" and seconds > 0
    lda, ldb, ldd = problem.leading
    return GemmResult(
        algorithm=algorithm,
        device=computed.device,
        arch=computed.arch,
        m=problem.m,
        n=problem.n,
        k=problem.k,
        dtype=problem.dtype,
        acc=problem.acc,
        passed=worst.error <= bound.coefficient and not computed.strays,
        max_error=worst.error,
        tolerance=bound.coefficient,
        seconds=seconds,
        tflops=problem.flops / seconds / 1e12 if timed else None,
        worst=worst.place,
        expected=worst.expected,
        found=worst.found,
        counters=computed.launched.counters,
        layout=problem.layout,
        epilogue=problem.epilogue,
        alpha=problem.alpha,
        beta=problem.beta,
        lda=lda,
        ldb=ldb,
        ldd=ldd,
        tile=computed.tile,
        strays=computed.strays,
    )


def launch(
    device: Device,
    problem: Problem,
    algorithm: Algorithm,
    operands: Operands,
    tile: Tile | None = None,
) -> LaunchResult:
    """Compile the algorithm for the problem and run it once; an empty D needs no launch.

    ``tile`` is another one than the algorithm's own.
    """
    if problem.m == 0 or problem.n == 0:
        return LaunchResult(0.0)
    ready = prepare(device, problem, algorithm, operands, tile or algorithm.tile)
    return ready.kernel.run(ready.config, ready.arguments)


@dataclass(frozen=True, slots=True)
class Ready:
    """A kernel compiled for a problem, and what it is launched with."""

    kernel: Kernel
    config: LaunchConfig
    arguments: list[Any]

    def queue(self) -> Work:
        """Return what puts one launch on a GPU's stream."""
        return self.kernel.prepare(self.config, self.arguments)


def prepare(
    device: Device, problem: Problem, algorithm: Algorithm, operands: Operands, tile: Tile
) -> Ready:
    """Compile the algorithm for a problem whose D is not empty."""
    config = algorithm.launch(problem, tile)
    require(config, device.target)
    kernel = _load(device, problem, algorithm, tile).kernel(algorithm.entry)
    x = operands
    sizes_and_matrices = [problem.m, problem.n, problem.k, x.a, x.lda, x.b, x.ldb, x.d, x.ldd]
    arguments = [*sizes_and_matrices, problem.alpha, problem.beta, x.bias or 0]
    return Ready(kernel, config, arguments)


def _load(device: Device, problem: Problem, algorithm: Algorithm, tile: Tile) -> Module:
    """Compile the kernel; what its own static_assert refuses is a user's error."""
    try:
        return device.load(resources.path(algorithm.file), options=algorithm.options(problem, tile))
    except ToolchainError as error:
        refused = _REFUSED.search(error.message)
        if refused is None:
            raise
        usual = ",".join(f"{name}={size}" for name, size in algorithm.tile.macros.items())
        raise PtxlabError(
            f"{algorithm.name} cannot be cut like that: {refused[1]}",
            hint=f"it usually has {usual}",
        ) from None
