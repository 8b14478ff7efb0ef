"""What PTX 9.4 brings for numbers of few bits, against fractions: found in lists of all that a format has."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ptxlab.emulator.prepare.forms import find, reason
from ptxlab.emulator.prepare.row import UnknownForm
from tests.together import in_one_test

# Exponent bits, fraction bits, and whether there is a sign, an infinity, a NaN.
FORMATS = {
    "e4m3": (4, 3, True, False, True),
    "e5m2": (5, 2, True, True, True),
    "e2m3": (2, 3, True, False, False),
    "e3m2": (3, 2, True, False, False),
    "e2m1": (2, 1, True, False, False),
    "ue8m0": (8, 0, False, False, True),
    "ue5m3": (5, 3, False, False, True),
}
MASK = 0xFFFFFFFF


@cache
def magnitudes(name: str) -> list[Fraction]:
    """Return all finite numbers without their signs, in the order of their codes."""
    exponent_bits, fraction_bits, _, infinite, nan = FORMATS[name]
    bias = (1 << exponent_bits - 1) - 1
    codes = range(
        (1 << exponent_bits + fraction_bits) - ((1 << fraction_bits) if infinite else nan)
    )
    if name == "ue8m0":  # not even a zero
        return [Fraction(2) ** (code - bias) for code in codes]
    split = (divmod(code, 1 << fraction_bits) for code in codes)
    return [
        (fraction + ((1 << fraction_bits) if field else 0))
        * Fraction(2) ** (max(field, 1) - bias - fraction_bits)
        for field, fraction in split
    ]


def number(code: int, name: str) -> Fraction | float:
    """Return what a code is; a float is an infinity, a NaN or a negative zero."""
    exponent_bits, fraction_bits, signed, infinite, _ = FORMATS[name]
    top = 1 << exponent_bits + fraction_bits
    negative, size = (code & top, code & top - 1) if signed else (0, code)
    known = magnitudes(name)
    if size < len(known):
        if negative and not size:
            return -0.0
        return -known[size] if negative else known[size]
    if infinite and size == len(known):
        return -math.inf if negative else math.inf
    return math.nan


def sign_of(value: Fraction | float) -> int:
    return int(math.copysign(1, value) < 0) if isinstance(value, float) else int(value < 0)


def code_of(value: Fraction | float, name: str, mode: str = "rn", finite: bool = False) -> int:
    """Return the code that a value is rounded to."""
    exponent_bits, fraction_bits, signed, _, nan = FORMATS[name]
    known, top = magnitudes(name), 1 << exponent_bits + fraction_bits
    largest = len(known) - 1
    if isinstance(value, float) and math.isnan(value):
        return top - 1 if nan else largest
    sign = top * sign_of(value) if signed else 0
    over = largest if finite else largest + 1
    if isinstance(value, float) and math.isinf(value):
        return sign | over
    size = abs(Fraction(value))
    above = bisect_left(known, size)
    if above > largest:
        # The next number that there would be is as far away as the one before.
        half = known[-1] + (known[-1] - known[-2]) / 2
        up = {"rn": size > half or (size == half and largest & 1 == 1), "rz": False, "rp": True}
        return sign | (over if up[mode] else largest)
    if known[above] == size or mode == "rp":
        return sign | above
    if mode == "rz":
        return sign | above - 1
    middle = (known[above] + known[above - 1]) / 2
    return sign | above - (size < middle or (size == middle and above & 1 == 1))


def parts(word: int, bits: int) -> list[int]:
    return [word >> bits * at & (1 << bits) - 1 for at in range(4)]


# ---- comparisons ----------------------------------------------------------------------------

COMPARED: dict[str, Callable[[int, int], bool]] = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


@in_one_test("name", ["u8x4", "s8x4", "u16x2", "s16x2"])
def test_parts_of_registers_are_compared(reference: Any, name: str) -> None:
    bits, signed = int(name[1:].split("x")[0]), name[0] == "s"
    a, b = (words[::3] for words in reference.integers(32, 2, 60, 5))
    b = [y if i % 3 else x ^ 0x00010080 for i, (x, y) in enumerate(zip(a, b, strict=True))]

    def read(field: int) -> int:
        return field - (1 << bits) if signed and field >> bits - 1 else field

    for compare, holds in COMPARED.items():
        if signed and compare in ("lo", "ls", "hi", "hs"):
            with pytest.raises(UnknownForm):
                reference.build(f"set.{compare}.{name}")
            continue

        def expected(x: int, y: int, f: Callable[[int, int], bool] = holds) -> int:
            fields = (
                (x >> at & (1 << bits) - 1, y >> at & (1 << bits) - 1, at)
                for at in range(0, 32, bits)
            )
            return sum(((1 << bits) - 1) << at for p, q, at in fields if f(read(p), read(q)))

        reference.matches(f"set.{compare}.{name}", expected, a, b)


# ---- four numbers in a register -------------------------------------------------------------

WIDTHS = {"e2m1x4": 4}
TYPES = ("e2m1x4", "e2m1p4x4", "e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "ue8m0x4")


def values(word: int, name: str) -> list[Fraction | float]:
    single = name.removesuffix("x4").removesuffix("p4")
    exponent_bits, fraction_bits, signed, *_ = FORMATS[single]
    mask = (1 << exponent_bits + fraction_bits + signed) - 1
    return [number(code & mask, single) for code in parts(word, WIDTHS.get(name, 8))]


def special(*operands: Fraction | float) -> bool:
    return any(isinstance(x, float) and not math.isfinite(x) for x in operands)


def times(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    if special(x, y):
        return float(x) * float(y) if special(x) and special(y) else _beside(x, y, operator.mul)
    product = Fraction(x) * Fraction(y)
    return product if product or not sign_of(x) ^ sign_of(y) else -0.0


def plus(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    if special(x, y):
        return _beside(x, y, operator.add)
    total = Fraction(x) + Fraction(y)
    return -0.0 if not total and sign_of(x) and sign_of(y) and not x and not y else total


def _beside(x: Any, y: Any, operation: Callable[[float, float], float]) -> float:
    """Return what an infinity or a NaN makes of another number, of which its sign, or that it is zero, is enough."""
    small = (
        v if special(v) else math.copysign(1.0 if v else 0.0, -1 if sign_of(v) else 1)
        for v in (x, y)
    )
    return operation(*small)


FOUR: dict[str, Callable[..., Fraction | float]] = {
    "add": plus,
    "sub": lambda x, y: plus(x, times(Fraction(-1), y)),
    "mul": times,
    "fma": lambda x, y, z: plus(times(x, y), z),
}


@in_one_test("opcode", FOUR)
@in_one_test("into", ["e4m3x4", "e5m2x4"])
@in_one_test("modifiers", ["", ".rn.satfinite"])
def test_four_narrow_numbers(reference: Any, opcode: str, into: str, modifiers: str) -> None:
    """Sums and products of four numbers each are rounded once; NaN is 7f, and so is what is too large for e4m3."""
    generator = np.random.default_rng(len(opcode + into + modifiers))
    single = into.removesuffix("x4")
    for first in TYPES:
        second = TYPES[generator.integers(len(TYPES))]
        given = [first] + [second] * (opcode in ("mul", "fma")) + [into] * (opcode != "mul")
        words = [
            [*generator.integers(0, 1 << 32, 6).tolist(), 0x7F7F7F7F, 0x807E7C38] for _ in given
        ]
        words = [
            [w & 0xFFFF if n == "e2m1x4" else w for w in each]
            for n, each in zip(given, words, strict=True)
        ]

        def expected(*each: int, names: tuple[str, ...] = tuple(given)) -> int:
            rows = zip(
                *(values(word, name) for word, name in zip(each, names, strict=True)), strict=True
            )
            codes = (code_of(FOUR[opcode](*row), single, finite=bool(modifiers)) for row in rows)
            return sum(code << 8 * at for at, code in enumerate(codes))

        named = [into, *given[: -1 if opcode != "mul" else None]]
        reference.matches(f"{opcode}{modifiers}.{'.'.join(named)}", expected, *words)


def test_nobody_has_measured_four_narrow_numbers() -> None:
    form = find("mul", ("e4m3x4", "e2m1p4x4", "e4m3x4", "satfinite"))
    assert form.row.fidelity == "unverified"
    assert form.needs.targets == (("sm_100a", "sm_103a"),)
    with pytest.raises(UnknownForm):
        find("add", ("e2m1x4", "e2m1x4"))
    assert "second factor" in str(reason("mul.bf16x2.bf16x2.f16x2"))


# ---- pairs ----------------------------------------------------------------------------------


@in_one_test("short", ["f16", "bf16"])
@in_one_test("mode", ["rn", "rz", "rm", "rp"])
def test_pairs_of_mixed_precision(reference: Any, short: str, mode: str) -> None:
    (a,), (b, c) = reference.floats(short, 1, 60, 3), reference.floats("f32", 2, 60, 4)
    b, c = (wide[::9] for wide in (b, c))
    a = (a * 9)[: len(b)]

    def both(f: Callable[..., int]) -> Callable[..., int]:
        def of(x: int, *wide: int) -> int:
            low = f(x & 0xFFFF, *(w & MASK for w in wide))
            return f(x >> 16, *(w >> 32 for w in wide)) << 32 | low

        return of

    @cache
    def wider(x: int) -> int:
        return int(reference.encode(reference.decode(x, short), "f32", zero_sign=x >> 15))

    def fma(x: int, y: int, z: int) -> int:
        return int(reference.fma(wider(x), y, z, "f32", mode))

    unit = 0x3F800000
    short_pairs = [x << 16 | y for x, y in zip(a, a[::-1], strict=True)]
    wide, other = ([x << 32 | y for x, y in zip(o, o[3:] + o[:3], strict=True)] for o in (b, c))
    pairs, end = f"{mode}.f32x2.{short}x2", "f32x2"
    reference.matches(f"fma.{pairs}.{end}.{end}", both(fma), short_pairs, wide, other)
    reference.matches(f"add.{pairs}.{end}", both(lambda x, z: fma(x, unit, z)), short_pairs, wide)
    negated = both(lambda x, z: fma(x, unit, z ^ 0x80000000))
    reference.matches(f"sub.{pairs}.{end}", negated, short_pairs, wide)


@in_one_test("short", ["bf16", "f16"])
def test_pairs_that_are_cut_to_16_bits(reference: Any, short: str) -> None:
    """The exact result loses its last bits, or all of them where .ftz has it."""
    a, b = (words[::4] for words in reference.floats("f32", 2, 200, 6))
    flush = short == "f16"

    def cut(opcode: str, x: int, y: int) -> int:
        if flush:
            x, y = reference.flush(x, "f32"), reference.flush(y, "f32")
        factor, term = (y, (x ^ y) & 0x80000000) if opcode == "mul" else (0x3F800000, y)
        if opcode == "sub":
            term ^= 0x80000000
        p, q, r = (reference.decode(word, "f32") for word in (x, factor, term))
        if any(isinstance(word, float) for word in (p, q, r)):
            wide = reference.fma(x, factor, term, "f32", "rz")
            special = reference.decode(wide, "f32")
            return int(reference.encode(special, short, "rz", wide >> 31))
        exact = p * q + r
        sign = reference.fma(x, factor, term, "f32", "rz") >> 31
        code = int(reference.encode(exact, short, "rz", sign))
        return int(reference.flush(code, short)) if flush else code

    pairs = [[x << 32 | y for x, y in zip(o, o[5:] + o[:5], strict=True)] for o in (a, b)]
    for opcode in ("add", "sub", "mul"):

        def expected(x: int, y: int, o: str = opcode) -> int:
            return cut(o, x >> 32, y >> 32) << 16 | cut(o, x & MASK, y & MASK)

        reference.matches(f"{opcode}.rz{'.ftz' * flush}.{short}x2.f32x2.f32x2", expected, *pairs)


# ---- conversions ----------------------------------------------------------------------------


def _given(reference: Any, name: str, source: str) -> list[int]:
    """Return numbers of a type: edges, random ones, and those between what a format has."""
    (words,) = reference.floats(source, 1, 20, 7)
    middles = ((x + y) / 2 for x, y in pairwise(magnitudes(name)[::9]))
    near = [int(reference.encode(m, source)) for m in middles]
    return [*words, *near, *(word + 1 for word in near)]


def _value(reference: Any, word: int, source: str) -> Fraction | float:
    value = reference.decode(word, source)
    return -0.0 if value == 0 and reference.sign(word, source) else value


@in_one_test("mode", ["rn", "rz", "rp"])
@in_one_test("finite", [False, True])
def test_unsigned_scales_of_8_bits(reference: Any, mode: str, finite: bool) -> None:
    """ue5m3 has no sign, which is dropped, and no infinity, which is NaN, as NVIDIA's cuda_fp8.hpp has it."""
    modifiers = f"{mode}{'.satfinite' * finite}"

    @cache
    def converted(word: int, source: str) -> int:
        return code_of(_value(reference, word, source), "ue5m3", mode, finite)

    a = [*_given(reference, "ue5m3", "f32"), 0x47E80000, 0x47E80001, 0x47E00001, 0xC7E00001]
    reference.matches(
        f"cvt.{modifiers}.ue5m3x2.f32",
        lambda x, y: converted(x, "f32") << 8 | converted(y, "f32"),
        a,
        a[::-1],
    )
    for source in ("f16", "bf16"):
        h = _given(reference, "e4m3", source)
        reference.matches(
            f"cvt.{modifiers}.ue5m3x2.{source}x2",
            lambda w, s=source: converted(w >> 16, s) << 8 | converted(w & 0xFFFF, s),
            [x << 16 | y for x, y in zip(h, h[::-1], strict=True)],
        )


def test_unsigned_scales_grow(reference: Any) -> None:
    words = [code << 8 | (code * 7 + 3) % 256 for code in range(256)]

    def wide(code: int, name: str, scale: int = 127) -> int:
        value = number(code, "ue5m3")
        if isinstance(value, float) or scale == 255:
            return 0x7FFF
        return int(reference.encode(value * Fraction(2) ** (scale - 127), name))

    for name in ("f16", "bf16"):
        reference.matches(
            f"cvt.rn.{name}x2.ue5m3x2",
            lambda w, n=name: wide(w >> 8, n) << 16 | wide(w & 255, n),
            words,
        )
    assert wide(0xF8, "f16") == 0x7C00
    reference.matches(
        "cvt.rn.scaled::n2::ue8m0.bf16x2.ue5m3x2",
        lambda w, s: wide(w >> 8, "bf16", s >> 8) << 16 | wide(w & 255, "bf16", s & 255),
        words,
        [s << 8 | 255 - s for s in range(256)],
    )


@in_one_test("name", ["e4m3", "e5m2", "e3m2", "e2m1", "ue5m3"])
@in_one_test("mode", ["rn", "rz"])
def test_numbers_divided_by_one_scale(reference: Any, name: str, mode: str) -> None:
    """As cudnn-frontend measured sm_107: subnormal numbers count as zeros, and a scale of 255 makes all NaN."""
    distance = 4 if name == "e2m1" else 8

    @cache
    def converted(word: int, scale: int, source: str) -> int:
        word = int(reference.flush(word, source))
        value = _value(reference, word, source)
        if scale == 255:
            value = math.nan
        elif value and not special(value):
            value /= Fraction(2) ** (scale - 127)
        return code_of(value, name, mode, finite=True)

    start = f"cvt.{mode}.satfinite.scaled::n1::ue8m0.{name}x2"
    for source in ("f32", "f16", "bf16"):
        a = _given(reference, "e4m3", source)
        scales = [(127, 0, 100, 130, 140, 254, 255, 126)[at % 8] for at in range(len(a))]
        b = a[::-1]
        if source == "f32":
            reference.matches(
                f"{start}.f32",
                lambda x, y, s: converted(x, s, "f32") << distance | converted(y, s, "f32"),
                a,
                b,
                scales,
            )
            continue
        words = [x << 16 | y for x, y in zip(a, b, strict=True)]
        reference.matches(
            f"{start}.{source}x2",
            lambda w, s, f=source: (
                converted(w >> 16, s, f) << distance | converted(w & 0xFFFF, s, f)
            ),
            words,
            scales,
        )


@in_one_test("name", ["f16", "bf16", "tf32", "e4m3x2", "e2m1x2", "f16x2"])
@in_one_test("mode", ["rn", "rz"])
def test_zeros_are_positive(reference: Any, name: str, mode: str) -> None:
    """.pzo is what it is without, but for -0; the faulty twin is without."""
    finite = ".satfinite" * name.startswith("e")
    (a,) = reference.floats("f32", 1, 100, 8)
    a += [0x80000000, 0x80000001, 0xA0000000, 0x00000001]
    several = [a, a[::-1]] if name.endswith("x2") else [a]
    plain = reference.run(f"cvt.{mode}{finite}.{name}.f32", *several).tolist()
    bits = {"tf32": 32, "e4m3x2": 8, "e2m1x2": 4}.get(name, 16)
    width = bits * len(several)

    def positive(word: int) -> int:
        fields = (word >> at & (1 << bits) - 1 for at in range(0, width, bits))
        return sum((0 if f == 1 << bits - 1 else f) << bits * at for at, f in enumerate(fields))

    known = list(map(positive, plain))
    assert known != plain
    assert reference.run(f"cvt.{mode}{finite}.pzo.{name}.f32", *several).tolist() == known
