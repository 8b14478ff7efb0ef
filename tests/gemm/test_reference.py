"""The error bound against exact arithmetic: never crossed by a right kernel, crossed by a wrong one."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.gemm.algorithms import Method
from ptxlab.gemm.problem import Problem, to_tf32
from ptxlab.gemm.reference import (
    TF32_CONVERSION,
    Comparison,
    Epilogue,
    ErrorBound,
    compare,
    epilogue_of,
    error_bound,
    factors_of,
    reference,
)
from ptxlab.isa.targets import TARGETS, DotProduct
from tests.together import in_one_test

AMPERE = TARGETS["sm_80"].dot16
HOPPER = TARGETS["sm_90a"].dot16
PLAIN = Epilogue()
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
EMIN = {"float32": -126, "bfloat16": -126, "float16": -14}


def worst_of(
    computed: Array, a: Array, b: Array, bound: ErrorBound, epilogue: Epilogue = PLAIN
) -> Comparison:
    return compare(computed, reference(a, b, epilogue), bound)


# ---- an exact model of a tensor core, one element at a time, in Fractions ---------------------


def exponent(value: Fraction, least: int) -> int:
    """The e of value = s * 2^e with 1 <= |s| < 2, or ``least`` for a subnormal."""
    if not value:
        return least
    e = value.numerator.bit_length() - value.denominator.bit_length()  # or one more than it is
    return max(e if abs(value) >= Fraction(2) ** e else e - 1, least)


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


@in_one_test("kind", KINDS)
@in_one_test("arithmetic", [AMPERE, HOPPER])
@in_one_test("types", ["bf16 f32", "f16 f32", "f16 f16"])
def test_a_tensor_core_stays_within_the_bound(
    types: str, arithmetic: DotProduct, kind: str
) -> None:
    dtype, acc = types.split()
    a, b = inputs(kind, dtype, SHAPE)
    bound = error_bound("mma", arithmetic, a, b, acc)
    worst = worst_of(mma(a, b, acc, arithmetic), a, b, bound)
    assert worst.error <= bound.coefficient
    if kind == "positive":  # and the bound is not idle: the real error is within a factor of it
        assert worst.error > bound.coefficient / 40


@in_one_test("kind", KINDS)
@in_one_test("dtype", ["f32", "bf16", "f16"])
def test_a_chain_of_fma_stays_within_the_bound(dtype: str, kind: str) -> None:
    a, b = inputs(kind, dtype, SHAPE)
    bound = error_bound("fma", HOPPER, a, b, "f32")
    assert worst_of(fma(a, b), a, b, bound).error <= bound.coefficient


def test_products_too_small_for_f32_may_be_lost_and_no_more_than_that() -> None:
    """Each is less than half the smallest subnormal, 2^-149, so that a right chain of fma finds 0."""
    k = 9
    a, b = np.full((2, k), 2.0**-75, np.float32), np.full((k, 3), 0.75 * 2.0**-75, np.float32)
    bound = error_bound("fma", HOPPER, a, b, "f32")
    computed = fma(a, b)
    assert (computed == 0).all()
    assert (a.astype(np.float64) @ b.astype(np.float64) == k * 0.75 * 2.0**-150).all()
    assert worst_of(computed, a, b, bound).error <= bound.coefficient
    computed[1, 2] = 2.0**-149 * k  # each product rounded up instead
    assert worst_of(computed, a, b, bound).error > bound.coefficient


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


@in_one_test(("method", "dtype", "acc"), CASES)
@in_one_test("k", [1, 16, 200])
def test_wrong_results_are_caught(method: Method, dtype: str, acc: str, k: int) -> None:
    a, b = inputs("normal", dtype, (60, 50, k))
    bound = error_bound(method, HOPPER, a, b, acc)
    exact = a.astype(np.float64) @ b.astype(np.float64)

    def error(sums: Array) -> float:
        return worst_of(rounded(sums, acc), a, b, bound).error

    assert error(exact) <= bound.coefficient
    one_k_dropped = exact - np.outer(a[:, k // 2].astype(float), b[k // 2].astype(float))
    assert error(one_k_dropped) > bound.coefficient
    swapped = exact.copy()
    swapped[7, 3], swapped[7, 4] = exact[7, 4], exact[7, 3]
    assert error(swapped) > bound.coefficient
    missing = exact.copy()
    missing[59, 49] = 0
    assert error(missing) > bound.coefficient


def test_sums_of_integers_are_rounded_once() -> None:
    """Sums of up to 1024 products of 8 bits have an f32 of their own, so that none may be off by one."""
    a, b = (
        np.random.default_rng(i).integers(-128, 128, s, np.int8)
        for i, s in enumerate(((9, 1000), (1000, 7)))
    )
    bound, exact = error_bound("tcgen05", HOPPER, a, b, "f32"), a.astype(np.int64) @ b
    assert worst_of(exact.astype(np.float32), a, b, bound).error == 0
    exact[3, 2] += 1
    assert worst_of(exact.astype(np.float32), a, b, bound).error > bound.coefficient
    assert error_bound("tcgen05", HOPPER, a, b, "f32").coefficient == pytest.approx(
        2**-24, rel=1e-6
    )


def test_the_worst_element_is_named() -> None:
    a, b = inputs("normal", "f32", (1100, 1030, 3))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    wrong = exact.astype(np.float32)
    wrong[1050, 1027] += 5
    bound = error_bound("fma", HOPPER, a, b, "f32")
    worst = worst_of(wrong, a, b, bound)
    assert worst.index == (1050, 1027)
    assert worst.expected == pytest.approx(exact[1050, 1027])
    assert worst.actual == wrong[1050, 1027]
    assert worst.error > bound.coefficient


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_wrong(value: float) -> None:
    a, b = inputs("normal", "f16", (3, 3, 8))
    computed = (a.astype(float) @ b.astype(float)).astype(np.float16)
    computed[1, 2] = value
    worst = worst_of(computed, a, b, error_bound("mma", HOPPER, a, b, "f16"))
    assert worst.error == math.inf
    assert worst.index == (1, 2)


def test_overflow_to_infinity_is_right_where_sums_are_large() -> None:
    a, b = np.full((1, 20), 200, np.float16), np.full((20, 2), 200, np.float16)
    b[:, 1] = 1
    bound = error_bound("mma", HOPPER, a, b, "f16")
    assert worst_of(np.array([[np.inf, 4000]], np.float16), a, b, bound).error == 0
    assert worst_of(np.array([[np.inf, np.inf]], np.float16), a, b, bound).error == math.inf
    assert worst_of(np.array([[np.nan, 4000]], np.float16), a, b, bound).error == math.inf


def test_a_sum_of_zeros_must_be_zero() -> None:
    a, b = np.zeros((2, 8), np.float16), np.ones((8, 2), np.float16)
    bound = error_bound("mma", HOPPER, a, b, "f32")
    computed = np.zeros((2, 2), np.float32)
    assert worst_of(computed, a, b, bound).error == 0
    computed[1, 0] = 1e-45
    assert worst_of(computed, a, b, bound).error == math.inf


def test_no_k_and_no_elements() -> None:
    a, b = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    bound = error_bound("fma", HOPPER, a, b, "f32")
    assert bound == ErrorBound(0.0, 0.0, float(np.finfo(np.float32).max))
    assert worst_of(np.zeros((2, 3), np.float32), a, b, bound).error == 0
    assert worst_of(np.ones((2, 3), np.float32), a, b, bound).error == math.inf
    empty = worst_of(np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32), np.zeros((2, 3), np.float32), bound)  # fmt: skip
    assert (empty.index, empty.error) == (None, 0.0)


def test_blocks_make_up_the_whole() -> None:
    a, b = inputs("normal", "bf16", (1500, 1200, 5))
    whole = np.full((1500, 1200, 2), np.nan)
    for part in reference(a, b):
        whole[part.rows, part.columns] = np.stack([part.expected, part.magnitude], axis=2)
        assert part.of_sums is part.magnitude or (part.of_sums == part.magnitude).all()
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(whole[:, :, 0], a64 @ b64, rtol=0, atol=1e-13)
    np.testing.assert_allclose(whole[:, :, 1], abs(a64) @ abs(b64), rtol=0, atol=1e-13)


# ---- the epilogue -----------------------------------------------------------------------------

EPILOGUES = [
    {"alpha": 0.3},
    {"alpha": -1.7, "beta": 0.9},
    {"beta": -1.0},
    {"bias": True},
    {"alpha": 3.0, "beta": 1e-3, "bias": True, "relu": True},
    {"alpha": 1e-20, "bias": True},
]


def epilogue(kind: dict[str, Any], acc: str) -> Epilogue:
    random = np.random.default_rng(9)
    m, n, _ = SHAPE
    factors = {
        name: float(np.float32(kind.get(name, 1 - i))) for i, name in enumerate(("alpha", "beta"))
    }
    return Epilogue(
        **factors,
        old=random.standard_normal((m, n)).astype(DTYPES[acc]) if "beta" in kind else None,
        bias=random.standard_normal(n).astype(np.float32) if "bias" in kind else None,
        relu="relu" in kind,
    )  # fmt: skip


def finished(sums: Array, e: Epilogue, fused: bool) -> Array:
    """What a kernel makes of sums: f32 arithmetic in Fractions, each operation rounded once."""

    def f32(value: Fraction) -> Fraction:
        return round_to(value, 24, -126, True)

    finished = np.zeros(sums.shape, sums.dtype)
    for i, j in np.ndindex(sums.shape):
        value = f32(Fraction(e.alpha) * Fraction(float(sums[i, j])))
        if e.old is not None:
            term = Fraction(e.beta) * Fraction(float(e.old[i, j]))
            value = f32(value + (term if fused else f32(term)))
        if e.bias is not None:
            value = f32(value + Fraction(float(e.bias[j])))
        if e.relu:
            value = max(value, Fraction(0))
        exact = value if sums.dtype == np.float32 else round_to(value, 11, -14, True)
        finished[i, j] = float(exact)
    return finished


@cache
def sums_of(dtype: str, acc: str) -> Array:
    a, b = inputs("normal", dtype, SHAPE)
    return fma(a, b) if dtype == "f32" else mma(a, b, acc, HOPPER)


@in_one_test("fused", [True, False])
@in_one_test("kind", EPILOGUES)
@in_one_test("types", ["f32 f32", "bf16 f32", "f16 f16"])
def test_a_finished_sum_stays_within_the_bound(
    types: str, kind: dict[str, Any], fused: bool
) -> None:
    dtype, acc = types.split()
    a, b = inputs("normal", dtype, SHAPE)
    e = epilogue(kind, acc)
    bound = error_bound("fma" if dtype == "f32" else "mma", HOPPER, a, b, acc, e)
    sums = sums_of(dtype, acc)
    assert worst_of(finished(sums, e, fused), a, b, bound, e).error <= bound.coefficient


@pytest.mark.parametrize("kind", EPILOGUES[1:5], ids=str)
def test_wrong_epilogues_are_caught(kind: dict[str, Any]) -> None:
    a, b = inputs("normal", "f32", SHAPE)
    e = epilogue(kind, "f32")
    sums = a.astype(float) @ b.astype(float)
    bound = error_bound("fma", HOPPER, a, b, "f32", e)

    def made(alpha: float, beta: float, shift: int, relu: bool) -> float:
        value = alpha * sums
        if e.old is not None:
            value = value + beta * e.old
        if e.bias is not None:
            value = value + np.roll(e.bias, shift)
        computed = (np.maximum(value, 0) if relu else value).astype(np.float32)
        return worst_of(computed, a, b, bound, e).error

    assert made(e.alpha, e.beta, 0, e.relu) <= bound.coefficient
    assert made(e.alpha + 1, e.beta, 0, e.relu) > bound.coefficient
    assert made(e.alpha, e.beta, 0, not e.relu) > bound.coefficient
    assert e.old is None or made(e.alpha, -e.beta, 0, e.relu) > bound.coefficient
    assert e.bias is None or made(e.alpha, e.beta, 1, e.relu) > bound.coefficient


def test_coefficients_of_an_epilogue_by_hand() -> None:
    a, b = np.zeros((1, 40), np.float16), np.zeros((40, 1), np.float16)
    plain, scaled = Epilogue(relu=True), Epilogue(alpha=2)

    def coefficient(acc: str, epilogue: Epilogue) -> float:
        return error_bound("mma", AMPERE, a, b, acc, epilogue).coefficient

    for acc, more in (("f32", 4 * 2**-24), ("f16", 4 * 2**-24 + 2**-11)):
        before = coefficient(acc, Epilogue())
        assert coefficient(acc, plain) == before
        assert coefficient(acc, scaled) - before == pytest.approx(more * (1 + before), rel=1e-3)


def test_a_sum_that_overflows_may_be_infinite_whatever_its_factor() -> None:
    a, b = np.full((1, 20), 200, np.float16), np.full((20, 1), 200, np.float16)
    small = Epilogue(alpha=1e-4)
    bound = error_bound("mma", HOPPER, a, b, "f16", small)
    assert worst_of(np.array([[np.inf]], np.float16), a, b, bound, small).error == 0
    assert worst_of(np.array([[80]], np.float16), a, b, bound, small).error <= bound.coefficient
    assert worst_of(np.array([[85]], np.float16), a, b, bound, small).error > bound.coefficient


# ---- tf32, and orders that nobody knows ---------------------------------------------------------


def test_tf32_is_compared_with_rounded_factors() -> None:
    problem = Problem(3, 4, 50, "tf32", "f32", seed=2, beta=1)
    given = problem.inputs()
    a, b = factors_of(problem, given)
    assert a.tobytes() == to_tf32(given.a).tobytes() != given.a.tobytes()
    assert b.tobytes() == to_tf32(given.b).tobytes()
    assert epilogue_of(problem, given).old is given.d
    # Half as many products a step as of 16-bit factors: 13 of 4 on Ampere, 7 of 8 on Hopper.
    for arithmetic, steps, terms, bits in ((AMPERE, 13, 5, 24), (HOPPER, 7, 9, 25)):
        bound = error_bound("mma", arithmetic, a, b, "f32")
        assert bound.coefficient == pytest.approx(steps * (2**-23 + terms * 2.0**-bits), rel=1e-6)
        unrounded = given.a.astype(float) @ given.b.astype(float)
        assert worst_of(unrounded.astype(np.float32), a, b, bound).error > bound.coefficient
        loose = error_bound("any", arithmetic, a, b, "f32", conversion=TF32_CONVERSION)
        assert worst_of(unrounded.astype(np.float32), a, b, loose).error <= loose.coefficient
        assert worst_of(1.01 * unrounded, a, b, loose).error > loose.coefficient


@pytest.mark.parametrize("types", ["f32 f32", "bf16 f32", "f16 f16"])
def test_any_order_has_a_bound(types: str) -> None:
    """Sums of parts of k, added up in the end, as a library may do."""
    parts = 5
    dtype, acc = types.split()
    a, b = inputs("positive", dtype, SHAPE)
    computed = np.zeros((SHAPE[0], SHAPE[1]), DTYPES[acc])
    for part in np.array_split(np.arange(SHAPE[2]), parts):
        x, y = a[:, part], b[part]
        computed += fma(x, y) if dtype == "f32" else mma(x, y, acc, AMPERE)
    bound = error_bound("any", AMPERE, a, b, acc)
    assert worst_of(computed, a, b, bound).error <= bound.coefficient
    assert bound.coefficient >= error_bound("fma", AMPERE, a, b, "f32").coefficient
    missing = computed * (1 - 1 / parts)
    assert worst_of(missing, a, b, bound).error > bound.coefficient
