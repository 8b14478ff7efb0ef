"""Tensor maps by the driver's functions: numbers at addresses, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pytest

from ptxlab.tensormap.encoding import MAP_BYTES, decode
from ptxlab.tensormap.tensor_map import SWIZZLES, Im2col, TensorMap
from tests.clients.driver.calls import Driver

F32, PACKED = 7, 13
ADDRESS = 0x7F00_0000_1000


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver("sm_90a")


def numbers(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*values)


def tiled(
    driver: Driver, *, type_: int = F32, rank: int = 2, swizzle: int = 2
) -> tuple[str, bytes]:
    """Return what a call ends with, and the bytes of the map."""
    buffer = ctypes.create_string_buffer(MAP_BYTES)
    dims, strides = numbers(ctypes.c_uint64, (64, 32)), numbers(ctypes.c_uint64, (256,))
    box, steps = numbers(ctypes.c_uint32, (16, 8)), numbers(ctypes.c_uint32, (1, 2))
    given = [ctypes.addressof(field) for field in (dims, strides, box, steps)]
    interleave, promotion, fill = 0, 3, 1
    result = driver.result(
        "cuTensorMapEncodeTiled", ctypes.addressof(buffer), type_, rank, ADDRESS, *given,
        interleave, swizzle, promotion, fill,
    )  # fmt: skip
    return result, buffer.raw


def test_a_map_is_of_the_numbers_that_are_given(driver: Driver) -> None:
    result, data = tiled(driver)
    assert result == "SUCCESS"
    assert decode(data) == TensorMap(
        "f32", ADDRESS, (64, 32), (256,), (16, 8), (1, 2), "64B", fill="nan", l2_promotion=256
    )


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"type_": PACKED}, "NOT_SUPPORTED"),
        ({"type_": 99}, "INVALID_VALUE"),
        ({"swizzle": 4}, "NOT_SUPPORTED"),
        ({"swizzle": 6}, "NOT_SUPPORTED"),
        ({"swizzle": 7}, "INVALID_VALUE"),
        ({"swizzle": 1}, "INVALID_VALUE"),  # the box is wider
        ({"rank": 0}, "INVALID_VALUE"),
        ({"rank": 6}, "INVALID_VALUE"),
    ],
)
def test_what_no_map_is_made_of(driver: Driver, changes: dict[str, int], result: str) -> None:
    assert tiled(driver, **changes) == (result, bytes(MAP_BYTES))


@pytest.mark.parametrize("swizzle", [4, 5, 6])
def test_a_gpu_of_sm_100_has_swizzles_of_larger_units(swizzle: int) -> None:
    result, data = tiled(Driver("sm_100a"), swizzle=swizzle)
    assert (result, decode(data).swizzle) == ("SUCCESS", SWIZZLES[swizzle])


@pytest.mark.parametrize(
    ("target", "swizzle", "mode", "result"),
    [
        ("sm_100a", 3, 0, "SUCCESS"),
        ("sm_120a", 2, 1, "SUCCESS"),
        ("sm_100a", 1, 0, "INVALID_VALUE"),
        ("sm_100a", 5, 0, "INVALID_VALUE"),
        ("sm_100a", 3, 2, "INVALID_VALUE"),
        ("sm_90a", 3, 0, "NOT_SUPPORTED"),
    ],
)
def test_a_map_of_pixels_along_a_line(target: str, swizzle: int, mode: int, result: str) -> None:
    buffer = ctypes.create_string_buffer(MAP_BYTES)
    dims = numbers(ctypes.c_uint64, (64, 9, 7, 3))
    strides = numbers(ctypes.c_uint64, (256, 2304, 16128))
    steps = numbers(ctypes.c_uint32, (1, 2, 1, 1))
    tensor = (F32, 4, ADDRESS, ctypes.addressof(dims), ctypes.addressof(strides))
    window = (-1, 1, 16, 128, ctypes.addressof(steps))
    ended = Driver(target).result(
        "cuTensorMapEncodeIm2colWide", ctypes.addressof(buffer), *tensor, *window, 0, mode, swizzle, 0, 0
    )  # fmt: skip
    assert ended == result
    if result == "SUCCESS":
        what = Im2col((-1,), (1,), 16, 128, wide=True)
        assert decode(buffer.raw) == TensorMap(
            "f32", ADDRESS, (64, 9, 7, 3), (256, 2304, 16128), what, (1, 2, 1, 1), SWIZZLES[swizzle]
        )


def test_a_map_gets_another_address(driver: Driver) -> None:
    _, data = tiled(driver)
    buffer = ctypes.create_string_buffer(data, MAP_BYTES)
    at = ctypes.addressof(buffer)
    driver("cuTensorMapReplaceAddress", at, ADDRESS + 48)
    assert decode(buffer.raw).address == ADDRESS + 48
    for odd in (8, 1):
        assert driver.result("cuTensorMapReplaceAddress", at, ADDRESS + odd) == "INVALID_VALUE"
    assert decode(buffer.raw).address == ADDRESS + 48
    assert driver.result("cuTensorMapReplaceAddress", 0, ADDRESS) == "INVALID_VALUE"


def test_older_gpus_have_none() -> None:
    assert tiled(Driver("sm_80"))[0] == "NOT_SUPPORTED"
