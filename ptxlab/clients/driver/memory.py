"""Memory: of the emulated GPU, and of this process where kernels may use it in place.

Source: CUDA Driver API, "Memory Management", "Unified Addressing" and "Stream Ordered Memory Allocator".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.clients.captures import Stream
from ptxlab.clients.driver.devices import machine_memory
from ptxlab.clients.driver.gpu import EmulatedGpu, MemoryBlock, MemoryKind
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, handles, store
from ptxlab.errors import PtxlabError

_PAGE = 4096


def block_of(gpu: EmulatedGpu, address: int) -> MemoryBlock | None:
    """Return the memory that an address lies in, which may be a framework's own: PyTorch's on "cuda"."""
    allocation = gpu.session.device.memory.find(address)
    if allocation and address < allocation.end:
        return gpu.blocks.at(allocation.begin)
    lent = (span for span in gpu.lent() if 0 <= address - span.address < span.nbytes)
    return next((MemoryBlock(MemoryKind.DEVICE, *span[:2]) for span in lent), None)


@answers("cuMemAlloc_v2", "out:u64 u64", waits=True)
def allocate(gpu: EmulatedGpu, nbytes: int) -> int:
    return gpu.blocks.add(MemoryBlock(MemoryKind.DEVICE, _allocated(gpu, nbytes), nbytes))


@answers("cuMemAllocAsync", "out:u64 u64 stream")
def allocate_in_order(gpu: EmulatedGpu, nbytes: int, stream: Stream) -> int:
    """Allocate at once. Raises Refused while the stream is captured, whose graph would do it anew at each launch."""
    if stream.capture:
        stream.capture.invalid = True
        raise Refused(DriverResult.NOT_SUPPORTED, "a graph that allocates memory is not there")
    return allocate(gpu, nbytes)


@answers("cuMemAllocFromPoolAsync", "out:u64 u64 pool stream")
def allocate_from_pool(gpu: EmulatedGpu, nbytes: int, pool: MemoryPool, stream: Stream) -> int:
    kind = pool.kind
    if kind is MemoryKind.DEVICE:
        return allocate_in_order(gpu, nbytes, stream)
    return host_memory(gpu, kind, nbytes)


@answers("cuMemAllocPitch_v2", "out:u64 out:u64 u64 u64 -u32", waits=True)
def allocate_pitched(gpu: EmulatedGpu, width: int, height: int) -> tuple[int, int]:
    pitch = -(-width // 512) * 512
    return allocate(gpu, pitch * height), pitch


def _allocated(gpu: EmulatedGpu, nbytes: int) -> int:
    if not nbytes:
        raise Refused(DriverResult.INVALID_VALUE)
    try:
        return gpu.session.device.allocate(nbytes, "memory of cuMemAlloc")
    except PtxlabError as error:
        raise Refused(DriverResult.OUT_OF_MEMORY, str(error)) from None


@answers("cuMemFree_v2", "u64", waits=True)
@answers("cuMemFreeAsync", "u64 queue:mem_free")
def free(gpu: EmulatedGpu, address: int) -> None:
    block = (
        gpu.blocks.take(address, MemoryKind.DEVICE, MemoryKind.MANAGED, MemoryKind.HOST)
        if address
        else None
    )
    if address and block is None:
        raise Refused(DriverResult.INVALID_VALUE)
    if block:
        gpu.session.device.free(address)


@answers("cuMemGetInfo_v2", "out:u64 out:u64")
def info(gpu: EmulatedGpu) -> tuple[int, int]:
    return machine_memory("SC_AVPHYS_PAGES"), machine_memory("SC_PHYS_PAGES")


@answers("cuMemGetAddressRange_v2", "out?:u64 out?:u64 u64")
def address_range(gpu: EmulatedGpu, address: int) -> tuple[int, int]:
    block = block_of(gpu, address)
    if block is None:
        raise Refused(DriverResult.NOT_FOUND)
    return block.address, block.nbytes


# ---- memory of this process -----------------------------------------------------------------


def host_memory(gpu: EmulatedGpu, kind: MemoryKind, nbytes: int, flags: int = 0) -> int:
    """Return the address of new memory that begins a page and that kernels use in place."""
    if not nbytes:
        raise Refused(DriverResult.INVALID_VALUE)
    owner = np.zeros(nbytes + 2 * _PAGE, np.uint8)
    address = -(-owner.ctypes.data // _PAGE) * _PAGE
    gpu.session.device.map(address, nbytes)
    return gpu.blocks.add(MemoryBlock(kind, address, nbytes, flags, owner))


@answers("cuMemHostAlloc", "out:u64 u64 u32")
@answers("cuMemAllocHost_v2", "out:u64 u64")
def allocate_host(gpu: EmulatedGpu, nbytes: int, flags: int = 0) -> int:
    return host_memory(gpu, MemoryKind.HOST, nbytes, flags)


@answers("cuMemAllocManaged", "out:u64 u64 u32")
def allocate_managed(gpu: EmulatedGpu, nbytes: int, flags: int) -> int:
    return host_memory(gpu, MemoryKind.MANAGED, nbytes, flags)


@answers("cuMemFreeHost", "u64")
def free_host(gpu: EmulatedGpu, address: int) -> None:
    if address and gpu.blocks.take(address, MemoryKind.HOST) is None:
        raise Refused(DriverResult.INVALID_VALUE)
    if address:
        gpu.session.device.unmap(address)


@answers("cuMemHostRegister_v2", "u64 u64 u32")
def register(gpu: EmulatedGpu, address: int, nbytes: int, flags: int) -> None:
    if not address or not nbytes:
        raise Refused(DriverResult.INVALID_VALUE)
    try:
        gpu.session.device.map(address, nbytes)
    except PtxlabError as error:
        raise Refused(DriverResult.HOST_MEMORY_ALREADY_REGISTERED, str(error)) from None
    gpu.blocks.add(MemoryBlock(MemoryKind.REGISTERED, address, nbytes, flags))


@answers("cuMemHostUnregister", "u64")
def unregister(gpu: EmulatedGpu, address: int) -> None:
    if gpu.blocks.take(address, MemoryKind.REGISTERED) is None:
        raise Refused(DriverResult.HOST_MEMORY_NOT_REGISTERED)
    gpu.session.device.unmap(address)


@answers("cuMemHostGetDevicePointer_v2", "out:u64 u64 -u32")
def device_pointer(gpu: EmulatedGpu, address: int) -> int:
    if block_of(gpu, address) is None:
        raise Refused(DriverResult.INVALID_VALUE)
    return address


@answers("cuMemHostGetFlags", "out:u32 u64")
def host_flags(gpu: EmulatedGpu, address: int) -> int:
    block = block_of(gpu, address)
    if block is None or block.kind is MemoryKind.DEVICE:
        raise Refused(DriverResult.INVALID_VALUE)
    return block.flags


@answers("cuMemAdvise", "u64 -u64 -i32 -i32", since=8000)
@answers("cuMemAdvise_v2", "u64 -u64 -i32 -u64", since=12020)
@answers("cuMemPrefetchAsync", "u64 -u64 -i32 -u64", since=8000)
@answers("cuMemPrefetchAsync_v2", "u64 -u64 -u64 -u32 -u64", since=12020)
def advise(gpu: EmulatedGpu, address: int) -> None:
    """Nothing is moved: the memory of this process is where both sides are."""
    if block_of(gpu, address) is None:
        raise Refused(DriverResult.INVALID_VALUE)


# ---- pools ----------------------------------------------------------------------------------


@handles("pool")
@dataclass(slots=True, eq=False)
class MemoryPool:
    """A pool, which keeps nothing: what is freed is gone."""

    kind: MemoryKind = MemoryKind.DEVICE


_LOCATIONS = {
    1: MemoryKind.DEVICE,
    2: MemoryKind.HOST,
    3: MemoryKind.HOST,
    4: MemoryKind.HOST,
}  # CUmemLocationType
_MANAGED = 2  # CU_MEM_ALLOCATION_TYPE_MANAGED


@answers("cuDeviceGetDefaultMemPool", "out:u64 device", needs="init")
def default_pool(gpu: EmulatedGpu) -> int:
    if not gpu.default_pool:
        gpu.default_pool = gpu.handle(MemoryPool())
    return gpu.default_pool


@answers("cuDeviceGetMemPool", "out:u64 device", needs="init")
def pool_of_device(gpu: EmulatedGpu) -> int:
    return gpu.pool or default_pool(gpu)


@answers("cuDeviceSetMemPool", "device u64", needs="init")
def set_pool_of_device(gpu: EmulatedGpu, pool: int) -> None:
    gpu.held(pool, MemoryPool)
    gpu.pool = pool


@answers("cuMemPoolCreate", "out:u64 u64", needs="init")
def create_pool(gpu: EmulatedGpu, properties: int) -> int:
    kind, handles, location, _ = fetch(properties, "<iiii")
    if handles:
        raise Refused(
            DriverResult.NOT_SUPPORTED, "memory of a pool cannot be given to other processes"
        )
    of = MemoryKind.MANAGED if kind == _MANAGED else _LOCATIONS.get(location)
    if of is None:
        raise Refused(DriverResult.INVALID_VALUE)
    return gpu.handle(MemoryPool(of))


@answers("cuMemPoolDestroy", "u64", needs="init")
def destroy_pool(gpu: EmulatedGpu, pool: int) -> None:
    if pool == gpu.default_pool:
        raise Refused(DriverResult.INVALID_VALUE)
    gpu.drop(pool, MemoryPool)
    if pool == gpu.pool:
        gpu.pool = 0


@answers("cuMemPoolTrimTo", "pool -u64", needs="init")
@answers("cuMemPoolSetAttribute", "pool -i32 -u64", needs="init")
@answers("cuMemPoolSetAccess", "pool -u64 -u64", needs="init")
def tune_pool(gpu: EmulatedGpu, pool: MemoryPool) -> None:
    """It keeps nothing, whatever is wanted."""


@answers("cuMemPoolGetAttribute", "pool i32 u64", needs="init")
def pool_attribute(gpu: EmulatedGpu, pool: MemoryPool, which: int, at: int) -> None:
    wide = which >= 4  # the first three are ints: what may be reused
    store(at, bytes(8 if wide else 4))


# ---- what an address is ---------------------------------------------------------------------

_UNKNOWN, _DEVICE, _HOST = 0, 2, 1  # CUmemorytype


@answers("cuPointerGetAttribute", "u64 i32 u64")
def pointer_attribute(gpu: EmulatedGpu, at: int, which: int, address: int) -> None:
    block = block_of(gpu, address)
    if block is None:
        raise Refused(DriverResult.INVALID_VALUE)
    store(at, _attribute(gpu, block, which, address))


@answers("cuPointerGetAttributes", "u32 u64 u64 u64")
def pointer_attributes(gpu: EmulatedGpu, count: int, which: int, places: int, address: int) -> None:
    block = block_of(gpu, address)
    for number, at in zip(fetch(which, f"<{count}i"), fetch(places, f"<{count}Q"), strict=True):
        # Of memory that the driver does not know every answer is 0, and none an error.
        store(
            at,
            _attribute(
                gpu, block or MemoryBlock(MemoryKind.HOST, 0, 0), number, address if block else 0
            ),
        )


@answers("cuPointerSetAttribute", "-u64 -i32 u64")
def set_pointer_attribute(gpu: EmulatedGpu, address: int) -> None:
    if block_of(gpu, address) is None:
        raise Refused(DriverResult.INVALID_VALUE)


def _attribute(gpu: EmulatedGpu, block: MemoryBlock, which: int, address: int) -> bytes:
    """Return the bytes of CUpointer_attribute number ``which``."""
    known = block.nbytes > 0
    is_device = block.kind in (MemoryKind.DEVICE, MemoryKind.MANAGED)
    words = {
        1: gpu.primary.handle,
        3: address,
        4: 0 if block.kind is MemoryKind.DEVICE else address,
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
        8: int(block.kind is MemoryKind.MANAGED),
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
    raise Refused(DriverResult.NOT_SUPPORTED, f"the emulator has no pointer attribute {which}")
