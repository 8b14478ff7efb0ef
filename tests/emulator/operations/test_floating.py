"""f32 and f64 arithmetic against exact rational arithmetic and one rounder."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.together import in_one_test

MODES = ("rn", "rz", "rm", "rp")
COUNT = {"f32": 1500, "f64": 600}


@in_one_test("name", ["f32", "f64"])
@in_one_test("mode", MODES)
def test_fma_rounds_once(reference: Any, name: str, mode: str) -> None:
    operands = reference.floats(name, 3, COUNT[name], 1)
    reference.matches(
        f"fma.{mode}.{name}", lambda a, b, c: reference.fma(a, b, c, name, mode), *operands
    )
    short = [column[-200:] for column in operands]
    reference.matches(
        f"mad.{mode}.{name}", lambda a, b, c: reference.fma(a, b, c, name, mode), *short
    )


@pytest.mark.parametrize("mode", MODES)
def test_fma_f32_decides_ties_by_what_the_sum_lost(reference: Any, mode: str) -> None:
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 lies on a tie of f32; c moves it by less than f64 can tell.
    a = [0x3F800800] * 6 + [0x3F800001] * 2 + [0x00800000] * 4
    b = [0x3F800800] * 6 + [0x3FC00000] * 2 + [0x3F000001, 0x3EFFFFFF, 0x3E800001, 0x3F400000]
    c = [0x00000001, 0x80000001, 0, 0x0D800000, 0x8D800000, 0x80000000]
    c += [0x1E000001, 0x9E000001, 0x00000001, 0x80000001, 0x80000001, 0x00000001]
    reference.matches(
        f"fma.{mode}.f32", lambda x, y, z: reference.fma(x, y, z, "f32", mode), a, b, c
    )


def test_fma_f32_is_not_product_then_sum(reference: Any) -> None:
    a = b = 0x3F800800
    c = 0xBF801000
    fused = reference.run("fma.rn.f32", [a], [b], [c])[0]
    split = reference.run("add.f32", reference.run("mul.f32", [a], [b]), [c])[0]
    assert (fused, split) == (0x33800000, 0)


def test_the_ties_catch_a_fma_rounded_twice(reference: Any) -> None:
    a, b, c = 0x3F800800, 0x3F800800, 0x00000001  # the sum: a tie and a little more
    x, y, z = (np.float64(np.uint32(bits).view(np.float32)) for bits in (a, b, c))
    twice = int(np.float32(x * y + z).view(np.uint32))
    assert twice == 0x3F801000
    assert reference.fma(a, b, c, "f32") == 0x3F801001
    assert reference.run("fma.rn.f32", [a], [b], [c])[0] == 0x3F801001


@in_one_test("name", ["f32", "f64"])
@in_one_test("mode", MODES)
def test_sums_and_products(reference: Any, name: str, mode: str) -> None:
    top = 1 << sum(reference.fields[name])
    word_of_one = reference.encode(Fraction(1), name)
    operands = reference.floats(name, 2, COUNT[name], 2)

    def add(a: int, b: int) -> int:
        return int(reference.fma(a, word_of_one, b, name, mode))

    def mul(a: int, b: int) -> int:
        zero = (a ^ b) & top
        return int(reference.fma(a, b, zero, name, mode))

    def sub(a: int, b: int) -> int:
        value = reference.decode(b, name)
        if isinstance(value, float) and math.isnan(value):
            return add(a, b)
        return add(a, b ^ top)

    for opcode, expected in (("add", add), ("sub", sub), ("mul", mul)):
        reference.matches(f"{opcode}.{mode}.{name}", expected, *operands)
        if mode == "rn":
            reference.matches(f"{opcode}.{name}", expected, *(column[:300] for column in operands))


@in_one_test("name", ["f32", "f64"])
@in_one_test("mode", MODES)
def test_quotients_and_roots(reference: Any, name: str, mode: str) -> None:
    word_of_one = reference.encode(Fraction(1), name)

    def div(a: int, b: int) -> int:
        x, y = reference.decode(a, name), reference.decode(b, name)
        sign = reference.sign(a, name) ^ reference.sign(b, name)
        if isinstance(x, float) or isinstance(y, float) or y == 0:
            with np.errstate(all="ignore"):
                p, q = np.float64(reference.stand_in(a, name)), reference.stand_in(b, name)
                value = float(p / np.float64(q))
            if value == 0:
                return int(sign << sum(reference.fields[name]))
            return int(reference.special(value, name, (a, b)))
        return int(reference.encode(x / y, name, mode, sign))

    def sqrt(a: int) -> int:
        x = reference.decode(a, name)
        if isinstance(x, float) or x <= 0:
            if x == 0:
                return a
            value = math.nan if math.isnan(x) or x < 0 else math.inf
            return int(reference.special(value, name, (a,)))
        scale = 4**1300
        root = math.isqrt(x.numerator * scale // x.denominator)
        exact = Fraction(root, 2**1300)
        if exact * exact != x:  # strictly between: any point there rounds alike
            exact += Fraction(1, 2**1301)
        return int(reference.encode(exact, name, mode))

    a, b = reference.floats(name, 2, COUNT[name] // 2, 3)
    reference.matches(f"div.{mode}.{name}", div, a, b)
    reference.matches(f"rcp.{mode}.{name}", lambda x: div(word_of_one, x), b[-700:] + b[:38])
    reference.matches(f"sqrt.{mode}.{name}", sqrt, a[-300:] + b[:38])


def test_flush_to_zero(reference: Any) -> None:
    def fma(a: int, b: int, c: int) -> int:
        a, b, c = (reference.flush(x, "f32") for x in (a, b, c))
        return int(reference.flush(reference.fma(a, b, c, "f32"), "f32"))

    operands = reference.floats("f32", 3, 300, 4)
    reference.matches("fma.rn.ftz.f32", fma, *operands)
    reference.matches("add.ftz.f32", lambda a, b: fma(a, 0x3F800000, b), *operands[:2])
    reference.matches("neg.ftz.f32", lambda a: reference.flush(a, "f32") ^ 1 << 31, operands[0])


def test_saturation(reference: Any) -> None:
    def clamp(bits: int) -> int:
        value = reference.decode(bits, "f32")
        if value != value or value <= 0:
            return 0
        return 0x3F800000 if value >= 1 else bits

    operands = reference.floats("f32", 3, 300, 5)
    reference.matches("fma.rn.sat.f32", lambda *x: clamp(reference.fma(*x, "f32")), *operands)
    reference.matches(
        "add.sat.f32", lambda a, b: clamp(reference.fma(a, 0x3F800000, b, "f32")), *operands[:2]
    )


def _extremum(reference: Any, name: str, largest: bool, propagate: bool) -> Any:
    top = 1 << sum(reference.fields[name])

    def expected(a: int, b: int) -> int:
        x, y = reference.decode(a, name), reference.decode(b, name)
        if (x != x and y != y) or (propagate and (x != x or y != y)):
            return int(reference.special(math.nan, name, (a, b)))
        if x != x or y != y:
            return b if x != x else a
        if x == y:
            return (a & b if largest else a | b) if x == 0 else a
        return a if (x > y) == largest else b

    def xorsign(a: int, b: int) -> int:
        r = expected(a & ~top, b & ~top)
        return r if reference.decode(r, name) != reference.decode(r, name) else r | (a ^ b) & top

    return expected, xorsign


@in_one_test("name", ["f32", "f64", "f16", "bf16"])
@in_one_test("opcode", ["min", "max"])
def test_min_and_max(reference: Any, name: str, opcode: str) -> None:
    operands = reference.floats(name, 2, 500, 6)
    expected, _ = _extremum(reference, name, opcode == "max", False)
    reference.matches(f"{opcode}.{name}", expected, *operands)
    if name == "f64":
        return
    expected, xorsign = _extremum(reference, name, opcode == "max", True)
    reference.matches(f"{opcode}.NaN.{name}", expected, *operands)
    reference.matches(f"{opcode}.NaN.xorsign.abs.{name}", xorsign, *operands)
    _, xorsign = _extremum(reference, name, opcode == "max", False)
    reference.matches(f"{opcode}.xorsign.abs.{name}", xorsign, *operands)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_sign_operations_act_on_bits(reference: Any, name: str) -> None:
    top = 1 << sum(reference.fields[name])
    a, b = reference.floats(name, 2, 300, 7)
    reference.matches(f"neg.{name}", lambda x: x ^ top, a)
    reference.matches(f"abs.{name}", lambda x: x & ~top, a)
    reference.matches(f"copysign.{name}", lambda x, y: x & top | y & ~top, a, b)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_testp(reference: Any, name: str) -> None:
    _, fraction = reference.fields[name]
    smallest = Fraction(2) ** (-126 if name == "f32" else -1022)
    (a,) = reference.floats(name, 1, 300, 8)
    tests = {
        "finite": lambda x: isinstance(x, Fraction),
        "infinite": lambda x: isinstance(x, float) and math.isinf(x),
        "number": lambda x: x == x,
        "notanumber": lambda x: x != x,
        "normal": lambda x: isinstance(x, Fraction) and (x == 0 or abs(x) >= smallest),
        "subnormal": lambda x: isinstance(x, Fraction) and 0 < abs(x) < smallest,
    }
    assert fraction in (23, 52)
    for test, holds in tests.items():
        reference.matches(
            f"testp.{test}.{name}", lambda x, h=holds: int(h(reference.decode(x, name))), a
        )
