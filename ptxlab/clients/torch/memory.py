"""The memory of tensors on "cuda", which is this process's own: one storage on the CPU for each on "cuda".

Both have the same address and end together: the storage on "cuda" holds the other. It begins a unit of the
allocator for CUDA, as programs may rely on, where PyTorch on the CPU begins at any multiple of 64.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch

from ptxlab.clients import captures
from ptxlab.errors import Unsupported

MEMORY = 1 << 34
"""Bytes of memory that the GPU says it has."""
_UNIT = 512
"""Bytes that PyTorch's allocator for CUDA counts at a time."""
_SEGMENT = 2 << 20
"""Bytes that it asks the driver for at a time, for what is small."""

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_DLPACK_CUDA = 2
_DEVICE_TYPE = 8
"""Where a DLTensor has the type of its device: dlpack.h."""
_POOLS = ("all", "small_pool", "large_pool")
_NUMBERS = ("current", "peak", "allocated", "freed")


class _Allocation(weakref.ref):  # type: ignore[type-arg]
    """The storage on the CPU behind one on "cuda", for as long as it is there."""

    __slots__ = ("address", "counted")
    address: int
    counted: int


class Allocations:
    """All memory on "cuda", by address, and how much there is and was."""

    def __init__(self) -> None:
        self._at: dict[int, _Allocation] = {}
        self._capsules = torch._C._to_dlpack, torch._C._from_dlpack
        self.forked = False
        self.number = 0
        self.current = self.peak = self.reserved = self.peak_reserved = self.peak_number = 0
        self.total = self.total_number = 0
        os.register_at_fork(after_in_child=self._left_behind)

    def _left_behind(self) -> None:
        self.forked = torch.cuda.is_initialized()

    def on_gpu(self, host: torch.Tensor) -> torch.Tensor:
        """Return the tensor on "cuda" whose memory is that of one which nothing else has."""
        if self.forked:
            torch.cuda._lazy_init()  # which raises what PyTorch says of a forked process
        if host.layout is not torch.strided or host.is_quantized:
            raise Unsupported('sparse and quantized tensors on "cuda" are not emulated')
        storage = host.untyped_storage()
        if host.storage_offset() or host.is_conj() or storage.data_ptr() in self._at:
            return self.on_gpu(host.resolve_conj().clone())
        nbytes = storage.nbytes()
        if nbytes:
            if (
                storage.data_ptr() % _UNIT and captures.active() is None
            ):  # else each replay writes here
                host = _aligned(host, nbytes)
                storage = host.untyped_storage()
            self._count(storage, nbytes)
        to_capsule, from_capsule = self._capsules
        capsule = to_capsule(host)
        address = _capsule_pointer(capsule, b"dltensor") + _DEVICE_TYPE
        ctypes.c_int32.from_address(address).value = _DLPACK_CUDA
        gpu: torch.Tensor = from_capsule(capsule)
        return gpu

    def on_host(self, gpu: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the CPU with the memory of one on "cuda": the same storage for the same."""
        empty = _empty(gpu.dtype)
        allocation = self._at.get(gpu.untyped_storage().data_ptr())
        storage = empty.untyped_storage() if allocation is None else allocation()
        host: torch.Tensor = empty.detach().set_(
            storage, gpu.storage_offset(), gpu.size(), gpu.stride()
        )
        if gpu.is_conj():
            host = host.conj()
        return host._neg_view() if gpu.is_neg() else host

    def live(self) -> Iterator[tuple[int, Any]]:
        """Yield the addresses of all memory, and the storages there."""
        for address, allocation in tuple(self._at.items()):
            storage = allocation()
            if storage is not None:
                yield address, storage

    def empty_cache(self) -> None:
        """Reserve no more than is allocated."""
        self.reserved = _rounded(self.current, _SEGMENT)

    def reset_peak(self) -> None:
        self.peak, self.peak_reserved, self.peak_number = self.current, self.reserved, self.number

    def require_room(self, nbytes: int) -> None:
        """Raise the error of a GPU that has not as much memory left."""
        if self.current + nbytes > MEMORY:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {_told(nbytes)}. GPU 0 has a total capacity of "
                f"{_told(MEMORY)} of which {_told(MEMORY - self.current)} is free."
            )

    def _count(self, storage: Any, nbytes: int) -> None:
        counted = _rounded(nbytes, _UNIT)
        self.require_room(counted)
        allocation = _Allocation(storage, self._freed)
        allocation.address, allocation.counted = storage.data_ptr(), counted
        self._at[allocation.address] = allocation
        self.number += 1
        self.total_number += 1
        self.total += counted
        self.current += counted
        self.peak = max(self.peak, self.current)
        self.peak_number = max(self.peak_number, self.number)
        if self.current > self.reserved:
            self.reserved = _rounded(self.current, _SEGMENT)
            self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _freed(self, allocation: _Allocation) -> None:
        self.number -= 1
        self.current -= allocation.counted
        if self._at.get(allocation.address) is allocation:
            del self._at[allocation.address]


def _aligned(host: torch.Tensor, nbytes: int) -> torch.Tensor:
    """Return the tensor with its storage copied to where a GPU might have it."""
    owner = np.empty(nbytes + _UNIT, np.uint8)
    address = owner.ctypes.data
    first = -address % _UNIT
    storage = torch.from_numpy(owner[first : first + nbytes]).untyped_storage()
    ctypes.memmove(address + first, host.untyped_storage().data_ptr(), nbytes)
    moved: torch.Tensor = _empty(host.dtype).detach().set_(storage, 0, host.size(), host.stride())
    return moved


@cache
def _empty(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu")


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _told(nbytes: int) -> str:
    """Return a size as PyTorch tells it: c10::CachingAllocator's format_size."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"


def _stat(*numbers: int) -> dict[str, dict[str, int]]:
    told = dict(zip(_NUMBERS, numbers, strict=True))
    none = dict.fromkeys(_NUMBERS, 0)
    return {pool: dict(told if pool == "all" else none) for pool in _POOLS}


def memory_stats(memory: Allocations) -> dict[str, Any]:
    """Return statistics by the names of PyTorch's allocator for CUDA. Source: torch.cuda.memory_stats.

    All memory is told in its pool "all": those of small and of large blocks are the allocator's own, and
    there is none here.
    """
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


allocations = Allocations()
