"""f16 and bf16 arithmetic, scalar and packed, against exact rational arithmetic and one rounder."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def _results(reference: Any, name: str) -> dict[str, Callable[..., int]]:
    word_of_one = ONE[name]
    return {
        "add": lambda a, b: reference.fma(a, word_of_one, b, name),
        "sub": lambda a, b: reference.fma(a, word_of_one, b ^ 0x8000, name),
        "mul": lambda a, b: reference.fma(a, b, (a ^ b) & 0x8000, name),
    }


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_arithmetic_rounds_once(reference: Any, name: str) -> None:
    a, b, c = reference.floats(name, 3, 4000, 1)
    for opcode, expected in _results(reference, name).items():
        reference.matches(f"{opcode}.{name}", expected, a, b)
        reference.matches(f"{opcode}.rn.{name}", expected, a[:300], b[:300])
    reference.matches(f"fma.rn.{name}", lambda *x: reference.fma(*x, name), a, b, c)
    reference.matches(f"neg.{name}", lambda x: x ^ 0x8000, a)
    reference.matches(f"abs.{name}", lambda x: x & 0x7FFF, a)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_ties_moved_by_very_little(reference: Any, name: str) -> None:
    """Products that lie on a tie, plus or minus the smallest and other small numbers."""
    _, fraction = reference.fields[name]
    word_of_one = ONE[name]
    rows = []
    for i in range(1, 1 << fraction, 3):
        for j in (1 << k for k in range(fraction)):
            exact = reference.decode(word_of_one + i, name) * reference.decode(
                word_of_one + j, name
            )
            twice = exact * 2**fraction * (2 if exact < 2 else 1)
            if twice.denominator == 1 and twice % 2 == 1:
                rows += [
                    (word_of_one + i, word_of_one + j, c) for c in (1, 0x8001, 0x0100, 0x8100, 0)
                ]
    assert len(rows) > 100
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    reference.matches(f"fma.rn.{name}", lambda *x: reference.fma(*x, name), a, b, c)


def test_bf16_products_below_single_precision(reference: Any) -> None:
    rng = np.random.default_rng(3)
    a = [int(x) for x in rng.integers(0x1E00, 0x2100, 3000)]
    b = [int(x) for x in rng.integers(0x1D00, 0x2000, 3000)]
    expected = _results(reference, "bf16")["mul"]
    reference.matches("mul.bf16", expected, a, b)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_packed_is_both_halves(reference: Any, name: str) -> None:
    words = [reference.integers(32, 1, 500, seed)[0] for seed in (4, 5, 6)]
    ones = [0x80018001, 0x3C003C00, 0x00010001, 0x7F80FF80]
    words = [ones + column for column in words]

    def both(instruction: str, *operands: list[int]) -> None:
        low = reference.run(f"{instruction}.{name}", *([x & 0xFFFF for x in o] for o in operands))
        high = reference.run(f"{instruction}.{name}", *([x >> 16 for x in o] for o in operands))
        got = reference.run(f"{instruction}.{name}x2", *operands)
        assert got.tolist() == (high.astype(np.uint32) << 16 | low).tolist(), instruction

    for instruction in ("add", "sub", "mul", "min", "max", "min.NaN", "max.xorsign.abs"):
        both(instruction, *words[:2])
    both("fma.rn", *words)
    both("fma.rn.relu", *words)
    both("neg", words[0])
    both("abs", words[0])
    both("tanh.approx", words[0])
    both("add", words[0], [0x3C003F80])


def test_flush_saturate_relu(reference: Any) -> None:
    a, b, c = reference.floats("f16", 3, 800, 7)

    def fma(*x: int) -> int:
        return int(reference.fma(*x, "f16"))

    def flushed(*x: int) -> int:
        return int(reference.flush(fma(*(reference.flush(y, "f16") for y in x)), "f16"))

    def clamp(bits: int) -> int:
        value = reference.decode(bits, "f16")
        return 0 if value != value or value <= 0 else 0x3C00 if value >= 1 else bits

    def rectified(bits: int) -> int:
        value = reference.decode(bits, "f16")
        return 0x7FFF if value != value else bits if value > 0 else 0

    reference.matches("fma.rn.ftz.f16", flushed, a, b, c)
    reference.matches("fma.rn.sat.f16", lambda *x: clamp(fma(*x)), a, b, c)
    reference.matches("fma.rn.relu.f16", lambda *x: rectified(fma(*x)), a, b, c)
    assert reference.encode(Fraction(1), "f16") == 0x3C00
