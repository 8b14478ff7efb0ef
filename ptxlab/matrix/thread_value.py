"""Fragments as CuTe writes them: layouts from (lane, value) to an element of the matrix.

The value index of a lane counts its elements, register by register, low bits first. The offset is
that of a matrix whose outer dimension (n for B, m for all others) is contiguous, as in CuTe's traits
of MMA atoms: ``m + M k`` for A, ``n + N k`` for B, ``m + M n`` for C and D.

Source: NVIDIA CUTLASS documentation, "CuTe's support for Matrix Multiply-Accumulate instructions".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.layouts.layout import Layout
from ptxlab.matrix.fragment import FragmentLayout


@dataclass(frozen=True, slots=True)
class ModeStep:
    """What one step of a mode of a thread-value layout does.

    ``counter`` is what counts ("lane" or "thread", "register" or "element" of a register), as
    ``counter // divisor % size``; a step goes ``outer`` and ``inner`` elements on.
    """

    counter: str
    divisor: int
    size: int
    outer: int
    inner: int


def thread_value(fragment: FragmentLayout) -> Layout:
    """Return the layout of a fragment in CuTe's notation, derived from its table.

    >>> from ptxlab.matrix.catalog import multiplication
    >>> thread_value(multiplication("m16n8k16", dtype="bf16").operand("A")).notation
    '((4,8),(2,2,2)):((32,1),(16,8,128))'

    Raises ValueError for a fragment that is no such layout.
    """
    row, col = fragment.table()[..., 0], fragment.table()[..., 1]
    outer, inner = (col, row) if _is_b(fragment) else (row, col)
    offsets = (outer + _outer_size(fragment) * inner).reshape(len(row), -1)
    lanes, values = (Layout.of_offsets(row.tolist()) for row in (offsets[:, 0], offsets[0]))
    both = Layout((lanes.shape, values.shape), (lanes.stride, values.stride))
    if (both(*np.indices(offsets.shape)) != offsets).any():
        raise ValueError(f"{fragment.operand}: lane and value do not add up to an element")
    return both


def steps(fragment: FragmentLayout) -> tuple[ModeStep, ...]:
    """Return what each mode of the thread-value layout says about lanes, registers and elements."""
    lanes, values = thread_value(fragment).parts
    packed = fragment.elements_per_register
    held = (("element", packed), ("register", values.size // packed))
    steps = []
    for part, counters in ((lanes, ((fragment.holder, lanes.size),)), (values, held)):
        modes = list(part.modes)
        for counter, room in counters:
            divisor = 1
            while modes and divisor < room:
                size, stride = modes.pop(0)
                here = min(size, room // divisor)
                if here < size:
                    modes.insert(0, (size // here, stride * here))
                if here > 1:
                    inner, outer = divmod(stride, _outer_size(fragment))
                    steps.append(ModeStep(counter, divisor, here, outer, inner))
                divisor *= here
    return tuple(steps)


def _is_b(fragment: FragmentLayout) -> bool:
    return fragment.kind.removeprefix("quad ").startswith("b")


def _outer_size(fragment: FragmentLayout) -> int:
    return fragment.cols if _is_b(fragment) else fragment.rows
