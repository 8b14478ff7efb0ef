"""The matrices of a problem in a device's memory: transposed, with gaps between rows, and guarded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.device.protocol import Buffer, Device
from ptxlab.gemm.problem import Array, Inputs, Problem


@dataclass(frozen=True, slots=True)
class Operands:
    """What a kernel is given: matrices with the elements from one row to the next, and the bias."""

    a: Buffer
    lda: int
    b: Buffer
    ldb: int
    d: Buffer
    ldd: int
    bias: Buffer | None = None

    def arguments(self, problem: Problem) -> list[Any]:
        """Return the arguments of a kernel, all of which take the same."""
        sizes = [problem.m, problem.n, problem.k]
        matrices = [self.a, self.lda, self.b, self.ldb, self.d, self.ldd]
        return [*sizes, *matrices, problem.alpha, problem.beta, self.bias or 0]


@contextmanager
def uploaded(device: Device, problem: Problem, inputs: Inputs) -> Iterator[Operands]:
    """Put the matrices on the device as the problem stores them, until the end of the ``with``.

    Gaps between rows are NaN, so that reading one is seen, and memory ends with the last element of
    the last row, so that a device which knows the bounds of its memory sees what goes beyond.
    """
    a = inputs.a.T if problem.layout[0] == "t" else inputs.a
    b = inputs.b.T if problem.layout[1] == "t" else inputs.b
    lda, ldb, ldd = problem.leading
    with ExitStack() as stack:

        def upload(array: Array) -> Buffer:
            return stack.enter_context(device.upload(array))

        bias = None if inputs.bias is None else upload(inputs.bias)
        yield Operands(
            upload(spread(a, lda)), lda, upload(spread(b, ldb)), ldb, upload(spread(inputs.d, ldd)),
            ldd, bias,
        )  # fmt: skip


def spread(matrix: Array, leading: int) -> Array:
    """Return a matrix as it lies in memory, in one dimension, NaN between its rows."""
    rows, columns = matrix.shape
    memory = np.full((rows, leading), np.nan, matrix.dtype)
    memory[:, :columns] = matrix
    return memory.reshape(-1)[: _extent(rows, columns, leading)]


def gathered(memory: Array, rows: int, columns: int, leading: int) -> tuple[Array, int]:
    """Return the matrix in ``memory``, and how many elements between its rows were written."""
    whole = np.full(rows * leading, np.nan, memory.dtype)
    whole[: len(memory)] = memory
    matrix = whole.reshape(rows, leading)
    bits = matrix.view(f"u{matrix.itemsize}")
    gap = np.array(np.nan, matrix.dtype).view(bits.dtype)
    strays = np.count_nonzero(bits[:, columns:] != gap)
    return np.ascontiguousarray(matrix[:, :columns]), int(strays)


def _extent(rows: int, columns: int, leading: int) -> int:
    """Return how many elements reach from the first to the last one of a matrix."""
    return (rows - 1) * leading + columns if rows and columns else 0
