"""tcgen05.mma as machine code, where it has some: see ``ptxlab.native.tensor_core.products``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix_native import repeated
from ptxlab.emulator.operations.tensor_core_arithmetic import sign_bit
from ptxlab.emulator.operations.tensor_core_issue import Cells
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.run.tensor_memory import COLUMNS
from ptxlab.emulator.run.wave import Wave
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem

_ORDERS = (2, 1, 0), (2, 0, 1)
"""The axes of the scales of A and B as machine code has them: CTAs, blocks, rows or columns."""


@dataclass(frozen=True, slots=True)
class ProductTask:
    """So many items of a task, its words, and the arrays that they name."""

    count: int
    words: Sequence[int]
    held: object


def product_task(
    wave: Wave,
    problem: TensorCoreProblem,
    pairs: Sequence[tuple[UnitLines, UnitLines]],
    d: Cells,
    adds: Array,
    scales: Sequence[Array] = (),
    chosen: Sequence[Array] = (),
) -> ProductTask:
    """Return the task that multiplies A of each CTA, or each part of it, with B, and adds up these ``pairs``.

    D begins at these cells, and where it ``adds`` is added to. ``scales`` are those of A, [rows, blocks, CTAs], and B,
    [blocks, n, CTAs], where there are any, ``chosen`` for each part the k of the numbers of a sparse A, [rows, k / 2, CTAs].
    """
    first, masks = d.at(np.array(0), np.array(0)), -adds.astype(np.int32)
    table = np.array([(*a.words, *b.words) for a, b in pairs])
    flips = repeated(sign_bit(problem), problem.bits) if problem.negates else 0
    named = [table, wave.tensor_memory.unfinished, first, masks, _places(problem)]
    more = [
        np.ascontiguousarray(x.transpose(*order)) for x, order in zip(scales, _ORDERS, strict=False)
    ]
    more += [] if scales else [np.empty(0)] * 2
    more += [np.ascontiguousarray(np.stack(chosen).transpose(3, 0, 2, 1))] if chosen else []
    where, behind = ([array.ctypes.data for array in arrays] for arrays in (named, more))
    words = [len(pairs), *where, flips, *behind]
    return ProductTask(problem.path.parts * len(first), words, (pairs, named, more))


@cache
def _places(problem: TensorCoreProblem) -> Array:
    """Return how many cells behind the first one each row of each part begins, [parts, rows]."""
    return np.ascontiguousarray(problem.path.lanes() * COLUMNS)
