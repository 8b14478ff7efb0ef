"""Products of 8-bit containers: formats, recorded MMA-Sim results, a model in fractions, unpacking."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS, DotProduct, UnpackedDotProduct
from ptxlab.numbers.fused_step import OPERANDS
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_bytes
from tests.numbers.powers import exponent_of, power
from tests.together import in_one_test

VECTORS = Path(__file__).parent / "vectors"
LIBRARY = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
LOWEST = {"e4m3": -6, "e5m2": -14, "e3m2": -2, "e2m3": 0, "e2m1": 0}
ARCHITECTURES = {"sm_89": "Ada Lovelace", "sm_90": "Hopper", "sm_90a": "Hopper"}
ARCHITECTURES |= dict.fromkeys(
    ("sm_100", "sm_100a", "sm_103", "sm_103a", "sm_107", "sm_107a", "sm_110", "sm_110a"),
    "Blackwell",
)
ARCHITECTURES |= dict.fromkeys(("sm_120", "sm_120a", "sm_121", "sm_121a"), "RTX Blackwell")
ASYNC = {"sm_90a": "Hopper wgmma", "sm_100a": "Blackwell tcgen05", "sm_103a": "Blackwell tcgen05"}
ADA, HOPPER, RTX = (TARGETS[name].arithmetic.dot8 for name in ("sm_89", "sm_90", "sm_120"))


def numbers(words: Array, dtype: str) -> Array:
    """Read bytes with ml_dtypes."""
    if dtype in ("e3m2", "e2m3"):
        words = words & 63
    elif dtype == "e2m1":
        words = words >> 2 & 15
    values: Array = words.astype(np.uint8).view(LIBRARY[dtype]).astype(np.float64)
    return values


@pytest.mark.parametrize("dtype", LIBRARY)
def test_every_byte_is_what_ml_dtypes_says(dtype: str) -> None:
    words = np.arange(256, dtype=np.uint8)
    values, exponents = OPERANDS[dtype].decode(words)
    expected = numbers(words, dtype)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))
    for value, exponent in zip(expected, exponents, strict=True):
        if math.isfinite(value) and value:
            assert exponent == max(math.frexp(value)[1] - 1, LOWEST[dtype])
    assert (exponents[~np.isfinite(expected)] > 1000).all()
    assert (exponents[expected == 0] < -1000).all()


# ---- Recorded results ---------------------------------------------------------------------------


def load() -> tuple[dict[str, Array], dict[str, str]]:
    with np.load(VECTORS / "bytes.npz") as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays["about"]))["arithmetic"]


ARRAYS, RECORDED = load()


def replay(types: str, rules: DotProduct | UnpackedDotProduct | None) -> Array:
    """Compute the recorded dot products of "acc.a.b", one a warp."""
    assert rules is not None
    acc, a_type, b_type = types.split(".")
    a, b, c = ARRAYS["a"].T[None], ARRAYS["b"].T[:, None], ARRAYS[f"c_{acc}"][None, None]
    d: Array = multiply_add_bytes(a, b, c, a_type=a_type, b_type=b_type, acc=acc, rules=rules)[0, 0]
    return d


@pytest.mark.parametrize("target", ARCHITECTURES)
def test_agrees_with_mma_sim(target: str) -> None:
    arithmetic = TARGETS[target].arithmetic
    compared = 0
    for name, key in RECORDED.items():
        architecture, _, types = name.rpartition(" ")
        if architecture == ARCHITECTURES[target]:
            assert len(ARRAYS[key]) >= 1000
            np.testing.assert_array_equal(replay(types, arithmetic.dot8), ARRAYS[key], name)
            compared += 1
    count = sum(name in LIBRARY for name in arithmetic.types)
    assert compared == 2 * count**2


@pytest.mark.parametrize("target", ASYNC)
def test_asynchronous_forms_agree_with_mma_sim(target: str) -> None:
    names = [name for name in RECORDED if name.startswith(ASYNC[target])]
    for name in names:
        d = replay(name.rpartition(" ")[2], TARGETS[target].arithmetic.dot8_async)
        np.testing.assert_array_equal(d, ARRAYS[RECORDED[name]], name)
    assert len(names) in (8, 50)


def test_every_target_with_bytes_is_recorded() -> None:
    assert set(ARCHITECTURES) == {n for n, t in TARGETS.items() if t.arithmetic.dot8 is not None}


@in_one_test(
    ("target", "field", "by"),
    [
        ("sm_89", "fraction_bits", -1),
        ("sm_89", "fraction_bits", +1),
        ("sm_89", "result_bits", -1),
        ("sm_89", "result_bits", +1),
        ("sm_89", "chunk", +8),
        ("sm_89", "chunk", -4),
        ("sm_120", "fraction_bits", -1),
        ("sm_120", "fraction_bits", +1),
        ("sm_120", "chunk", -8),
    ],
)
def test_vectors_notice_wrong_rules(target: str, field: str, by: int) -> None:
    """Each number decides some bits, but for the exponent of a zero: no product reaches so low."""
    rules = TARGETS[target].arithmetic.dot8
    assert isinstance(rules, DotProduct)
    wrong = replace(rules, **{field: getattr(rules, field) + by})
    noticed = 0
    for acc in ("f32", "f16"):
        types = f"{acc}.e5m2.e5m2"
        expected = ARRAYS[RECORDED[f"{ARCHITECTURES[target]} {types}"]]
        noticed += int((replay(types, wrong) != expected).sum())
    assert noticed > 0


def test_vectors_notice_hardware_taken_for_software_and_other_generations() -> None:
    for taken in ("sm_89", "sm_90", "sm_120"):
        for other in ("sm_89", "sm_90", "sm_120"):
            d = replay("f32.e4m3.e5m2", TARGETS[taken].arithmetic.dot8)
            expected = ARRAYS[RECORDED[f"{ARCHITECTURES[other]} f32.e4m3.e5m2"]]
            assert np.array_equal(d, expected) == (taken == other)


# ---- A model written from the formula -----------------------------------------------------------


def to_word(value: Fraction, acc: str, bits: int) -> int:
    """Round as a chip does: f32 toward zero keeping ``bits`` of the fraction, f16 to nearest even."""
    if acc == "f16":
        with np.errstate(over="ignore"):
            word = np.float16(np.float64(value)) + np.float16(0)
        return int(word.view(np.uint16))
    unit = power(exponent_of(value, -126) - bits)
    return int((np.float32(float(int(value / unit) * unit)) + np.float32(0)).view(np.uint32))


def model(a: list[float], b: list[float], c: int, types: str, rules: DotProduct) -> int:
    """Compute one dot product of finite numbers."""
    acc, *operands = types.split(".")
    step = 2 * rules.chunk
    zero = rules.zero_exponent_f32 if acc == "f32" else rules.zero_exponent_f16
    dtype, lowest = (np.float32, -126) if acc == "f32" else (np.float16, -14)
    for start in range(0, len(a), step):
        terms = []
        for x, y in zip(a[start : start + step], b[start : start + step], strict=True):
            pair = [Fraction(x), Fraction(y)]
            exponents = map(exponent_of, pair, (LOWEST[operand] for operand in operands))
            terms.append((pair[0] * pair[1], sum(exponents)))
        addend = Fraction(float(np.array(c, f"u{np.dtype(dtype).itemsize}").view(dtype)))
        terms.append((addend, exponent_of(addend, lowest)))
        top = max(exponent if value else zero for value, exponent in terms)
        unit = power(top - rules.fraction_bits)
        total = sum((int(value / unit) for value, _ in terms), 0)
        c = to_word(total * unit, acc, rules.result_bits)
    return c


@in_one_test("acc", ["f32", "f16"])
@in_one_test("pair", ["e4m3.e5m2", "e5m2.e5m2", "e3m2.e4m3", "e2m1.e2m3"])
@in_one_test("target", ["sm_89", "sm_120"])
def test_agrees_with_the_model(target: str, pair: str, acc: str) -> None:
    rules = TARGETS[target].arithmetic.dot8
    assert isinstance(rules, DotProduct)
    rng = np.random.default_rng(5)
    m, n, k, warps = 3, 2, 40, 9
    a = rng.integers(0, 256, (m, k, warps), dtype=np.uint8) & 0xBB
    b = rng.integers(0, 256, (k, n, warps), dtype=np.uint8) & 0xBB
    scale = 10.0 ** rng.integers(-6, 5, (m, n, warps))
    numbers_c = rng.standard_normal((m, n, warps)) * np.minimum(scale, 1e3)
    c = numbers_c.astype(np.float32 if acc == "f32" else np.float16)
    c = c.view(np.uint32 if acc == "f32" else np.uint16)
    a_type, b_type = pair.split(".")
    actual = multiply_add_bytes(a, b, c, a_type=a_type, b_type=b_type, acc=acc, rules=rules)
    left, right = numbers(a, a_type), numbers(b, b_type)
    for i, j, warp in np.ndindex(m, n, warps):
        expected = model(
            left[i, :, warp].tolist(),
            right[:, j, warp].tolist(),
            int(c[i, j, warp]),
            f"{acc}.{pair}",
            rules,
        )
        assert actual[i, j, warp] == expected, (i, j, warp)


def single(values: Sequence[tuple[float, float]], c: float, rules: DotProduct) -> float:
    """Compute one e5m2 dot product into f32."""
    words = np.array(values, np.float64).astype(ml_dtypes.float8_e5m2).view(np.uint8)
    a, b = words[:, 0][None, :, None], words[:, 1][:, None, None]
    addend = np.array([[[c]]], np.float32).view(np.uint32)
    d = multiply_add(a, b, addend, dtype="e5m2", acc="f32", rules=rules)
    return float(d.view(np.float32)[0, 0, 0])


def test_ada_keeps_thirteen_bits() -> None:
    assert isinstance(ADA, DotProduct)
    assert isinstance(RTX, DotProduct)
    assert single([(1, 1)], 2.0**-13, ADA) == 1 + 2.0**-13
    assert single([(1, 1)], 2.0**-14, ADA) == 1
    assert single([(0, 0)], 1 + 2.0**-14, ADA) == 1
    assert single([(0, 0)], -(2.0**-140), ADA) == 0
    assert single([(0, 0)], -(2.0**-139), ADA) == -(2.0**-139)
    assert single([(1, 1)], 2.0**-23, RTX) == 1 + 2.0**-23
    sixteen = [(1024, 1024), (-1024, 1024), *[(0, 0)] * 14, (2.0**-6, 1)]
    assert single(sixteen, 0, ADA) == 2.0**-6
    assert single(sixteen, 0, RTX) == 0


def test_thirty_two_large_products_do_not_overflow() -> None:
    assert isinstance(RTX, DotProduct)
    assert single([(57344, 57344)] * 32, 0, RTX) == 57344.0**2 * 32
    assert single([(57344, -57344)] * 32, -(2.0**33), RTX) == -(57344.0**2 * 32) - 2.0**33


def test_unpacked_products_add_c_last_and_round_to_nearest() -> None:
    """1 + 2**-24 is a tie, and 1 + 1.5 * 2**-24 is above it; toward zero both would be 1."""
    assert isinstance(HOPPER, UnpackedDotProduct)
    a = np.zeros((1, 8, 1), np.uint8)
    a[0, 3] = 0x3C
    b = np.full((8, 1, 1), 0x3C, np.uint8)
    for addend, expected in ((2.0**-24, 1.0), (1.5 * 2.0**-24, 1 + 2.0**-23)):
        c = np.array([[[addend]]], np.float32).view(np.uint32)
        d = multiply_add_bytes(a, b, c, a_type="e5m2", b_type="e5m2", acc="f32", rules=HOPPER)
        assert d.view(np.float32)[0, 0, 0] == expected
    c = np.array([[[-0.0]]], np.float32).view(np.uint32)
    d = multiply_add_bytes(a * 0, b, c, a_type="e5m2", b_type="e5m2", acc="f32", rules=HOPPER)
    assert d[0, 0, 0] == 0


def test_the_halves_of_unpacked_products_are_by_k_mod_4() -> None:
    """2**20 - 2**20 in the first half, k in {0, 1}, does not swallow a small term in the second."""
    assert isinstance(HOPPER, UnpackedDotProduct)
    for k, survives in ((4, False), (5, False), (6, True), (7, True)):
        a = np.zeros((1, 8, 1), np.float32)
        a[0, 0], a[0, 1], a[0, k] = 1024, -1024, 2.0**-6
        words = a.astype(ml_dtypes.float8_e5m2).view(np.uint8)
        b = np.array([1024, 1024, *[1] * 6], np.float32).astype(ml_dtypes.float8_e5m2)
        right = b.view(np.uint8)[:, None, None]
        c = np.zeros((1, 1, 1), np.uint32)
        types = {"a_type": "e5m2", "b_type": "e5m2", "acc": "f32"}
        d = multiply_add_bytes(words, right, c, rules=HOPPER, **types)
        assert (d.view(np.float32)[0, 0, 0] == 2.0**-6) == survives


@pytest.mark.parametrize("acc", ["f32", "f16"])
def test_warps_do_not_touch_each_other(acc: str) -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(0, 256, (16, 32, 600), dtype=np.uint8)
    b = rng.integers(0, 256, (32, 8, 600), dtype=np.uint8)
    word = np.uint32 if acc == "f32" else np.uint16
    c = rng.integers(0, np.iinfo(word).max, (16, 8, 600), dtype=word)
    for rules in (ADA, HOPPER, RTX):
        assert rules is not None
        types = {"a_type": "e4m3", "b_type": "e2m3", "acc": acc}
        whole = multiply_add_bytes(a, b, c, rules=rules, **types)
        for warp in (0, 511, 599):
            part = slice(warp, warp + 1)
            alone = multiply_add_bytes(
                a[..., part], b[..., part], c[..., part], rules=rules, **types
            )
            np.testing.assert_array_equal(alone, whole[..., part])


def test_refuses_what_it_does_not_model() -> None:
    a, b = np.zeros((1, 4, 1), np.uint8), np.zeros((4, 1, 1), np.uint8)
    c = np.zeros((1, 1, 1), np.uint32)
    assert isinstance(RTX, DotProduct)
    with pytest.raises(Unsupported, match=r"\.e4m3 and \.f16 into \.f32"):
        multiply_add(a, b, c, dtype="e4m3", b_dtype="f16", acc="f32", rules=RTX)
    with pytest.raises(Unsupported, match=r"\.e4m3 into \.bf16"):
        multiply_add(a, b, c, dtype="e4m3", acc="bf16", rules=RTX)
    with pytest.raises(ValueError, match="not a type"):
        multiply_add_bytes(a, b, c, a_type="f16", b_type="e4m3", acc="f32", rules=HOPPER)  # type: ignore[arg-type]
