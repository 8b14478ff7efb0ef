"""All rungs of the ladder: the kernels, and what they are measured against.

That is NumPy on the CPU, and NVIDIA's libraries on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.protocol import Device, LaunchResult
from ptxlab.device.stopwatch import Work
from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.gemm.algorithms import ALGORITHMS, F32, Algorithm, Figure, Rung, Types
from ptxlab.gemm.cublas import cublas, cublaslt, gpu_of
from ptxlab.gemm.problem import Array, Inputs, Operands, Problem

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
    ready: Callable[[CudaDevice, Operands], AbstractContextManager[Work]]

    def compute(self, device: Device, operands: Operands) -> LaunchResult:
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
            reference=Figure("H100, f32", "50 to 54 TFLOP/s; H200, bf16, 8192: 750 to 790 TFLOP/s"),
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
