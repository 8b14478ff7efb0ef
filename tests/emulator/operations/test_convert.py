"""cvt between all pairs of types against exact rational arithmetic and one rounder."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ptxlab.emulator.prepare.row import UnknownForm
from tests.together import in_one_test

INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))
FLOATS = ("f16", "bf16", "f32", "f64")
MODES = ("rn", "rz", "rm", "rp")
TO_INTEGER: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def _range(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def _clamp(value: int, name: str) -> int:
    low, high = _range(name)
    return min(max(value, low), high)


def _number(reference: Any, pattern: int, name: str) -> int:
    return int(reference.signed(pattern, int(name[1:]))) if name[0] == "s" else pattern


@in_one_test("source", INTEGERS)
def test_integer_to_integer(reference: Any, source: str) -> None:
    a, _ = reference.integers(int(source[1:]), 2, 100, 1)
    for target in INTEGERS:
        mask = (1 << int(target[1:])) - 1
        reference.matches(
            f"cvt.{target}.{source}", lambda x, k=mask: _number(reference, x, source) & k, a
        )
        low, high = _range(source)
        if _clamp(low, target) == low and _clamp(high, target) == high:
            continue
        reference.matches(
            f"cvt.sat.{target}.{source}",
            lambda x, t=target, k=mask: _clamp(_number(reference, x, source), t) & k,
            a,
        )


@in_one_test("source", INTEGERS)
@in_one_test("target", FLOATS)
def test_integer_to_float(reference: Any, source: str, target: str) -> None:
    bits = int(source[1:])
    if bits == 8 and target == "bf16":
        with pytest.raises(UnknownForm):
            reference.build(f"cvt.rn.{target}.{source}")
        return
    (a,) = reference.integers(bits, 1, 250, 2)
    near = [(1 << i) + j for i in range(bits) for j in (-1, 0, 1)]
    near += [(3 << i) + j for i in range(bits - 1) for j in (-1, 0, 1)]
    near += [
        (1 << i) + (1 << j) + k for i in range(bits) for j in range(i % 3, i, 3) for k in (-1, 1)
    ]
    a += [x & ((1 << bits) - 1) for x in near]
    for mode in MODES:
        reference.matches(
            f"cvt.{mode}.{target}.{source}",
            lambda x, m=mode: reference.encode(Fraction(_number(reference, x, source)), target, m),
            a,
        )


@in_one_test("source", FLOATS)
@in_one_test("target", INTEGERS)
def test_float_to_integer_saturates(reference: Any, source: str, target: str) -> None:
    width = int(target[1:])
    if width == 8 and source == "bf16":
        with pytest.raises(UnknownForm):
            reference.build(f"cvt.rzi.{target}.{source}")
        return
    low, high = _range(target)
    # PTX ISA, "cvt": zero unless the source is f64 or the destination has 64 bits.
    nan = 1 << (width - 1) if source == "f64" or width == 64 else 0
    (a,) = reference.floats(source, 1, 300, 3)
    landmarks = [
        Fraction(x) + h for x in (low, high, high + 1, 0, 1, 2, 3, -1) for h in (0, Fraction(1, 2))
    ]
    a += [reference.encode(x, source, mode) for x in landmarks for mode in ("rm", "rp")]
    for mode, rounder in TO_INTEGER.items():

        def expected(x: int, f: Callable[[Fraction], int] = rounder) -> int:
            value = reference.decode(x, source)
            if value != value:
                return nan
            if isinstance(value, float):
                return (high if value > 0 else low) & ((1 << width) - 1)
            return _clamp(f(value), target) & ((1 << width) - 1)

        reference.matches(f"cvt.{mode}.{target}.{source}", expected, a)
        if source != "bf16":
            reference.matches(f"cvt.{mode}.sat.{target}.{source}", expected, a[:50])
    tame = [reference.encode(Fraction(x, 4), source) for x in range(0, 400, 3)]
    reference.matches(
        f"cvt.rni.{target}.{source}", lambda x: round(reference.decode(x, source)), tame[:100]
    )


def _widths(reference: Any, name: str) -> tuple[int, int]:
    widths: tuple[int, int] = reference.fields[name]
    return widths


@in_one_test("source", FLOATS)
@in_one_test("target", FLOATS)
def test_float_to_float(reference: Any, source: str, target: str) -> None:
    (a,) = reference.floats(source, 1, 1000, 4)
    exact = {("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64")}
    if source == target:
        exact.add((source, target))

    def expected(x: int, mode: str) -> int:
        value = reference.decode(x, source)
        if target == "f64" and value != value:  # the payload moves along, made quiet
            shift = 52 - reference.fields[source][1]
            payload: int = (x & ((1 << reference.fields[source][1]) - 1)) << shift
            return int(reference.sign(x, source)) << 63 | 0x7FF8 << 48 | payload
        return int(reference.encode(value, target, mode, reference.sign(x, source)))

    if (source, target) in exact:
        if source == "bf16" != target:
            reference.matches(f"cvt.rz.{target}.{source}", lambda x: expected(x, "rn"), a[:300])
        reference.matches(f"cvt.{target}.{source}", lambda x: expected(x, "rn"), a)
        return
    if source != "f64":
        shift = _widths(reference, source)[1] - _widths(reference, target)[1]
        a += [(x & ~((1 << shift) - 1) | 1 << (shift - 1)) for x in a if shift > 0]
    for mode in MODES:
        reference.matches(f"cvt.{mode}.{target}.{source}", lambda x, m=mode: expected(x, m), a)
    if {source, target} == {"f16", "bf16"}:  # which compilers write without .rn
        reference.matches(f"cvt.{target}.{source}", lambda x: expected(x, "rn"), a)


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_doubles_round_once_to_16_bits(reference: Any, target: str) -> None:
    _, fraction = _widths(reference, target)
    rows = []
    for i in range(200):
        tie = 1 + Fraction(2 * (i % 2**fraction) + 1, 2 ** (fraction + 1))
        rows += [tie + Fraction(d, 2**45) for d in (-1, 0, 1)]
        rows += [-(tie + Fraction(d, 2**45)) * Fraction(1, 2**12) for d in (-1, 0, 1)]
    a = [reference.encode(x, "f64") for x in rows]
    for mode in MODES:
        reference.matches(
            f"cvt.{mode}.{target}.f64",
            lambda x, m=mode: reference.encode(reference.decode(x, "f64"), target, m),
            a,
        )


@pytest.mark.parametrize("name", FLOATS)
def test_rounding_to_an_integral_float(reference: Any, name: str) -> None:
    (a,) = reference.floats(name, 1, 300, 5)
    for mode, rounder in TO_INTEGER.items():

        def expected(x: int, f: Callable[[Fraction], int] = rounder) -> int:
            value = reference.decode(x, name)
            if isinstance(value, float):
                return int(reference.special(value, name, (x,)))
            return int(reference.encode(Fraction(f(value)), name, "rn", reference.sign(x, name)))

        reference.matches(f"cvt.{mode}.{name}.{name}", expected, a)


def test_saturate_and_flush(reference: Any) -> None:
    def clamp(x: int, name: str) -> int:
        value = reference.decode(x, name)
        return 0 if value != value or value <= 0 else reference.encode(min(value, 1), name)

    (a,) = reference.floats("f32", 1, 400, 6)
    reference.matches("cvt.sat.f32.f32", lambda x: clamp(x, "f32"), a)
    reference.matches(
        "cvt.rn.sat.f16.f32",
        lambda x: clamp(reference.encode(reference.decode(x, "f32"), "f16"), "f16"),
        a,
    )
    reference.matches(
        "cvt.ftz.f64.f32",
        lambda x: reference.run("cvt.f64.f32", [reference.flush(x, "f32")]).tolist()[0],
        a,
    )
    (b,) = reference.floats("f64", 1, 400, 7)
    b += [reference.encode(Fraction(1, 2**k) * Fraction(5, 3), "f64") for k in range(120, 160)]
    reference.matches(
        "cvt.rn.ftz.f32.f64",
        lambda x: reference.flush(reference.run("cvt.rn.f32.f64", [x]).tolist()[0], "f32"),
        b[-300:],
    )


def _half_result(reference: Any, x: int, name: str, mode: str, relu: bool, finite: bool) -> int:
    value = reference.decode(x, "f32")
    if value != value:
        return 0x7FFF
    largest = reference.decode({"f16": 0x7BFF, "bf16": 0x7F7F}[name], name)
    if finite and abs(value) > largest:
        value = largest if value > 0 else -largest
    if relu and (value <= 0):
        return 0
    return int(reference.encode(value, name, mode, reference.sign(x, "f32")))


@in_one_test("name", ["f16", "bf16"])
@in_one_test("mode", ["rn", "rz"])
@in_one_test("relu", [False, True])
@in_one_test("finite", [False, True])
def test_halves_from_single(reference: Any, name: str, mode: str, relu: bool, finite: bool) -> None:
    a, b = reference.floats("f32", 2, 600, 8)
    a += [x & 0xFFFF0000 | 0x8000 for x in a] + [0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001]
    b = (b + b + b)[: len(a)]
    suffix = f"{mode}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"

    @cache
    def single(x: int) -> int:
        return _half_result(reference, x, name, mode, relu, finite)

    reference.matches(f"cvt.{suffix}.{name}.f32", single, a)
    reference.matches(f"cvt.{suffix}.{name}x2.f32", lambda x, y: single(x) << 16 | single(y), a, b)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(reference: Any, mode: str) -> None:
    """``.rna`` is what ptxas makes of it, integers: a NaN loses its lower bits, and may be an infinity then."""
    (a,) = reference.floats("f32", 1, 800, 9)
    a += [x & ~0x1FFF | 0x1000 for x in a]

    def expected(x: int) -> int:
        value = reference.decode(x, "f32")
        if value != value:
            return x & ~0x1FFF if mode == "rna" else 0x7FFFFFFF
        return int(reference.encode(value, "tf32", mode, reference.sign(x, "f32")) << 13)

    def finite(x: int) -> int:
        r = expected(x)
        infinite = r & 0x7FFFFFFF == 0x7F800000
        return r - 0x2000 if infinite or (mode == "rna" and r & 0x7FFFFFFF > 0x7F800000) else r

    reference.matches(f"cvt.{mode}.tf32.f32", expected, a)
    reference.matches(f"cvt.{mode}.satfinite.tf32.f32", finite, a)
    if mode != "rna":
        reference.matches(
            f"cvt.{mode}.relu.tf32.f32",
            lambda x: 0 if reference.decode(x, "f32") <= 0 else expected(x),
            a,
        )


# Exponent bits, fraction bits, exponent bias, largest number, byte for NaN, distance of the two.
TINY = {
    "e4m3x2": (4, 3, 7, Fraction(448), 0x7F, 8),
    "e5m2x2": (5, 2, 15, Fraction(57344), 0x7F, 8),
    "e2m3x2": (2, 3, 1, Fraction(15, 2), 0x1F, 8),
    "e3m2x2": (3, 2, 3, Fraction(28), 0x1F, 8),
    "e2m1x2": (2, 1, 1, Fraction(6), 0x07, 4),
}


def _tiny_values(name: str) -> dict[int, Fraction]:
    """Return the non-negative finite values by code."""
    exponent_bits, fraction_bits, bias, largest, _, _ = TINY[name]
    values = {}
    for code in range(1 << (exponent_bits + fraction_bits)):
        exponent, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
        value = Fraction(fraction + ((1 << fraction_bits) if exponent else 0)) * Fraction(2) ** (
            max(exponent, 1) - bias - fraction_bits
        )
        if value <= largest:
            values[code] = value
    assert max(values.values()) == largest
    assert list(values) == list(range(len(values)))
    assert all(x < y for x, y in pairwise(values.values()))
    return values


@in_one_test("name", TINY)
@in_one_test("relu", [False, True])
def test_tiny_formats(reference: Any, name: str, relu: bool) -> None:
    exponent_bits, fraction_bits, _, largest, nan, distance = TINY[name]
    values = [*_tiny_values(name).values()]
    top = 1 << (exponent_bits + fraction_bits)

    @cache
    def single(x: int, source: str) -> int:
        value = reference.decode(x, source)
        if value != value:
            return nan
        if relu and value <= 0:
            return 0
        negative = reference.sign(x, source)
        size = min(abs(value), largest)
        above = min(bisect_left(values, size), len(values) - 1)
        near = (max(above - 1, 0), above)
        code = min(near, key=lambda c: (abs(values[c] - size), c & 1))
        return code | (top if negative else 0)

    (a,) = reference.floats("f32", 1, 200, 10)
    middles = [(x + y) / 2 for x, y in pairwise(values)]
    a += [reference.encode(s * m, "f32", r) for m in middles for s in (1, -1) for r in ("rn",)]
    a += [reference.encode(m, "f32") + 1 for m in middles]
    b = a[::-1]
    suffix = "rn.satfinite.relu" if relu else "rn.satfinite"
    reference.matches(
        f"cvt.{suffix}.{name}.f32",
        lambda x, y: single(x, "f32") << distance | single(y, "f32"),
        a,
        b,
    )
    for source in ("f16", "bf16"):
        (h,) = reference.floats(source, 1, 200, 11)
        words = [x << 16 | y for x, y in zip(h, h[::-1], strict=True)]
        reference.matches(
            f"cvt.{suffix}.{name}.{source}x2",
            lambda w, s=source: single(w >> 16, s) << distance | single(w & 0xFFFF, s),
            words,
        )


@pytest.mark.parametrize("name", TINY)
def test_tiny_formats_to_f16(reference: Any, name: str) -> None:
    exponent_bits, fraction_bits, _, _, _, distance = TINY[name]
    values = _tiny_values(name)
    top = 1 << (exponent_bits + fraction_bits)

    def single(code: int) -> int:
        sign = 0x8000 if code & top else 0
        magnitude = code & (top - 1)
        if magnitude in values:
            return int(reference.encode(values[magnitude], "f16") | sign)
        return sign | 0x7C00 if name == "e5m2x2" and magnitude == 0x7C else 0x7FFF

    codes = range(2 * top)
    words = [x << distance | (x * 7 + 3) % (2 * top) for x in codes]
    reference.matches(
        f"cvt.rn.f16x2.{name}",
        lambda w: single(w >> distance) << 16 | single(w & (2 * top - 1)),
        words,
    )
    reference.matches(
        f"cvt.rn.relu.f16x2.{name}",
        lambda w: sum(
            (h if h == 0x7FFF or h < 0x8000 else 0) << s
            for s, h in ((16, single(w >> distance)), (0, single(w & (2 * top - 1))))
        ),
        words,
    )


@in_one_test("name", [*TINY, "s2f6x2"])
@in_one_test("modifiers", ["", ".satfinite", ".relu", ".satfinite.relu"])
def test_tiny_formats_to_bf16(reference: Any, name: str, modifiers: str) -> None:
    """Each number exactly, or times its power of two: of both ends of bfloat16 what rounding makes."""
    distance = 8 if name == "s2f6x2" else TINY[name][5]
    codes = range(256 if name == "s2f6x2" else 2 << sum(TINY[name][:2]))
    largest = reference.encode(Fraction(255) * Fraction(2) ** (127 - 7), "bf16")
    sizes = {} if name == "s2f6x2" else _tiny_values(name)

    @cache
    def value(code: int) -> Any:
        if name == "s2f6x2":
            return Fraction(code - 256 if code > 127 else code, 64), code > 127
        exponent_bits, fraction_bits, *_ = TINY[name]
        top = 1 << (exponent_bits + fraction_bits)
        size = sizes.get(code & (top - 1))
        if size is None:
            return (float("inf") if (name, code & 127) == ("e5m2x2", 0x7C) else None), code >= top
        return size, code >= top

    @cache
    def single(code: int, scale: int = 127) -> int:
        size, negative = value(code)
        if size is None or scale == 255:
            return 0x7FFF
        if negative and "relu" in modifiers:
            return 0
        if size == float("inf"):
            word = 0x7F80
        else:
            word = reference.encode(abs(size) * Fraction(2) ** (scale - 127), "bf16")
        if "satfinite" in modifiers:
            word = min(word, largest)
        return int(word) | int(negative) << 15

    words = [x << distance | codes[(i * 7 + 3) % len(codes)] for i, x in enumerate(codes)]
    low = (1 << distance) - 1
    reference.matches(
        f"cvt.rn{modifiers}.bf16x2.{name}",
        lambda w: single(w >> distance) << 16 | single(w & low),
        words,
    )
    scales = [s << 8 | t for s in (0, 1, 2, 120, 127, 128, 250, 254, 255) for t in (0, 255)]
    of_each = [(w, s) for w in words[:: len(words) // 16 or 1] for s in scales]
    reference.matches(
        f"cvt.rn{modifiers}.scaled::n2::ue8m0.bf16x2.{name}",
        lambda w, s: single(w >> distance, s >> 8) << 16 | single(w & low, s & 255),
        [w for w, _ in of_each],
        [s for _, s in of_each],
    )


def test_types_of_registers(reference: Any) -> None:
    assert reference.build("cvt.rn.satfinite.e4m3x2.f32").results == ("b16",)
    assert reference.build("cvt.rn.f16x2.e5m2x2").operands == ("b16",)
    assert reference.build("cvt.rna.tf32.f32").results == ("tf32",)
    assert (
        np.dtype(np.float32) == reference.build("cvt.rna.tf32.f32").compute(np.ones(1, "f4")).dtype
    )
