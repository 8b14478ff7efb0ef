"""The bound of a reference holds whatever order and type a right kernel uses, and nothing much wider does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.comparison import wrong
from ptxlab.judge.references import ReferenceFunction
from ptxlab.judge.rounding import Bounded

F32 = np.float32


def expected(function: Callable[..., Any], out: Array, **arguments: Any) -> Bounded:
    every = {**arguments, "out": out}
    return ReferenceFunction(function, list(every)).expected(every, TARGETS["sm_80"], {})["out"]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"out": e / e.sum(axis=1, keepdims=True)}


def norm(x: Any) -> Any:
    return {
        "out": (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    }


def gelu(x: Any) -> Any:
    return {"out": 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))}


def in_order(terms: Array, axis: int, order: Array, dtype: Any) -> Array:
    """Add up in some order, rounding each time."""
    moved = np.moveaxis(terms, axis, 0)[order].astype(dtype)
    total = np.zeros(moved.shape[1:], dtype)
    for term in moved:
        total = (total + term).astype(dtype)
    return total


def computed(name: str, x: Any, rng: np.random.Generator, dtype: Any) -> Any:
    """Compute in f32 as a kernel would, with sums in another order and of another type."""
    order = rng.permutation(x.shape[1])

    def total(terms: Any) -> Any:
        return in_order(terms, 1, order, dtype)[:, None].astype(F32)

    if name == "softmax":
        e = np.exp((x - x.max(axis=1, keepdims=True)).astype(F32))
        return e / total(e)
    if name == "norm":
        off = x - total(x) / F32(x.shape[1])
        return off * (F32(1) / np.sqrt(total(off * off) / F32(x.shape[1]) + F32(1e-5)))
    cubed = x + F32(0.044715) * x * x * x
    return F32(0.5) * x * (F32(1) + np.tanh(F32(0.7978845608) * cubed))


REFERENCES = {"softmax": softmax, "norm": norm, "gelu": gelu}


@pytest.mark.parametrize("name", list(REFERENCES))
def test_f32_in_any_order_is_inside(name: str) -> None:
    rng = np.random.default_rng(0)
    for scale in (1.0, 30.0):
        x = (scale * rng.standard_normal((16, 300)) + 1).astype(F32)
        want = expected(REFERENCES[name], np.zeros_like(x), x=x)
        for _ in range(3):
            assert not wrong(computed(name, x, rng, F32), want)[0].any()


@pytest.mark.parametrize("name", ["softmax", "norm"])
def test_a_sum_in_f16_is_outside(name: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((16, 300)) + 1).astype(F32)
    want = expected(REFERENCES[name], np.zeros_like(x), x=x)
    assert wrong(computed(name, x, rng, np.float16), want)[0].any(axis=1).mean() > 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_products_are_inside_and_narrower_ones_outside(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((8, 200), (200, 8)))
    want = expected(lambda a, b: {"out": a @ b}, np.zeros((8, 8), F32), a=a, b=b)
    products = a.astype(F32)[:, :, None] * b.astype(F32)
    right = in_order(products, 1, rng.permutation(200), F32)
    assert not wrong(right, want)[0].any()
    assert wrong(in_order(products, 1, np.arange(200), ml_dtypes.bfloat16), want)[0].any()
    narrow = ml_dtypes.bfloat16 if dtype == np.float32 else ml_dtypes.float8_e4m3fn
    cut = np.einsum("mk,kn", *(each.astype(narrow).astype(np.float64) for each in (a, b)))
    assert wrong(cut.astype(F32), want)[0].mean() > 0.5


def test_terms_that_cancel_are_measured_one_by_one() -> None:
    rng = np.random.default_rng(3)
    half = 1000 * rng.standard_normal((8, 200)).astype(F32)
    x = np.concatenate([half, -half + F32(0.001)], 1)
    want = expected(lambda x: {"out": x.sum(axis=1)}, np.zeros(8, F32), x=x)
    total = in_order(x, 1, rng.permutation(400), F32)
    assert not wrong(total, want)[0].any()
    assert (abs(total - want.value) > 400 * 2.0**-24 * abs(want.value)).any()


def test_what_is_only_moved_is_exact() -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    want = expected(lambda x: {"out": np.maximum(x.T, 2.0)}, np.zeros((3, 2), F32), x=x)
    assert not want.error.any()
    off = np.maximum(x.T, 2)
    assert not wrong(off, want)[0].any()
    off[2, 1] = np.nextafter(off[2, 1], F32(9))
    assert wrong(off, want)[0].sum() == 1


def test_nan_and_infinities_are_to_be_the_same() -> None:
    x = np.array([np.nan, np.inf, 1], F32)
    want = expected(lambda x: {"out": x + 1.0}, np.zeros(3, F32), x=x)
    assert wrong(np.array([np.nan, np.inf, 2], F32), want)[0].tolist() == [False] * 3
    assert wrong(np.array([0, np.nan, np.nan], F32), want)[0].tolist() == [True] * 3


def test_an_overflow_is_right_where_the_type_ends() -> None:
    x = np.array([3e38, 1e38], F32)
    want = expected(lambda x: {"out": 2.0 * x}, np.zeros(2, F32), x=x)
    assert wrong(np.array([np.inf, np.inf], F32), want)[0].tolist() == [False, True]


def test_what_no_bound_follows_from_is_refused() -> None:
    x = np.ones(4, F32)
    with pytest.raises(Unsupported, match="sort"):
        expected(lambda x: {"out": np.sort(x * x)}, x, x=x)
    with pytest.raises(Unsupported, match="rounding decides"):
        expected(lambda x: {"out": np.where(x * 3.0 > 3.0, x, 0.0)}, x, x=x)
