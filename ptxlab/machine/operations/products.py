"""Products of tensor cores: of a warp, and those that a warpgroup queues."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.products import operand_registers, sums_of_warpgroup
from ptxlab.machine.row import Modifiers, accumulators, rows


def _operand(factors: str, modifiers: Modifiers, slot: int) -> int:
    """Return the registers of A, B or C; what stands behind them, such as scales, is one."""
    return ((operand_registers(modifiers, factors) or ()) + (1,) * 6)[slot]


def _doubles(modifiers: Modifiers) -> int:
    return (operand_registers(modifiers, "f64") or (0, 0, 0))[2]


_of_warp = partial(rows, pipe="tensor", writes=accumulators)
_untimed = partial(rows, pipe="")
_of_warpgroup = partial(rows, pipe="wgmma", writes=sums_of_warpgroup, does="product")

ROWS = (
    *_of_warp("HMMA", factors="f16", reads=partial(_operand, "f16")),
    *_of_warp("IMMA", factors="s8", reads=partial(_operand, "s8")),
    *_of_warp("QMMA", factors="e4m3", reads=partial(_operand, "e4m3")),
    *_of_warp("OMMA", factors="e2m1", reads=partial(_operand, "e2m1")),
    *_untimed("BMMA", factors="b1", reads=partial(_operand, "b1"), writes=accumulators),
    *_untimed("DMMA", factors="f64", reads=partial(_operand, "f64"), writes=_doubles),
    *_untimed("BGMMA", factors="b1", writes=sums_of_warpgroup, does="product"),
    *_of_warpgroup("HGMMA", factors="f16"),
    *_of_warpgroup("QGMMA", factors="e4m3"),
    *_of_warpgroup("IGMMA", factors="s8"),
)
