"""Small operands whose products are exact, and their places by the ISA's fragment sections."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array

SMALL = {
    "f16": [0, 0x3C00, 0x4000, 0xBC00],
    "bf16": [0, 0x3F80, 0x4000, 0xBF80],
    "tf32": [0, 0x3F800000, 0x40000000, 0xBF800000],
    "e4m3": [0, 0x38, 0x40, 0xB8],
    "e5m2": [0, 0x3C, 0x40, 0xBC],
    "e3m2": [0, 0x0C, 0x10, 0x2C],
    "e2m3": [0, 0x08, 0x10, 0x28],
    "e2m1": [0, 0x08, 0x10, 0x28],
    "s8": [0, 1, 2, 0xFF],
    "s4": [0, 1, 2, 0xF],
    "u8": [0, 1, 2, 3],
    "u4": [0, 1, 2, 3],
}
"""Bit patterns of 0, 1, 2 and -1 (3 of unsigned types)."""
VALUE = np.array([0, 1, 2, -1])


def pack(kind: str, bits: int, matrices: Array) -> Array:
    """Return [warps, 32, registers] by the formulas of the ISA's fragment sections."""
    warps, rows, cols = matrices.shape
    e = 32 // bits
    words = np.zeros((warps, 32, max(1, rows * cols // 32 // e)), np.uint64)
    lane = np.arange(32)
    g, q = lane >> 2, lane & 3
    for i in range(rows * cols // 32):
        r, w = divmod(i, e)
        if kind == "a":
            row, col = g + 8 * (r & 1), q * e + w + 4 * e * (r >> 1)
        elif kind == "b":
            row, col = q * e + w + 4 * e * r, g
        else:
            row, col = g + 8 * (i >> 1), 2 * q + (i & 1)
        words[:, :, r] |= matrices[:, row, col].astype(np.uint64) << np.uint64(bits * w)
    return words
