"""Special registers, each with a function of the wave that holds one value per thread or one for all.

Source: PTX ISA, "Special Registers". Where the ISA leaves a value to the driver or to the hardware's
state (%envreg, %pm, %smid) it is the one of an idle GPU with a single multiprocessor: 0. In %envreg1
and %envreg2 CUDA's cooperative groups find the address of a cooperative launch's workspace. Of the
shared memory that is reserved it uses nothing: all of it is there, and every place in it is the first,
but where ptxas writes another into the code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.special import special_register
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import Dim3


def _u32(values: Any) -> Array:
    return np.atleast_1d(np.asarray(values)).astype(np.uint32)


def _thread(wave: Wave) -> Array:
    return np.arange(wave.width) % wave.cta_width


def _split(index: Array, shape: tuple[int, int, int], axis: int) -> Array:
    behind = (1, shape[0], shape[0] * shape[1])[axis]
    return _u32(index // behind % shape[axis])


def _tid(wave: Wave, axis: int) -> Array:
    if wave.config.block[axis] == 1:
        return _u32(0)
    return _threads(wave.config.block, axis, wave.cta_width, wave.ctas)


@lru_cache(maxsize=16)
def _threads(block: Dim3, axis: int, width: int, ctas: int) -> Array:
    """Return %tid of each thread of so many CTAs, the same in all waves of a launch."""
    return np.tile(_split(np.arange(width), block, axis), ctas)


def _ctaid(wave: Wave, axis: int) -> Array:
    if wave.config.grid[axis] == 1:
        return _u32(0)
    index = _split(np.array(wave.numbers), wave.config.grid, axis)
    return index if wave.ctas == 1 else np.repeat(index, wave.cta_width)


def _in_clusters(
    of: Callable[[Wave, int], Array], part: Callable[[Array, int], Array], wave: Wave, axis: int
) -> Array:
    """Return what a number of CTAs is in clusters, whole or left over."""
    return _u32(part(of(wave, axis), wave.config.cluster_shape[axis]))


def _lanemask(wave: Wave, compare: Callable[[Array, Array], Array]) -> Array:
    lanes = np.arange(WARP)
    bits = compare(lanes[None, :], lanes[:, None]).astype(np.uint64) << lanes.astype(np.uint64)
    return np.tile(_u32(bits.sum(axis=1)), wave.warps)


def _constant(value: int) -> Callable[[Wave], Array]:
    return lambda wave: _u32(value)


def _reserved_begin(wave: Wave) -> int:
    """Return where the shared memory that is reserved begins: before a CTA's own, or behind it."""
    return 0 if wave.shared_base else wave.shared_bytes


def _reserved(wave: Wave, offset: int) -> Array:
    return _u32(_reserved_begin(wave) + offset)


def _reserved_end(wave: Wave) -> Array:
    return _reserved(wave, wave.multiprocessor.reserved)


special_register("%laneid", lambda wave: _u32(np.arange(wave.width) % WARP))
special_register("%warpid", lambda wave: _u32(_thread(wave) // WARP))
special_register("%nwarpid", lambda wave: _u32(wave.cta_width // WARP))
special_register("%smid", _constant(0))
special_register("%nsmid", _constant(1))
special_register("%locality_domain_id", _constant(0), needs="sm_100 9.5")  # the GPU is one domain
special_register("%gridid", lambda wave: np.zeros(1, np.uint64), bits=64)
special_register("%lanemask_eq", partial(_lanemask, compare=np.equal))
special_register("%lanemask_lt", partial(_lanemask, compare=np.less))
special_register("%lanemask_le", partial(_lanemask, compare=np.less_equal))
special_register("%lanemask_gt", partial(_lanemask, compare=np.greater))
special_register("%lanemask_ge", partial(_lanemask, compare=np.greater_equal))
special_register(
    "%current_graph_exec", lambda wave: np.zeros(1, np.uint64), bits=64, needs="sm_50 8.0"
)
for _number in range(32):
    special_register(f"%envreg{_number}", _constant(0))
special_register("%envreg1", lambda wave: _u32(wave.workspace >> 32))
special_register("%envreg2", lambda wave: _u32(wave.workspace % (1 << 32)))
for _number in range(8):
    special_register(f"%pm{_number}", _constant(0))
    special_register(f"%pm{_number}_64", lambda wave: np.zeros(1, np.uint64), bits=64)

# ---- shared memory, and what is reserved of it ----
_RESERVED = "sm_80 7.6"
special_register("%total_smem_size", lambda wave: _u32(wave.shared_bytes))
special_register("%dynamic_smem_size", lambda wave: _u32(wave.config.shared))
special_register(
    "%aggr_smem_size",
    lambda wave: _u32(wave.shared_bytes + wave.multiprocessor.reserved),
    needs="sm_90 8.1",
)
special_register("%reserved_smem_offset_begin", partial(_reserved, offset=0), needs=_RESERVED)
special_register("%reserved_smem_offset_end", _reserved_end, needs=_RESERVED)
special_register("%reserved_smem_offset_cap", _reserved_end, needs=_RESERVED)
special_register(
    "%reserved_smem_offset_0",
    lambda wave: _reserved(wave, wave.multiprocessor.reserved_0),
    needs=_RESERVED,
)
special_register("%reserved_smem_offset_1", partial(_reserved, offset=0), needs=_RESERVED)

# ---- where a thread is, and how many there are ----
_CLUSTER = "sm_90 7.8"
special_register("%cluster_ctarank", lambda wave: _u32(wave.rank_of), needs=_CLUSTER)
special_register("%cluster_nctarank", lambda wave: _u32(wave.config.cluster_ctas), needs=_CLUSTER)
special_register(
    "%is_explicit_cluster",
    lambda wave: np.array([wave.config.cluster is not None]),
    bits=1,
    needs=_CLUSTER,
)


def _ntid(wave: Wave, axis: int) -> Array:
    return _u32(wave.config.block[axis])


def _nctaid(wave: Wave, axis: int) -> Array:
    return _u32(wave.config.grid[axis])


def _cluster_nctaid(wave: Wave, axis: int) -> Array:
    return _u32(wave.config.cluster_shape[axis])


for _name, _value, _needs in (
    ("%tid", _tid, ""),
    ("%ntid", _ntid, ""),
    ("%ctaid", _ctaid, ""),
    ("%nctaid", _nctaid, ""),
    ("%clusterid", partial(_in_clusters, _ctaid, np.floor_divide), _CLUSTER),
    ("%nclusterid", partial(_in_clusters, _nctaid, np.floor_divide), _CLUSTER),
    ("%cluster_ctaid", partial(_in_clusters, _ctaid, np.remainder), _CLUSTER),
    ("%cluster_nctaid", _cluster_nctaid, _CLUSTER),
):
    for _axis, _letter in enumerate("xyz"):
        special_register(f"{_name}.{_letter}", partial(_value, axis=_axis), needs=_needs)

# ---- clocks ----
special_register("%clock", None)
special_register("%clock_hi", None, lowest=32)
special_register("%clock64", None, bits=64)
special_register("%globaltimer", None, bits=64)
special_register("%globaltimer_lo", None)
special_register("%globaltimer_hi", None, lowest=32)
