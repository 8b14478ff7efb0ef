"""tcgen05.mma as machine code, where it has some: see ``ptxlab.native.tensor_core.products``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix_native import NativeProduct, repeated
from ptxlab.emulator.operations.tensor_core_arithmetic import sign_bit
from ptxlab.emulator.operations.tensor_core_issue import Cells
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.run.tensor_memory import COLUMNS
from ptxlab.emulator.run.wave import Wave
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem

_ORDERS = (2, 1, 0), (2, 0, 1)
"""The axes of the scales of A and B as machine code has them: CTAs, blocks, rows or columns."""


def multiply_lines(
    product: NativeProduct,
    wave: Wave,
    problem: TensorCoreProblem,
    a: UnitLines,
    b: UnitLines,
    d: Cells,
    adds: Array,
    scales: Sequence[Array],
    chosen: Sequence[Array],
) -> None:
    """Multiply A of each CTA, or each part of it, with B.

    D begins at these cells, and where it ``adds`` is added to. ``scales`` are those of A, [rows, blocks, CTAs], and B,
    [blocks, n, CTAs], where there are any, ``chosen`` for each part the k of the numbers of a sparse A, [rows, k / 2, CTAs].
    """
    first, masks = d.at(np.array(0), np.array(0)), -adds.astype(np.int32)
    memory, places = wave.tensor_memory.cells, _places(problem)
    flips = repeated(sign_bit(problem), problem.bits) if problem.negates else 0
    arrays = (array.ctypes.data for array in (memory, first, masks, places))
    more = [
        np.ascontiguousarray(x.transpose(*order)) for x, order in zip(scales, _ORDERS, strict=False)
    ]
    more += [] if scales else [np.empty(0)] * 2
    more += [np.ascontiguousarray(np.stack(chosen).transpose(3, 0, 2, 1))] if chosen else []
    words = [*a.words, *b.words, *arrays, flips, *(array.ctypes.data for array in more)]
    product.run(wave, problem.path.parts * len(first), words)


@cache
def _places(problem: TensorCoreProblem) -> Array:
    """Return how many cells behind the first one each row of each part begins, [parts, rows]."""
    return np.ascontiguousarray(problem.path.lanes() * COLUMNS)
