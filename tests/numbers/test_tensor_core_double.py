"""Double-precision products: recorded MMA-Sim results, and fractions in every direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from ptxlab.numbers.doubles import (
    multiply_add_double,
)
from tests.together import in_one_test

VECTORS = Path(__file__).parent / "vectors"


def test_agrees_with_mma_sim() -> None:
    with np.load(VECTORS / "f64.npz") as file:
        arrays = dict(file)
    a, b, c = arrays["a"].T[None], arrays["b"].T[:, None], arrays["c"][None, None]
    d, expected = multiply_add_double(a, b, c)[0, 0], arrays["d0"]
    nan = np.isnan(expected.view(np.float64))
    assert (~nan).sum() >= 1000
    assert nan.any()
    np.testing.assert_array_equal(d[~nan], expected[~nan])
    np.testing.assert_array_equal(np.isnan(d.view(np.float64)), nan)
    backwards = multiply_add_double(a[:, ::-1], b[::-1], c)[0, 0]
    assert (backwards != expected)[~nan].sum() > 100


ROUND: dict[str, Callable[[Fraction], int]] = {
    "rn": round,
    "rz": math.trunc,
    "rm": math.floor,
    "rp": math.ceil,
}


def rounded(value: Fraction, mode: str) -> Fraction:
    """Round to a float64 that is neither subnormal nor infinite."""
    if value == 0:
        return value
    exponent = math.frexp(float(value))[1]
    while abs(value) >= Fraction(2) ** exponent:
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent - 1):
        exponent -= 1
    unit = Fraction(2) ** (exponent - 53)
    return Fraction(ROUND[mode](value / unit)) * unit


@in_one_test("mode", ["rn", "rz", "rm", "rp"])
@in_one_test("k", [4, 16])
def test_every_multiply_add_rounds_once(mode: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a = rng.standard_normal((2, k, 20)) * 8.0 ** rng.integers(-3, 4, (2, k, 20))
    b = rng.standard_normal((k, 3, 20))
    b[1] = -b[0]
    a[:, 1] = np.nextafter(a[:, 0], 1)
    c = rng.standard_normal((2, 3, 20))
    words = (x.view(np.uint64) for x in (a, b, c))
    d = multiply_add_double(*words, rounding=mode).view(np.float64)
    once = 0
    for i, j, warp in np.ndindex(c.shape):
        total = exact = Fraction(float(c[i, j, warp]))
        for x, y in zip(a[i, :, warp].tolist(), b[:, j, warp].tolist(), strict=True):
            total = rounded(Fraction(x) * Fraction(y) + total, mode)
            exact += Fraction(x) * Fraction(y)
        assert Fraction(float(d[i, j, warp])) == total
        once += rounded(exact, mode) != total
    assert once > 0


def test_no_products() -> None:
    c = np.array([[[0x8000000000000000]]], np.uint64)
    empty = np.zeros((1, 0, 1), np.uint64), np.zeros((0, 1, 1), np.uint64)
    assert multiply_add_double(*empty, c)[0, 0, 0] == c[0, 0, 0]
