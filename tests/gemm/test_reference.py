"""The error bound against exact arithmetic: never crossed by a right kernel, crossed by a wrong one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.reference import Bound, compare, error_bound, reference
from ptxlab.isa.targets import TARGETS, DotProduct

Array = npt.NDArray[Any]

AMPERE = TARGETS["sm_80"].dot16
HOPPER = TARGETS["sm_90a"].dot16
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
EMIN = {"float32": -126, "bfloat16": -126, "float16": -14}


# ---- an exact model of a tensor core, one element at a time, in Fractions ---------------------


def exponent(value: Fraction, least: int) -> int:
    """The e of value = s * 2^e with 1 <= |s| < 2, or ``least`` for a subnormal."""
    e = least
    while abs(value) >= Fraction(2) ** (e + 1):
        e += 1
    return e


def toward_zero(value: Fraction) -> int:
    return int(value)  # Python truncates


def round_to(value: Fraction, bits: int, least: int, nearest: bool) -> Fraction:
    """Round to a float of ``bits`` significant bits and smallest normal exponent ``least``."""
    unit = Fraction(2) ** (exponent(value, least) - bits + 1)
    scaled = value / unit
    return (Fraction(round(scaled)) if nearest else Fraction(toward_zero(scaled))) * unit


def dot(a: Array, b: Array, acc: str, arithmetic: DotProduct) -> float:
    """The sum of a[i] * b[i], as MMA-Sim (arXiv 2511.10909) describes the hardware."""
    least = EMIN[a.dtype.name]
    zero = arithmetic.zero_exponent_f32 if acc == "f32" else arithmetic.zero_exponent_f16
    c = Fraction(0)
    for start in range(0, len(a), arithmetic.chunk):
        terms = [(c, exponent(c, -126 if acc == "f32" else -14) if c else zero)]
        for x, y in zip(a[start : start + arithmetic.chunk], b[start:], strict=False):
            p, q = Fraction(float(x)), Fraction(float(y))
            e = exponent(p, least) + exponent(q, least) if p * q else zero
            terms.append((p * q, e))
        terms += [(Fraction(0), zero)] * (arithmetic.chunk + 1 - len(terms))
        unit = Fraction(2) ** (max(e for _, e in terms) - arithmetic.fraction_bits)
        total = sum(toward_zero(value / unit) for value, _ in terms) * unit
        c = round_to(total, 24, -126, False) if acc == "f32" else round_to(total, 11, -14, True)
    return float(c)


def mma(a: Array, b: Array, acc: str, arithmetic: DotProduct) -> Array:
    return np.array(
        [[dot(row, column, acc, arithmetic) for column in b.T] for row in a], DTYPES[acc]
    )


def fma(a: Array, b: Array) -> Array:
    """A chain of fma in f32: exact product and sum, rounded once."""
    d = np.zeros((len(a), b.shape[1]), np.float32)
    for i, j in np.ndindex(d.shape):
        c = Fraction(0)
        for x, y in zip(a[i], b[:, j], strict=True):
            c = round_to(c + Fraction(float(x)) * Fraction(float(y)), 24, -126, True)
        d[i, j] = float(c)
    return d


def test_the_model_rounds_like_numpy() -> None:
    values = np.random.default_rng(1).standard_normal(200) * 2.0 ** np.arange(-100, 100)
    for value in values[80:114]:
        exact = Fraction(float(value))
        assert float(round_to(exact, 24, -126, True)) == np.float32(value)
        assert float(round_to(exact, 11, -14, True)) == np.float16(value)


# ---- inputs that are hard on rounding ---------------------------------------------------------


def inputs(kind: str, dtype: str, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    m, n, k = shape
    random = np.random.default_rng([m, n, k, len(kind)])
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    if kind == "wide":  # magnitudes over the whole range of f16, subnormals too
        a *= 2.0 ** random.integers(-24, 5, (m, k))
        b *= 2.0 ** random.integers(-24, 5, (k, n))
    elif kind == "cancelling":
        a[:, 1::2] = -a[:, : k // 2 * 2 : 2]
        b[1::2] = b[: k // 2 * 2 : 2] * (1 + 2.0**-8)
    elif kind == "positive":  # every truncation and RZ the same way
        a, b = abs(a), abs(b)
    return a.astype(DTYPES[dtype]), b.astype(DTYPES[dtype])


KINDS = ["normal", "wide", "cancelling", "positive"]
SHAPE = (4, 5, 70)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arithmetic", [AMPERE, HOPPER], ids=["sm_80", "sm_90a"])
@pytest.mark.parametrize("types", ["bf16 f32", "f16 f32", "f16 f16"])
def test_a_tensor_core_stays_within_the_bound(
    types: str, arithmetic: DotProduct, kind: str
) -> None:
    dtype, acc = types.split()
    a, b = inputs(kind, dtype, SHAPE)
    bound = error_bound("mma", arithmetic, a, b, acc)
    worst = compare(mma(a, b, acc, arithmetic), a, b, bound)
    assert worst.error <= bound.coefficient
    if kind == "positive":  # and the bound is not idle: the real error is within a factor of it
        assert worst.error > bound.coefficient / 40


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_chain_of_fma_stays_within_the_bound(dtype: str, kind: str) -> None:
    a, b = inputs(kind, dtype, SHAPE)
    bound = error_bound("fma", HOPPER, a, b, "f32")
    assert compare(fma(a, b), a, b, bound).error <= bound.coefficient


def test_coefficients_by_hand() -> None:
    a, b = np.zeros((1, 40), np.float16), np.zeros((40, 1), np.float16)
    steps = 5  # of 8 products
    assert error_bound("mma", AMPERE, a, b, "f32").coefficient == pytest.approx(
        steps * (2**-23 + 9 * 2**-24), rel=1e-6
    )
    assert error_bound("mma", HOPPER, a, b, "f32").coefficient == pytest.approx(
        3 * (2**-23 + 17 * 2**-25), rel=1e-6
    )
    assert error_bound("mma", AMPERE, a, b, "f16").coefficient == pytest.approx(
        steps * (2**-11 + 9 * 2**-24) * (1 + 2**-11) ** steps, rel=1e-6
    )
    assert error_bound("fma", AMPERE, a, b, "f32").coefficient == pytest.approx(40 * 2**-24, 1e-5)


# ---- wrong results ----------------------------------------------------------------------------


def rounded(values: Array, acc: str) -> Array:
    return values.astype(DTYPES[acc])


CASES: list[tuple[Method, str, str]] = [
    ("fma", "f32", "f32"),
    ("fma", "bf16", "f32"),
    ("mma", "bf16", "f32"),
    ("mma", "f16", "f32"),
    ("mma", "f16", "f16"),
]


@pytest.mark.parametrize(("method", "dtype", "acc"), CASES)
@pytest.mark.parametrize("k", [1, 16, 200])
def test_wrong_results_are_caught(method: Method, dtype: str, acc: str, k: int) -> None:
    a, b = inputs("normal", dtype, (60, 50, k))
    bound = error_bound(method, HOPPER, a, b, acc)
    exact = a.astype(np.float64) @ b.astype(np.float64)

    def error(found: Array) -> float:
        return compare(rounded(found, acc), a, b, bound).error

    assert error(exact) <= bound.coefficient
    one_k_dropped = exact - np.outer(a[:, k // 2].astype(float), b[k // 2].astype(float))
    assert error(one_k_dropped) > bound.coefficient
    swapped = exact.copy()
    swapped[7, 3], swapped[7, 4] = exact[7, 4], exact[7, 3]
    assert error(swapped) > bound.coefficient
    missing = exact.copy()
    missing[59, 49] = 0
    assert error(missing) > bound.coefficient


def test_the_worst_element_is_named() -> None:
    a, b = inputs("normal", "f32", (1100, 1030, 3))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    wrong = exact.astype(np.float32)
    wrong[1050, 1027] += 5
    bound = error_bound("fma", HOPPER, a, b, "f32")
    worst = compare(wrong, a, b, bound)
    assert worst.place == (1050, 1027)
    assert worst.expected == pytest.approx(exact[1050, 1027])
    assert worst.found == wrong[1050, 1027]
    assert worst.error > bound.coefficient


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_wrong(value: float) -> None:
    a, b = inputs("normal", "f16", (3, 3, 8))
    found = (a.astype(float) @ b.astype(float)).astype(np.float16)
    found[1, 2] = value
    worst = compare(found, a, b, error_bound("mma", HOPPER, a, b, "f16"))
    assert worst.error == math.inf
    assert worst.place == (1, 2)


def test_overflow_to_infinity_is_right_where_sums_are_large() -> None:
    a, b = np.full((1, 20), 200, np.float16), np.full((20, 2), 200, np.float16)
    b[:, 1] = 1
    bound = error_bound("mma", HOPPER, a, b, "f16")
    assert compare(np.array([[np.inf, 4000]], np.float16), a, b, bound).error == 0
    assert compare(np.array([[np.inf, np.inf]], np.float16), a, b, bound).error == math.inf
    assert compare(np.array([[np.nan, 4000]], np.float16), a, b, bound).error == math.inf


def test_a_sum_of_zeros_must_be_zero() -> None:
    a, b = np.zeros((2, 8), np.float16), np.ones((8, 2), np.float16)
    bound = error_bound("mma", HOPPER, a, b, "f32")
    found = np.zeros((2, 2), np.float32)
    assert compare(found, a, b, bound).error == 0
    found[1, 0] = 1e-45
    assert compare(found, a, b, bound).error == math.inf


def test_no_k_and_no_elements() -> None:
    a, b = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    bound = error_bound("fma", HOPPER, a, b, "f32")
    assert bound == Bound(0.0, 0.0, float(np.finfo(np.float32).max))
    assert compare(np.zeros((2, 3), np.float32), a, b, bound).error == 0
    assert compare(np.ones((2, 3), np.float32), a, b, bound).error == math.inf
    empty = compare(np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32), np.zeros((2, 3), np.float32), bound)  # fmt: skip
    assert (empty.place, empty.error) == (None, 0.0)


def test_blocks_make_up_the_whole() -> None:
    a, b = inputs("normal", "bf16", (1500, 1200, 5))
    whole = np.full((1500, 1200, 2), np.nan)
    for rows, columns, expected, magnitude in reference(a, b):
        whole[rows, columns] = np.stack([expected, magnitude], axis=2)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(whole[:, :, 0], a64 @ b64, rtol=0, atol=1e-13)
    np.testing.assert_allclose(whole[:, :, 1], abs(a64) @ abs(b64), rtol=0, atol=1e-13)
