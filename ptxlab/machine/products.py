"""Products of tensor cores as machine code writes them: ``HMMA.16816.F32.BF16``, of a warpgroup ``HGMMA.64x256x16.F16``."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SHAPES = {
    "884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16),
    "16832": (16, 8, 32), "16864": (16, 8, 64), "8816": (8, 8, 16), "8832": (8, 8, 32),
    "88128": (8, 8, 128), "168128": (16, 8, 128), "168256": (16, 8, 256),
    "8x8x4": (8, 8, 4), "16x8x4": (16, 8, 4), "16x8x8": (16, 8, 8), "16x8x16": (16, 8, 16),
}  # fmt: skip
_OTHER_FACTORS = {"BF16": "bf16", "TF32": "tf32"}
_BITS_OF_A_WARP = 1024
"""What one register of all lanes holds."""

BITS = {
    "bf16": 16, "f16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "s4": 4, "e4m3": 8, "e2m1": 4,
    "f64": 64, "b1": 1,
}  # fmt: skip

OF_WARPGROUP = re.compile(r"64x(?P<n>\d+)x(?P<k>\d+)$")
"""The modifier that has the shape of a product of a warpgroup."""
REGISTERS_OF_A = 4
"""Those of a product of a warpgroup whose A is in registers."""


def sums_of_warpgroup(modifiers: Sequence[str]) -> int:
    """Return how many registers the sums of a product of a warpgroup are."""
    n = next(int(shape["n"]) for shape in map(OF_WARPGROUP.match, modifiers) if shape)
    return n // 4 if "F16" in modifiers else n // 2


def other_factors(modifiers: Sequence[str], usual: str) -> str:
    """Return the type of factors that a modifier names, or the ``usual`` one of the opcode."""
    return next((_OTHER_FACTORS[name] for name in modifiers if name in _OTHER_FACTORS), usual)


def product(modifiers: Sequence[str], factors: str) -> tuple[tuple[int, int, int], str, str] | None:
    """Return a product's shape m, n, k, and the types of its factors and its sums; None if it is not known.

    ``factors`` is their type where no modifier says.
    """
    shape, *types = (modifier for modifier in modifiers if modifier != "SF")
    sums = {"F32": "f32", "F16": "f16"}.get(types[0], "s32") if types else "f16"
    dtype = factors
    if factors == "f64":
        sums = factors
    if factors == "f16":
        dtype = other_factors(types[-1:], factors)
    elif factors == "s8":
        dtype = {"S8": "s8", "U8": "s8", "S4": "s4", "U4": "s4"}.get(types[0] if types else "", "")
    return (_SHAPES[shape], dtype, sums) if shape in _SHAPES and dtype else None


def operand_registers(modifiers: Sequence[str], factors: str) -> tuple[int, int, int] | None:
    """Return how many registers in a row A, B and C are, None if the product is not known."""
    told = product(modifiers, factors)
    if told is None:
        return None
    (m, n, k), dtype, sums = told
    bits = BITS[dtype]
    a, b, c = (
        max(each // _BITS_OF_A_WARP, 1) for each in (m * k * bits, k * n * bits, m * n * BITS[sums])
    )
    return a, b, c
