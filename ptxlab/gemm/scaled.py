"""Matrices of small numbers that share scales along k, as block-scaled products take them.

Of mxfp8 32 numbers of e4m3 share a power of two, of nvfp4 16 of e2m1 share an e4m3 without its sign.
Rows of A and columns of B lie along k, in bytes filled up with zeros. Scales lie in blocks of 512 bytes, one for
128 rows and four scales of each: 32 times 16 bytes, of which row r has four from 16 (r mod 32) + 4 (r div 32) on,
as ``tcgen05.cp`` brings them to Tensor Memory. Blocks follow each other along k first.

Source: OCP Microscaling Formats (MX) specification, "Conversion"; PTX ISA, "Scale factor layout" of tcgen05.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.numbers.formats import E2M1, E4M3, UE4M3, UE8M0, Format

ALIGNMENT = 16
_ROWS, _LANES, _SCALES, _LINE_BITS = 128, 32, 4, 1024


@dataclass(frozen=True, slots=True)
class ScaledType:
    """``block`` numbers of ``element`` along k share a ``scale``."""

    element: Format
    block: int
    scale: Format

    @property
    def bits(self) -> int:
        return self.element.bits

    @property
    def in_line(self) -> int:
        """How many blocks of scales are for a line of 128 bytes along k."""
        return _LINE_BITS // (self.bits * self.block * _SCALES)

    def packed_shape(self, rows: int, k: int) -> tuple[int, int]:
        """Return how many rows of how many bytes there are, at least one, of a multiple of 16."""
        in_chunk = 8 * ALIGNMENT // self.bits
        return max(rows, 1), max(-(-k // in_chunk), 1) * ALIGNMENT

    def blocks_shape(self, rows: int, k: int) -> tuple[int, int, int]:
        """Return row blocks, blocks along k, those of whole lines of 128 bytes, and the bytes of a block."""
        lines = max(-(-k * self.bits // _LINE_BITS), 1)
        return max(-(-rows // _ROWS), 1), lines * self.in_line, _ROWS * _SCALES

    def scale_bytes(self, *extents: int, depth: int) -> int:
        """Return the bytes of the blocks of scales of tiles of A and B, so wide and ``depth`` along k."""
        along = -(-depth * self.bits * self.in_line // _LINE_BITS)
        return sum(-(-extent // _ROWS) for extent in extents) * along * _ROWS * _SCALES


SCALED = {"mxfp8": ScaledType(E4M3, 32, UE8M0), "nvfp4": ScaledType(E2M1, 16, UE4M3)}


@dataclass(frozen=True, slots=True)
class ScaledMatrix:
    """Codes of numbers [rows, k], and of the scales of their blocks [rows, ceil(k / block)]."""

    kind: ScaledType
    codes: Array
    scales: Array

    @property
    def values(self) -> Array:
        """What they stand for, exactly, as f32."""
        numbers = self.codes.view(self.kind.element.dtype).astype(np.float32)
        scales = self.scales.view(self.kind.scale.dtype).astype(np.float32)
        wide: Array = scales.repeat(self.kind.block, axis=1)[:, : numbers.shape[1]]
        return numbers * wide

    @property
    def largest_scale(self) -> float:
        scales = self.scales.view(self.kind.scale.dtype).astype(np.float64)
        return float(scales.max(initial=0))

    def packed(self) -> Array:
        """Return rows of bytes, of ``packed_shape``: of four bits two a byte, low first."""
        per_byte = 8 // self.kind.bits
        rows, k = self.codes.shape
        several, width = self.kind.packed_shape(rows, k)
        codes = np.zeros((several, width * per_byte), np.uint8)
        codes[:rows, :k] = self.codes
        return codes if per_byte == 1 else codes[:, ::2] | codes[:, 1::2] << 4

    def scale_blocks(self) -> Array:
        """Return the blocks of scales, of ``blocks_shape``."""
        rows, scales = self.scales.shape
        down, along, _ = self.kind.blocks_shape(*self.codes.shape)
        filled = np.zeros((down * _ROWS, along * _SCALES), np.uint8)
        filled[:rows, :scales] = self.scales
        parts = filled.reshape(down, _ROWS // _LANES, _LANES, along, _SCALES)
        return np.ascontiguousarray(parts.transpose(0, 3, 2, 1, 4)).reshape(down, along, -1)


def quantized(values: Array, kind: ScaledType) -> ScaledMatrix:
    """Return the nearest numbers of a type, rows of f32 cut into blocks, each with a scale for its largest.

    A power of two brings the largest to the top binade, and what is beyond saturates; other scales are its
    quotient by the largest number, rounded.
    """
    rows, k = values.shape
    blocks = -(-k // kind.block)
    whole = np.zeros((rows, blocks * kind.block))
    whole[:, :k] = values
    cut = whole.reshape(rows, blocks, kind.block)
    largest = np.abs(cut).max(axis=2, initial=0)
    most = kind.element.max_finite
    if kind.scale is UE8M0:
        exponent = np.frexp(largest)[1] - np.frexp(most)[1]
        wanted = np.where(largest > 0, 2.0**exponent, 1.0)
    else:
        wanted = np.where(largest > 0, largest / most, 1.0)
    least = 2.0 ** (kind.scale.lowest_exponent - kind.scale.fraction_bits)
    scales = wanted.clip(least, kind.scale.max_finite).astype(kind.scale.dtype)
    parts = cut / scales.astype(np.float64)[:, :, np.newaxis]
    codes = parts.clip(-most, most).astype(kind.element.dtype).view(np.uint8)
    codes = np.ascontiguousarray(codes.reshape(whole.shape)[:, :k])
    return ScaledMatrix(kind, codes, scales.view(np.uint8))
