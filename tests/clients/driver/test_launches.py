"""Launches with attributes, and what a stream calls and tells."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tests.clients.driver.calls import Driver

# Stores n, how many CTAs its cluster has, and how many bytes of dynamic shared memory there are.
TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .b64 d; .reg .b32 r, c, s;
    ld.param.u64 d, [out]; ld.param.u32 r, [n];
    mov.u32 c, %cluster_nctaid.x; mov.u32 s, %dynamic_smem_size;
    st.global.u32 [d], r; st.global.u32 [d+4], c; st.global.u32 [d+8], s;
}
"""
COOPERATIVE, CLUSTER, PRIORITY = 2, 4, 8


class Arguments:
    """Arguments of the kernel, as a launch takes them."""

    def __init__(self, out: int, n: int) -> None:
        self.values = ctypes.c_uint64(out), ctypes.c_uint32(n)
        self.pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, self.values))
        self.address = ctypes.addressof(self.pointers)


class Launcher:
    """The kernel on a GPU of Hopper, and the three words that it stores."""

    def __init__(self) -> None:
        self.driver = Driver("sm_90a")
        self.kernel = self.driver.kernel(TEXT)
        self.out = self.driver.upload(bytes(12))

    def words(self) -> list[int]:
        """Return what was stored, and clear it."""
        unpacked = struct.unpack("<3I", self.driver.download(self.out, 12))
        self.driver("cuMemsetD8_v2", self.out, 0, 12)
        return list(unpacked)

    def extended(self, *attributes: bytes, n: int = 7, grid: int = 4, shared: int = 0) -> str:
        """Launch with attributes, each of 72 bytes; return what it ends with."""
        held = ctypes.create_string_buffer(
            b"".join(attribute.ljust(72, b"\0") for attribute in attributes), 300
        )
        sizes = grid, 1, 1, 32, 1, 1, shared
        config = struct.pack("<7I4xQQI4x", *sizes, 0, ctypes.addressof(held), len(attributes))
        packed = ctypes.create_string_buffer(config, len(config))
        given = Arguments(self.out, n)
        return self.driver.result(
            "cuLaunchKernelEx", ctypes.addressof(packed), self.kernel, given.address, 0
        )


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    return Launcher()


def test_attributes_of_a_launch(launcher: Launcher) -> None:
    cluster = struct.pack("<i4x3I", CLUSTER, 2, 1, 1)
    priority = struct.pack("<i4xi", PRIORITY, -1)
    assert launcher.extended(shared=160) == "SUCCESS"
    assert launcher.words() == [7, 1, 160]
    assert launcher.extended(cluster, n=8) == "SUCCESS"
    assert launcher.words() == [8, 2, 0]
    assert launcher.extended(priority, cluster, n=9) == "SUCCESS"
    assert launcher.words() == [9, 2, 0]
    assert launcher.extended(priority, struct.pack("<i", 99)) == "NOT_SUPPORTED"
    assert launcher.words() == [0, 0, 0]


def test_cooperative_launches_are_on_the_gpu_together(launcher: Launcher) -> None:
    too_large = "COOPERATIVE_LAUNCH_TOO_LARGE"
    most = 132 * 32  # SMs of an H100, each with as many CTAs as it can have at most
    wanted, unwanted = (struct.pack("<i4xi", COOPERATIVE, enabled) for enabled in (1, 0))
    assert launcher.extended(wanted) == "SUCCESS"
    assert launcher.extended(wanted, grid=most + 1) == too_large
    given = Arguments(launcher.out, 3)
    sizes = 1, 1, 32, 1, 1, 0
    for grid, result in ((most, "SUCCESS"), (most + 1, too_large)):
        answer = launcher.driver.result(
            "cuLaunchCooperativeKernel", launcher.kernel, grid, *sizes, 0, given.address
        )
        assert answer == result
    assert launcher.extended(unwanted) == "SUCCESS"


def test_shared_memory_that_was_not_asked_for(launcher: Launcher) -> None:
    most_dynamic, limit = 8, 48 * 1024
    assert launcher.extended(shared=limit) == "SUCCESS"
    assert launcher.words()[2] == limit
    assert launcher.extended(shared=limit + 4) == "INVALID_VALUE"
    launcher.driver("cuFuncSetAttribute", launcher.kernel, most_dynamic, limit + 4)
    assert launcher.extended(shared=limit + 4) == "SUCCESS"
    assert launcher.words()[2] == limit + 4


def test_a_block_of_parameters(launcher: Launcher) -> None:
    """It is at least as long as the kernel takes, and says how long it is."""
    block = struct.pack("<QI", launcher.out, 21)
    held = ctypes.create_string_buffer(block, 12)
    for size, result in ((12, "SUCCESS"), (16, "SUCCESS"), (11, "INVALID_VALUE")):
        nbytes = ctypes.c_uint64(size)
        pairs = 2, ctypes.addressof(nbytes), 1, ctypes.addressof(held), 0
        extra = (ctypes.c_uint64 * 5)(*pairs)
        launch = launcher.kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra)
        assert launcher.driver.result("cuLaunchKernel", *launch) == result
        assert launcher.words()[0] == 21 * (result == "SUCCESS")
    without = launcher.driver.result("cuLaunchKernel", launcher.kernel, *[1] * 6, 0, 0, 0, 0)
    assert without == "INVALID_VALUE"


def test_what_a_stream_calls() -> None:
    driver, heard = Driver(), []
    stream = driver("cuStreamCreate", 1)
    plain = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: heard.append(data))
    callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)(
        lambda *given: heard.append(given)
    )
    places = [ctypes.cast(function, ctypes.c_void_p).value for function in (plain, callback)]
    driver("cuLaunchHostFunc", stream, places[0], 0x1234)
    driver("cuStreamAddCallback", stream, places[1], 0x5678)
    assert heard == [0x1234, (stream, 0, 0x5678)]
    assert driver("cuStreamGetFlags", stream) == 1
    assert driver("cuStreamGetCtx_v2", stream) == (driver.primary, 0)
    driver("cuStreamDestroy_v2", stream)
    assert driver.result("cuStreamSynchronize", stream) == "INVALID_HANDLE"
    assert driver.result("cuStreamSynchronize", 2) == "SUCCESS"


def test_events() -> None:
    driver = Driver()
    first, last, untimed, never = (driver("cuEventCreate", flags) for flags in (0, 1, 2, 0))
    for seconds, event in ((0.5, first), (0.25, untimed), (1.25, last)):
        driver.gpu.seconds = seconds
        driver("cuEventRecord", event, 0)
    assert driver("cuEventElapsedTime", first, last) == 750
    assert driver("cuEventElapsedTime", last, first) == -750
    for other in (untimed, never):
        assert driver.result("cuEventElapsedTime", first, other) == "INVALID_HANDLE"
        assert driver.result("cuEventElapsedTime", other, first) == "INVALID_HANDLE"
    driver("cuEventDestroy_v2", last)
    assert driver.result("cuEventQuery", last) == "INVALID_HANDLE"


@pytest.mark.parametrize(
    ("name", "nbytes", "offsets"),
    [
        ("cudaGetDeviceProperties_v2", 1032, (388, 624, 696, 720, 772)),
        ("cudaGetDeviceProperties", 1008, (384, 604, 672, 696, 748)),
    ],
)
def test_the_properties_of_the_gpu(
    launcher: Launcher, name: str, nbytes: int, offsets: tuple[int, ...]
) -> None:
    """As driver_types.h of CUDA 12 and of CUDA 13 lay them out: sizeof, and offsetof of some members."""
    room = ctypes.create_string_buffer(b"x" * (nbytes + 8), nbytes + 8)
    launcher.driver(name, ctypes.addressof(room))
    assert room.raw[nbytes:] == b"x" * 8
    assert room.raw[:nbytes].endswith(bytes(100))
    values = [struct.unpack_from("<i", room.raw, at)[0] for at in offsets]
    # SMs, threads of each, the most shared memory of a CTA, what the system has of it, clusters.
    assert values == [132, 2048, 227 * 1024, 1024, 1]
