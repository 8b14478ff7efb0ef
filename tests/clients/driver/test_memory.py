"""Memory that a program asks the driver for: which kind, where it begins, and what is known of an address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.clients.borrowed import Borrowed
from tests.clients.driver.calls import Driver

ALLOCATE: dict[str, Callable[[Driver], int]] = {
    "device": lambda driver: int(driver("cuMemAlloc_v2", 100)),
    "host": lambda driver: int(driver("cuMemHostAlloc", 100, 2)),
    "managed": lambda driver: int(driver("cuMemAllocManaged", 100, 1)),
    "registered": lambda driver: registered(driver),
}
MEMORY = np.zeros(4096, np.uint8)


def registered(driver: Driver) -> int:
    driver("cuMemHostRegister_v2", MEMORY.ctypes.data, 100, 3)
    return int(MEMORY.ctypes.data)


@pytest.mark.parametrize(
    ("kind", "frees"),
    {
        "device": "cuMemFree_v2",
        "host": "cuMemFree_v2 cuMemFreeHost",
        "managed": "cuMemFree_v2",
        "registered": "cuMemHostUnregister",
    }.items(),
)
def test_memory_is_freed_by_the_function_for_it(kind: str, frees: str) -> None:
    errors = {
        "cuMemFree_v2": "INVALID_VALUE",
        "cuMemFreeHost": "INVALID_VALUE",
        "cuMemHostUnregister": "HOST_MEMORY_NOT_REGISTERED",
    }
    for right in frees.split():
        driver = Driver()
        address = ALLOCATE[kind](driver)
        for wrong in errors.keys() - set(frees.split()):
            assert driver.result(wrong, address) == errors[wrong]
        assert driver.result(right, address + 1) == errors[right]
        assert driver("cuMemGetAddressRange_v2", address) == (address, 100)
        driver(right, address)
        assert driver.result("cuMemGetAddressRange_v2", address) == "NOT_FOUND"
        assert driver.result(right, address) == errors[right]
    assert driver.result("cuMemFree_v2", 0) == driver.result("cuMemFreeHost", 0) == "SUCCESS"


def test_memory_that_is_registered_is_so_once_and_can_be_again() -> None:
    driver = Driver()
    for _ in range(2):
        address = registered(driver)
        again = driver.result("cuMemHostRegister_v2", address + 50, 100, 0)
        assert again == "HOST_MEMORY_ALREADY_REGISTERED"
        driver("cuMemHostUnregister", address)
    assert driver.result("cuMemHostRegister_v2", 0, 4, 0) == "INVALID_VALUE"
    assert driver.result("cuMemHostRegister_v2", address, 0, 0) == "INVALID_VALUE"


def test_sizes() -> None:
    driver = Driver()
    for name in ("cuMemAlloc_v2", "cuMemHostAlloc", "cuMemAllocManaged"):
        more = () if name == "cuMemAlloc_v2" else (1,)
        assert driver.result(name, 0, *more) == "INVALID_VALUE"
    for width, wanted in ((1, 512), (512, 512), (513, 1024)):
        address, pitch = driver("cuMemAllocPitch_v2", width, 3)
        assert pitch == wanted
        assert driver("cuMemGetAddressRange_v2", address + 3 * pitch - 1) == (address, 3 * pitch)
        assert driver.result("cuMemGetAddressRange_v2", address + 3 * pitch) == "NOT_FOUND"
    for name in ("cuMemHostAlloc", "cuMemAllocManaged"):
        assert driver(name, 5, 0) % 4096 == 0
    assert driver.result("cuMemAlloc_v2", 1 << 60) == "OUT_OF_MEMORY"


MEMORY_TYPE, HOST_POINTER, DEVICE_POINTER, MANAGED, ORDINAL, MAPPED, BEGIN = 2, 4, 3, 8, 9, 13, 11


def attribute(driver: Driver, which: int, address: int) -> tuple[int, int]:
    """Return an attribute of an address, signed, and how many bytes of eight were written."""
    answers = []
    for before in (0, 255):
        answer = ctypes.create_string_buffer(bytes([before] * 8), 8)
        driver("cuPointerGetAttribute", ctypes.addressof(answer), which, address)
        answers.append(answer.raw)
    size = sum(a == b for a, b in zip(*answers, strict=True))
    return int.from_bytes(answers[0][:size], "little", signed=True), size


@pytest.mark.parametrize(
    ("kind", "type_", "managed"),
    [("device", 2, 0), ("host", 1, 0), ("managed", 2, 1), ("registered", 1, 0)],
)
def test_what_an_address_is(kind: str, type_: int, managed: int) -> None:
    driver = Driver()
    begin = ALLOCATE[kind](driver)
    address = begin + 60
    assert attribute(driver, MEMORY_TYPE, address) == (type_, 4)
    assert attribute(driver, MANAGED, address) == (managed, 1)
    assert attribute(driver, MAPPED, address) == (1, 1)
    assert attribute(driver, ORDINAL, address) == (0, 4)
    assert attribute(driver, DEVICE_POINTER, address) == (address, 8)
    assert attribute(driver, HOST_POINTER, address) == (address * (kind != "device"), 8)
    assert attribute(driver, BEGIN, address) == (begin, 8)
    flags = {"host": 2, "managed": 1, "registered": 3}
    if kind == "device":
        assert driver.result("cuMemHostGetFlags", address) == "INVALID_VALUE"
    else:
        assert driver("cuMemHostGetFlags", address) == flags[kind]
    assert driver("cuMemHostGetDevicePointer_v2", address) == address
    assert driver.result("cuPointerGetAttribute", 0, 99, address) == "NOT_SUPPORTED"
    assert driver.result("cuPointerGetAttribute", 0, MAPPED, begin + 100) == "INVALID_VALUE"


def test_memory_of_a_framework_is_the_gpu_s() -> None:
    """As Triton's own launcher asks of each tensor."""
    driver = Driver()
    begin = 1 << 40
    driver.gpu.lent = lambda: [Borrowed(begin, 64, "a tensor", None)]
    for address in (begin, begin + 63):
        assert attribute(driver, MEMORY_TYPE, address) == (2, 4)
        assert attribute(driver, DEVICE_POINTER, address) == (address, 8)
    for address in (begin - 1, begin + 64):
        assert driver.result("cuPointerGetAttribute", 0, MEMORY_TYPE, address) == "INVALID_VALUE"


def test_several_attributes_of_an_address_that_is_known_and_of_one_that_is_not() -> None:
    driver = Driver()
    which = (ctypes.c_int * 4)(MEMORY_TYPE, ORDINAL, MAPPED, BEGIN)
    for address, wanted in ((driver("cuMemAlloc_v2", 8), [2, 0, 1]), (0x1234, [0, -2, 0])):
        places = [ctypes.c_int64(0) for _ in which]
        pointers = (ctypes.c_uint64 * 4)(*map(ctypes.addressof, places))
        given = ctypes.addressof(which), ctypes.addressof(pointers)
        driver("cuPointerGetAttributes", 4, *given, address)
        values = [ctypes.c_int32(buffer.value).value for buffer in places[:3]]
        assert values == wanted
        assert places[3].value == (address if wanted[2] else 0)


ON_DEVICE, ON_HOST = 1, 2
PLAIN, MANAGED_MEMORY = 1, 2


def create_pool(driver: Driver, kind: int, location: int, handles: int = 0) -> int | str:
    """Return the handle of a pool, or why there is none."""
    held = (ctypes.c_int * 4)(kind, handles, location, 0)
    result = driver.result("cuMemPoolCreate", ctypes.addressof(held))
    return driver("cuMemPoolCreate", ctypes.addressof(held)) if result == "SUCCESS" else result


def test_pools_have_memory_of_their_kind() -> None:
    driver, kinds = Driver(), []
    for kind, location in ((PLAIN, ON_DEVICE), (PLAIN, ON_HOST), (MANAGED_MEMORY, ON_DEVICE)):
        pool = create_pool(driver, kind, location)
        address = driver("cuMemAllocFromPoolAsync", 64, pool, 0)
        kinds.append([attribute(driver, which, address)[0] for which in (MEMORY_TYPE, MANAGED)])
    assert kinds == [[2, 0], [1, 0], [2, 1]]
    assert create_pool(driver, PLAIN, ON_DEVICE, handles=1) == "NOT_SUPPORTED"
    assert create_pool(driver, PLAIN, 9) == "INVALID_VALUE"
    for which in range(1, 8):  # those that say what may be reused are ints, the rest have 64 bits
        buffer = ctypes.create_string_buffer(bytes([255] * 8), 8)
        driver("cuMemPoolGetAttribute", pool, which, ctypes.addressof(buffer))
        assert buffer.raw.count(0) == (4 if which <= 3 else 8)
    driver("cuMemPoolDestroy", pool)
    assert driver.result("cuMemPoolTrimTo", pool) == "INVALID_HANDLE"


def test_the_pool_of_the_device() -> None:
    """It is the default one, unless the program has chosen another that is still there."""
    driver = Driver()
    default, other = driver("cuDeviceGetDefaultMemPool"), create_pool(driver, PLAIN, ON_DEVICE)
    assert driver("cuDeviceGetMemPool") == default != other
    driver("cuDeviceSetMemPool", other)
    assert driver("cuDeviceGetMemPool") == other
    assert driver("cuDeviceGetDefaultMemPool") == default
    assert driver.result("cuDeviceSetMemPool", driver.primary) == "INVALID_HANDLE"
    assert driver.result("cuMemPoolDestroy", default) == "INVALID_VALUE"
    driver("cuMemPoolDestroy", other)
    assert driver("cuDeviceGetMemPool") == default
