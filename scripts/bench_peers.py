"""Time another emulator, or NumPy, on a matrix product; runs in a virtual environment of its own.

python scripts/bench_peers.py numba SIZE       Numba's CUDA simulator, one thread an element of D
python scripts/bench_peers.py tinygrad SIZE    tinygrad's PYTHON device with sm_80's tensor cores
python scripts/bench_peers.py numpy SIZE       NumPy's own product of f32 matrices

Prints a JSON object: ``version``, ``seconds`` of each of three runs, ``multiply_adds`` of one. They
are seconds of the processor, to which a busy machine adds next to nothing: Numba's simulator hands
over between a thousand threads, and would wait for its turn each time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from time import process_time
from typing import Any

import numpy as np

REPEATS = 3


cuda: Any = None  # numba.cuda: its simulator looks for the module under this name in the globals


def naive(m: int, n: int, k: int, a: Any, b: Any, d: Any) -> None:
    """Compute one element of D; the kernel of ``kernels/naive.cu``."""
    row, column = cuda.grid(2)
    if row < m and column < n:
        total = np.float32(0)
        for p in range(k):
            total += a[row, p] * b[p, column]
        d[row, column] = total


def time_numba(size: int) -> list[float]:
    """Time the naive kernel on f32 matrices."""
    global cuda
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    cuda = import_module("numba.cuda")
    kernel = cuda.jit(naive)
    a, b = matrices(size, np.float32)
    d = np.zeros((size, size), np.float32)
    grid = -(-size // 32)

    def run() -> float:
        began = process_time()
        kernel[(grid, grid), (32, 32)](size, size, size, a, b, d)
        return process_time() - began

    samples = [run() for _ in range(REPEATS)]
    require_right(a, b, d)
    return samples


def time_numpy(size: int) -> list[float]:
    """Time what the processor itself can do."""
    a, b = matrices(size, np.float32)

    def run() -> float:
        began = process_time()
        np.matmul(a, b)
        return process_time() - began

    return [run() for _ in range(REPEATS)]


def time_tinygrad(size: int) -> list[float]:
    """Time the kernel that tinygrad makes of an f16 product; only the emulation counts."""
    os.environ["DEV"] = "PYTHON::sm_80"
    tinygrad = import_module("tinygrad")
    program_class = import_module("tinygrad.runtime.ops_python").PythonProgram
    matrix_multiply = import_module("tinygrad.uop.ops").Ops.WMMA
    spent: list[float] = []
    emulate = program_class.__call__

    def timed(program: Any, *arguments: Any, **options: Any) -> Any:
        began = process_time()
        result = emulate(program, *arguments, **options)
        if any(operation.op is matrix_multiply for operation in program.uops):
            spent.append(process_time() - began)
        return result

    program_class.__call__ = timed
    a, b = matrices(size, np.float16)
    for _ in range(REPEATS):
        left, right = (tinygrad.Tensor(matrix).realize() for matrix in (a, b))
        d = left.matmul(right, dtype=tinygrad.dtypes.float).numpy()
    if len(spent) != REPEATS:
        raise SystemExit("tinygrad did not use its tensor cores")
    require_right(a, b, d)
    return spent


def matrices(size: int, dtype: Any) -> list[Any]:
    """Return two random square matrices."""
    generator = np.random.default_rng(0)
    return [generator.standard_normal((size, size)).astype(dtype) for _ in range(2)]


def require_right(a: Any, b: Any, d: Any) -> None:
    """Stop unless d is a * b: the speed of a wrong result is no speed."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if not (abs(d - wide_a @ wide_b) <= 1e-5 * (abs(wide_a) @ abs(wide_b))).all():
        raise SystemExit("the result is wrong")


def main() -> None:
    """Time what the command line names."""
    timers: dict[str, Callable[[int], list[float]]] = {
        "numba": time_numba,
        "tinygrad": time_tinygrad,
        "numpy": time_numpy,
    }
    name, size = sys.argv[1], int(sys.argv[2])
    seconds = timers[name](size)
    print(json.dumps({"version": version(name), "seconds": seconds, "multiply_adds": size**3}))


if __name__ == "__main__":
    main()
