"""Modules, what is known of their kernels, and how many CTAs of them an SM holds."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from tests.clients.driver.calls import Driver

TEXT = """.version 8.3
.target sm_80
.address_size 64
.visible .entry first(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[24]) { ret; }
.visible .entry k() .maxntid 32, 4 { .shared .b8 s[8192]; .reg .b32 r; mov.u32 r, s; st.shared.u32 [r], r; ret; }
.visible .entry last() .reqntid 96 { ret; }
"""
THREADS, VERSION, CODE, MOST_DYNAMIC = 0, 5, 6, 8


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


def loaded(driver: Driver) -> int:
    held = ctypes.c_char_p(TEXT.encode())
    return int(driver("cuModuleLoadData", ctypes.cast(held, ctypes.c_void_p).value))


def test_attributes_of_kernels(driver: Driver) -> None:
    module = loaded(driver)
    first, k, last = (driver("cuModuleGetFunction", module, n) for n in (b"first", b"k", b"last"))
    threads = [driver("cuFuncGetAttribute", THREADS, kernel) for kernel in (first, k, last)]
    assert threads == [1024, 128, 96]
    assert driver("cuFuncGetAttribute", VERSION, k) == 80  # of .target, as CUB wants it
    assert driver("cuFuncGetAttribute", CODE, k) == 80
    assert driver.result("cuFuncGetAttribute", 1000, k) == "INVALID_VALUE"
    assert driver("cuFuncGetAttribute", MOST_DYNAMIC, k) == 48 * 1024
    most = 163 * 1024  # CUDA C++ Programming Guide, "Technical Specifications": 8.0
    assert driver.result("cuFuncSetAttribute", k, MOST_DYNAMIC, most + 1) == "INVALID_VALUE"
    driver("cuFuncSetAttribute", k, MOST_DYNAMIC, most)
    assert driver("cuFuncGetAttribute", MOST_DYNAMIC, k) == most
    assert driver.result("cuFuncSetAttribute", k, VERSION, 1) == "INVALID_VALUE"


def test_parameters(driver: Driver) -> None:
    kernel = driver("cuModuleGetFunction", loaded(driver), b"first")
    parameters = [driver("cuFuncGetParamInfo", kernel, index) for index in range(3)]
    assert parameters == [(0, 1), (8, 8), (16, 24)]
    for index in (3, 4):
        assert driver.result("cuFuncGetParamInfo", kernel, index) == "INVALID_VALUE"


def test_kernels_are_enumerated_and_end_with_their_module(driver: Driver) -> None:
    module = loaded(driver)
    assert driver("cuModuleGetFunctionCount", module) == 3
    handles = (ctypes.c_uint64 * 3)(7, 7, 7)
    driver("cuModuleEnumerateFunctions", ctypes.addressof(handles), 2, module)
    first, k, _ = handles
    assert list(handles) == [driver("cuModuleGetFunction", module, n) for n in (b"first", b"k")] + [
        7
    ]
    assert driver("cuFuncGetModule", k) == module
    assert ctypes.string_at(driver("cuFuncGetName", k)) == b"k"
    assert driver.result("cuModuleGetFunction", driver("cuStreamCreate", 0), b"k") == (
        "INVALID_HANDLE"
    )
    driver("cuModuleUnload", module)
    for kernel in (first, k):
        assert driver.result("cuFuncGetAttribute", THREADS, kernel) == "INVALID_HANDLE"


def test_files(driver: Driver, tmp_path: Path) -> None:
    """PTX in a file may end with a NUL, as the compilers' own does."""
    path = tmp_path / "k.ptx"
    path.write_bytes(TEXT.encode() + b"\0")
    module = driver("cuModuleLoad", str(path).encode())
    assert driver("cuModuleGetFunctionCount", module) == 3
    assert driver.result("cuModuleLoad", str(tmp_path).encode()) == "FILE_NOT_FOUND"
    path.write_bytes(b"\xff\xfe.version")
    assert driver.result("cuModuleLoad", str(path).encode()) == "INVALID_IMAGE"


# ---- occupancy: of sm_80 an SM has 64 warps, 32 CTAs, 164 KiB of shared memory, 1 KiB of them a CTA's own

SIZING = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
ACTIVE = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
POTENTIAL = "cuOccupancyMaxPotentialBlockSize"
SMS = 108


def test_how_many_ctas_an_sm_holds(driver: Driver) -> None:
    plain = driver("cuModuleGetFunction", loaded(driver), b"first")
    with_shared = driver("cuModuleGetFunction", loaded(driver), b"k")
    for threads, dynamic, own, expected in (
        (32, 0, 0, 32), (1024, 0, 0, 2), (128, 40 * 1024, 0, 4), (128, 32 * 1024, 8, 4),
        (128, 31 * 1024, 8, 4), (128, 0, 8, 16), (64, 0, 8, 18),
    ):  # fmt: skip
        limits = 164 // (dynamic // 1024 + own + 1), 64 * 32 // threads, 32
        assert min(limits) == expected
        assert driver(ACTIVE, with_shared if own else plain, threads, dynamic) == expected
    for threads in (0, -1, 1025):
        assert driver.result(ACTIVE, plain, threads, 0) == "INVALID_VALUE"


def test_how_much_shared_memory_is_left_for_each(driver: Driver) -> None:
    """As much as has so many CTAs in an SM: a word more has one less."""
    plain = driver("cuModuleGetFunction", loaded(driver), b"first")
    with_shared = driver("cuModuleGetFunction", loaded(driver), b"k")
    available = "cuOccupancyAvailableDynamicSMemPerBlock"
    assert [driver(available, plain, ctas, 32) for ctas in (1, 2, 4)] == [
        163 << 10,
        81 << 10,
        40 << 10,
    ]
    assert driver(available, with_shared, 4, 32) == 32 << 10
    for ctas in (1, 2, 3, 5, 7):
        most = driver(available, plain, ctas, 32)
        assert driver(ACTIVE, plain, 32, most) == ctas
        assert driver(ACTIVE, plain, 32, most + 4) == ctas - 1
    for ctas, threads in ((0, 32), (1, 0), (3, 1024)):
        assert driver.result(available, plain, ctas, threads) == "INVALID_VALUE"


@pytest.mark.parametrize(("arch", "sms"), [("sm_90a", 132), ("sm_103a", 148)])
def test_how_many_clusters_a_gpu_holds(arch: str, sms: int) -> None:
    """One of a row of GPUs, and one of which no more than its SMs is known."""
    driver = Driver(arch)
    kernel = driver.kernel(
        f".version 8.8\n.target {arch}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    )
    cluster = struct.pack("<i4x3I52x", 4, 4, 1, 1)
    attributes = ctypes.create_string_buffer(cluster, 72)
    for shared, ctas in ((0, 2), (200 << 10, 1)):
        config = struct.pack(
            "<7I4xQQI4x", 4, 1, 1, 1024, 1, 1, shared, 0, ctypes.addressof(attributes), 1
        )
        held = ctypes.create_string_buffer(config, len(config))
        assert (
            driver("cuOccupancyMaxActiveClusters", kernel, ctypes.addressof(held))
            == sms * ctas // 4
        )


def test_the_cta_that_fills_a_gpu(driver: Driver) -> None:
    kernel = driver("cuModuleGetFunction", loaded(driver), b"first")
    assert driver(POTENTIAL, kernel, 0, 0, 0) == (2 * SMS, 1024)
    assert driver(POTENTIAL, kernel, 0, 0, 256) == (8 * SMS, 256)
    assert driver(POTENTIAL, kernel, 0, 0, 300) == (8 * SMS, 256)  # seven of 288 are fewer threads
    assert driver(POTENTIAL, kernel, 0, 100 * 1024, 256) == (SMS, 256)
    asked: list[int] = []

    def sizing(threads: int) -> int:
        """Return so much that one CTA of more than 128 threads fits, and many of fewer."""
        asked.append(threads)
        return 100 * 1024 if threads > 128 else 0

    held = SIZING(sizing)
    address = ctypes.cast(held, ctypes.c_void_p).value
    assert driver(POTENTIAL, kernel, address, 0, 512) == (16 * SMS, 128)
    assert asked == list(range(32, 513, 32))
