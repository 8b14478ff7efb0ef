"""Integer and bit products against Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.numbers.tensor_core_integer import multiply_add_bits, multiply_add_integer
from tests.together import in_one_test

PAIRS = [("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")]
PAIRS += [("s4", "s4"), ("s4", "u4"), ("u4", "s4"), ("u4", "u4")]


def integer(word: int, dtype: str) -> int:
    bits = int(dtype[1:])
    word &= (1 << bits) - 1
    return word - (1 << bits) if dtype[0] == "s" and word >> (bits - 1) else word


def wrap(total: int) -> int:
    return total & 0xFFFFFFFF


def clamp(total: int) -> int:
    return max(-(1 << 31), min(total, (1 << 31) - 1)) & 0xFFFFFFFF


def operands(k: int, warps: int = 40) -> tuple[Array, Array, Array]:
    """Draw any bytes, extreme ones among them, and C near the ends of s32 as often as anywhere."""
    rng = np.random.default_rng(k)
    a = rng.integers(0, 256, (3, k, warps), dtype=np.uint8)
    b = rng.integers(0, 256, (k, 2, warps), dtype=np.uint8)
    extremes = rng.choice(np.array([0x80, 0x7F, 0xFF, 0x88], np.uint8), 3)
    a[..., ::4], b[..., ::4] = extremes[0], extremes[1]
    c = rng.integers(0, 1 << 32, (3, 2, warps), dtype=np.uint32)
    near = rng.integers(-50, 50, c.shape) * 100 ** rng.integers(0, 3, c.shape)
    c = np.where(rng.random(c.shape) < 0.6, (0x80000000 + near).astype(np.uint32), c)
    return a, b, c


@in_one_test(("a_type", "b_type"), PAIRS)
@in_one_test("k", [16, 32, 64, 128, 300])
def test_products_are_exact_and_the_sum_wraps_or_saturates(
    a_type: str, b_type: str, k: int
) -> None:
    a, b, c = operands(k)
    kept = a.copy(), b.copy(), c.copy()
    wrapped = multiply_add_integer(a, b, c, a_type=a_type, b_type=b_type)
    clamped = multiply_add_integer(a, b, c, a_type=a_type, b_type=b_type, satfinite=True)
    overflows = 0
    for i, j, warp in np.ndindex(c.shape):
        pairs = zip(a[i, :, warp].tolist(), b[:, j, warp].tolist(), strict=True)
        total = sum(integer(x, a_type) * integer(y, b_type) for x, y in pairs)
        total += integer(int(c[i, j, warp]), "s32")
        assert wrapped[i, j, warp] == wrap(total)
        assert clamped[i, j, warp] == clamp(total)
        overflows += wrap(total) != clamp(total)
    assert overflows > 0
    for before, after in zip(kept, (a, b, c), strict=True):
        np.testing.assert_array_equal(before, after)


def test_only_the_final_sum_saturates() -> None:
    """Products that overflow on the way and come back do not; a chain of saturating adds would."""
    a = np.full((1, 32, 1), 127, np.uint8)
    a[0, 16:] = 129
    b = np.full((32, 1, 1), 127, np.uint8)
    c = np.array([[[(1 << 31) - 1]]], np.uint32)
    d = multiply_add_integer(a, b, c, a_type="s8", b_type="s8", satfinite=True)
    assert d[0, 0, 0] == (1 << 31) - 1


@pytest.mark.parametrize("operation", ["and", "xor"])
@pytest.mark.parametrize("k", [128, 256])
def test_bits_are_counted(operation: str, k: int) -> None:
    a, b, c = operands(k, warps=12)
    d = multiply_add_bits(a, b, c, operation=operation)
    for i, j, warp in np.ndindex(c.shape):
        left = sum((int(x) & 1) << at for at, x in enumerate(a[i, :, warp]))
        right = sum((int(x) & 1) << at for at, x in enumerate(b[:, j, warp]))
        both = left & right if operation == "and" else left ^ right
        assert d[i, j, warp] == wrap(both.bit_count() + int(c[i, j, warp]))


def test_no_warps_and_no_k() -> None:
    a, b, c = operands(16, warps=0)
    assert multiply_add_integer(a, b, c, a_type="s8", b_type="u8").shape == (3, 2, 0)
    a, b, c = operands(16)
    d = multiply_add_integer(a[:, :0], b[:0], c, a_type="s8", b_type="u8", satfinite=True)
    np.testing.assert_array_equal(d, c)
