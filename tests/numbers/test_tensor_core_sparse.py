"""Sparse products: they are the dense ones with zeros, and nothing but what is stored is multiplied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.isa.targets import TARGETS, DotProduct
from ptxlab.matrix.sparse import Metadata
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_integer import multiply_add_integer
from ptxlab.numbers.tensor_core_scaled import multiply_add_scaled
from ptxlab.numbers.tensor_core_sparse import SparseRows


def draw_places(metadata: Metadata, m: int, warps: int) -> Array:
    """Return the k of every stored number for random metadata, [m, k / 2, warps]."""
    rng = np.random.default_rng(metadata.chunks)
    values = rng.choice(metadata.allowed, (warps, m, metadata.chunks))
    return np.moveaxis(metadata.columns(values), 0, -1)


def expand(a: Array, places: Array, k: int) -> Array:
    """Return A with its zeros, [m, k, warps], from what is stored and where."""
    dense = np.zeros((a.shape[0], k, a.shape[2]), a.dtype)
    np.put_along_axis(dense, places, a, axis=1)
    return dense


@pytest.mark.parametrize(("bits", "dtype"), [(8, "s8"), (8, "u8"), (4, "s4")])
def test_integers_equal_the_expanded_product(bits: int, dtype: str) -> None:
    m, n, k, warps = 16, 8, 256 // bits, 20
    places = draw_places(Metadata(k, bits, ordered=False), m, warps)
    rng = np.random.default_rng(12)
    a = rng.integers(0, 256, (m, k // 2, warps), dtype=np.uint8)
    b = rng.integers(0, 256, (k, n, warps), dtype=np.uint8)
    c = rng.integers(0, 1 << 32, (m, n, warps), dtype=np.uint32)

    def multiply(x: Array, y: Array, z: Array) -> Array:
        return multiply_add_integer(x, y, z, a_type=dtype, b_type=dtype)

    dense = expand(a, places, k)
    assert (np.count_nonzero(dense, axis=1) <= a.shape[1]).all()
    rows = SparseRows(places)
    sparse = multiply(rows.left(a), rows.picked(b), rows.accumulator(c))
    expected = multiply(dense, b, c)
    np.testing.assert_array_equal(rows.restore(sparse), expected)
    wrong = SparseRows(np.roll(places, 1, axis=0))
    other = multiply(wrong.left(a), wrong.picked(b), wrong.accumulator(c))
    assert (wrong.restore(other) != expected).any()


def finite(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    values = rng.standard_normal(shape) * 4.0 ** rng.integers(-3, 3, shape)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.float32).view(np.uint32)


@pytest.mark.parametrize(("bits", "dtype"), [(16, "f16"), (32, "tf32")])
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_step_fuses_as_many_stored_products_as_a_dense_one(
    bits: int, dtype: str, target: str
) -> None:
    """So does the dense product with zeros in between and steps of twice the length along k."""
    rules = TARGETS[target].dot16
    m, n, warps = 16, 8, 10
    ordered = draw_places(Metadata(32, bits, ordered=True), m, warps)
    rng = np.random.default_rng(13)
    a, b = finite(rng, (m, 16, warps), dtype), finite(rng, (32, n, warps), dtype)
    c = finite(rng, (m, n, warps), "f32")
    rows = SparseRows(ordered)
    operands = rows.left(a), rows.picked(b), rows.accumulator(c)
    sparse = rows.restore(multiply_add(*operands, dtype=dtype, acc="f32", rules=rules))
    dense = expand(a, ordered, 32)
    twice = replace(rules, chunk=2 * rules.chunk)
    expected = multiply_add(dense, b, c, dtype=dtype, acc="f32", rules=twice)
    np.testing.assert_array_equal(sparse, expected)
    once = multiply_add(dense, b, c, dtype=dtype, acc="f32", rules=rules)
    assert (once != expected).any()


def test_numbers_of_b_without_a_partner_are_not_looked_at() -> None:
    rows = SparseRows(np.array([[0, 1], [2, 3]])[..., np.newaxis])
    a = np.full((2, 2, 1), 0x3C00, np.uint16)
    b = np.array([0x3C00, 0x3C00, 0x7C00, 0x7E00], np.uint16)[:, None, None]
    operands = rows.left(a), rows.picked(b), rows.accumulator(np.zeros((2, 1, 1), np.uint32))
    rules = TARGETS["sm_80"].dot16
    d = rows.restore(multiply_add(*operands, dtype="f16", acc="f32", rules=rules))
    assert d[0, 0, 0] == np.float32(2).view(np.uint32)
    assert d[1, 0, 0] == 0x7FFFFFFF


def test_scales_stay_with_their_rows() -> None:
    m, n, warps = 3, 2, 4
    places = draw_places(Metadata(64, 8, ordered=False), m, warps)
    rng = np.random.default_rng(14)
    a = rng.integers(0, 128, (m, 32, warps), dtype=np.uint8) & 0x3F
    b = rng.integers(0, 128, (64, n, warps), dtype=np.uint8) & 0x3F
    c = finite(rng, (m, n, warps), "f32")
    left = rng.integers(120, 135, (m, 1, warps), dtype=np.uint8)
    right = rng.integers(120, 135, (1, n, warps), dtype=np.uint8)
    rules = TARGETS["sm_120a"].arithmetic.dot8
    assert isinstance(rules, DotProduct)
    types = {"a_type": "e4m3", "b_type": "e4m3"}
    rows = SparseRows(places)
    d = rows.restore(
        multiply_add_scaled(
            rows.left(a),
            rows.picked(b),
            rows.accumulator(c),
            rows.left(left),
            rows.repeated(right),
            **types,
            rules=rules,
        )
    )
    twice = replace(rules, chunk=2 * rules.chunk)
    dense = expand(a, places, 64)
    expected = multiply_add_scaled(dense, b, c, left, right, **types, rules=twice)
    np.testing.assert_array_equal(d, expected)
