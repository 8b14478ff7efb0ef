"""Rounding and exact sums, against NumPy and ml_dtypes, and against neighbours in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.numbers.exact import (
    decode,
    dot,
    encode,
    in_order,
    nearest,
    rounded_once,
    ulps,
)
from ptxlab.numbers.formats import BF16, F16, F32, TF32, Format
from ptxlab.numbers.fused_step import OPERANDS

CASTS: dict[str, tuple[Format, Any]] = {
    "f16": (F16, np.float16),
    "bf16": (BF16, ml_dtypes.bfloat16),
    "f32": (F32, np.float32),
    "e5m2": (OPERANDS["e5m2"], ml_dtypes.float8_e5m2),
    "e4m3": (OPERANDS["e4m3"], ml_dtypes.float8_e4m3fn),
}
EVERY = {name: form for name, form in OPERANDS.items() if form.word_bits <= 16}


def bits_of_range(form: Format, count: int = 4000) -> Array:
    """Draw float64 numbers of any significand around and beyond the exponents of ``form``."""
    generator = np.random.default_rng(5)
    high = 2 ** (form.exponent_bits - 1)
    low = form.lowest_exponent - form.fraction_bits - 3
    exponents = generator.integers(low, high, count)
    numbers = np.ldexp(generator.uniform(1, 2, count), exponents)
    return np.where(generator.random(count) < 0.5, -numbers, numbers)


@pytest.mark.parametrize("name", CASTS)
def test_encode_rounds_as_numpy_and_ml_dtypes_do(name: str) -> None:
    form, dtype = CASTS[name]
    numbers = bits_of_range(form)
    if name == "e4m3":  # without infinity: what does not fit is refused
        numbers = numbers[np.abs(numbers) < 464]
    with np.errstate(all="ignore"):
        expected = numbers.astype(dtype).view(form.word)
    np.testing.assert_array_equal(encode(numbers, form), expected)


@pytest.mark.parametrize("name", EVERY)
def test_every_finite_word_is_its_own_nearest(name: str) -> None:
    form = EVERY[name]
    words = np.arange(1 << form.word_bits).astype(form.word)
    # What is narrower than its container ignores the other bits.
    words &= np.array(
        {"e3m2": 0x3F, "e2m3": 0x3F, "e2m1": 0x3C}.get(name, 0xFFFF), np.uint16
    ).astype(form.word)
    numbers = decode(words, form)
    finite = np.isfinite(numbers)
    assert finite.sum() > 10
    np.testing.assert_array_equal(encode(numbers[finite], form), words[finite])


@pytest.mark.parametrize("form", [F16, BF16, F32, TF32], ids=lambda form: form.name)
def test_an_exact_value_goes_to_the_nearer_neighbour_and_from_the_middle_to_the_even(
    form: Format,
) -> None:
    generator = np.random.default_rng(6)
    step = 1 << 13 if form is TF32 else 1
    tiny = Fraction(1, 1 << 400)
    largest = (0x7F7FFFFF if form.word_bits == 32 else 0x7BFF if form is F16 else 0x7F7F) // step
    for index in generator.integers(0, largest, 50).tolist():
        low, high = index * step, (index + 1) * step
        x, y = (Fraction(float(v)) for v in decode(np.array([low, high], form.word), form))
        middle = (x + y) / 2
        assert nearest(middle - tiny, form) == low
        assert nearest(middle + tiny, form) == high
        assert nearest(middle, form) == (low if index % 2 == 0 else high)
        sign = 1 << (form.word_bits - 1)
        assert nearest(-middle - tiny, form) == high | sign


def test_what_is_beyond_a_format() -> None:
    assert nearest(Fraction(65519), F16) == 0x7BFF
    assert nearest(Fraction(65520), F16) == 0x7C00
    assert nearest(-math.inf, F32) == 0xFF800000
    assert nearest(math.nan, F32) == 0x7FFFFFFF
    assert nearest(-0.0, F16) == 0x8000
    assert nearest(math.nan, OPERANDS["e4m3"]) == 0x7F
    assert nearest(Fraction(448), OPERANDS["e4m3"]) == 0x7E
    for number in (Fraction(1000), math.inf):
        with pytest.raises(PtxlabError, match="e4m3 has no number near"):
            nearest(number, OPERANDS["e4m3"])
    with pytest.raises(PtxlabError, match="e2m1 has no number near nan"):
        nearest(math.nan, OPERANDS["e2m1"])


def random_products(form: Format, k: int, count: int) -> tuple[Array, Array, Array]:
    """Draw a, b [k, count] of any finite bits of ``form`` with small exponents, and c in float32."""
    generator = np.random.default_rng(7)
    words = generator.integers(0, 1 << form.word_bits, (2, k, count)).astype(form.word)
    words &= np.array((1 << form.word_bits) - 1 - (1 << (form.word_bits - 2)), form.word)
    a, b = decode(words, form)
    c = generator.standard_normal(count).astype(np.float32) * np.float32(2.0**-10)
    return a, b, c.astype(np.float64)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32"])
def test_an_exact_sum_is_rounded_once(name: str) -> None:
    a, b, c = random_products(OPERANDS[name], 9, 200)
    rounded = rounded_once(a, b, c, F32)
    for i in range(a.shape[1]):
        exact = sum(
            (Fraction(x) * Fraction(y) for x, y in zip(a[:, i], b[:, i], strict=True)),
            Fraction(c[i]),
        )
        assert dot(a[:, i].tolist(), b[:, i].tolist(), c[i]) == exact
        word = int(rounded[i])
        error = abs(Fraction(float(decode(rounded[i : i + 1], F32)[0])) - exact)
        for other in (word - 1, word + 1):
            away = Fraction(float(decode(np.array([other], np.uint32), F32)[0])) - exact
            assert error < abs(away) or (error == abs(away) and word % 2 == 0)


def test_a_chain_in_float32_of_exact_products_is_numpys_sum() -> None:
    # Products of float16 are float32 numbers unless very small: then an fma is an addition.
    generator = np.random.default_rng(8)
    a, b = generator.standard_normal((2, 40, 300)).astype(np.float16).astype(np.float64)
    c = generator.standard_normal(300).astype(np.float32)
    total = c.copy()
    for product in a * b:
        total += product.astype(np.float32)
    words = in_order(a, b, c.astype(np.float64), F32, F32)
    np.testing.assert_array_equal(words, total.view(np.uint32))
    narrow = in_order(a, b, c.astype(np.float64), F32, F16)
    np.testing.assert_array_equal(narrow, total.astype(np.float16).view(np.uint16))


def test_a_chain_in_float16_rounds_every_product_and_sum_once() -> None:
    # 2049 is halfway between 2048 and 2050; with the product's last bits it is above the middle.
    a, b = np.array([[1 + 2.0**-10]]), np.array([[1.0]])
    assert int(in_order(a, b, np.array([2048.0]), F16, F16)[0]) == 0x6801
    assert int(in_order(np.array([[1.0]]), b, np.array([2048.0]), F16, F16)[0]) == 0x6800


def test_special_values_in_sums() -> None:
    assert dot([math.inf], [2.0], 1.0) == math.inf
    assert math.isnan(float(dot([math.inf], [0.0], 1.0)))
    assert math.isnan(float(dot([math.inf, 1.0], [1.0, -math.inf], 0.0)))
    chain = in_order(np.array([[np.inf]]), np.array([[0.0]]), np.array([1.0]), F32, F32)
    assert chain.tolist() == [0x7FFFFFFF]


def test_ulps_count_representable_numbers() -> None:
    f32_one = 0x3F800000
    for steps in (-3, -1, 0, 1, 2):
        value = np.float32(1)
        for _ in range(abs(steps)):
            value = np.nextafter(value, np.float32(math.copysign(math.inf, steps)))
        assert ulps(int(value.view(np.uint32)), f32_one, F32) == steps
    assert ulps(0x80000001, 0x00000001, F32) == -2
    assert ulps(0x80000000, 0, F32) == 0
    assert ulps(0x7F800000, 0x7F7FFFFF, F32) == 1
    assert ulps(0x7FFFFFFF, f32_one, F32) is None
    assert ulps(0x7FFFFFFF, 0x7FFFFFFF, F32) == 0
