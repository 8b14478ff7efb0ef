"""Decoding and rounding, against numpy, ml_dtypes and exact rational arithmetic."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.numbers.formats import BF16, F16, F32, SPECIAL_EXPONENT, TF32, ZERO_EXPONENT, Format
from ptxlab.numbers.fused_step import (
    round_result,
)

EVERY_16_BITS = np.arange(1 << 16, dtype=np.uint16)
RANDOM_32_BITS = np.random.default_rng(1).integers(0, 1 << 32, 20_000, dtype=np.uint32)
EDGES_32_BITS = np.array(
    [sign | (field << 23) | low for sign in (0, 1 << 31) for field in (0, 1, 2, 254, 255)
     for low in (0, 1, 0x1FFF, 0x2000, 0x400000, 0x7FFFFF)],
    np.uint32,
)  # fmt: skip
WORDS_32_BITS = np.concatenate([RANDOM_32_BITS, EDGES_32_BITS])

CASES: list[tuple[Format, Array, Any]] = [
    (F16, EVERY_16_BITS, np.float16),
    (BF16, EVERY_16_BITS, ml_dtypes.bfloat16),
    (F32, WORDS_32_BITS, np.float32),
]


def assert_decodes(form: Format, words: Array, expected: Array) -> None:
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        values, exponents = form.decode(words)
    np.testing.assert_array_equal(values, expected)
    assert not np.any(np.signbit(values) != np.signbit(expected), where=~np.isnan(expected))
    special = ~np.isfinite(expected)
    zero = expected == 0
    ordinary = ~special & ~zero
    lowest = 2 - (1 << (form.exponent_bits - 1))
    by_frexp = np.maximum(np.frexp(expected)[1] - 1, lowest)
    np.testing.assert_array_equal(exponents[ordinary], by_frexp[ordinary])
    assert np.all(exponents[special] == SPECIAL_EXPONENT)
    assert np.all(exponents[zero] == ZERO_EXPONENT)
    assert special.any()
    assert zero.any()


@pytest.mark.parametrize(
    ("form", "words", "dtype"), CASES, ids=lambda parameter: getattr(parameter, "name", "")
)
def test_decodes_like_numpy(form: Format, words: Array, dtype: Any) -> None:
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        assert_decodes(form, words, words.view(dtype).astype(np.float64))


def test_tf32_ignores_the_low_13_bits() -> None:
    with np.errstate(invalid="ignore"):
        expected = (WORDS_32_BITS & 0xFFFFE000).view(np.float32).astype(np.float64)
    assert_decodes(TF32, WORDS_32_BITS, expected)


@pytest.mark.parametrize("form", [F16, BF16, TF32, F32], ids=lambda form: form.name)
def test_without_special_words_nothing_is_masked(form: Format) -> None:
    """Arrays with no zero, or no special value, take other branches than those with one."""
    one_word, two = (form.bias << form.exponent_shift), (form.bias + 1) << form.exponent_shift
    for words in ([one_word, two], [one_word, 0], [0, 0], [1 << form.exponent_shift, two]):
        values, exponents = form.decode(np.array(words, form.word))
        named = {0: (0.0, ZERO_EXPONENT), one_word: (1.0, 0), two: (2.0, 1)}
        least = (2.0 ** (1 - form.bias), 1 - form.bias)
        assert [tuple(pair) for pair in zip(values, exponents, strict=True)] == [
            named.get(word, least) for word in words
        ]


def toward_zero_f32(value: Fraction) -> int:
    """Round by searching: the largest float32 magnitude not above ``value``, or infinity."""
    magnitude = abs(value)
    if magnitude >= 2**128:
        return 0x7F800000 | (0x80000000 if value < 0 else 0)
    low, high = 0, 0x7F800000
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(float(np.uint32(middle).view(np.float32))) <= magnitude:
            low = middle
        else:
            high = middle
    return low | (0x80000000 if value < 0 and low else 0)


def test_rounds_to_f32_toward_zero() -> None:
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.uniform(-2, 2, 600), rng.integers(-160, 130, 600))
    edges = [2.0**128, 2.0**128 - 2.0**103, 2.0**-126, 2.0**-149, 2.0**-150, 0.0, 1 + 2.0**-24]
    edges += [2.0**-126 - 2.0**-150, 2.0**-126 - 2.0**-160, 2.0**140, -0.0]
    values = np.concatenate([values, edges, np.negative(edges)])
    expected = [toward_zero_f32(Fraction(value)) for value in values.tolist()]
    with np.errstate(over="ignore"):
        words = round_result(values.copy(), F32)
    np.testing.assert_array_equal(words, np.array(expected, np.uint32))


F16_SIZES = [
    *(Fraction(value) for value in np.arange(0x7C00, dtype=np.uint16).view(np.float16).tolist()),
    Fraction(2**16),
]


def nearest_f16(value: Fraction) -> int:
    """Round by searching: the float16 magnitude nearest to ``value``, ties to the even word."""
    magnitude = min(abs(value), F16_SIZES[-1])
    above = bisect_left(F16_SIZES, magnitude)
    words = range(max(above - 1, 0), above + 1)
    best = min(words, key=lambda word: (abs(F16_SIZES[word] - magnitude), word & 1))
    return best | (0x8000 if value < 0 and best else 0)


def test_rounds_to_f16_nearest_even() -> None:
    edges = [65519.0, 65520.0, 1e6, 2.0**-25, 2.0**-25 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
    edges += [1 + 2.0**-11 + 2.0**-40, 2.0**-14 - 2.0**-25, 2.0**-24 * 1.5, 2.0**-30, 0.0]
    values = np.concatenate([edges, np.negative(edges)])
    expected = [nearest_f16(Fraction(value)) for value in values.tolist()]
    with np.errstate(over="ignore", under="ignore"):
        words = round_result(values.copy(), F16)
    np.testing.assert_array_equal(words, np.array(expected, np.uint16))


def test_special_values_are_canonical() -> None:
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0])
    f32 = [0x7FFFFFFF, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0]
    f16 = [0x7FFF, 0x7FFF, 0x7C00, 0xFC00, 0]
    with np.errstate(invalid="ignore"):
        assert round_result(values.copy(), F32).tolist() == f32
        assert round_result(values.copy(), F16).tolist() == f16
