"""Matrices that tensor cores read in units of 16 bytes: where these are, for arrays and for machine code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.background import Span
from ptxlab.emulator.run.memory import Region
from ptxlab.matrix.bit_record import BitRecord
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.shared_matrix import addresses


@dataclass(frozen=True, slots=True, eq=False)
class UnitLines:
    """Matrices in ``data``, which are lines of units, as ``ptxlab.native.tensor_core.operands`` has them.

    In bytes: a matrix begins at ``starts`` [matrices]; ``which`` [matrices] of the ``patterns`` [patterns, lines,
    units] says where its units are from there on.
    """

    data: Array
    starts: Array
    which: Array
    patterns: Array

    @classmethod
    def of(
        cls,
        region: Region,
        operand: SharedOperand,
        major: str,
        descriptors: Array,
        starts: Array,
        record: BitRecord,
    ) -> UnitLines:
        """Return where descriptors lead, each in a shared memory whose address 0 is at ``starts``.

        Raises ValueError for a descriptor that says what is not modelled.
        """
        which, patterns = _patterns(operand, major, descriptors.tobytes(), record)
        return cls(region.data, starts, which, patterns)

    @classmethod
    def dense(cls, lines: Array) -> UnitLines:
        """Return matrices [matrices, lines, ...] that lie one behind the other."""
        data = np.ascontiguousarray(lines)
        size, starts = data[0].nbytes, data[0].nbytes * np.arange(len(data))
        patterns = np.arange(0, size, UNIT_BYTES).reshape(1, lines.shape[1], -1)
        return cls(data, starts, np.zeros_like(starts), patterns)

    @property
    def words(self) -> list[int]:
        """What machine code finds them by, as long as this is held."""
        return [array.ctypes.data for array in (self.data, self.starts, self.which, self.patterns)]

    @property
    def units(self) -> Array:
        """Which units of the data they are: [matrices, lines, units]."""
        units: Array = self.patterns[self.which] + self.starts[:, np.newaxis, np.newaxis]
        return units // UNIT_BYTES

    def read(self) -> Array:
        """Return the units, [matrices, lines, units] of 16 bytes."""
        items: Array = self.data.view(np.complex128)[self.units]
        return items

    def span(self, region: Region) -> Span:
        """Return which bytes of each CTA's shared memory, a ``region``, are read."""
        return int(self.patterns.min()) - region.first, int(
            self.patterns.max()
        ) + UNIT_BYTES - region.first

    def outside(self, region: Region) -> tuple[int, int, int] | None:
        """Return a matrix that is not in its CTA's memory, its first address and that behind it; None if all are."""
        if region.first <= self.patterns.min() and self.patterns.max() + UNIT_BYTES <= region.size:
            return None
        low, high = self.patterns.min(axis=(1, 2)), self.patterns.max(axis=(1, 2))
        wrong = (low < region.first) | (high + UNIT_BYTES > region.size)
        at = int(wrong[self.which].argmax())
        pattern = self.patterns[self.which[at]]
        return at, int(pattern.min()), int(pattern.max()) + UNIT_BYTES

    def part(self, chosen: Array | slice) -> UnitLines:
        return replace(self, starts=self.starts[chosen].copy(), which=self.which[chosen].copy())

    def side_by_side(self, group: int, axis: int) -> UnitLines:
        """Return for each of ``group`` CTAs, which have the same pattern, the matrices of all of them as one.

        They are lines behind each other for the axis 1, parts of each line for 2.
        """
        starts = self.starts.reshape(-1, group)
        apart = starts[0] - starts[0, 0]
        patterns = np.concatenate([self.patterns + far for far in apart], axis=axis)
        return replace(self, starts=starts[:, 0].repeat(group), patterns=patterns)


@lru_cache(maxsize=256)
def _patterns(
    operand: SharedOperand, major: str, descriptors: bytes, record: BitRecord
) -> tuple[Array, Array]:
    """Return which pattern each descriptor says, and the patterns: a loop has the same few again and again."""
    words, which = np.unique(np.frombuffer(descriptors, np.uint64), return_inverse=True)
    return which, addresses(operand, major, words, record)
