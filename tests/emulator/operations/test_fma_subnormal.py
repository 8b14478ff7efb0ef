"""Fused multiply-add at the subnormal border, against fractions rounded once: alone and among others."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

ROUNDINGS = {"f32": ("rn", "rz", "rm", "rp"), "f64": ("rn", "rz", "rm", "rp")}
CASES = [
    (name, mode) for name in ("f16", "bf16", "f32", "f64") for mode in ROUNDINGS.get(name, ["rn"])
]
Triple = tuple[int, int, int]


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def near_one(fraction: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Factors of few bits whose product is one or three, or that and as little as a product can."""
    yield Fraction(1), Fraction(1)
    for k in range(1, fraction + 1, max(fraction // 5, 1)):
        t = power(-k)
        yield 1 + t, 1 - t
        if 2 * k <= fraction:
            yield 1 + t, 1 - t + t * t
        if k <= fraction - 2:
            yield 3 * (1 + t), 1 - t


@cache
def triples(reference: Any, name: str) -> list[Triple]:
    """Sums whose exact value lies on, just above and just below numbers and ties at the border.

    The addend is a power of two or a neighbour of it, around the least subnormal number and the
    least normal one, and the product about half or a quarter of the unit there or a whole one; or
    the product is about the power of two and the addend nothing or next to nothing.
    """
    exponent_bits, fraction = reference.fields[name]
    normal = 2 - (1 << (exponent_bits - 1))
    least = normal - fraction
    sign = 1 << (exponent_bits + fraction)

    def pattern(value: Fraction) -> int | None:
        bits = int(reference.encode(value, name))
        return bits if reference.decode(bits, name) == value else None

    triples: set[Triple] = set()
    for q in (least, least + 1, normal - 1, normal, normal + 1):
        unit = max(q - fraction, least)
        around = [power(q) + j * power(unit) for j in (-1, 0, 1)]
        for size in (unit - 2, unit - 1, unit, q):
            addends = (
                [0, 1, 1 | sign] if size == q else [pattern(s * x) for x in around for s in (1, -1)]
            )
            for x, y in near_one(fraction):
                for side in (1, -1):
                    a, b = (
                        pattern(side * x * power(size // 2)),
                        pattern(y * power(size - size // 2)),
                    )
                    triples |= {
                        (a, b, c)
                        for c in addends
                        if a is not None and b is not None and c is not None
                    }
    return sorted(triples)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_fma_rounds_once_at_the_subnormal_border(reference: Any, name: str, mode: str) -> None:
    rows = triples(reference, name)
    assert len(rows) > 500
    expected = [reference.fma(*row, name, mode) for row in rows]
    operands = [list(column) for column in zip(*rows, strict=True)]
    instruction = f"fma.{mode}.{name}"
    operation = reference.build(instruction, 3)
    assert reference.run_operation(instruction, operation, *operands).tolist() == expected
    # The directed modes take turns at the rows: each is alone with one of them.
    turn = ("rz", "rm", "rp").index(mode) if mode != "rn" else 0
    turns = slice(turn, None, 1 if mode == "rn" else 3)
    for row, wanted in zip(rows[turns], expected[turns], strict=True):
        alone = reference.run_operation(instruction, operation, *([bits] for bits in row))
        assert alone.tolist() == [wanted], row


def test_fma_that_stops_just_below_the_least_normal_number(reference: Any) -> None:
    """Float64 rounds this sum up to a tie of float32, whose even neighbour is the normal number."""
    a, b, c = 0x9A0067DB, 0x19FF30F2, 0x00800000
    x, y, z = (reference.decode(bits, "f32") for bits in (a, b, c))
    tie = power(-126) - power(-150)
    assert power(-126) - power(-149) < x * y + z < tie
    assert float(x * y + z) == tie
    assert reference.run("fma.rn.f32", [a], [b], [c]).tolist() == [0x007FFFFF]
    assert reference.run("fma.rn.f32", [a, 0], [b, 0], [c, 0]).tolist() == [0x007FFFFF, 0]
