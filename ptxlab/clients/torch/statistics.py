"""Statistics of the memory on "cuda", by the names of PyTorch's allocator for CUDA.

Source: torch.cuda.memory_stats. All memory is told in its pool "all": those of small and of large blocks
are the allocator's own, and there is none here.
"""

from __future__ import annotations

from typing import Any

from ptxlab.clients.torch.memory import Allocations

_POOLS = ("all", "small_pool", "large_pool")
_NUMBERS = ("current", "peak", "allocated", "freed")


def _stat(*numbers: int) -> dict[str, dict[str, int]]:
    told = dict(zip(_NUMBERS, numbers, strict=True))
    none = dict.fromkeys(_NUMBERS, 0)
    return {pool: dict(told if pool == "all" else none) for pool in _POOLS}


def memory_stats(memory: Allocations) -> dict[str, Any]:
    nbytes = (memory.current, memory.peak, memory.total, memory.total - memory.current)
    number = (
        memory.number,
        memory.peak_number,
        memory.total_number,
        memory.total_number - memory.number,
    )
    reserved = (
        memory.reserved,
        memory.peak_reserved,
        memory.peak_reserved,
        memory.peak_reserved - memory.reserved,
    )
    none = (0, 0, 0, 0)
    return {
        "num_alloc_retries": 0,
        "num_ooms": 0,
        "num_sync_all_streams": 0,
        "num_device_alloc": memory.total_number,
        "num_device_free": memory.total_number - memory.number,
        "max_split_size": -1,
        **{name: _stat(*number) for name in ("allocation", "active", "segment")},
        **{name: _stat(*nbytes) for name in ("allocated_bytes", "active_bytes", "requested_bytes")},
        "reserved_bytes": _stat(*reserved),
        **{name: _stat(*none) for name in ("inactive_split", "inactive_split_bytes")},
        **{
            name: dict.fromkeys(_NUMBERS, 0)
            for name in ("oversize_allocations", "oversize_segments")
        },
    }
