"""Tensor-core arithmetic: recorded MMA-Sim results, a model in fractions, and what must not matter.

The vectors under ``vectors/`` are made by ``scripts/record_vectors``.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS, DotProduct
from ptxlab.numbers import tensor_core
from ptxlab.numbers.tensor_core import multiply_add
from tests.numbers.powers import exponent_of, power
from tests.together import in_one_test

VECTORS = Path(__file__).parent / "vectors"
PAIRS = [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")]
AMPERE, HOPPER = TARGETS["sm_80"].dot16, TARGETS["sm_90"].dot16
# MMA-Sim's names of architectures, by the compute capability they begin at.
ARCHITECTURES = {
    75: "Turing",
    80: "Ampere",
    89: "Ada Lovelace",
    90: "Hopper",
    100: "Blackwell",
    120: "RTX Blackwell",
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32}
EXPONENT_BITS = {"f16": 5, "bf16": 8, "tf32": 8, "f32": 8}


def architecture(target: str) -> str:
    capability = TARGETS[target].capability
    return ARCHITECTURES[max(first for first in ARCHITECTURES if first <= capability)]


def load(dtype: str, acc: str) -> tuple[dict[str, Array], dict[str, str]]:
    with np.load(VECTORS / f"{dtype}_{acc}.npz") as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays["about"]))["arithmetic"]


def replay(arrays: dict[str, Array], dtype: str, acc: str, rules: DotProduct) -> Array:
    """Compute the recorded dot products, one a warp."""
    a, b, c = arrays["a"].T[None], arrays["b"].T[:, None], arrays["c"][None, None]
    d: Array = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=rules)[0, 0]
    return d


RECORDED = [
    (dtype, acc, target)
    for dtype, acc in PAIRS
    for target in TARGETS
    if architecture(target) in load(dtype, acc)[1]
]


@pytest.mark.parametrize(("dtype", "acc", "target"), RECORDED)
def test_agrees_with_mma_sim(dtype: str, acc: str, target: str) -> None:
    arrays, arithmetic = load(dtype, acc)
    expected = arrays[arithmetic[architecture(target)]]
    assert len(expected) >= 1000
    actual = replay(arrays, dtype, acc, TARGETS[target].dot16)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("target", [name for name in TARGETS if architecture(name) != "Turing"])
def test_wmma_of_tf32_agrees_with_mma_sim(target: str) -> None:
    """Its steps have four products everywhere: two mma.m16n8k4, one after the other."""
    arrays, arithmetic = load("tf32", "f32")
    expected = arrays[arithmetic[f"{architecture(target)} wmma"]]
    actual = replay(arrays, "tf32", "f32", TARGETS[target].arithmetic.wmma_tf32)
    np.testing.assert_array_equal(actual, expected)
    same = np.array_equal(expected, arrays[arithmetic[architecture(target)]])
    assert same == (TARGETS[target].capability < 90)


@pytest.mark.parametrize(("dtype", "acc"), PAIRS)
@pytest.mark.parametrize(
    ("target", "name"), [("sm_90a", "Hopper wgmma"), ("sm_100a", "Blackwell tcgen05")]
)
def test_asynchronous_forms_agree_with_mma_sim(
    dtype: str, acc: str, target: str, name: str
) -> None:
    arrays, arithmetic = load(dtype, acc)
    actual = replay(arrays, dtype, acc, TARGETS[target].dot16)
    np.testing.assert_array_equal(actual, arrays[arithmetic[name]])


def test_every_target_is_recorded() -> None:
    assert {target for *_, target in RECORDED} == set(TARGETS)


RULES = {"Ampere": AMPERE, "Hopper": HOPPER}
FAULTS = [
    (name, field, by)
    for name, chunk in (("Ampere", +8), ("Hopper", -8))
    for field, by in (
        ("fraction_bits", -1),
        ("fraction_bits", +1),
        ("chunk", chunk),
        ("chunk", -4),
        ("zero_exponent_f32", -1),
        ("zero_exponent_f32", +1),
        ("zero_exponent_f16", -1),
        ("zero_exponent_f16", +1),
    )
]


@in_one_test(("name", "field", "by"), FAULTS)
def test_vectors_notice_wrong_rules(name: str, field: str, by: int) -> None:
    """Each number in the rules decides some recorded bits, so it cannot be wrong unseen."""
    wrong = RULES[name]
    wrong = replace(wrong, **{field: getattr(wrong, field) + by})
    noticed = 0
    for dtype, acc in PAIRS:
        arrays, arithmetic = load(dtype, acc)
        noticed += int((replay(arrays, dtype, acc, wrong) != arrays[arithmetic[name]]).sum())
    assert noticed > 0


# ---- A model written from the formula, in Python integers and fractions -------------------------


@cache
def term(word: int, form: str) -> tuple[Fraction | str, int]:
    """Split a word into its value, or "inf", "-inf" or "nan", and the formula's exponent."""
    width = EXPONENT_BITS[form]
    bits = BITS[form]
    fraction_bits = 10 if form == "tf32" else bits - 1 - width
    word >>= bits - 1 - width - fraction_bits
    sign = -1 if word >> (width + fraction_bits) else 1
    field = (word >> fraction_bits) & ((1 << width) - 1)
    fraction = word & ((1 << fraction_bits) - 1)
    bias = (1 << (width - 1)) - 1
    if field == (1 << width) - 1:
        return ("nan" if fraction else "inf" if sign > 0 else "-inf"), 0
    exponent = max(field, 1) - bias
    significand = fraction + ((1 << fraction_bits) if field else 0)
    return sign * significand * power(exponent - fraction_bits), exponent


def special(pairs: list[tuple[Fraction | str, Fraction | str]], c: Fraction | str) -> str:
    """Say "nan", "inf" or "-inf" if the sum of products and c is not finite, "" if it is."""
    signs = set()
    for x, y in [*pairs, (c, Fraction(1))]:
        if "nan" in (x, y):
            return "nan"
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            continue
        if x == 0 or y == 0:
            return "nan"
        negative = [term == "-inf" or (isinstance(term, Fraction) and term < 0) for term in (x, y)]
        signs.add("-inf" if negative[0] != negative[1] else "inf")
    return "" if not signs else signs.pop() if len(signs) == 1 else "nan"


def rounded(value: Fraction, acc: str) -> int:
    """Round to a word: f32 toward zero, f16 to the nearest even; a zero is positive."""
    bits, width = BITS[acc], EXPONENT_BITS[acc]
    fraction_bits, bias = bits - 1 - width, (1 << (width - 1)) - 1
    exponent = exponent_of(value, 1 - bias)
    exact = abs(value) / power(exponent - fraction_bits)
    units = int(exact) if acc == "f32" else round(exact)
    word = ((exponent + bias - 1) << fraction_bits) + units
    word = min(word, ((1 << width) - 1) << fraction_bits)
    return word | (1 << (bits - 1) if value < 0 and units else 0)


def model(a: list[int], b: list[int], c: int, dtype: str, acc: str, rules: DotProduct) -> int:
    """Compute one dot product, chunk after chunk."""
    step = rules.chunk * 16 // BITS[dtype]
    zero = rules.zero_exponent_f32 if acc == "f32" else rules.zero_exponent_f16
    for start in range(0, len(a), step):
        left = [term(word, dtype) for word in a[start : start + step]]
        right = [term(word, dtype) for word in b[start : start + step]]
        addend = term(c, acc)
        kind = special([(x[0], y[0]) for x, y in zip(left, right, strict=True)], addend[0])
        if kind:
            infinity = ((1 << EXPONENT_BITS[acc]) - 1) << (BITS[acc] - 1 - EXPONENT_BITS[acc])
            sign = 1 << (BITS[acc] - 1)
            c = {"nan": sign - 1, "inf": infinity, "-inf": infinity | sign}[kind]
            continue
        terms = [addend]
        for (x, ex), (y, ey) in zip(left, right, strict=True):
            assert isinstance(x, Fraction)
            assert isinstance(y, Fraction)
            terms.append((x * y, ex + ey))
        top = max(zero if value == 0 else exponent for value, exponent in terms)
        unit = power(top - rules.fraction_bits)
        total = sum(int(Fraction(value) / unit) for value, _ in terms)
        c = rounded(total * unit, acc)
    return c


def model_all(a: Array, b: Array, c: Array, dtype: str, acc: str, rules: DotProduct) -> Array:
    d = np.empty_like(c)
    for i, j, warp in np.ndindex(*c.shape):
        left, right = a[i, :, warp].tolist(), b[:, j, warp].tolist()
        d[i, j, warp] = model(left, right, int(c[i, j, warp]), dtype, acc, rules)
    return d


def single(values: list[tuple[int, int]], c: int, dtype: str, acc: str, rules: DotProduct) -> int:
    """Compute a single dot product of (a, b) pairs with both, and insist that they agree."""
    words = np.array(values, f"u{BITS[dtype] // 8}").reshape(-1, 2)
    a, b = words[:, 0][None, :, None], words[:, 1][:, None, None]
    addend = np.array([[[c]]], f"u{BITS[acc] // 8}")
    d = int(multiply_add(a, b, addend, dtype=dtype, acc=acc, rules=rules)[0, 0, 0])
    assert d == model([x for x, _ in values], [y for _, y in values], c, dtype, acc, rules)
    return d


def f16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def bf16(value: float) -> int:
    word = int(np.float32(value).view(np.uint32))
    assert word & 0xFFFF == 0
    return word >> 16


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def test_bits_below_the_last_one_kept_are_lost_term_by_term() -> None:
    tiny = [(f16(2.0**-13), f16(2.0**-12))] * 8
    assert single(tiny, f32(1), "f16", "f32", HOPPER) == f32(1 + 2.0**-22)
    assert single(tiny, f32(1), "f16", "f32", AMPERE) == f32(1)
    assert single(tiny, f32(-1), "f16", "f32", AMPERE) == f32(-1)


def test_products_are_not_renormalised() -> None:
    """1.5 * 1.5 = 2.25 has the exponent 0, so a term of 2**-25 is still kept on Hopper."""
    pairs = [(f16(1.5), f16(1.5)), (f16(-1.5), f16(1.5)), (f16(2.0**-13), f16(2.0**-12))]
    assert single(pairs, 0, "f16", "f32", HOPPER) == f32(2.0**-25)
    assert single(pairs, 0, "f16", "f32", AMPERE) == 0
    pairs[0], pairs[1] = (f16(2), f16(1)), (f16(-2), f16(1))
    assert single(pairs, 0, "f16", "f32", HOPPER) == 0


def test_a_chunk_ends_where_the_chip_says() -> None:
    """A small term next to 2**20 is cut off in the same step, and survives in the step after."""
    big, negative, small = (f16(1024), f16(1024)), (f16(-1024), f16(1024)), (f16(2.0**-6), f16(1))
    zeros = [(0, 0)] * 6
    pairs = [big, negative, *zeros, small, (0, 0), *zeros]
    assert single(pairs, 0, "f16", "f32", AMPERE) == f32(2.0**-6)
    assert single(pairs, 0, "f16", "f32", HOPPER) == 0


def test_products_beyond_f32_cancel() -> None:
    big, more = bf16(2.0**127), bf16(2.0**100)
    assert single([(big, more), (big, more ^ 0x8000)], f32(3), "bf16", "f32", HOPPER) == 0
    assert single([(big, bf16(4)), (big, bf16(-3))], 0, "bf16", "f32", HOPPER) == f32(2.0**127)


def test_overflow_is_infinite_only_after_truncation() -> None:
    largest = 0x7F7FFFFF
    assert single([(bf16(2.0**103), bf16(0.5))], largest, "bf16", "f32", HOPPER) == largest
    assert single([(bf16(2.0**103), bf16(2.0))], largest, "bf16", "f32", HOPPER) == 0x7F800000
    assert single([(bf16(-(2.0**103)), bf16(2.0))], 0xFF7FFFFF, "bf16", "f32", HOPPER) == 0xFF800000
    assert single([(f16(15), f16(1))], f16(65504), "f16", "f16", HOPPER) == f16(65504)
    assert single([(f16(16), f16(1))], f16(65504), "f16", "f16", HOPPER) == 0x7C00


def test_subnormals_are_kept() -> None:
    assert single([(0, 0)], 1, "f16", "f32", HOPPER) == 1
    assert single([(0, 0)], 0x80000001, "bf16", "f32", AMPERE) == 0x80000001
    assert single([(1, f16(1))], 1, "f16", "f16", HOPPER) == 2
    assert single([(1, 1)], 0, "f16", "f32", HOPPER) == f32(2.0**-48)
    assert single([(1, bf16(2.0**-17))], 5, "bf16", "f32", HOPPER) == 5  # 5.5 units of 2**-149
    assert single([(1, bf16(2.0**-17))] * 2, 5, "bf16", "f32", HOPPER) == 6


def test_zero_results_are_positive() -> None:
    assert single([(0x8000, f16(1))], 0x80000000, "f16", "f32", HOPPER) == 0
    assert single([(f16(-1), f16(1))], f32(1), "f16", "f32", HOPPER) == 0
    assert single([(0x8001, 1)], 0, "f16", "f16", HOPPER) == 0
    assert single([(0x8001, 1)], 0, "bf16", "f32", HOPPER) == 0


@pytest.mark.parametrize(("dtype", "acc"), PAIRS)
def test_special_values(dtype: str, acc: str) -> None:
    bits, width = BITS[dtype], EXPONENT_BITS[dtype]
    shift = bits - 1 - width
    infinity, unit, minus = (
        ((1 << width) - 1) << shift,
        ((1 << (width - 1)) - 1) << shift,
        1 << (bits - 1),
    )
    nan = infinity | 1 << (shift - 1)
    top = BITS[acc] - 1
    acc_infinity = ((1 << EXPONENT_BITS[acc]) - 1) << (top - EXPONENT_BITS[acc])
    acc_nan = (1 << top) - 1
    expectations: list[tuple[list[tuple[int, int]], int, int]] = [
        ([(infinity, unit)], 0, acc_infinity),
        ([(infinity, unit | minus)], 0, acc_infinity | 1 << top),
        ([(unit, unit)], acc_infinity | 1 << top, acc_infinity | 1 << top),
        ([(infinity, 0)], 0, acc_nan),
        ([(minus, infinity)], acc_infinity, acc_nan),
        ([(infinity, unit), (infinity, unit | minus)], 0, acc_nan),
        ([(infinity, unit)], acc_infinity | 1 << top, acc_nan),
        ([(nan | minus, unit)], 0, acc_nan),
        ([(0, nan)], acc_infinity, acc_nan),
        ([(unit, unit)], acc_infinity | 1 | 1 << top, acc_nan),
        ([(infinity, infinity | minus)], acc_infinity | 1 << top, acc_infinity | 1 << top),
    ]
    for pairs, c, expected in expectations:
        for rules in (AMPERE, HOPPER):
            assert single(pairs, c, dtype, acc, rules) == expected, (pairs, c)
            assert single([(unit, unit)] * 17 + pairs, c, dtype, acc, rules) == expected


# ---- Shapes, batches and blocks -----------------------------------------------------------------


def draw(dtype: str, shape: tuple[int, ...], seed: int, *, raw: bool) -> Array:
    """Draw words: any bits, or numbers around 1 with a few zeros among them."""
    rng = np.random.default_rng(seed)
    word = np.dtype(f"u{BITS[dtype] // 8}")
    if raw:
        return rng.integers(0, 1 << BITS[dtype], shape, dtype=word)
    values = rng.standard_normal(shape).astype(np.float32)
    values[rng.random(shape) < 0.05] = 0
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> (32 - BITS[dtype])).astype(word)


def operands(
    dtype: str, acc: str, m: int, n: int, k: int, warps: int, *, raw: bool
) -> tuple[Array, Array, Array]:
    return (
        draw(dtype, (m, k, warps), 1, raw=raw),
        draw(dtype, (k, n, warps), 2, raw=raw),
        draw(acc, (m, n, warps), 3, raw=raw),
    )


SHAPES = [(16, 8, 16, 1), (3, 5, 7, 3), (1, 1, 1, 1), (8, 8, 4, 2), (2, 1, 33, 4), (1, 2, 19, 40)]


@in_one_test("rules", [AMPERE, HOPPER])
@in_one_test(("dtype", "acc"), PAIRS)
@in_one_test("raw", [True, False])
def test_agrees_with_the_model(dtype: str, acc: str, rules: DotProduct, raw: bool) -> None:
    for m, n, k, warps in SHAPES:
        a, b, c = operands(dtype, acc, m, n, k, warps, raw=raw)
        actual = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=rules)
        np.testing.assert_array_equal(actual, model_all(a, b, c, dtype, acc, rules))


def test_agrees_with_the_model_under_rules_of_no_chip() -> None:
    for rules in (
        DotProduct(30, 32, -30, -140),
        DotProduct(10, 3, -5, -20),
        DotProduct(23, 4, -19, -131),
    ):
        for dtype, acc in PAIRS:
            a, b, c = operands(dtype, acc, 2, 3, 20, 4, raw=False)
            actual = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=rules)
            np.testing.assert_array_equal(actual, model_all(a, b, c, dtype, acc, rules))


def test_the_largest_sums_fit() -> None:
    """Every significand near 2: sixteen terms just below 2**27 fill an int32, 32 would overflow it."""
    most = 0x3FFF
    for count, chunk in ((16, 16), (32, 32)):
        for pair in ((most, most), (most, most | 0x8000)):
            rules = replace(HOPPER, chunk=chunk)
            c = 0x3FFFFFFF | (pair[1] & 0x8000) << 16
            single([pair] * count, c, "f16", "f32", rules)


def test_a_zero_term_can_have_the_largest_exponent() -> None:
    rules = DotProduct(10, 8, -5, -20)
    assert single([(0, 0)], f16(2.0**-10 + 2.0**-16), "f16", "f16", rules) == f16(2.0**-10)
    c = f32(2.0**-24 + 2.0**-31)
    assert single([(0, 0)], c, "bf16", "f32", rules) == f32(2.0**-24)
    assert single([(1, 1)], c, "f16", "f32", rules) == c


def test_no_warps_and_no_k() -> None:
    a, b, c = operands("f16", "f32", 16, 8, 16, 0, raw=True)
    assert multiply_add(a, b, c, dtype="f16", acc="f32", rules=HOPPER).shape == (16, 8, 0)
    a, b, c = operands("f16", "f32", 16, 8, 0, 3, raw=True)
    np.testing.assert_array_equal(multiply_add(a, b, c, dtype="f16", acc="f32", rules=HOPPER), c)


# How warps are cut into blocks does not depend on what they hold: any bits of all types, numbers of the first.
@pytest.mark.parametrize(
    ("raw", "dtype", "acc"),
    [
        pytest.param(
            raw,
            *pair,
            id="-".join(["bits" if raw else "numbers", *pair]),
            marks=[pytest.mark.thorough] * (not raw and number > 0),
        )
        for raw in (True, False)
        for number, pair in enumerate(PAIRS)
    ],
)
def test_warps_and_blocks_do_not_touch_each_other(
    dtype: str, acc: str, raw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = operands(dtype, acc, 16, 8, 16, 1000, raw=raw)
    kept = a.copy(), b.copy(), c.copy()
    whole = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=HOPPER)
    for before, after in zip(kept, (a, b, c), strict=True):
        np.testing.assert_array_equal(before, after)

    order = np.random.default_rng(4).permutation(1000)
    shuffled = multiply_add(
        a[..., order], b[..., order], c[..., order], dtype=dtype, acc=acc, rules=HOPPER
    )
    np.testing.assert_array_equal(shuffled, whole[..., order])
    for warp in (0, 511, 512, 999):
        cut = slice(warp, warp + 1)
        alone = multiply_add(
            a[..., cut], b[..., cut], c[..., cut], dtype=dtype, acc=acc, rules=HOPPER
        )
        np.testing.assert_array_equal(alone, whole[..., cut])

    monkeypatch.setattr(tensor_core, "_WARPS", 37)
    monkeypatch.setattr(tensor_core, "_ELEMENTS", 37 * 30)
    monkeypatch.setattr(tensor_core, "_PRODUCTS", 37 * 3 * 16 * 2)
    tensor_core._memory.cache_clear()
    small = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=HOPPER)
    tensor_core._memory.cache_clear()
    np.testing.assert_array_equal(small, whole)


def test_a_large_tile_is_its_small_tiles() -> None:
    a, b, c = operands("bf16", "f32", 64, 256, 16, 6, raw=False)
    whole = multiply_add(a, b, c, dtype="bf16", acc="f32", rules=HOPPER)
    for row, column in ((0, 0), (16, 128), (48, 248)):
        rows, columns = slice(row, row + 16), slice(column, column + 8)
        tile = multiply_add(
            a[rows], b[:, columns], c[rows, columns], dtype="bf16", acc="f32", rules=HOPPER
        )
        np.testing.assert_array_equal(tile, whole[rows, columns])


@pytest.mark.parametrize(("dtype", "acc"), PAIRS)
def test_narrow_arithmetic_equals_the_definition(
    dtype: str, acc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending every element through the float64 definition gives the same bits."""
    for raw in (True, False):
        a, b, c = operands(dtype, acc, 16, 8, 32, 40, raw=raw)
        fast = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=AMPERE)
        with monkeypatch.context() as patch:
            patch.setattr(tensor_core, "HIGHEST", -10_000)
            exact = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=AMPERE)
        np.testing.assert_array_equal(fast, exact)


def test_threads_do_not_share_memory() -> None:
    a, b, c = operands("f16", "f32", 16, 8, 16, 200, raw=False)

    def add(shift: int) -> Array:
        rolled = (np.roll(array, shift, axis=2) for array in (a, b, c))
        return multiply_add(*rolled, dtype="f16", acc="f32", rules=HOPPER)

    whole = add(0)
    with ThreadPoolExecutor(4) as pool:
        for shift, result in enumerate(pool.map(add, range(40))):
            np.testing.assert_array_equal(result, np.roll(whole, shift, axis=2))


def test_refuses_what_it_does_not_model() -> None:
    a, b, c = operands("bf16", "f16", 2, 2, 2, 2, raw=True)
    with pytest.raises(Unsupported, match=r"\.bf16 into \.f16"):
        multiply_add(a, b, c, dtype="bf16", acc="f16", rules=HOPPER)
    with pytest.raises(ValueError, match="shapes"):
        multiply_add(a, b[:1], c, dtype="f16", acc="f16", rules=HOPPER)
    with pytest.raises(ValueError, match="words"):
        multiply_add(a, b, c, dtype="f16", acc="f32", rules=HOPPER)
    with pytest.raises(ValueError, match="no step"):
        multiply_add(a[:, :0], b[:0], c, dtype="f16", c_dtype="f16", acc="f32", rules=HOPPER)
