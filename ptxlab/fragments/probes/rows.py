"""Probe kernels of ``ldmatrix``, ``stmatrix`` and ``movmatrix``: numbered rows of shared memory and registers.

Every lane addresses another row of the tile, in no order, those too that are not asked for an address.
Elements are numbered in as many rounds as their bits need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill, filled
from ptxlab.fragments.probe_kernel import SHARE_BYTES, body
from ptxlab.fragments.probes.kernel import ProbeKernel, packed, record
from ptxlab.fragments.report import Mismatch, differences
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.ldmatrix import ROW_BYTES, SIGNED, LdMatrix, MovMatrix, StMatrix

ROW_OF_LANE = np.arange(WARP) * 11 % WARP
"""The row of the tile that each lane addresses."""
_OUTSIDE = 0xA5
"""What lies around the elements, and where nothing is stored."""

assert SHARE_BYTES == WARP * ROW_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class RowsProbeKernel(ProbeKernel):
    """``layout`` is that of the operand in registers: of all matrices below each other, or D."""

    layout: FragmentLayout

    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements of one register, or of half a row of the tile."""
        if word < len(self.body.results):
            for element, right, wrong in differences(self.layout, expected, actual):
                yield Mismatch.of(
                    "numbered", "register", self.layout, Place(lane, word, element), right, wrong
                )
            return
        half = word - len(self.body.results)
        row = int(np.flatnonzero(lane == ROW_OF_LANE)[0])
        count = self.layout.cols // 2
        for col, right, wrong in differences(self.layout, expected, actual, count):
            if row < self.layout.rows:
                (place,) = self.layout.registers(row, count * half + col)
                yield Mismatch.of("numbered", "memory", self.layout, place, right, wrong)
            else:  # of no matrix: the lane whose address it is should not have been asked
                place = Place(row, 0, 0)
                at = (row, count * half + col)
                yield Mismatch(
                    "numbered", "memory", "R", *place, *at, right, wrong, self.layout.bits
                )


def load_probe_kernel(form: LdMatrix, fill: Fill | None) -> ProbeKernel:
    """Return the probe kernel of ``ldmatrix``: a numbered tile to registers."""
    layout = form.operands[0]
    tile = _rounds(WARP * form.cols, form.packed_bits).reshape(-1, WARP, form.cols)
    rows = ROW_OF_LANE[: layout.rows]
    if fill:
        tile = np.zeros_like(tile[:1])
        tile[:, rows] = _filled(layout, fill, form.packed_bits)
    given = record(
        _offsets(len(tile), form.row_bytes), _rows(tile, form.packed_bits, form.row_bytes)
    )
    loaded = tile[:, rows]
    if form.dtype == SIGNED:
        loaded = np.where(loaded < 8, loaded, loaded + np.uint64(0xF0))
    expected = record(layout.pack(loaded), given[..., 1:].view(np.uint8))
    return RowsProbeKernel(form, body(form), given, expected, layout)


def store_probe_kernel(form: StMatrix, fill: Fill | None) -> ProbeKernel:
    """Return the probe kernel of ``stmatrix``: registers numbered by lane and register to a tile."""
    layout = form.operands[0]
    words = _registers(layout, fill)
    tile = np.full((len(words), WARP, ROW_BYTES), _OUTSIDE, np.uint8)
    given = record(np.concatenate([_offsets(len(words)), words], axis=-1), tile)
    stored = layout.unpack(words).astype(f"u{layout.bits // 8}")
    tile[:, ROW_OF_LANE[: layout.rows]] = stored.view(np.uint8)
    expected = record(np.empty((len(words), WARP, 0)), tile)
    return RowsProbeKernel(form, body(form), given, expected, layout)


def move_probe_kernel(form: MovMatrix, fill: Fill | None) -> ProbeKernel:
    """Return the probe kernel of ``movmatrix``: numbered registers to registers."""
    source, destination = form.operands
    words = _registers(source, fill)
    expected = record(destination.pack(source.unpack(words)))
    return RowsProbeKernel(form, body(form), record(words), expected, destination)


def _offsets(count: int, row_bytes: int = ROW_BYTES) -> Array:
    """Return the addresses of all lanes as registers, [count, 32, 1]."""
    return np.asarray(np.broadcast_to(ROW_OF_LANE[:, np.newaxis] * row_bytes, (count, WARP, 1)))


def _registers(layout: FragmentLayout, fill: Fill | None) -> Array:
    """Return registers, [rounds, 32, registers], whose elements are numbered by their place.

    With a ``fill`` they are those of a matrix that has it.
    """
    if fill:
        return np.asarray(layout.pack(_filled(layout, fill, layout.bits))[np.newaxis])
    registers, count = layout.registers_per_lane, layout.elements_per_register
    rounds = _rounds(WARP * registers * count, layout.bits)
    shifts = np.arange(count, dtype=np.uint64) * np.uint64(layout.bits)
    parts = rounds.reshape(-1, WARP, registers, count) << shifts
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1))


def _filled(layout: FragmentLayout, fill: Fill, bits: int) -> Array:
    """Return the matrix that has a fill, in as many bits of each number as there are."""
    return filled(layout, fill).astype(np.uint64) & np.uint64((1 << bits) - 1)


def _rounds(count: int, bits: int) -> Array:
    """Return the numbers below ``count`` in digits of ``bits``, the low one first: [digits, count]."""
    digits = -(-(count - 1).bit_length() // bits)
    shifts = np.arange(digits, dtype=np.uint64)[:, np.newaxis] * np.uint64(bits)
    return np.arange(count, dtype=np.uint64) >> shifts & np.uint64((1 << bits) - 1)


def _rows(matrix: Array, bits: int, row_bytes: int) -> Array:
    """Return a tile of 32 rows of 16 bytes, in it rows of ``row_bytes`` that begin with elements of ``bits``."""
    elements = packed(matrix, bits)
    tile = np.full((*matrix.shape[:-2], WARP * ROW_BYTES), _OUTSIDE, np.uint8)
    rows = tile[..., : WARP * row_bytes].reshape(*matrix.shape[:-1], row_bytes)
    rows[..., : elements.shape[-1]] = elements
    tile[..., : WARP * row_bytes] = rows.reshape(*matrix.shape[:-2], -1)
    return tile.reshape(*matrix.shape[:-1], ROW_BYTES)
