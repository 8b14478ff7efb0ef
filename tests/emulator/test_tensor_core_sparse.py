"""Sparse products: which places metadata means, and that nothing but those is multiplied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxlab.emulator.number_formats import Array
from ptxlab.emulator.tensor_core import multiply_add
from ptxlab.emulator.tensor_core_integer import multiply_add_integer
from ptxlab.emulator.tensor_core_scaled import multiply_add_scaled
from ptxlab.emulator.tensor_core_sparse import SPARSITY, Rows, expand, stored_places
from ptxlab.isa.targets import TARGETS, DotProduct


def draw_metadata(name: str, m: int, windows: int, warps: int) -> Array:
    choices = np.array(list(SPARSITY[name].places), np.uint8)
    return np.random.default_rng(windows).choice(choices, (m, windows, warps))


def test_places_of_the_patterns() -> None:
    metadata = np.array([0b0100, 0b1110], np.uint8)[None, :, None]
    assert stored_places(metadata, SPARSITY["1:2"]).ravel().tolist() == [0, 3]
    metadata = np.array([0b0100, 0b1110, 0b1001], np.uint8)[None, :, None]
    assert stored_places(metadata, SPARSITY["2:4"]).ravel().tolist() == [0, 1, 6, 7, 9, 10]
    places = stored_places(metadata[:, 1:], SPARSITY["4:8"]).ravel().tolist()
    assert places == [4, 5, 6, 7, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("name", "bits"), [("2:4", 0), ("2:4", 0b1010), ("1:2", 0b1001), ("4:8", 15)]
)
def test_metadata_without_a_meaning_is_refused(name: str, bits: int) -> None:
    metadata = np.full((4, 2, 3), 0b1110, np.uint8)
    assert stored_places(metadata, SPARSITY[name]).shape == (4, 2 * SPARSITY[name].stored, 3)
    metadata[2, 1, 0] = bits
    with pytest.raises(ValueError, match=rf"0b{bits:04b} of row 2"):
        stored_places(metadata, SPARSITY[name])


@pytest.mark.parametrize(("name", "dtype"), [("2:4", "s8"), ("2:4", "u8"), ("4:8", "s4")])
def test_integers_equal_the_expanded_product(name: str, dtype: str) -> None:
    m, n, windows, warps = 16, 8, 8, 20
    sparsity = SPARSITY[name]
    places = stored_places(draw_metadata(name, m, windows, warps), sparsity)
    rng = np.random.default_rng(12)
    a = rng.integers(0, 256, (m, windows * sparsity.stored, warps), dtype=np.uint8)
    b = rng.integers(0, 256, (windows * sparsity.window, n, warps), dtype=np.uint8)
    c = rng.integers(0, 1 << 32, (m, n, warps), dtype=np.uint32)

    def multiply(x: Array, y: Array, z: Array) -> Array:
        return multiply_add_integer(x, y, z, a_type=dtype, b_type=dtype)

    dense = expand(a, places, len(b))
    assert (np.count_nonzero(dense, axis=1) <= a.shape[1]).all()
    rows = Rows(places)
    sparse = multiply(rows.left(a), rows.picked(b), rows.accumulator(c))
    expected = multiply(dense, b, c)
    np.testing.assert_array_equal(rows.restore(sparse), expected)
    wrong = Rows(np.roll(places, 1, axis=0))
    other = multiply(wrong.left(a), wrong.picked(b), wrong.accumulator(c))
    assert (wrong.restore(other) != expected).any()


def finite(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    values = rng.standard_normal(shape) * 4.0 ** rng.integers(-3, 3, shape)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.float32).view(np.uint32)


@pytest.mark.parametrize(("name", "dtype"), [("2:4", "f16"), ("1:2", "tf32")])
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_step_fuses_as_many_stored_products_as_a_dense_one(
    name: str, dtype: str, target: str
) -> None:
    """So does the dense product with zeros in between and steps of twice the length along k."""
    rules, sparsity = TARGETS[target].dot16, SPARSITY[name]
    m, n, warps = 16, 8, 10
    windows = 32 // sparsity.window
    ordered = np.sort(stored_places(draw_metadata(name, m, windows, warps), sparsity), axis=1)
    rng = np.random.default_rng(13)
    a, b = finite(rng, (m, 16, warps), dtype), finite(rng, (32, n, warps), dtype)
    c = finite(rng, (m, n, warps), "f32")
    rows = Rows(ordered)
    operands = rows.left(a), rows.picked(b), rows.accumulator(c)
    sparse = rows.restore(multiply_add(*operands, dtype=dtype, acc="f32", rules=rules))
    dense = expand(a, ordered, 32)
    twice = replace(rules, chunk=2 * rules.chunk)
    expected = multiply_add(dense, b, c, dtype=dtype, acc="f32", rules=twice)
    np.testing.assert_array_equal(sparse, expected)
    once = multiply_add(dense, b, c, dtype=dtype, acc="f32", rules=rules)
    assert (once != expected).any()


def test_numbers_of_b_without_a_partner_are_not_looked_at() -> None:
    metadata = np.full((2, 1, 1), 0b0100, np.uint8)
    metadata[1] = 0b1110
    rows = Rows(stored_places(metadata, SPARSITY["2:4"]))
    a = np.full((2, 2, 1), 0x3C00, np.uint16)
    b = np.array([0x3C00, 0x3C00, 0x7C00, 0x7E00], np.uint16)[:, None, None]
    operands = rows.left(a), rows.picked(b), rows.accumulator(np.zeros((2, 1, 1), np.uint32))
    rules = TARGETS["sm_80"].dot16
    d = rows.restore(multiply_add(*operands, dtype="f16", acc="f32", rules=rules))
    assert d[0, 0, 0] == np.float32(2).view(np.uint32)
    assert d[1, 0, 0] == 0x7FFFFFFF


def test_scales_stay_with_their_rows() -> None:
    m, n, warps = 3, 2, 4
    places = stored_places(draw_metadata("2:4", m, 16, warps), SPARSITY["2:4"])
    rng = np.random.default_rng(14)
    a = rng.integers(0, 128, (m, 32, warps), dtype=np.uint8) & 0x3F
    b = rng.integers(0, 128, (64, n, warps), dtype=np.uint8) & 0x3F
    c = finite(rng, (m, n, warps), "f32")
    left = rng.integers(120, 135, (m, 1, warps), dtype=np.uint8)
    right = rng.integers(120, 135, (1, n, warps), dtype=np.uint8)
    rules = TARGETS["sm_120a"].arithmetic.dot8
    assert isinstance(rules, DotProduct)
    types = {"a_type": "e4m3", "b_type": "e4m3"}
    rows = Rows(places)
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
