"""What each floating-point instruction computes, against exact numbers rounded once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from ptxlab.machine.values import ALL
from tests.machine.test_operations import registers, run, word

VALUES = [
    0.0,
    1.0,
    -1.0,
    1.5,
    0.1,
    -2.5,
    3.5,
    1e10,
    -1e10,
    2.0**31,
    2.0**32,
    5e9,
    -0.7,
    1e-40,
    3e38,
]


def given() -> tuple[list[float], list[float]]:
    a = np.array((VALUES * 5)[:64], np.float32)
    b = np.roll(a, 7)
    return [float(value) for value in a], [float(value) for value in b]


def of(text: str) -> list[np.float32]:
    """Return what an instruction makes of numbers in R1 and R2."""
    r = registers()
    for number, numbers in zip((1, 2), given(), strict=True):
        r.words.write(number, ALL, np.array(numbers, np.float32).view(np.uint32))
    return [np.uint32(bits).view(np.float32) for bits in word(run(text, r), 0)]


def rounded(value: Fraction, mode: str) -> float:
    """Return the f32 that is nearest, or next in a direction."""
    near = np.float32(float(value))
    if mode == "RP" and Fraction(float(near)) < value:
        return float(np.nextafter(near, np.float32(np.inf)))
    if mode == "RM" and Fraction(float(near)) > value:
        return float(np.nextafter(near, np.float32(-np.inf)))
    return float(near)


def exact(text: str, function: Callable[[Fraction, Fraction], Fraction], mode: str) -> None:
    with np.errstate(over="ignore"):
        for got, a, b in zip(of(text), *given(), strict=True):
            value = function(Fraction(a), Fraction(b))
            if Fraction(2) ** -120 < abs(value) < Fraction(2) ** 120:
                assert got == rounded(value, mode), (text, a, b)


@pytest.mark.parametrize("mode", ["RN", "RP", "RM"])
def test_sums_and_products_are_rounded_once(mode: str) -> None:
    suffix = "" if mode == "RN" else f".{mode}"
    exact(f"FADD{suffix} R0, R1, R2", lambda a, b: a + b, mode)
    exact(f"FADD{suffix} R0, R1, -R2", lambda a, b: a - b, mode)
    exact(f"FADD{suffix} R0, -|R1|, R2", lambda a, b: b - abs(a), mode)
    exact(f"FMUL{suffix} R0, R1, R2", lambda a, b: a * b, mode)


def test_a_saturated_sum_is_between_zero_and_one() -> None:
    for got, a, b in zip(of("FADD.SAT R0, R1, R2"), *given(), strict=True):
        assert got == np.float32(min(max(a + b, 0.0), 1.0))


def test_numbers_next_to_zero_are_flushed_where_it_says_so() -> None:
    tiny = [n for n, a in enumerate(given()[0]) if 0 < a < 1e-38]
    kept, flushed = of("FADD R0, R1, RZ"), of("FADD.FTZ R0, R1, RZ")
    assert tiny
    assert all(kept[n] > 0 and flushed[n] == 0 for n in tiny)
    scaled = of("FMUL.FTZ R0, R1, 16777216")
    assert all(scaled[n] == 0 for n in tiny)  # the source is, before it is scaled


@pytest.mark.parametrize(
    ("text", "low", "high", "whole"),
    [("F2I.TRUNC R0, R1", -(2**31), 2**31 - 1, np.trunc), ("F2I R0, R1", -(2**31), 2**31 - 1, np.rint),
     ("F2I.U32.TRUNC R0, R1", 0, 2**32 - 1, np.trunc), ("F2I.U32.FLOOR R0, R1", 0, 2**32 - 1, np.floor),
     ("F2I.CEIL R0, R1", -(2**31), 2**31 - 1, np.ceil)],
)  # fmt: skip
def test_whole_numbers_end_at_their_limits(
    text: str, low: int, high: int, whole: Callable[[float], float]
) -> None:
    got = [int(result.view(np.uint32)) for result in of(text)]
    assert got == [min(max(int(whole(a)), low), high) & 0xFFFFFFFF for a in given()[0]]


def test_whole_numbers_become_floating_ones() -> None:
    r = registers()
    words = word(r, 3)
    run("I2F R0, R3", r)
    signed = [bits - (1 << 32) if bits >> 31 else bits for bits in words]
    assert word(r, 0) == [int(np.float32(number).view(np.uint32)) for number in signed]
    run("I2FP.F32.U32 R0, R3", r)
    assert word(r, 0) == [int(np.float32(bits).view(np.uint32)) for bits in words]
    run("I2F.U16 R0, R3", r)
    assert word(r, 0) == [int(np.float32(bits & 0xFFFF).view(np.uint32)) for bits in words]
    for text, number in ("S64.RZ R0, -0x2", -(2**33)), ("U64 R0, 0x80000000", 2**63):
        run(f"I2F.{text}", r)  # of 64 bits a literal is the upper half, as ptxas has it
        assert set(word(r, 0)) == {int(np.float32(number).view(np.uint32))}


def test_a_half_comes_below_another() -> None:
    r = registers()
    words = word(r, 3)
    with np.errstate(over="ignore"):
        numbers = np.array(words, np.uint32).view(np.float32).astype(np.float16)
    above = word(r, 4)
    run("F2FP.F16.F32.MERGE_C R0, R3, R4", r)
    known = ~np.isnan(numbers)
    made = np.array(word(r, 0), np.uint32)
    assert (made >> 16).tolist() == [bits & 0xFFFF for bits in above]
    assert known.sum() > 40
    assert ((made & 0xFFFF) == numbers.view(np.uint16))[known].all()


def test_comparisons_choices_and_the_least() -> None:
    r = registers()
    a, b = given()
    for number, numbers in ((1, a), (2, b)):
        r.words.write(number, ALL, np.array(numbers, np.float32).view(np.uint32))
    run("FSETP.GT.AND P4, PT, R1, R2, PT", r)
    predicate = r.predicates.read(4, ALL)
    assert predicate is not None
    assert predicate.tolist() == [x > y for x, y in zip(a, b, strict=True)]
    run("FSEL R0, R1, R2, P4", r)
    most = [np.uint32(bits).view(np.float32) for bits in word(r, 0)]
    run("FMNMX R3, R1, R2, !PT", r)
    assert most == [np.uint32(bits).view(np.float32) for bits in word(r, 3)]
    assert most == [np.float32(max(x, y)) for x, y in zip(a, b, strict=True)]


def test_two_halves_that_are_known_are_a_word() -> None:
    r = run("HFMA2.MMA R0, -RZ, RZ, 1.875, 0.5")
    upper, lower = (int(np.float16(half).view(np.uint16)) for half in (1.875, 0.5))
    assert set(word(r, 0)) == {upper << 16 | lower}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("RCP", lambda x: 1 / x),
        ("RSQ", lambda x: x**-0.5),
        ("EX2", lambda x: 2**x),
        ("LG2", np.log2),
    ],
)
def test_approximations_are_near(name: str, function: Callable[[float], float]) -> None:
    for got, a in zip(of(f"MUFU.{name} R0, R1"), given()[0], strict=True):
        if 0.01 < a < 100:
            assert float(got) == pytest.approx(function(a), rel=1e-6, abs=1e-7)
