"""Block-scaled products: recorded MMA-Sim results, and models written from the formulas in fractions."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.isa.targets import TARGETS, DotProduct, GroupedDotProduct
from ptxlab.numbers.tensor_core_scaled import multiply_add_grouped, multiply_add_scaled
from tests.numbers.powers import exponent_of, power

VECTORS = Path(__file__).parent / "vectors"
FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
LOWEST = {"e4m3": -6, "e5m2": -14}
RTX = TARGETS["sm_120a"].arithmetic
EIGHT, FOUR = RTX.dot8, RTX.grouped4


def load(name: str) -> tuple[dict[str, Array], dict[str, str]]:
    with np.load(VECTORS / f"{name}.npz") as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays["about"]))["arithmetic"]


SCALED, SCALED_NAMES = load("scaled")
GROUPED, GROUPED_NAMES = load("grouped")


def replay_scaled(pair: str, rules: object) -> Array:
    assert isinstance(rules, DotProduct)
    a_type, b_type = pair.split(".")
    d: Array = multiply_add_scaled(
        SCALED["a"].T[None],
        SCALED["b"].T[:, None],
        SCALED["c"][None, None],
        SCALED["a_scales"].T[None],
        SCALED["b_scales"].T[:, None],
        a_type=a_type,
        b_type=b_type,
        rules=rules,
    )[0, 0]
    return d


def unpack(packed: Array) -> Array:
    """Take the two numbers of each byte, the high one first."""
    return np.stack([packed >> 4, packed & 15], axis=-1).reshape(len(packed), -1)


def replay_grouped(form: str, rules: GroupedDotProduct | None) -> Array:
    """Compute the recorded products with scales of "type count"."""
    assert rules is not None
    scale_type, blocks = form.split()
    d: Array = multiply_add_grouped(
        unpack(GROUPED["a"]).T[None],
        unpack(GROUPED["b"]).T[:, None],
        GROUPED[f"c_{scale_type}"][None, None],
        GROUPED[f"a_{scale_type}"].T[None, : int(blocks)],
        GROUPED[f"b_{scale_type}"].T[: int(blocks), None],
        scale_type=scale_type,
        rules=rules,
    )[0, 0]
    return d


@pytest.mark.parametrize("name", SCALED_NAMES)
def test_eight_bits_agree_with_mma_sim(name: str) -> None:
    architecture, _, types = name.rpartition(" ")
    asynchronous = TARGETS["sm_100a"].arithmetic.dot8_async
    rules = EIGHT if architecture == "RTX Blackwell" else asynchronous
    expected = SCALED[SCALED_NAMES[name]]
    assert len(expected) >= 1000
    np.testing.assert_array_equal(replay_scaled(types.removeprefix("f32."), rules), expected)


@pytest.mark.parametrize("name", GROUPED_NAMES)
def test_four_bits_agree_with_mma_sim(name: str) -> None:
    target = "sm_100a" if "tcgen05" in name else "sm_120a"
    expected = GROUPED[GROUPED_NAMES[name]]
    assert len(expected) >= 1000
    form = " ".join(name.split()[-2:])
    np.testing.assert_array_equal(
        replay_grouped(form, TARGETS[target].arithmetic.grouped4), expected
    )


@pytest.mark.parametrize(
    ("field", "by"),
    [
        ("fraction_bits", -1),
        ("fraction_bits", 1),
        ("chunk", -8),
        ("zero_exponent_f32", -1),
        ("zero_exponent_f32", 1),
    ],
)
def test_vectors_notice_wrong_rules_of_eight_bits(field: str, by: int) -> None:
    assert isinstance(EIGHT, DotProduct)
    wrong = replace(EIGHT, **{field: getattr(EIGHT, field) + by})
    noticed = 0
    for pair in ("e4m3.e4m3", "e2m1.e2m3"):
        expected = SCALED[SCALED_NAMES[f"RTX Blackwell f32.{pair}"]]
        noticed += int((replay_scaled(pair, wrong) != expected).sum())
    assert noticed > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fraction_bits", 34),
        ("fraction_bits", 36),
        ("group", 8),
        ("chunk", 32),
        ("zero_exponent", -138),
        ("zero_exponent", -140),
    ],
)
def test_vectors_notice_wrong_rules_of_four_bits(field: str, value: int) -> None:
    assert FOUR is not None
    wrong = replace(FOUR, **{field: value})
    noticed = 0
    for form in ("ue8m0 2", "ue8m0 4", "ue4m3 4"):
        expected = GROUPED[GROUPED_NAMES[f"RTX Blackwell {form}"]]
        noticed += int((replay_grouped(form, wrong) != expected).sum())
    assert noticed > 0


def test_targets_without_the_instructions_say_so() -> None:
    names = {name for name, target in TARGETS.items() if target.arithmetic.grouped4 is not None}
    assert names == {name for name, target in TARGETS.items() if target.capability >= 100}


# ---- Models -------------------------------------------------------------------------------------


def fuse(terms: list[tuple[Fraction, int]], c: float, fraction_bits: int, zero: int) -> int:
    """Add terms, given with their exponents, and ``c``; round toward zero to a word of f32."""
    addend = Fraction(c)
    terms = [*terms, (addend, exponent_of(addend, -126) if addend else zero)]
    unit = power(max(exponent for _, exponent in terms) - fraction_bits)
    total = sum((int(value / unit) for value, _ in terms), 0) * unit
    last = power(exponent_of(total, -126) - 23)
    with np.errstate(over="ignore"):
        result = np.float32(np.float64(int(total / last) * last)) + np.float32(0)
    return int(result.view(np.uint32))


@pytest.mark.parametrize("pair", ["e4m3.e4m3", "e4m3.e5m2"])
def test_eight_bits_agree_with_the_model(pair: str) -> None:
    assert isinstance(EIGHT, DotProduct)
    a_type, b_type = pair.split(".")
    rng = np.random.default_rng(9)
    m, n, k, warps = 2, 2, 64, 40
    a, b = rng.integers(0, 256, (m, k, warps)) & 0xBF, rng.integers(0, 256, (k, n, warps)) & 0xBF
    a, b = a.astype(np.uint8), b.astype(np.uint8)
    a_scales = rng.integers(0, 255, (m, 2, warps)).astype(np.uint8)
    a_scales[1] = a_scales[0]
    b_scales = np.full((2, n, warps), 127, np.uint8)
    b_scales[:] = np.clip(
        254 - a_scales[0][:, None].astype(int) - 60 * (np.arange(warps) % 3), 0, 254
    )
    c = (rng.standard_normal((m, n, warps)) * 2.0 ** rng.integers(-20, 20, warps)).astype(
        np.float32
    )
    words = c.view(np.uint32)
    d = multiply_add_scaled(
        a, b, words, a_scales, b_scales, a_type=a_type, b_type=b_type, rules=EIGHT
    )
    left, right = a.view(FORMATS[a_type]).astype(float), b.view(FORMATS[b_type]).astype(float)
    for i, j, warp in np.ndindex(m, n, warps):
        word = int(words[i, j, warp])
        for block in range(2):
            shift = int(a_scales[i, block, warp]) + int(b_scales[block, j, warp]) - 254
            terms = []
            for at in range(32 * block, 32 * block + 32):
                x, y = Fraction(left[i, at, warp]), Fraction(right[at, j, warp])
                exponent = exponent_of(x, LOWEST[a_type]) + exponent_of(y, LOWEST[b_type]) + shift
                value = x * y * power(shift)
                terms.append((value, exponent if value else EIGHT.zero_exponent_f32))
            addend = float(np.array(word, np.uint32).view(np.float32))
            word = fuse(terms, addend, EIGHT.fraction_bits, EIGHT.zero_exponent_f32)
        assert d[i, j, warp] == word


def scale_of(word: int, scale_type: str) -> tuple[Fraction, int]:
    if scale_type == "ue8m0":
        return power(word - 127), word - 127
    value = Fraction(float(np.array(word & 0x7F, np.uint8).view(ml_dtypes.float8_e4m3fn)))
    return value, exponent_of(value, -6)


@pytest.mark.parametrize(("scale_type", "blocks"), [("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4)])
def test_four_bits_agree_with_the_model(scale_type: str, blocks: int) -> None:
    assert FOUR is not None
    rng = np.random.default_rng(blocks)
    m, n, k, warps = 2, 3, 64, 33
    a, b = (
        rng.integers(0, 256, shape).astype(np.uint8) for shape in ((m, k, warps), (k, n, warps))
    )
    a[:, :16, ::3] &= 0xF8
    if scale_type == "ue8m0":
        a_scales, b_scales = (
            rng.integers(100, 150, shape).astype(np.uint8)
            for shape in ((m, blocks, warps), (blocks, n, warps))
        )
    else:
        a_scales, b_scales = (
            (rng.integers(0, 127, shape) | rng.integers(0, 2, shape) << 7).astype(np.uint8)
            for shape in ((m, blocks, warps), (blocks, n, warps))
        )
    c = (rng.standard_normal((m, n, warps)) * 2.0 ** rng.integers(-20, 20, warps)).astype(
        np.float32
    )
    d = multiply_add_grouped(
        a, b, c.view(np.uint32), a_scales, b_scales, scale_type=scale_type, rules=FOUR
    )
    left, right = ((x & 15).view(ml_dtypes.float4_e2m1fn).astype(float) for x in (a, b))
    for i, j, warp in np.ndindex(m, n, warps):
        terms = []
        for start in range(0, k, 16):
            block = start * blocks // k
            x, x_exponent = scale_of(int(a_scales[i, block, warp]), scale_type)
            y, y_exponent = scale_of(int(b_scales[block, j, warp]), scale_type)
            pairs = zip(
                left[i, start : start + 16, warp], right[start : start + 16, j, warp], strict=True
            )
            products = [Fraction(p) * Fraction(q) for p, q in pairs]
            nothing = not any(products) or not x * y
            exponent = FOUR.zero_exponent if nothing else x_exponent + y_exponent
            terms.append((sum(products, Fraction(0)) * x * y, exponent))
        expected = fuse(terms, float(c[i, j, warp]), FOUR.fraction_bits, FOUR.zero_exponent)
        assert d[i, j, warp] == expected


def test_a_cancelled_group_still_counts() -> None:
    """6 * 1 - 6 * 1 times 2**40 pushes a small term below the last bit kept; a zero group does not."""
    assert FOUR is not None
    six, e2m1_one, minus = 7, 2, 8
    a = np.zeros((1, 64, 1), np.uint8)
    b = np.full((64, 1, 1), e2m1_one, np.uint8)
    a[0, 16] = e2m1_one
    scales = np.full((1, 4, 1), 127, np.uint8)
    scales[0, 0] += 40
    others = np.full((4, 1, 1), 127, np.uint8)
    c = np.zeros((1, 1, 1), np.uint32)
    for first, expected in (((0, 0), 1.0), ((six, six | minus), 0.0)):
        a[0, :2, 0] = first
        d = multiply_add_grouped(a, b, c, scales, others, scale_type="ue8m0", rules=FOUR)
        assert d.view(np.float32)[0, 0, 0] == expected


def test_a_nan_scale_makes_nan_even_of_zeros() -> None:
    assert FOUR is not None
    assert isinstance(EIGHT, DotProduct)
    c = np.zeros((1, 1, 1), np.uint32)
    for nan, scale_type in ((255, "ue8m0"), (127, "ue4m3"), (255, "ue4m3")):
        a, b = np.zeros((1, 64, 1), np.uint8), np.zeros((64, 1, 1), np.uint8)
        scales, others = np.full((1, 4, 1), 56, np.uint8), np.full((4, 1, 1), 56, np.uint8)
        scales[0, 3] = nan
        d = multiply_add_grouped(a, b, c, scales, others, scale_type=scale_type, rules=FOUR)
        assert d[0, 0, 0] == 0x7FFFFFFF
    types = {"a_type": "e4m3", "b_type": "e4m3"}
    left, right = np.full((1, 1, 1), 255, np.uint8), np.full((1, 1, 1), 127, np.uint8)
    d = multiply_add_scaled(a[:, :32], b[:32], c, left, right, **types, rules=EIGHT)
    assert d[0, 0, 0] == 0x7FFFFFFF


def test_batches_do_not_touch_each_other() -> None:
    assert FOUR is not None
    rng = np.random.default_rng(11)
    shapes = ((16, 64, 70), (64, 8, 70), (16, 4, 70), (4, 8, 70))
    a, b, x, y = (rng.integers(0, 128, shape).astype(np.uint8) for shape in shapes)
    c = rng.integers(0, 1 << 30, (16, 8, 70)).astype(np.uint32)
    whole = multiply_add_grouped(a, b, c, x, y, scale_type="ue8m0", rules=FOUR)
    for warp in (0, 31, 32, 69):
        part = (..., slice(warp, warp + 1))
        alone = multiply_add_grouped(
            a[part], b[part], c[part], x[part], y[part], scale_type="ue8m0", rules=FOUR
        )
        np.testing.assert_array_equal(alone, whole[part])
