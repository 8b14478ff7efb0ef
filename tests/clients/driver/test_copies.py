"""Copies of boxes and fills of rows, against slices of NumPy's arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.clients.driver.calls import Driver

SIZE = ctypes.c_size_t
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4


def side(prefix: str, *, box: bool) -> list[tuple[str, Any]]:
    """Return the fields of one side of a copy, as cuda.h has them."""
    names = ["X", "Y", "Z", "LOD"] if box else ["X", "Y"]
    behind = ["Host", "Device", "Array", "Reserved", "Pitch", "Height"]
    if not box:
        behind = ["Host", "Device", "Array", "Pitch"]
    return [
        *((prefix + name, SIZE) for name in names),
        (prefix + "MemoryType", ctypes.c_uint),
        *((prefix + name, SIZE) for name in behind),
    ]


class Copy2D(ctypes.Structure):
    _fields_ = side("src", box=False) + side("dst", box=False) + [("Width", SIZE), ("Height", SIZE)]


class Copy3D(ctypes.Structure):
    _fields_ = side("src", box=True) + side("dst", box=True) + [
        (name, SIZE) for name in ("Width", "Height", "Depth")
    ]  # fmt: skip


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


PLANES, ROWS, PITCH = 4, 5, 16
BEFORE = np.arange(PLANES * ROWS * PITCH, dtype=np.uint16).astype(np.uint8)


@pytest.mark.parametrize("kind", [DEVICE, HOST, UNIFIED])
def test_a_box_is_copied_into_another(driver: Driver, kind: int) -> None:
    """3 bytes of 2 rows of 2 planes, in arrays whose rows and planes are of other sizes."""
    source = BEFORE.reshape(PLANES, ROWS, PITCH)
    target = np.full((3, 7, 24), 0xEE, np.uint8)
    given, taken = driver.upload(source.tobytes()), driver.upload(target.tobytes())
    host = BEFORE.ctypes.data
    box = Copy3D(
        srcX=5, srcY=1, srcZ=2, srcMemoryType=kind, srcHost=host, srcDevice=given, srcPitch=PITCH, srcHeight=ROWS,
        dstX=9, dstY=4, dstZ=1, dstMemoryType=DEVICE, dstDevice=taken, dstPitch=24, dstHeight=7,
        Width=3, Height=2, Depth=2,
    )  # fmt: skip
    driver("cuMemcpy3D_v2", ctypes.addressof(box))
    target[1:3, 4:6, 9:12] = source[2:4, 1:3, 5:8]
    assert driver.download(taken, target.nbytes) == target.tobytes()


@pytest.mark.parametrize("name", ["cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2"])
def test_rows_are_copied_to_the_host(driver: Driver, name: str) -> None:
    source, target = BEFORE.reshape(-1, PITCH), np.full((4, 10), 0xEE, np.uint8)
    given = driver.upload(source.tobytes())
    box = Copy2D(
        srcX=2, srcY=3, srcMemoryType=DEVICE, srcDevice=given, srcPitch=PITCH,
        dstX=1, dstY=1, dstMemoryType=HOST, dstHost=target.ctypes.data, dstPitch=10, Width=6, Height=3,
    )  # fmt: skip
    wanted = target.copy()
    wanted[1:4, 1:7] = source[3:6, 2:8]
    driver(name, ctypes.addressof(box), *([0] if "Async" in name else []))
    assert target.tolist() == wanted.tolist()


def test_what_no_copy_is_made_of(driver: Driver) -> None:
    given = driver.upload(bytes(64))
    for kinds in ((ARRAY, DEVICE), (DEVICE, ARRAY)):
        box = Copy2D(
            srcMemoryType=kinds[0], srcDevice=given, srcPitch=8, dstMemoryType=kinds[1],
            dstDevice=given, dstPitch=8, Width=4, Height=1,
        )  # fmt: skip
        assert driver.result("cuMemcpy2D_v2", ctypes.addressof(box)) == "NOT_SUPPORTED"
    assert driver.result("cuMemcpy", given, 0, 4) == "INVALID_VALUE"
    assert driver.result("cuMemcpy", 0, given, 4) == "INVALID_VALUE"
    assert driver.result("cuMemcpy", 0, 0, 0) == "SUCCESS"
    assert driver.result("cuMemcpy2D_v2", 0) == "INVALID_VALUE"


@pytest.mark.parametrize("to", [0, 7])
def test_a_copy_within_host_memory_reads_before_it_writes(driver: Driver, to: int) -> None:
    words, source = np.arange(64, dtype=np.uint8), 7 - to
    wanted = words.copy()
    wanted[to : to + 40] = np.arange(source, source + 40)
    driver("cuMemcpy", words.ctypes.data + to, words.ctypes.data + source, 40)
    assert words.tolist() == wanted.tolist()


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("end", ["_v2", "Async"])
def test_fills(driver: Driver, bits: int, end: str) -> None:
    """A row of it, and a matrix whose rows have a pitch: what lies between them stays."""
    dtype = np.dtype(f"u{bits // 8}")
    value = 0x12345678 & (1 << bits) - 1
    stream = [0] if end == "Async" else []
    words = np.arange(4 * 8, dtype=dtype).reshape(4, 8)
    address = driver.upload(words.tobytes())
    driver(f"cuMemsetD{bits}{end}", address + 8, value + 1 & (1 << bits) - 1, 2, *stream)
    words.reshape(-1)[8 // dtype.itemsize :][:2] = value + 1
    driver(
        f"cuMemsetD2D{bits}{end}", address + words[0].nbytes, words[0].nbytes, value, 3, 2, *stream
    )
    words[1:3, :3] = value
    assert driver.download(address, words.nbytes) == words.tobytes()
    odd = "SUCCESS" if bits == 8 else "INVALID_VALUE"
    assert driver.result(f"cuMemsetD{bits}{end}", address + 1, 0, 1, *stream) == odd
    assert driver.result(f"cuMemsetD{bits}{end}", address, 0, 1000, *stream) == "INVALID_VALUE"
