"""Powers of two and logarithms beside those of the extended format of this processor, and their edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.numbers.exponential import logarithm, power_of_two

INF, NAN = np.inf, np.nan


def singles(seed: int, low: float, high: float) -> Array:
    """Random numbers of f32 as float64: evenly spread, near 1, and of random bits."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 31, 40000, np.uint32).view(np.float32)
    even, near = rng.uniform(low, high, 20000), 1 + rng.standard_normal(20000) / 100
    values = np.concatenate([words, even.astype(np.float32), near.astype(np.float32)])
    return values[(values > low) & (values < high)].astype(np.float64)


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [(power_of_two, np.exp2, -900.0, 900.0), (logarithm, np.log2, 0.0, 3e38)],
)
def test_all_but_the_last_place_is_exact(
    function: Callable[[Array], Array], exact: np.ufunc, low: float, high: float
) -> None:
    x = singles(3, low, high)
    wanted = exact(x.astype(np.longdouble))
    error = np.abs(function(x) - wanted)
    assert x.size > 40000
    assert (error <= np.abs(wanted) * 2.5 * 2.0**-53).all()
    assert (error.astype(np.float64) > 0).any()


def test_edges() -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 128.0, -149.0, 5000.0, -5000.0, INF, -INF, NAN])
    far = [2.0**1000, 2.0**-1000] * 2
    powers = [1, 1, 2, 0.5, 2.0**128, 2.0**-149, *far, NAN]
    np.testing.assert_array_equal(power_of_two(x), powers)
    x = np.array([0.0, -0.0, 1.0, 2.0, 0.5, 2.0**-149, 3.0, -1.0, INF, -INF, NAN])
    logarithms = [-INF, -INF, 0, 1, -1, -149, float(np.log2(3.0)), NAN, INF, NAN, NAN]
    np.testing.assert_array_equal(logarithm(x), logarithms)
