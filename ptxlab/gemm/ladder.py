"""The ladder: the kernels, what they are measured against, and which of them meet on which problem.

They are measured against NumPy on the CPU, and NVIDIA's libraries on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.protocol import Device, LaunchResult
from ptxlab.device.stopwatch import StreamWork
from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.gemm.algorithms import ALGORITHMS, F32, Algorithm, Rung, Types
from ptxlab.gemm.cublas import cublas, cublaslt, gpu_of
from ptxlab.gemm.problem import DeviceOperands, Inputs, Problem

TO_F32: Types = (*F32, ("bf16", "f32"), ("f16", "f32"))
LIBRARY: Types = (*TO_F32, ("f16", "f16"), ("tf32", "f32"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBaseline(Rung):
    """A product on the CPU: ``multiply`` makes A * B of two matrices of f32."""

    multiply: Callable[[Array, Array], Array]

    def compute(self, problem: Problem, inputs: Inputs) -> Array:
        """Return D. What is not f32 is converted first, which loses nothing."""
        d = self.multiply(inputs.a.astype(np.float32), inputs.b.astype(np.float32))
        if problem.alpha != 1:
            d *= np.float32(problem.alpha)
        if problem.beta:
            d += np.float32(problem.beta) * inputs.d
        if inputs.bias is not None:
            d += inputs.bias
        if "relu" in problem.epilogue:
            np.maximum(d, 0, out=d)
        return d


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBaseline(Rung):
    """The product of a ``library`` on a GPU.

    ``ready`` yields what puts the product of matrices that are there on the GPU's stream, for as long
    as its ``with`` lasts; a first product, which loads the library's kernel, is made before.
    """

    library: str
    ready: Callable[[CudaDevice, DeviceOperands], AbstractContextManager[StreamWork]]

    def compute(self, device: Device, operands: DeviceOperands) -> LaunchResult:
        """Make D once, and time it. Raises DeviceUnavailable without a GPU or the library."""
        gpu = gpu_of(device, self.library)
        if operands.problem.m == 0 or operands.problem.n == 0:
            return LaunchResult(0.0)
        with self.ready(gpu, operands) as work:
            return gpu.timed(f"run {self.library}", work)


def three_loops(a: Array, b: Array) -> Array:
    """Multiply with three loops, the innermost along a row of B in NumPy, one core at a time."""
    d = np.zeros((len(a), b.shape[1]), np.float32)
    for i, row in enumerate(a):
        for p, factor in enumerate(row):
            d[i] += factor * b[p]
    return d


Baseline = HostBaseline | GpuBaseline

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        HostBaseline(
            name="cpu_naive",
            idea="three loops on the CPU, the innermost vectorised by NumPy",
            types=TO_F32,
            multiply=three_loops,
        ),
        HostBaseline(
            name="numpy",
            idea="the BLAS of NumPy, on all cores",
            types=TO_F32,
            multiply=np.matmul,
        ),
        GpuBaseline(
            name="cublas",
            idea="cublasGemmEx with 32 MiB of workspace",
            types=LIBRARY,
            method="any",
            epilogues=("none",),
            library="cuBLAS",
            ready=cublas,
        ),
        GpuBaseline(
            name="cublaslt",
            idea="the fastest algorithm of those that cublasLt proposes",
            types=LIBRARY,
            method="any",
            library="cublasLt",
            ready=cublaslt,
        ),
    )
}

LADDER: dict[str, Algorithm | Baseline] = {**BASELINES, **ALGORITHMS}


def find_algorithm(name: str) -> Algorithm | Baseline:
    """Return the kernel or baseline called ``name``; raise PtxlabError naming all of them."""
    if name not in LADDER:
        raise PtxlabError(
            f"there is no algorithm {name!r}, there are {', '.join(LADDER)}",
            hint=did_you_mean(name, LADDER),
        )
    return LADDER[name]


ProblemSizes = tuple[int, int, int]
"""m, n and k."""

SHAPES: dict[str, tuple[ProblemSizes, ...]] = {
    "powers": tuple((2**e, 2**e, 2**e) for e in range(8, 15)),
    "metal": ((1024, 768, 512), (3000, 5000, 4000), (20000, 20000, 20000)),
    "odd": ((257, 257, 257), (1000, 777, 333), (4095, 4097, 4099)),
}
"""From 256 to 16384; those of the study in Metal; none a multiple of any tile."""


def shapes(text: str) -> tuple[ProblemSizes, ...]:
    """Read sizes: ``4096``, ``1024x768x512`` (m x n x k) or a name of ``SHAPES``, by commas.

    Raises PtxlabError for anything else.
    """
    shapes_of: list[ProblemSizes] = []
    for part in text.split(","):
        sizes = part.split("x")
        if part in SHAPES:
            shapes_of += SHAPES[part]
        elif len(sizes) in (1, 3) and all(s.isascii() and s.isdecimal() and int(s) for s in sizes):
            m, n, k = map(int, sizes * 3 if len(sizes) == 1 else sizes)
            shapes_of.append((m, n, k))
        else:
            raise PtxlabError(
                f"{part!r} is no size such as 4096 or 1024x768x512",
                hint=did_you_mean(part, SHAPES) or f"names are {', '.join(SHAPES)}",
            )
    return tuple(dict.fromkeys(shapes_of))


@dataclass(frozen=True, slots=True)
class PlannedProblem:
    """A problem, and the rungs that meet on it."""

    problem: Problem
    rungs: tuple[Algorithm | Baseline, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the ladder is wanted: rungs by name, none for all kernels, and their types.

    Without ``dtypes`` and ``acc`` a kernel has the first types it takes.
    """

    names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    acc: str | None = None
    layout: str = "nn"
    epilogue: str = "none"
    seed: int = 0

    def types_of(self, rung: Rung) -> list[tuple[str, str]]:
        types = [
            (dtype, acc)
            for dtype, acc in rung.types
            if dtype in (self.dtypes or (dtype,)) and acc == (self.acc or acc)
        ]
        return types if self.dtypes or self.acc else types[:1]


def plan(sizes: Sequence[ProblemSizes], choice: Choice) -> Iterator[PlannedProblem]:
    """Yield the problems of every size, each with the rungs that take it.

    Raises PtxlabError for a rung that was named and takes none of it.
    """
    by_types: dict[tuple[str, str], list[Algorithm | Baseline]] = {}
    for rung in map(find_algorithm, choice.names or ALGORITHMS):
        types = choice.types_of(rung)
        if choice.names:
            dtype, acc = types[0] if types else ((*choice.dtypes, rung.types[0][0])[0], choice.acc)
            rung.require(dtype, acc or rung.types[0][1], choice.layout, choice.epilogue)
        for pair in types:
            by_types.setdefault(pair, []).append(rung)
    for m, n, k in sizes:
        for (dtype, acc), rungs in by_types.items():
            problem = Problem(
                m, n, k, dtype, acc, choice.seed, layout=choice.layout, epilogue=choice.epilogue
            )
            if taking := tuple(rung for rung in rungs if rung.takes(problem)):
                yield PlannedProblem(problem, taking)
