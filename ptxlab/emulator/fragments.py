"""Fragments between their two forms: registers of lanes, and matrices with the warps last.

Where a warpgroup holds a matrix, [warpgroups, 128] stands for [warps, 32]. The matrix form,
[rows, cols, warps], is what tensor-core arithmetic works on; the layout between the two is
``ptxlab.matrix``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix.fragment import FragmentLayout


class FragmentCache:
    """Matrices recently made from registers, or that registers were made from.

    A fragment is used by several instructions and an accumulator by the next one; register values
    are immutable, so the same arrays always stand for the same matrix of the same threads.
    """

    CAPACITY = 1 << 26
    """Bytes of matrices, and of the registers that they keep alive."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[list[Array], Array]] = {}
        self._bytes = 0

    def matrix(
        self,
        layout: FragmentLayout,
        values: list[Array],
        split: Callable[[Array], Array],
        threads: Hashable,
    ) -> Array:
        """Return the operand as [rows, cols, warps] of raw words from its registers' values.

        ``threads`` tells apart the threads that ``split`` picks.
        """
        known = self._known.get(_key(layout, values, threads))
        if known is not None:
            return known[1]
        matrix = from_registers(layout, [split(value) for value in values])
        self.remember(layout, values, threads, matrix)
        return matrix

    def remember(
        self, layout: FragmentLayout, values: list[Array], threads: Hashable, matrix: Array
    ) -> None:
        key = _key(layout, values, threads)
        if key not in self._known:
            self._known[key] = (values, matrix)
            self._bytes += _size(values, matrix)
        while self._bytes > self.CAPACITY:
            self._bytes -= _size(*self._known.pop(next(iter(self._known))))


def _key(layout: FragmentLayout, values: list[Array], threads: Hashable) -> Hashable:
    return (layout.kind, layout.rows, layout.cols, layout.bits, threads, *map(id, values))


def _size(values: list[Array], matrix: Array) -> int:
    return matrix.nbytes + sum(value.nbytes for value in values)


def from_registers(layout: FragmentLayout, registers: list[Array]) -> Array:
    """Return [rows, cols, warps] of raw words from one [warps, 32] array a register.

    Elements narrower than a byte come one a byte. Where a warp holds several matrices they count as
    so many warps, next to each other. Of copies the first one counts.
    """
    words = np.stack(registers)
    warps = words.shape[1]
    by_place = _elements_of(words, layout.bits).transpose(0, 2, 1)
    flat = np.ascontiguousarray(by_place).reshape(-1, warps)
    matrices = flat[_places(layout)].reshape(layout.matrices, layout.rows, layout.cols, warps)
    if layout.matrices == 1:
        return np.asarray(matrices[0])
    return np.moveaxis(matrices, 0, -1).reshape(layout.rows, layout.cols, -1)


def to_registers(layout: FragmentLayout, matrix: Array) -> list[Array]:
    """Return one [warps, 32] array a register from [rows, cols, warps] of raw words.

    The reverse of ``from_registers``, for elements of a byte and more.
    """
    warps = matrix.shape[2] // layout.matrices
    if layout.matrices > 1:
        matrix = np.moveaxis(matrix.reshape(*matrix.shape[:2], warps, -1), -1, 0)
    flat = matrix.reshape(-1, warps)[_elements(layout)]
    by_place = flat.reshape(layout.registers_per_lane, -1, warps).transpose(0, 2, 1)
    words = np.ascontiguousarray(by_place).view(np.dtype(f"u{layout.register_bits // 8}"))
    return list(words)


def _elements_of(words: Array, bits: int) -> Array:
    """Split [registers, warps, 32] words into elements, low bits first: the last axis grows."""
    if bits >= 8:
        return words.view(np.dtype(f"u{bits // 8}"))
    octets = words.view(np.uint8)
    if bits == 1:
        return np.unpackbits(octets, axis=-1, bitorder="little")
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)


@cache
def _elements(layout: FragmentLayout) -> Array:
    """Return, for each place (register, lane, element), the number of the matrix element it holds."""
    return np.ascontiguousarray(layout.numbers().transpose(1, 0, 2)).reshape(-1)


@cache
def _places(layout: FragmentLayout) -> Array:
    """Return, for each matrix element, the number of the first place that holds it."""
    return np.asarray(np.argsort(_elements(layout), kind="stable")[:: layout.copies])
