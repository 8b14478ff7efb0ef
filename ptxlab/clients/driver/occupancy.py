"""How many CTAs of a kernel an SM holds, by the registers that NVIDIA's assembler gives it.

Source: CUDA Driver API, "Occupancy".
"""

from __future__ import annotations

import ctypes

from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.modules import DriverFunction, resources
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers
from ptxlab.isa.gpus import sms_of
from ptxlab.isa.occupancy import occupancy, shared_of_each
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import CTA_THREADS


def resident_ctas(gpu: EmulatedGpu, function: DriverFunction, threads: int, shared: int) -> int:
    """Return how many CTAs of ``threads`` threads and ``shared`` bytes of dynamic shared memory fit."""
    used = resources(function)
    resident = occupancy(
        gpu.target,
        threads,
        registers=used.registers,
        shared=used.shared + shared,
        barriers=used.barriers,
    )
    return resident.ctas


@answers("cuOccupancyMaxActiveBlocksPerMultiprocessor", "out:i32 function i32 u64")
@answers("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "out:i32 function i32 u64 -u32")
def active_blocks(gpu: EmulatedGpu, function: DriverFunction, threads: int, shared: int) -> int:
    if not 0 < threads <= CTA_THREADS:
        raise Refused(DriverResult.INVALID_VALUE)
    return resident_ctas(gpu, function, threads, shared)


@answers("cuOccupancyMaxPotentialBlockSize", "out:i32 out:i32 function u64 u64 i32")
@answers("cuOccupancyMaxPotentialBlockSizeWithFlags", "out:i32 out:i32 function u64 u64 i32 -u32")
def potential_block(
    gpu: EmulatedGpu, function: DriverFunction, sizing: int, shared: int, most: int
) -> tuple[int, int]:
    """Return the grid that fills the GPU, and the largest CTA of those that fill most of an SM."""
    sms = sms_of(gpu.target)
    if sms is None:
        raise Refused(DriverResult.NOT_SUPPORTED, f"no GPU is known that is {gpu.target.name}")
    dynamic = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(sizing) if sizing else None
    best = (0, 0, 0)
    for threads in range(WARP, min(most or CTA_THREADS, CTA_THREADS) + 1, WARP):
        ctas = resident_ctas(gpu, function, threads, dynamic(threads) if dynamic else shared)
        best = max(best, (ctas * threads, threads, ctas))
    _, threads, ctas = best
    return ctas * sms, threads


@answers("cuOccupancyAvailableDynamicSMemPerBlock", "out:u64 function i32 i32")
def available_shared(gpu: EmulatedGpu, function: DriverFunction, ctas: int, threads: int) -> int:
    """Return the most bytes of dynamic shared memory with which so many CTAs are in an SM at once."""
    if (
        ctas <= 0
        or not 0 < threads <= CTA_THREADS
        or resident_ctas(gpu, function, threads, 0) < ctas
    ):
        raise Refused(DriverResult.INVALID_VALUE)
    static = resources(function).shared
    return min(shared_of_each(gpu.target, ctas), gpu.target.shared_bytes) - static
