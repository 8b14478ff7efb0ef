"""The approximate functions: the correctly rounded value of the exact function, and their edges."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.together import in_one_test

INF = 0x7F800000
MINUS_INF = 0xFF800000
NAN = 0x7FFFFFFF


def _root(value: Fraction) -> Fraction:
    """A point that rounds to f32 as the square root of ``value`` does."""
    return Fraction(math.isqrt(value.numerator * 4**400 // value.denominator), 2**400)


@cache
def _exp2(value: Fraction) -> Fraction:
    """2**value to over 100 bits, by squaring a Taylor series."""
    whole = math.floor(value)
    x = (value - whole) * Fraction(math.floor(math.log(2) * 2**52), 2**52)
    # ln 2 beyond float64: the remainder of its series sum 1 / (k 2^k).
    ln2 = sum(Fraction(1, k * 2**k) for k in range(1, 130))
    x = (value - whole) * ln2
    term, total = Fraction(1), Fraction(1)
    for k in range(1, 40):
        term = Fraction(int(term * x / k * 2**200), 2**200)
        total += term
    return total * Fraction(2) ** whole


def test_reciprocal_and_roots_are_correctly_rounded(reference: Any) -> None:
    (a,) = reference.floats("f32", 1, 900, 1)
    a = [x for x in a if isinstance(v := reference.decode(x, "f32"), Fraction) and v > 0]
    assert len(a) > 400

    def of(function: Any) -> Any:
        return lambda x: reference.encode(function(reference.decode(x, "f32")), "f32")

    reference.matches("rcp.approx.f32", of(lambda v: 1 / v), a)
    reference.matches("sqrt.approx.f32", of(_root), a)
    reference.matches("rsqrt.approx.f32", of(lambda v: _root(1 / v)), a)


def test_ex2_is_correctly_rounded(reference: Any) -> None:
    rng = np.random.default_rng(2)
    values = [Fraction(int(x), 2**16) for x in rng.integers(-140 * 2**16, 128 * 2**16, 200)]
    a = [reference.encode(x, "f32") for x in values]
    reference.matches(
        "ex2.approx.f32",
        lambda x: reference.encode(_exp2(reference.decode(x, "f32")), "f32"),
        a,
    )
    reference.matches(
        "ex2.approx.ftz.f32",
        lambda x: reference.flush(
            reference.encode(_exp2(reference.decode(x, "f32")), "f32"), "f32"
        ),
        a,
    )
    halves = [reference.encode(x / 8, "f16") for x in values]
    reference.matches(
        "ex2.approx.f16",
        lambda x: reference.encode(_exp2(reference.decode(x, "f16")), "f16"),
        halves,
    )


@pytest.mark.parametrize(
    ("opcode", "function"),
    [("lg2", math.log2), ("sin", math.sin), ("cos", math.cos), ("tanh", math.tanh)],
)
def test_transcendental_functions_to_half_an_ulp(
    reference: Any, opcode: str, function: Any
) -> None:
    rng = np.random.default_rng(3)
    values = np.abs(rng.standard_normal(400) * 5).astype(np.float32)
    got = reference.run(f"{opcode}.approx.f32", values.view(np.uint32).tolist()).view(np.float32)
    exact = np.array([function(float(x)) for x in values])
    assert np.all(np.abs(got - exact) <= 0.5000001 * np.spacing(np.abs(got)).astype(np.float64))


@in_one_test(("opcode", "quarters"), [("sin", 0), ("cos", 1)])
def test_sines_of_turns(reference: Any, opcode: str, quarters: int) -> None:
    """Against the sine of what is left of the angle after whole quarters, which is exact in fractions."""
    rng = np.random.default_rng(4)
    values = (rng.standard_normal(400) * 10.0 ** rng.integers(-4, 9, 400)).astype(np.float32)
    values[:9] = np.arange(9) / 4
    got = reference.run(f"{opcode}.approx.ftz.2pi.f32", values.view(np.uint32).tolist())
    for value, word in zip(values.tolist(), got.tolist(), strict=True):
        whole, rest = divmod(Fraction(value) * 4 + quarters, 1)
        turned = float(rest) * math.pi / 2
        size = (math.sin if whole % 2 == 0 else math.cos)(turned) if rest else float(whole % 2)
        exact = np.float32(size if whole % 4 < 2 else -size)
        near = np.array([word], np.uint32).view(np.float32)[0]
        assert abs(float(near) - float(exact)) <= np.spacing(abs(exact)), value


@in_one_test(
    ("instruction", "table"),
    [
        ("rcp.approx.f32", {0: INF, 1 << 31: MINUS_INF, INF: 0, MINUS_INF: 1 << 31}),
        ("sqrt.approx.f32", {0: 0, 1 << 31: 1 << 31, INF: INF, MINUS_INF: NAN, 0xBF800000: NAN}),
        ("rsqrt.approx.f32", {0: INF, 1 << 31: MINUS_INF, INF: 0, 0xBF800000: NAN}),
        ("rsqrt.approx.ftz.f32", {1: INF, 0x80000001: MINUS_INF}),
        ("ex2.approx.f32", {0: 0x3F800000, INF: INF, MINUS_INF: 0, 1: 0x3F800000}),
        ("lg2.approx.f32", {0: MINUS_INF, 1 << 31: MINUS_INF, INF: INF, 0xBF800000: NAN}),
        ("lg2.approx.ftz.f32", {1: MINUS_INF}),
        ("lg2.approx.f32", {1: 0xC3150000}),
        ("sin.approx.f32", {0: 0, 1 << 31: 1 << 31, INF: NAN, MINUS_INF: NAN}),
        ("cos.approx.f32", {0: 0x3F800000, 1 << 31: 0x3F800000, INF: NAN}),
        (
            "sin.approx.ftz.2pi.f32",
            {0: 0, 1 << 31: 1 << 31, 1: 0, 0x3E800000: 0x3F800000, INF: NAN},
        ),
        ("tanh.approx.f32", {0: 0, 1 << 31: 1 << 31, INF: 0x3F800000, MINUS_INF: 0xBF800000}),
    ],
)
def test_edges(reference: Any, instruction: str, table: dict[int, int]) -> None:
    got = reference.run(instruction, [*table, 0x7F800001, 0xFFC12345]).tolist()
    assert got == [*table.values(), NAN, NAN]


def test_division_approximations(reference: Any) -> None:
    a, b = reference.floats("f32", 2, 600, 4)
    border = reference.encode(Fraction(2) ** 126, "f32")
    near = [border - 1, border, border + 1]
    a += [0x3F800000, 0x7F7FFFFF, 0xC0400000] * 3
    b += [*near, *near, *(x | 1 << 31 for x in near)]
    exact = reference.run("div.rn.f32", a, b).tolist()
    assert reference.run("div.full.f32", a, b).tolist() == exact
    approximate = reference.run("div.approx.f32", a, b).tolist()
    seen = set()
    for x, y, quotient, right in zip(a, b, approximate, exact, strict=True):
        divisor = reference.decode(y, "f32")
        if isinstance(divisor, Fraction) and abs(divisor) > 2**126:
            value = reference.decode(x, "f32")
            sign = (x ^ y) & 1 << 31
            right = sign if isinstance(value, Fraction) else NAN
            seen.add(right)
        assert quotient == right
    assert seen == {0, 1 << 31, NAN}


def test_double_forms_use_the_upper_word(reference: Any) -> None:
    a = [0x4008000012345678, 0x7FF0000000000000, 0x8000000000000001, 0x7FF8000000000001]
    got = reference.run("rcp.approx.ftz.f64", a).tolist()
    assert got == [0x3FD5555500000000, 0, 0xFFF0000000000000, 0x7FFFFFFF00000000]
    got = reference.run("rsqrt.approx.ftz.f64", [0x40100000FFFFFFFF, 0]).tolist()
    assert got == [0x3FE0000000000000, 0x7FF0000000000000]
    assert reference.run("rsqrt.approx.f64", [0x4010000000000000]).tolist() == [0x3FE0000000000000]
