"""What stands for an array while machine code is written: conversions against numpy, and what cannot be written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import some
from ptxlab.native import compiler
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.tracing.array import odd_single
from ptxlab.native.tracing.trace import trace
from ptxlab.native.value import VectorValue
from tests.emulator.native.test_forms import named, run_natively

HALVES = np.arange(1 << 16, dtype=np.uint16)
CASES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def singles() -> Any:
    """Return float32 numbers: any, and those around each number of 16 bits and each tie between two."""
    choose = np.random.default_rng(3)
    of_halves = HALVES.view(np.float16).astype(np.float32).view(np.uint32)
    near = [np.concatenate([of_halves, HALVES.astype(np.uint32) << 16]) + np.uint32(at)
            for at in (0, 1, -1 % (1 << 32), 0x1000, 0x0FFF, 0x1001, 0x8000, 0x7FFF, 0x8001)]  # fmt: skip
    return np.concatenate([*near, choose.integers(0, 1 << 32, 1 << 16, np.uint32)]).view(np.float32)


@pytest.mark.skipif(
    not compiler.has_halves(), reason="needs llvmlite, and instructions for float16"
)
@pytest.mark.parametrize("name", CASES)
def test_conversions_of_16_bits_are_numpys(name: str) -> None:
    dtype, x = CASES[name], singles()
    [words] = run_natively(named(f"cvt.rn.{name}.f32"), x)
    with np.errstate(all="ignore"):
        expected, actual = x.astype(dtype), words.view(dtype)
    number = x == x
    assert np.array_equal(actual[number].view("u2"), expected[number].view("u2"))
    assert np.all(actual[~number] != actual[~number])


@pytest.mark.skipif(
    not compiler.has_halves(), reason="needs llvmlite, and instructions for float16"
)
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_16_bits_become_singles(name: str) -> None:
    dtype = CASES[name]
    [result] = run_natively(named(f"cvt.f32.{name}"), HALVES.view(dtype))
    wide = HALVES.view(dtype).astype(np.float32)
    number = wide == wide
    assert np.array_equal(result[number].view("u4"), wide[number].view("u4"))
    assert not np.any(result[~number] == result[~number])


def test_rounding_to_odd_keeps_what_a_later_rounding_needs() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40, 0.1, -0.1])
    expected = x.astype(np.float16)  # numpy rounds once
    assert np.array_equal(odd_single(x).astype(np.float32).astype(np.float16), expected)
    assert x[0].astype(np.float32).astype(np.float16) != expected[0]  # twice is another number


def traced(compute: Any, *dtypes: str) -> Any:
    code, kinds = FunctionBuilder(), {"f4": "float", "u4": "i32"}
    values = [VectorValue(code, kinds[d], LANES, f"%x{i}") for i, d in enumerate(dtypes)]
    return trace(compute, [np.dtype(d) for d in dtypes], code, *values)


def test_what_depends_on_what_is_in_an_array_is_no_machine_code() -> None:
    assert traced(lambda a: a + 1, "u4") is not None
    assert traced(lambda a: a if a.any() else -a, "u4") is None
    assert traced(lambda a: a if a[0] else -a, "u4") is None
    assert traced(lambda a: -a if some(a == 0) else a, "u4") is not None  # the long way


def test_what_numpy_does_not_promise_to_the_bit_is_no_machine_code() -> None:
    assert traced(np.sqrt, "f4") is not None
    assert traced(np.exp2, "f4") is None
    assert traced(np.sin, "f4") is None
