"""m8n8k4 and wmma forms: recorded MMA-Sim results where they are hardware, fractions where they are not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.isa.targets import TARGETS
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_m8n8k4, multiply_add_wmma
from tests.numbers.powers import exponent_of, power

VECTORS = Path(__file__).parent / "vectors"
TURING = TARGETS["sm_75"].arithmetic.m8n8k4
TYPES = [("f16", "f16"), ("f16", "f32"), ("f32", "f32")]
WORDS: dict[str, type[np.unsignedinteger]] = {"f16": np.uint16, "f32": np.uint32}
FLOATS: dict[str, type[np.floating]] = {"f16": np.float16, "f32": np.float32}


def load(c_type: str, d_type: str) -> dict[str, Array]:
    with np.load(VECTORS / f"m8n8k4_{c_type}_{d_type}.npz") as file:
        return dict(file)


@pytest.mark.parametrize(("c_type", "d_type"), TYPES)
def test_turing_agrees_with_mma_sim(c_type: str, d_type: str) -> None:
    arrays = load(c_type, d_type)
    a, b, c = arrays["a"].T[None], arrays["b"].T[:, None], arrays["c"][None, None]
    assert TURING is not None
    assert len(arrays["d0"]) >= 1000

    def noticed(**change: int) -> int:
        rules = replace(TURING, **change)
        d = multiply_add_m8n8k4(a, b, c, c_type=c_type, d_type=d_type, rules=rules)
        return int((d[0, 0] != arrays["d0"]).sum())

    assert noticed() == 0
    assert noticed(fraction_bits=TURING.fraction_bits - 1)
    assert noticed(fraction_bits=TURING.fraction_bits + 1)
    assert noticed(chunk=2)
    if d_type == "f16":
        assert noticed(zero_exponent_f16=TURING.zero_exponent_f16 + 1)


def test_only_turing_has_the_instruction() -> None:
    for target in TARGETS.values():
        assert (target.arithmetic.m8n8k4 is None) == (target.capability > 75)


def round_once(value: Fraction, form: str) -> Fraction:
    """Round a fraction to nearest even; the result is finite."""
    bits, lowest = (23, -126) if form == "f32" else (10, -14)
    unit = power(exponent_of(value, lowest) - bits)
    return round(value / unit) * unit


def software(a: list[Fraction], b: list[Fraction], c: Fraction, d_type: str) -> Fraction:
    """Follow the operations that ptxas makes of m8n8k4, each rounded."""
    if d_type == "f32":
        total = Fraction(0)
        for x, y in zip(a, b, strict=True):
            total = round_once(x * y + total, "f32")
        return round_once(c + total, "f32")
    for k in (0, 2):
        product = round_once(a[k] * b[k], "f32")
        c = round_once(c + round_once(a[k + 1] * b[k + 1] + product, "f32"), "f32")
    return round_once(c, "f16")


def fractions(words: Array, form: str) -> list[Fraction]:
    return [Fraction(float(x)) for x in words.view(FLOATS[form])]


def operands(c_type: str) -> tuple[Array, Array, Array]:
    """Draw finite numbers, [2, 4, 100], [4, 2, 100] and [2, 2, 100]."""
    rng = np.random.default_rng(7)
    spread = rng.integers(0, 3, 100)
    a = (rng.standard_normal((2, 4, 100)) * 4.0 ** rng.integers(-1, 2, (2, 4, 100))).astype("f2")
    b = (rng.standard_normal((4, 2, 100)) * 9.0**-spread).astype("f2")
    a[:, :, ::4] = -a[:, [1, 0, 3, 2], ::4]
    c = (rng.standard_normal((2, 2, 100)) * 5.0**-spread).astype(FLOATS[c_type])
    return a.view(np.uint16), b.view(np.uint16), c.view(WORDS[c_type])


@pytest.mark.parametrize(("c_type", "d_type"), TYPES)
def test_software_rounds_every_operation(c_type: str, d_type: str) -> None:
    a, b, c = operands(c_type)
    rules = TARGETS["sm_80"].arithmetic.m8n8k4
    d = multiply_add_m8n8k4(a, b, c, c_type=c_type, d_type=d_type, rules=rules)
    differs = 0
    for i, j, warp in np.ndindex(c.shape):
        left, right = fractions(a[i, :, warp], "f16"), fractions(b[:, j, warp], "f16")
        addend = fractions(c[i, j, warp : warp + 1], c_type)[0]
        expected = software(left, right, addend, d_type)
        actual = fractions(d[i, j, warp : warp + 1], d_type)[0]
        assert actual == expected
        exact = sum((x * y for x, y in zip(left, right, strict=True)), addend)
        differs += round_once(exact, d_type) != expected
    assert differs > 0 or d_type == "f16"


def test_software_has_two_orders() -> None:
    """A float32 D adds C to the sum of all products, a float16 D to that of two and then two more."""
    big, small = 2.0**12, 2.0**-12
    a = np.array([[big, 0, -big, 0]], np.float16)[:, :, None].view(np.uint16)
    b = np.array([[big], [0], [big], [0]], np.float16)[:, :, None].view(np.uint16)
    c = np.array([[[small]]], np.float16).view(np.uint16)
    f32 = multiply_add_m8n8k4(a, b, c, c_type="f16", d_type="f32", rules=None)
    assert f32.view(np.float32)[0, 0, 0] == small
    f16 = multiply_add_m8n8k4(a, b, c, c_type="f16", d_type="f16", rules=None)
    assert f16[0, 0, 0] == 0


@pytest.mark.parametrize(("c_type", "d_type"), TYPES)
def test_software_special_values(c_type: str, d_type: str) -> None:
    infinity, f16_one, nan = 0x7C00, 0x3C00, 0x7E01
    a = np.array([[f16_one, f16_one, f16_one, f16_one]] * 5, np.uint16)[:, :, None]
    a[1, 2], a[2, 1], a[3, 0], a[3, 3], a[4, 0] = nan, infinity, infinity, infinity | 1 << 15, 0
    b = np.full((4, 1, 1), f16_one, np.uint16)
    c = np.full((5, 1, 1), 0, WORDS[c_type])
    d = multiply_add_m8n8k4(a, b, c, c_type=c_type, d_type=d_type, rules=None)[:, 0, 0]
    canonical = 0x7FFF if d_type == "f16" else 0x7FFFFFFF
    assert d.view(FLOATS[d_type])[[0, 2, 4]].tolist() == [4, np.inf, 3]
    assert d[[1, 3]].tolist() == [canonical] * 2
    infinite, quiet = c.copy(), c.copy()
    infinite.view(FLOATS[c_type])[:] = -np.inf
    quiet.view(FLOATS[c_type])[:] = np.nan
    quiet[0] |= 1  # a NaN with a payload of its own
    for addend, row in ((infinite, 2), (quiet, 0)):
        d = multiply_add_m8n8k4(a, b, addend, c_type=c_type, d_type=d_type, rules=None)
        assert d[row, 0, 0] == canonical


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_wmma_converts_around_a_float32_product(target: str) -> None:
    rules = TARGETS[target].dot16
    rng = np.random.default_rng(8)
    a = rng.standard_normal((4, 16, 90)).astype(np.float16).view(np.uint16)
    b = rng.standard_normal((16, 4, 90)).astype(np.float16).view(np.uint16)
    narrow = rng.standard_normal((4, 4, 90)).astype(np.float16)
    wide = narrow.astype(np.float32).view(np.uint32)
    d = multiply_add(a, b, wide, dtype="f16", acc="f32", rules=rules)
    widened = multiply_add_wmma(
        a, b, narrow.view(np.uint16), c_type="f16", d_type="f32", rules=rules
    )
    np.testing.assert_array_equal(widened, d)
    narrowed = multiply_add_wmma(a, b, wide, c_type="f32", d_type="f16", rules=rules)
    np.testing.assert_array_equal(narrowed, d.view(np.float32).astype(np.float16).view(np.uint16))
    wide[0, 0, 0] = 0x7F800001
    d = multiply_add_wmma(a, b, wide, c_type="f32", d_type="f16", rules=rules)
    assert d[0, 0, 0] == 0x7FFF


def test_wmma_rounds_twice_into_float16() -> None:
    """1 + 2**-11 + 2**-25: float32 drops the last term and leaves a tie; one rounding goes up."""
    a = np.array([[1, 2.0**-11, 2.0**-13]], np.float16)[:, :, None].view(np.uint16)
    b = np.array([[1], [1], [2.0**-12]], np.float16)[:, :, None].view(np.uint16)
    c = np.zeros((1, 1, 1), np.uint32)
    rules = TARGETS["sm_90"].dot16
    twice = multiply_add_wmma(a, b, c, c_type="f32", d_type="f16", rules=rules)
    assert twice.view(np.float16)[0, 0, 0] == 1
    half = c.astype(np.uint16)
    once = multiply_add_wmma(a, b, half, c_type="f16", d_type="f16", rules=rules)
    assert once.view(np.float16)[0, 0, 0] == 1 + 2.0**-10
