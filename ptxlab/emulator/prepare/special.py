"""Special registers, each as a function of the wave that holds one value per thread or one for all.

Source: PTX ISA, "Special Registers". Where the ISA leaves a value to the driver or to the hardware's
state (%envreg, %pm, %smid) it is the one of an idle GPU with a single multiprocessor: 0. In %envreg1
and %envreg2 CUDA's cooperative groups find the address of a cooperative launch's workspace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.run.registers import Array
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP


def _u32(values: Any) -> Array:
    return np.atleast_1d(np.asarray(values)).astype(np.uint32)


def _thread(wave: Wave) -> Array:
    return np.arange(wave.width) % wave.cta_width


def _split(index: Array, shape: tuple[int, int, int], axis: int) -> Array:
    return _u32((index, index // shape[0], index // (shape[0] * shape[1]))[axis] % shape[axis])


def _tid(wave: Wave, axis: int) -> Array:
    if wave.config.block[axis] == 1:
        return _u32(0)
    return _split(_thread(wave), wave.config.block, axis)


def _ctaid(wave: Wave, axis: int) -> Array:
    if wave.config.grid[axis] == 1:
        return _u32(0)
    index = _split(np.array(wave.numbers), wave.config.grid, axis)
    return index if wave.ctas == 1 else np.repeat(index, wave.cta_width)


def _lanemask(wave: Wave, compare: Callable[[Array, Array], Array]) -> Array:
    lanes = np.arange(WARP)
    bits = compare(lanes[None, :], lanes[:, None]).astype(np.uint64) << lanes.astype(np.uint64)
    return np.tile(_u32(bits.sum(axis=1)), wave.warps)


def _constant(value: int) -> Callable[[Wave], Array]:
    return lambda wave: _u32(value)


TABLE: dict[str, Callable[[Wave], Array]] = {
    "%laneid": lambda wave: _u32(np.arange(wave.width) % WARP),
    "%warpid": lambda wave: _u32(_thread(wave) // WARP),
    "%nwarpid": lambda wave: _u32(wave.cta_width // WARP),
    "%smid": _constant(0),
    "%nsmid": _constant(1),
    "%gridid": lambda wave: np.zeros(1, np.uint64),
    "%lanemask_eq": partial(_lanemask, compare=np.equal),
    "%lanemask_lt": partial(_lanemask, compare=np.less),
    "%lanemask_le": partial(_lanemask, compare=np.less_equal),
    "%lanemask_gt": partial(_lanemask, compare=np.greater),
    "%lanemask_ge": partial(_lanemask, compare=np.greater_equal),
    "%total_smem_size": lambda wave: _u32(wave.shared_bytes),
    "%aggr_smem_size": lambda wave: _u32(wave.shared_bytes),
    "%dynamic_smem_size": lambda wave: _u32(wave.config.shared),
    "%cluster_ctarank": _constant(0),
    "%cluster_nctarank": _constant(1),
    "%is_explicit_cluster": lambda wave: np.zeros(1, bool),
    "%current_graph_exec": lambda wave: np.zeros(1, np.uint64),
}
for _axis, _name in enumerate("xyz"):
    TABLE[f"%tid.{_name}"] = partial(_tid, axis=_axis)
    TABLE[f"%ctaid.{_name}"] = TABLE[f"%clusterid.{_name}"] = partial(_ctaid, axis=_axis)
    TABLE[f"%ntid.{_name}"] = lambda wave, axis=_axis: _u32(wave.config.block[axis])  # type: ignore[misc]
    TABLE[f"%nctaid.{_name}"] = lambda wave, axis=_axis: _u32(wave.config.grid[axis])  # type: ignore[misc]
    TABLE[f"%nclusterid.{_name}"] = TABLE[f"%nctaid.{_name}"]
    TABLE[f"%cluster_ctaid.{_name}"] = _constant(0)
    TABLE[f"%cluster_nctaid.{_name}"] = _constant(1)

WIDTH = {"%gridid": 64, "%is_explicit_cluster": 1, "%current_graph_exec": 64}
"""Bits of the special registers that are not 32 wide."""

for _number in range(32):
    TABLE[f"%envreg{_number}"] = _constant(0)
TABLE["%envreg1"] = lambda wave: _u32(wave.workspace >> 32)
TABLE["%envreg2"] = lambda wave: _u32(wave.workspace % (1 << 32))
for _number in range(8):
    TABLE[f"%pm{_number}"] = _constant(0)
    TABLE[f"%pm{_number}_64"] = lambda wave: np.zeros(1, np.uint64)
    WIDTH[f"%pm{_number}_64"] = 64

CLOCKS: dict[str, tuple[int, int]] = {
    "%clock": (0, 32),
    "%clock_hi": (32, 32),
    "%clock64": (0, 64),
    "%globaltimer": (0, 64),
    "%globaltimer_lo": (0, 32),
    "%globaltimer_hi": (32, 32),
}
"""Registers that only grow, as (lowest bit, width) of the number of instructions executed so far.

A reading tells the order of events, and that time passes; it is no measure of a GPU's cycles.
"""


def bits(name: str) -> int | None:
    """Return how wide a special register is, None for another name."""
    if name in CLOCKS:
        return CLOCKS[name][1]
    return WIDTH.get(name, 32) if name in TABLE else None
