"""The fundamental PTX types, their widths, and the numpy dtype that holds one value of each.

Source: PTX ISA, "Types" and "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

Kind = Literal["bits", "unsigned", "signed", "float", "predicate", "packed"]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A PTX type: ``name`` as after the dot, ``bits`` wide, held in numpy as ``dtype``.

    Packed types (f16x2, u16x2, f32x2, ...) are held as raw words of their whole width.
    """

    name: str
    bits: int
    kind: Kind
    dtype: np.dtype[np.generic]

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8


def _table() -> dict[str, ScalarType]:
    rows: list[tuple[str, int, Kind, object]] = [("pred", 1, "predicate", np.bool_)]
    for bits in (8, 16, 32, 64):
        unsigned = np.dtype(f"u{bits // 8}")
        rows.append((f"b{bits}", bits, "bits", unsigned))
        rows.append((f"u{bits}", bits, "unsigned", unsigned))
        rows.append((f"s{bits}", bits, "signed", np.dtype(f"i{bits // 8}")))
    rows += [
        ("b128", 128, "bits", np.dtype("V16")),
        ("f16", 16, "float", np.float16),
        ("bf16", 16, "float", ml_dtypes.bfloat16),
        ("f32", 32, "float", np.float32),
        ("tf32", 32, "float", np.float32),
        ("f64", 64, "float", np.float64),
        ("f16x2", 32, "packed", np.uint32),
        ("bf16x2", 32, "packed", np.uint32),
        ("u16x2", 32, "packed", np.uint32),
        ("s16x2", 32, "packed", np.uint32),
        ("f32x2", 64, "packed", np.uint64),
    ]
    return {name: ScalarType(name, bits, kind, np.dtype(dtype)) for name, bits, kind, dtype in rows}  # type: ignore[call-overload]


TYPES: dict[str, ScalarType] = _table()

STORED: dict[str, ScalarType] = {
    "e4m3": ScalarType("e4m3", 8, "float", np.dtype(ml_dtypes.float8_e4m3fn)),
    "e5m2": ScalarType("e5m2", 8, "float", np.dtype(ml_dtypes.float8_e5m2)),
}
"""The formats that are no fundamental type, but whose numbers lie one to a byte in memory."""
