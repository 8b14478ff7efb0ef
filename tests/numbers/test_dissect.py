"""Dissected dot products: they end in the bits that the emulator computes, and say what is lost where."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS, DotProduct, Target, UnpackedDotProduct
from ptxlab.numbers.dissect import SumStep, explain
from ptxlab.numbers.fused_step import OPERANDS
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_bytes
from tests.together import in_one_test

Rules = DotProduct | UnpackedDotProduct
WORDS: dict[str, type[np.unsignedinteger]] = {"f16": np.uint16, "f32": np.uint32}


def rules_of(target: Target, dtype: str) -> Rules:
    """Return the arithmetic of mma.sync; of wgmma, for 8-bit numbers on sm_90a."""
    if OPERANDS[dtype].word_bits > 8:
        return target.dot16
    known = target.arithmetic
    rules = known.dot8_async if target.name == "sm_90a" else known.dot8
    assert rules is not None
    return rules


def compute(a: Array, b: Array, c: Array, types: tuple[str, str, str], rules: Rules) -> Array:
    """Compute dot products [rows, k] the way the emulator does."""
    a_type, b_type, acc = types
    operands = a.T[None], b.T[:, None], c[None, None]
    if a.itemsize == 1:
        d = multiply_add_bytes(*operands, a_type=a_type, b_type=b_type, acc=acc, rules=rules)
    else:
        assert isinstance(rules, DotProduct)
        d = multiply_add(*operands, dtype=a_type, acc=acc, rules=rules)
    result: Array = d[0, 0]
    return result


def draw(rng: np.random.Generator, dtype: str, rows: int, k: int) -> Array:
    """Draw raw words, half the rows numbers near 1."""
    form = OPERANDS[dtype]
    words = rng.integers(0, 1 << form.word_bits, (rows, k)).astype(form.word)
    if form.word_bits == 8:
        words[::2] &= 0xBB
    else:
        values = rng.standard_normal((rows, k)).astype(np.float32)
        near = {
            "f16": values.astype(np.float16).view(np.uint16),
            "bf16": values.view(np.uint32) >> 16,
            "tf32": values.view(np.uint32),
        }[dtype]
        words[::2] = near[::2].astype(form.word)
    return words


CASES = [
    (target, a_type, b_type, acc)
    for target in ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a")
    for a_type, b_type, acc in (
        ("f16", "f16", "f32"),
        ("f16", "f16", "f16"),
        ("bf16", "bf16", "f32"),
        ("tf32", "tf32", "f32"),
        ("e4m3", "e4m3", "f32"),
        ("e5m2", "e4m3", "f16"),
        ("e2m1", "e3m2", "f32"),
    )
    if {a_type, b_type} <= set(TARGETS[target].arithmetic.types)
]
ROWS = 24


@in_one_test(("target", "a_type", "b_type", "acc"), CASES)
def test_ends_in_the_bits_of_the_emulator(target: str, a_type: str, b_type: str, acc: str) -> None:
    rng = np.random.default_rng(15)
    chip, k = TARGETS[target], 32 if OPERANDS[a_type].word_bits == 8 else 16
    a, b = draw(rng, a_type, ROWS, k), draw(rng, b_type, ROWS, k)
    c = (rng.standard_normal(ROWS) * 2.0 ** rng.integers(-12, 12, ROWS)).astype(
        f"f{WORDS[acc]().itemsize}"
    )
    c = c.view(WORDS[acc])
    rules = rules_of(chip, a_type)
    expected = compute(a, b, c, (a_type, b_type, acc), rules)
    for row in range(ROWS):
        steps = explain(
            a[row].tolist(),
            b[row].tolist(),
            int(c[row]),
            dtype=a_type,
            b_dtype=b_type,
            acc=acc,
            rules=rules,
        )
        assert steps[-1].word == expected[row], row
        check_consistency(steps)


def check_consistency(steps: tuple[SumStep, ...]) -> None:
    """What was kept and lost adds up, step by step."""
    for step in steps:
        if not isinstance(step.total, Fraction):
            assert not isinstance(step.value, Fraction)
            assert step.exponent is None
            continue
        assert sum(Fraction(term.kept) for term in step.terms) == step.total
        for term in step.terms:
            assert term.lost + term.kept == term.value
            if step.last_bit is not None:
                assert abs(Fraction(term.lost)) < step.last_bit
                assert Fraction(term.kept) % step.last_bit == 0
                assert abs(Fraction(term.kept)) <= abs(Fraction(term.value))
        if step.operation == "fused":
            assert step.exponent is not None
            assert (
                max(term.exponent for term in step.terms if term.exponent is not None)
                == step.exponent
            )
    places = [term.k for step in steps for term in step.terms if term.k is not None]
    assert sorted(places) == list(range(len(places)))


def f16(*values: float) -> list[int]:
    return [int(np.float16(value).view(np.uint16)) for value in values]


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def test_says_what_is_lost_where() -> None:
    """1024 * 1024 - 1024 * 1024 + 2**-6, in one step of sixteen and in two of eight."""
    a = f16(1024, -1024, 0, 0, 0, 0, 0, 0, 2.0**-6) + [0] * 7
    b = f16(1024, 1024, 0, 0, 0, 0, 0, 0, 1) + [0] * 7
    hopper = explain(a, b, 0, dtype="f16", acc="f32", rules=TARGETS["sm_90a"].dot16)
    assert (hopper[-1].word, hopper[-1].value) == (0, 0)
    (step,) = hopper
    assert (step.exponent, step.last_bit) == (20, Fraction(1, 32))
    assert len(step.terms) == 17
    assert [term.k for term in step.terms if term.lost] == [8]
    assert step.terms[8].lost == Fraction(1, 64)
    assert step.terms[2].exponent == TARGETS["sm_90a"].dot16.zero_exponent_f32
    ampere = explain(a, b, 0, dtype="f16", acc="f32", rules=TARGETS["sm_80"].dot16)
    assert ampere[-1].value == Fraction(1, 64)
    assert [len(step.terms) for step in ampere] == [9, 9]
    assert ampere[1].exponent == -6


def test_unpacked_products_end_in_an_addition() -> None:
    e5m2_one = 0x3C
    rules = rules_of(TARGETS["sm_90"], "e5m2")
    hopper = explain(
        [e5m2_one] * 8, [e5m2_one] * 8, f32(2.0**-24), dtype="e5m2", acc="f32", rules=rules
    )
    assert [step.operation for step in hopper] == ["fused", "fused", "add"]
    assert [term.k for term in hopper[0].terms] == [0, 1, 4, 5, None]
    assert hopper[2].total == 8 + Fraction(1, 2**24)
    assert hopper[-1].value == 8


def test_special_values() -> None:
    infinity, f16_one = 0x7C00, 0x3C00

    def dissect(a: list[int], b: list[int], c: int) -> SumStep:
        return explain(a, b, c, dtype="f16", acc="f32", rules=TARGETS["sm_80"].dot16)[-1]

    dissection = dissect([infinity, f16_one], [f16_one, f16_one], 0)
    assert (dissection.word, dissection.value) == (0x7F800000, math.inf)
    dissection = dissect([infinity, f16_one], [0, f16_one], 0)
    assert dissection.word == 0x7FFFFFFF
    assert math.isnan(dissection.value)
    dissection = dissect([f16_one], [f16_one], 0xFF800000)
    assert (dissection.word, dissection.value) == (0xFF800000, -math.inf)


def test_refuses_what_is_no_dot_product() -> None:
    rules = TARGETS["sm_90"].dot16
    with pytest.raises(Unsupported, match=r"\.e4m3 and \.f16 into \.f32 is not modelled"):
        explain([0], [0], 0, dtype="e4m3", b_dtype="f16", rules=rules, acc="f32")
    with pytest.raises(ValueError, match="2 numbers of A and 1 of B"):
        explain([0, 0], [0], 0, dtype="f16", rules=rules, acc="f32")
