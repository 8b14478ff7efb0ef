"""Fragments between their two forms: registers of lanes, and matrices with the warps last.

The matrix form, [rows, cols, warps], is what tensor-core arithmetic works on; the layout between
the two is ``ptxlab.isa``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.isa import FragmentLayout

Array = npt.NDArray[Any]


class FragmentCache:
    """Matrices recently made from registers, or that registers were made from.

    A fragment is used by several instructions and an accumulator by the next one; register values
    are immutable, so the same arrays always stand for the same matrix.
    """

    CAPACITY = 96

    def __init__(self) -> None:
        self._known: dict[tuple[str | int, ...], tuple[list[Array], Array]] = {}

    def matrix(
        self,
        layout: FragmentLayout,
        values: list[Array],
        split: Callable[[Array], Array],
        whole: bool,
    ) -> Array:
        """Return the operand as [rows, cols, warps] of raw words from its registers' values."""
        key = (layout.kind, *map(id, values))
        known = self._known.get(key) if whole else None
        if known is not None:
            return known[1]
        matrix = from_registers(layout, [split(value) for value in values])
        if whole:
            self.remember(layout, values, matrix)
        return matrix

    def remember(self, layout: FragmentLayout, values: list[Array], matrix: Array) -> None:
        """Keep ``matrix`` as what the arrays ``values`` stand for."""
        if len(self._known) >= self.CAPACITY:
            del self._known[next(iter(self._known))]
        self._known[(layout.kind, *map(id, values))] = (values, matrix)


def from_registers(layout: FragmentLayout, registers: list[Array]) -> Array:
    """Return [rows, cols, warps] of raw words from one [warps, 32] array a register."""
    words = np.stack(registers)
    elements = words.view(np.dtype(f"u{layout.bits // 8}"))
    warps = words.shape[1]
    by_place = elements.reshape(len(registers), warps, -1).transpose(0, 2, 1)
    flat = np.ascontiguousarray(by_place).reshape(-1, warps)
    return flat[_places(layout)].reshape(layout.rows, layout.cols, warps)


def to_registers(layout: FragmentLayout, matrix: Array) -> list[Array]:
    """Return one [warps, 32] array a register from [rows, cols, warps] of raw words."""
    warps = matrix.shape[2]
    flat = matrix.reshape(-1, warps)[_elements(layout)]
    by_place = flat.reshape(layout.registers_per_lane, -1, warps).transpose(0, 2, 1)
    words = np.ascontiguousarray(by_place).view(np.dtype(f"u{layout.register_bits // 8}"))
    return list(words)


@cache
def _elements(layout: FragmentLayout) -> Array:
    """Return, for each place (register, lane, element), the number of the matrix element it holds."""
    row, col = np.moveaxis(layout.table(), -1, 0)
    return np.ascontiguousarray((row * layout.cols + col).transpose(1, 0, 2)).reshape(-1)


@cache
def _places(layout: FragmentLayout) -> Array:
    """Return, for each matrix element, the number of the place that holds it."""
    return np.argsort(_elements(layout))
