"""Run one GEMM algorithm on a device and check every element of what it computes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from ptxlab import resources
from ptxlab.device.protocol import Buffer, Device, LaunchResult
from ptxlab.gemm.algorithms import Algorithm, find_algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.reference import compare, error_bound


@dataclass(frozen=True, slots=True)
class Operands:
    """The matrices of a GEMM on a device, each with the elements from one row to the next."""

    a: Buffer
    lda: int
    b: Buffer
    ldb: int
    d: Buffer
    ldd: int


@dataclass(frozen=True, slots=True)
class GemmResult:
    """What a run showed. ``max_error`` and ``tolerance`` are relative to (|A| |B|)_ij, as
    ``ptxlab.gemm.reference`` explains; ``worst`` is the place of the worst element, ``expected`` and
    ``found`` its values, None when D is empty. ``seconds`` is the kernel's time on a GPU, the
    emulation's on the emulator, where ``tflops`` is None.
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


def run(device: Device, problem: Problem, algorithm: str) -> GemmResult:
    """Compute ``problem`` with the algorithm of that name and compare it with float64.

    Raises PtxlabError for an unknown algorithm or types it does not take; a wrong result is no
    error but ``passed`` False.
    """
    chosen = find_algorithm(algorithm)
    chosen.require(problem.dtype, problem.acc)
    a, b = problem.inputs()
    with (
        closing(device.upload(a)) as a_there,
        closing(device.upload(b)) as b_there,
        closing(device.zeros((problem.m, problem.n), problem.acc)) as d_there,
    ):
        operands = Operands(a_there, problem.k, b_there, problem.n, d_there, problem.n)
        launched = launch(device, problem, chosen, operands)
        computed = d_there.numpy()
    bound = error_bound(chosen.method, device.target.dot16, a, b, problem.acc)
    worst = compare(computed, a, b, bound)
    timed = device.kind != "emulator" and launched.seconds > 0
    return GemmResult(
        algorithm=chosen.name,
        device=device.kind,
        arch=device.target.name,
        m=problem.m,
        n=problem.n,
        k=problem.k,
        dtype=problem.dtype,
        acc=problem.acc,
        passed=worst.error <= bound.coefficient,
        max_error=worst.error,
        tolerance=bound.coefficient,
        seconds=launched.seconds,
        tflops=problem.flops / launched.seconds / 1e12 if timed else None,
        worst=worst.place,
        expected=worst.expected,
        found=worst.found,
        counters=launched.counters,
    )


def launch(
    device: Device, problem: Problem, algorithm: Algorithm, operands: Operands
) -> LaunchResult:
    """Compile the algorithm for the problem's types and run it once; an empty D needs no launch."""
    m, n, k = problem.m, problem.n, problem.k
    if m == 0 or n == 0:
        return LaunchResult(0.0)
    options = algorithm.options(algorithm.tile, problem.dtype, problem.acc)
    kernel = device.load(resources.path(algorithm.file), options=options).kernel(algorithm.entry)
    shape = algorithm.launch(algorithm.tile, m, n)
    x = operands
    arguments = [m, n, k, x.a, x.lda, x.b, x.ldb, x.d, x.ldd]
    return kernel.launch(shape.grid, shape.block, arguments, shape.shared)
