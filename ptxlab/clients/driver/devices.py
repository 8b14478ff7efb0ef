"""The library, and the one GPU that it shows.

Source: CUDA Driver API, "Initialization", "Version Management" and "Device Management".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from hashlib import sha256

from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import WORDS, DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, store
from ptxlab.isa.gpus import gpus_of, sms_of
from ptxlab.isa.occupancy import MULTIPROCESSORS, PARTITION_REGISTERS, PARTITIONS
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import BLOCK_LIMIT, CTA_THREADS, GRID_LIMIT

CUDA_RELEASE = 13050
"""The release of CUDA that cuDriverGetVersion says."""

PORTABLE_SHARED = 48 * 1024
"""The shared memory in bytes that a CTA has without being asked for more."""

_FP32_TO_FP64 = {75: 32, 80: 2, 86: 64, 87: 64, 89: 64, 90: 2, 100: 2, 120: 64}
"""How many times faster FP32 is: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions"."""

_ABSENT = frozenset(
    {15, 17, 18, 20, 32, 33, 34, 35, 36, 37, 38, 40, 44, 50, 84, 85, 88, 92, 93, 94, 96, 98, 100, 101, 102, 103,
     104, 105, 107, 108, 109, 110, 112, 113, 114, 116, 117, 118, 119, 121, 122, 123, 124, 125, 128,
     130, 132, 133, 135, 136, 137, 138, 141, 142, 143, 144, 145, 146, 152, 153, 154, 155, 156}
    | {*range(21, 31), *range(42, 50), *range(51, 75), 77}
)  # fmt: skip
"""Attributes of what is not there, textures and other processes' memory for example, and of numbers that are 0, as those of memory
(36 to 38: its clock, its width, L2) are in ``cudaGetDeviceProperties`` here."""


@answers("cuInit", "u32", needs="nothing")
def initialize(gpu: EmulatedGpu, flags: int) -> None:
    if flags:
        raise Refused(DriverResult.INVALID_VALUE)
    gpu.initialized = True


@answers("cuDriverGetVersion", "out:i32", needs="nothing")
def version(gpu: EmulatedGpu) -> int:
    return CUDA_RELEASE


_NAMES: Mapping[int, ctypes.c_char_p] = {
    result: ctypes.c_char_p(result.full_name.encode()) for result in DriverResult
}
_WORDS: Mapping[int, ctypes.c_char_p] = {
    result: ctypes.c_char_p(words.encode()) for result, words in WORDS.items()
}


@answers("cuGetErrorName", "u32 u64", needs="nothing")
def error_name(gpu: EmulatedGpu, code: int, at: int) -> None:
    _give_text(_NAMES, code, at)


@answers("cuGetErrorString", "u32 u64", needs="nothing")
def error_words(gpu: EmulatedGpu, code: int, at: int) -> None:
    _give_text(_WORDS, code, at)


def _give_text(texts: Mapping[int, ctypes.c_char_p], code: int, at: int) -> None:
    known = texts.get(code)
    address = ctypes.cast(known, ctypes.c_void_p).value if known else None
    store(at, (address or 0).to_bytes(8, "little"))
    if known is None:
        raise Refused(DriverResult.INVALID_VALUE)


_OF_RUNTIME = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
"""What a CUDA runtime asks for first. NVRTC and nvJitLink ask for another table, and do without."""


@answers("cuGetExportTable", "u64 u64", needs="nothing")
def export_table(gpu: EmulatedGpu, at: int, identity: int) -> None:
    store(at, bytes(8))
    raise Refused(
        DriverResult.NOT_SUPPORTED,
        "a CUDA runtime that is linked statically (Warp) asks the driver for tables that NVIDIA does not "
        "document, and is told that there are none: it cannot run on the emulator. A program of the host is "
        "linked with the shared runtime by nvcc -cudart shared; what calls the driver itself runs (cuda.core, "
        "Numba, tinygrad), and Triton by ptxlab.triton"
        if fetch(identity, "<16s")[0] == _OF_RUNTIME
        else "",
    )


@answers("cuDeviceGet", "out:i32 device", needs="init")
def device(gpu: EmulatedGpu) -> int:
    return 0


@answers("cuDeviceGetCount", "out:i32", needs="init")
def device_count(gpu: EmulatedGpu) -> int:
    return 1


@answers("cuDeviceGetName", "u64 i32 device", needs="init")
def device_name(gpu: EmulatedGpu, at: int, room: int) -> None:
    _put_text(gpu.session.device.name, at, room)


@answers("cuDeviceGetPCIBusId", "u64 i32 device", needs="init")
def bus_id(gpu: EmulatedGpu, at: int, room: int) -> None:
    _put_text("0000:00:00.0", at, room)


def _put_text(text: str, at: int, room: int) -> None:
    if not at or room < 1:
        raise Refused(DriverResult.INVALID_VALUE)
    store(at, text.encode()[: room - 1] + b"\0")


@answers("cuDeviceGetUuid", "u64 device", since=9020, needs="init")
@answers("cuDeviceGetUuid_v2", "u64 device", since=11040, needs="init")
def uuid(gpu: EmulatedGpu, at: int) -> None:
    store(at, identity(gpu))


def identity(gpu: EmulatedGpu) -> bytes:
    """Return the 16 bytes by which the GPU is known."""
    return sha256(gpu.session.device.name.encode()).digest()[:16]


@answers("cuDeviceTotalMem_v2", "out:u64 device", needs="init")
def total_memory(gpu: EmulatedGpu) -> int:
    return machine_memory("SC_PHYS_PAGES")


def machine_memory(pages: str) -> int:
    """Return the bytes of this machine's memory, in which that of the GPU is."""
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


@answers("cuDeviceComputeCapability", "out:i32 out:i32 device", needs="init")
def compute_capability(gpu: EmulatedGpu) -> tuple[int, int]:
    major, minor = divmod(gpu.target.capability, 10)
    return major, minor


@answers("cuDeviceCanAccessPeer", "out:i32 device device", needs="init")
def can_access_peer(gpu: EmulatedGpu) -> int:
    return 0


@answers("cuDeviceGetAttribute", "out:i32 i32 device", needs="init")
def attribute(gpu: EmulatedGpu, which: int) -> int:
    known = _attributes(gpu)
    if which in known:
        return known[which]
    if which in _ABSENT:
        return 0
    raise Refused(DriverResult.NOT_SUPPORTED, f"the emulator has no device attribute {which}")


def _attributes(gpu: EmulatedGpu) -> dict[int, int]:
    """Return what is known of the GPU, by the number of CUdevice_attribute."""
    target = gpu.target
    sm = MULTIPROCESSORS[target.capability]
    chips = gpus_of(target)
    major, minor = divmod(target.capability, 10)
    registers = PARTITIONS * PARTITION_REGISTERS
    hopper = int(target.capability >= 90)
    known = {
        1: CTA_THREADS, **dict(enumerate(BLOCK_LIMIT, 2)), **dict(enumerate(GRID_LIMIT, 5)),
        8: PORTABLE_SHARED, 9: 64 * 1024, 10: WARP, 11: 2**31 - 1, 12: registers, 14: 512,
        19: 1, 31: 1, 39: sm.warps * WARP, 41: 1, 75: major, 76: minor, 78: 1, 79: 1, 80: 1,
        81: sm.shared * 1024, 82: registers, 83: 1, 86: 1, 89: 1, 90: 1, 91: 1, 95: 1,
        97: target.shared_bytes, 99: 1, 106: sm.ctas, 111: sm.reserved, 115: 1, 120: hopper,
        16: sms_of(target) or 1, 126: 1, 127: hopper, 129: 1, 131: -1, 134: -1, 139: 0, 140: 0,
    }  # fmt: skip
    if target.capability in _FP32_TO_FP64:
        known[87] = _FP32_TO_FP64[target.capability]
    if chips:
        known[13] = chips[0].clock * 1000
    return known
