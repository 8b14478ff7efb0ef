"""Memory: of the emulated GPU, and of this process where kernels may use it in place.

Source: CUDA Driver API, "Memory Management", "Unified Addressing" and "Stream Ordered Memory Allocator".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.clients.driver.blocks import Block, Kind
from ptxlab.clients.driver.devices import machine_memory, require_device
from ptxlab.clients.driver.gpu import Gpu
from ptxlab.clients.driver.results import Refused, Result
from ptxlab.clients.driver.table import answers, fetch, store
from ptxlab.errors import PtxlabError

_PAGE = 4096


def block_of(gpu: Gpu, address: int) -> Block | None:
    found = gpu.session.device.memory.find(address)
    return gpu.blocks.at(found.begin) if found and address < found.end else None


@answers("cuMemAlloc_v2", "out:u64 u64")
def allocate(gpu: Gpu, nbytes: int) -> int:
    return gpu.blocks.add(Block(Kind.DEVICE, _allocated(gpu, nbytes), nbytes))


@answers("cuMemAllocAsync", "out:u64 u64 u64")
def allocate_in_stream(gpu: Gpu, nbytes: int, stream: int) -> int:
    return allocate(gpu, nbytes)


@answers("cuMemAllocFromPoolAsync", "out:u64 u64 u64 u64")
def allocate_from_pool(gpu: Gpu, nbytes: int, pool: int, stream: int) -> int:
    kind = gpu.held(pool, Pool).kind
    return allocate(gpu, nbytes) if kind is Kind.DEVICE else host_memory(gpu, kind, nbytes)


@answers("cuMemAllocPitch_v2", "out:u64 out:u64 u64 u64 u32")
def allocate_pitched(gpu: Gpu, width: int, height: int, element: int) -> tuple[int, int]:
    pitch = -(-width // 512) * 512
    return allocate(gpu, pitch * height), pitch


def _allocated(gpu: Gpu, nbytes: int) -> int:
    if not nbytes:
        raise Refused(Result.INVALID_VALUE)
    try:
        return gpu.session.device.allocate(nbytes, "memory of cuMemAlloc")
    except PtxlabError as error:
        raise Refused(Result.OUT_OF_MEMORY, str(error)) from None


@answers("cuMemFree_v2", "u64")
def free(gpu: Gpu, address: int) -> None:
    block = gpu.blocks.take(address, Kind.DEVICE, Kind.MANAGED, Kind.HOST) if address else None
    if address and block is None:
        raise Refused(Result.INVALID_VALUE)
    if block:
        gpu.session.device.free(address)


@answers("cuMemFreeAsync", "u64 u64")
def free_in_stream(gpu: Gpu, address: int, stream: int) -> None:
    free(gpu, address)


@answers("cuMemGetInfo_v2", "out:u64 out:u64")
def info(gpu: Gpu) -> tuple[int, int]:
    return machine_memory("SC_AVPHYS_PAGES"), machine_memory("SC_PHYS_PAGES")


@answers("cuMemGetAddressRange_v2", "out?:u64 out?:u64 u64")
def address_range(gpu: Gpu, address: int) -> tuple[int, int]:
    block = block_of(gpu, address)
    if block is None:
        raise Refused(Result.NOT_FOUND)
    return block.address, block.nbytes


# ---- memory of this process -----------------------------------------------------------------


def host_memory(gpu: Gpu, kind: Kind, nbytes: int, flags: int = 0) -> int:
    """Return the address of new memory that begins a page and that kernels use in place."""
    if not nbytes:
        raise Refused(Result.INVALID_VALUE)
    owner = np.zeros(nbytes + 2 * _PAGE, np.uint8)
    address = -(-owner.ctypes.data // _PAGE) * _PAGE
    gpu.session.device.map(address, nbytes)
    return gpu.blocks.add(Block(kind, address, nbytes, flags, owner))


@answers("cuMemHostAlloc", "out:u64 u64 u32")
def allocate_host(gpu: Gpu, nbytes: int, flags: int) -> int:
    return host_memory(gpu, Kind.HOST, nbytes, flags)


@answers("cuMemAllocHost_v2", "out:u64 u64")
def allocate_pinned(gpu: Gpu, nbytes: int) -> int:
    return host_memory(gpu, Kind.HOST, nbytes)


@answers("cuMemAllocManaged", "out:u64 u64 u32")
def allocate_managed(gpu: Gpu, nbytes: int, flags: int) -> int:
    return host_memory(gpu, Kind.MANAGED, nbytes, flags)


@answers("cuMemFreeHost", "u64")
def free_host(gpu: Gpu, address: int) -> None:
    if address and gpu.blocks.take(address, Kind.HOST) is None:
        raise Refused(Result.INVALID_VALUE)
    if address:
        gpu.session.device.unmap(address)


@answers("cuMemHostRegister_v2", "u64 u64 u32")
def register(gpu: Gpu, address: int, nbytes: int, flags: int) -> None:
    if not address or not nbytes:
        raise Refused(Result.INVALID_VALUE)
    try:
        gpu.session.device.map(address, nbytes)
    except PtxlabError as error:
        raise Refused(Result.HOST_MEMORY_ALREADY_REGISTERED, str(error)) from None
    gpu.blocks.add(Block(Kind.REGISTERED, address, nbytes, flags))


@answers("cuMemHostUnregister", "u64")
def unregister(gpu: Gpu, address: int) -> None:
    if gpu.blocks.take(address, Kind.REGISTERED) is None:
        raise Refused(Result.HOST_MEMORY_NOT_REGISTERED)
    gpu.session.device.unmap(address)


@answers("cuMemHostGetDevicePointer_v2", "out:u64 u64 u32")
def device_pointer(gpu: Gpu, address: int, flags: int) -> int:
    if block_of(gpu, address) is None:
        raise Refused(Result.INVALID_VALUE)
    return address


@answers("cuMemHostGetFlags", "out:u32 u64")
def host_flags(gpu: Gpu, address: int) -> int:
    block = block_of(gpu, address)
    if block is None or block.kind is Kind.DEVICE:
        raise Refused(Result.INVALID_VALUE)
    return block.flags


@answers("cuMemAdvise", "u64 u64 i32 i32", since=8000)
@answers("cuMemAdvise_v2", "u64 u64 i32 u64", since=12020)
@answers("cuMemPrefetchAsync", "u64 u64 i32 u64", since=8000)
@answers("cuMemPrefetchAsync_v2", "u64 u64 u64 u32 u64", since=12020)
def advise(gpu: Gpu, address: int, nbytes: int, *advice: int) -> None:
    """Nothing is moved: the memory of this process is where both sides are."""
    if block_of(gpu, address) is None:
        raise Refused(Result.INVALID_VALUE)


# ---- pools ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Pool:
    """A pool, which keeps nothing: what is freed is gone."""

    kind: Kind = Kind.DEVICE


_LOCATIONS = {1: Kind.DEVICE, 2: Kind.HOST, 3: Kind.HOST, 4: Kind.HOST}  # CUmemLocationType
_MANAGED = 2  # CU_MEM_ALLOCATION_TYPE_MANAGED


@answers("cuDeviceGetDefaultMemPool", "out:u64 i32", needs="init")
@answers("cuDeviceGetMemPool", "out:u64 i32", needs="init")
def pool_of_device(gpu: Gpu, device: int) -> int:
    require_device(device)
    if not gpu.pool:
        gpu.pool = gpu.handle(Pool())
    return gpu.pool


@answers("cuDeviceSetMemPool", "i32 u64", needs="init")
def set_pool_of_device(gpu: Gpu, device: int, pool: int) -> None:
    require_device(device)
    gpu.held(pool, Pool)
    gpu.pool = pool


@answers("cuMemPoolCreate", "out:u64 u64", needs="init")
def create_pool(gpu: Gpu, properties: int) -> int:
    kind, handles, location, _ = fetch(properties, "<iiii")
    if handles:
        raise Refused(Result.NOT_SUPPORTED, "memory of a pool cannot be given to other processes")
    return gpu.handle(Pool(Kind.MANAGED if kind == _MANAGED else _LOCATIONS[location]))


@answers("cuMemPoolDestroy", "u64", needs="init")
def destroy_pool(gpu: Gpu, pool: int) -> None:
    gpu.drop(pool, Pool)


@answers("cuMemPoolTrimTo", "u64 u64", needs="init")
@answers("cuMemPoolSetAttribute", "u64 i32 u64", needs="init")
@answers("cuMemPoolSetAccess", "u64 u64 u64", needs="init")
def tune_pool(gpu: Gpu, pool: int, *wanted: int) -> None:
    gpu.held(pool, Pool)


@answers("cuMemPoolGetAttribute", "u64 i32 u64", needs="init")
def pool_attribute(gpu: Gpu, pool: int, which: int, place: int) -> None:
    gpu.held(pool, Pool)
    wide = which >= 4  # the first three are ints: what may be reused
    store(place, bytes(8 if wide else 4))


# ---- what an address is ---------------------------------------------------------------------

_UNKNOWN, _DEVICE, _HOST = 0, 2, 1  # CUmemorytype


@answers("cuPointerGetAttribute", "u64 i32 u64")
def pointer_attribute(gpu: Gpu, place: int, which: int, address: int) -> None:
    block = block_of(gpu, address)
    if block is None:
        raise Refused(Result.INVALID_VALUE)
    store(place, _attribute(gpu, block, which, address))


@answers("cuPointerGetAttributes", "u32 u64 u64 u64")
def pointer_attributes(gpu: Gpu, count: int, which: int, places: int, address: int) -> None:
    block = block_of(gpu, address)
    for number, place in zip(fetch(which, f"<{count}i"), fetch(places, f"<{count}Q"), strict=True):
        # Of memory that the driver does not know every answer is 0, and none an error.
        store(
            place, _attribute(gpu, block or Block(Kind.HOST, 0, 0), number, address if block else 0)
        )


@answers("cuPointerSetAttribute", "u64 i32 u64")
def set_pointer_attribute(gpu: Gpu, place: int, which: int, address: int) -> None:
    if block_of(gpu, address) is None:
        raise Refused(Result.INVALID_VALUE)


def _attribute(gpu: Gpu, block: Block, which: int, address: int) -> bytes:
    """Return the bytes of CUpointer_attribute number ``which``."""
    known = block.nbytes > 0
    is_device = block.kind in (Kind.DEVICE, Kind.MANAGED)
    words = {
        1: gpu.primary.handle,
        3: address,
        4: 0 if block.kind is Kind.DEVICE else address,
        7: block.address,
        11: block.address,
        12: block.nbytes,
        14: 0,
        17: 0,
        18: block.nbytes,
        19: block.address,
        20: block.address,
    }
    numbers = {
        2: (_DEVICE if is_device else _HOST) if known else _UNKNOWN,
        6: 0,
        8: int(block.kind is Kind.MANAGED),
        9: 0 if known else -2,
        10: 0,
        13: int(known),
        15: 0,
        16: 3 if known else 0,
        21: 0,
    }
    if which in words:
        return words[which].to_bytes(8, "little")
    if which in numbers:
        size = 1 if which in (8, 10, 13, 15) else 4
        return numbers[which].to_bytes(size, "little", signed=size == 4)
    raise Refused(Result.NOT_SUPPORTED, f"the emulator has no pointer attribute {which}")
