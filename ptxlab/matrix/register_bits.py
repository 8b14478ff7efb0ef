"""Which bits of a register hold which element, and which of those bits count.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" (types of four and six bits in bytes),
"Alternate Floating-Point Data Formats" (tf32).
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.matrix.fragment import FragmentLayout

_INSIDE = {("e2m1", 8): (2, 4), ("e3m2", 8): (0, 6), ("e2m3", 8): (0, 6), ("tf32", 32): (13, 19)}
"""Lowest bit and count of the bits that count, where a container has more."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One element of a register: its container is ``bits`` bits from ``low`` on.

    Of these, ``data_bits`` from ``data_low`` on (of the register) are the number.
    """

    low: int
    bits: int
    data_low: int
    data_bits: int


def slots(layout: FragmentLayout) -> tuple[Slot, ...]:
    """Return the slots of a register, low bits first."""
    inside, count = _INSIDE.get((layout.dtype, layout.bits), (0, layout.bits))
    return tuple(
        Slot(low, layout.bits, low + inside, count)
        for low in range(0, layout.elements_per_register * layout.bits, layout.bits)
    )
