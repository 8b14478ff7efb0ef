"""Two values in a register, mixed precision, fns and cvt.pack, against exact arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from ptxlab.emulator.prepare.row import UnknownForm
from tests.together import in_one_test

MODES = ("rn", "rz", "rm", "rp")
ONE = {"f32": 0x3F800000}
MASK = 0xFFFFFFFF


def _signed(word: int) -> int:
    return word - 0x10000 if word >> 15 else word


@pytest.mark.parametrize("name", ["u16x2", "s16x2"])
def test_halves_as_integers(reference: Any, name: str) -> None:
    a, b = reference.integers(32, 2, 400, 1)
    read = _signed if name[0] == "s" else int
    cases: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "min": lambda x, y: min(read(x), read(y)),
        "max": lambda x, y: max(read(x), read(y)),
        "min.relu": lambda x, y: max(min(read(x), read(y)), 0),
        "max.relu": lambda x, y: max(read(x), read(y), 0),
    }
    for opcode, half in cases.items():
        if "relu" in opcode and name == "u16x2":
            with pytest.raises(UnknownForm):
                reference.build(f"{opcode}.{name}")
            continue

        def expected(x: int, y: int, f: Callable[[int, int], int] = half) -> int:
            return (f(x >> 16, y >> 16) & 0xFFFF) << 16 | f(x & 0xFFFF, y & 0xFFFF) & 0xFFFF

        reference.matches(f"{opcode}.{name}", expected, a, b)


@in_one_test("name", ["u8x4", "s8x4", "u16x2", "s16x2"])
def test_numbers_of_8_bits_and_sums_that_saturate(reference: Any, name: str) -> None:
    a, b = reference.integers(32, 2, 400, 2)
    single, count = name.split("x")
    bits, signed = int(single[1:]), name[0] == "s"
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def part(word: int, at: int) -> int:
        field = word >> bits * at & (1 << bits) - 1
        return field - (1 << bits) if signed and field >> bits - 1 else field

    def clamped(x: int) -> int:
        return min(max(x, least), most)

    cases: dict[str, Callable[..., int]] = {"add.sat": lambda x, y: clamped(x + y)}
    if bits == 8:
        cases |= {
            "add": lambda x, y: x + y,
            "sub": lambda x, y: x - y,
            "sub.sat": lambda x, y: clamped(x - y),
            "min": min,
            "max": max,
        }
    if name == "s8x4":
        cases |= {
            "min.relu": lambda x, y: max(min(x, y), 0),
            "max.relu": lambda x, y: max(x, y, 0),
            "neg": lambda x: -x,
        }
    for opcode, of in cases.items():

        def expected(*words: int, f: Callable[..., int] = of) -> int:
            numbers = (f(*(part(word, at) for word in words)) for at in range(int(count)))
            return sum((x & (1 << bits) - 1) << bits * at for at, x in enumerate(numbers))

        reference.matches(f"{opcode}.{name}", expected, *((a,) if opcode == "neg" else (a, b)))
    reference.matches("add.sat.u32", lambda x, y: min(x + y, MASK), a, b)


@in_one_test("mode", MODES)
@in_one_test("ftz", ["", ".ftz"])
def test_pairs_of_f32(reference: Any, mode: str, ftz: str) -> None:
    columns = reference.floats("f32", 3, 250, 2)
    a, b, c = ([x << 32 | y for x, y in zip(o, o[::-1], strict=True)] for o in columns)

    def flush(x: int) -> int:
        return int(reference.flush(x, "f32")) if ftz else x

    def fma(x: int, y: int, z: int) -> int:
        return flush(reference.fma(flush(x), flush(y), flush(z), "f32", mode))

    def product(x: int, y: int) -> int:
        return fma(x, y, (flush(x) ^ flush(y)) & 0x80000000)

    singles: dict[str, Callable[..., int]] = {
        "add": lambda x, y: fma(x, ONE["f32"], y),
        "sub": lambda x, y: fma(x, ONE["f32"], y ^ 0x80000000),
        "mul": product,
        "fma": fma,
    }
    for opcode, single in singles.items():

        def expected(*words: int, f: Callable[..., int] = single) -> int:
            return f(*(x >> 32 for x in words)) << 32 | f(*(x & MASK for x in words))

        operands = [a, b, c] if opcode == "fma" else [a, b]
        reference.matches(f"{opcode}.{mode}{ftz}.f32x2", expected, *operands)


@in_one_test("short", ["f16", "bf16"])
@in_one_test("mode", MODES)
def test_mixed_precision(reference: Any, short: str, mode: str) -> None:
    a, b = reference.floats(short, 2, 250, 3)
    (c,) = reference.floats("f32", 1, len(a) - len(reference.floats("f32", 1, 0, 4)[0]), 4)

    @cache
    def wide(x: int) -> int:
        value = reference.decode(x, short)
        return int(reference.encode(value, "f32", zero_sign=x >> 15))

    def clamp(bits: int) -> int:
        value = reference.decode(bits, "f32")
        return 0 if value != value or value <= 0 else ONE["f32"] if value >= 1 else bits

    def fma(x: int, y: int, z: int) -> int:
        return int(reference.fma(wide(x), wide(y), z, "f32", mode))

    @cache
    def plus(x: int, z: int) -> int:
        return int(reference.fma(wide(x), ONE["f32"], z, "f32", mode))

    reference.matches(f"fma.{mode}.f32.{short}", fma, a, b, c)
    reference.matches(f"add.{mode}.f32.{short}", plus, a, c)
    reference.matches(f"sub.{mode}.f32.{short}", lambda x, z: plus(x, z ^ 0x80000000), a, c)
    reference.matches(f"fma.{mode}.sat.f32.{short}", lambda *o: clamp(fma(*o)), a, b, c)
    reference.matches(f"add.{mode}.sat.f32.{short}", lambda *o: clamp(plus(*o)), a, c)


@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extremum_of_three(reference: Any, opcode: str) -> None:
    a, b, c = reference.floats("f32", 3, 300, 5)

    def expected(*bits: int, nan: bool, magnitude: bool, ftz: bool) -> int:
        words = [x & 0x7FFFFFFF if magnitude else x for x in bits]
        words = [reference.flush(x, "f32") if ftz else x for x in words]
        numbers = [x for x in words if x & 0x7FFFFFFF <= 0x7F800000]
        if not numbers or (nan and len(numbers) < 3):
            return 0x7FFFFFFF
        order = sorted(numbers, key=lambda x: -1 - (x & 0x7FFFFFFF) if x >> 31 else x)
        return int(order[0 if opcode == "min" else -1])

    for ftz in ("", ".ftz"):
        for nan in ("", ".NaN"):
            for magnitude in ("", ".abs"):
                reference.matches(
                    f"{opcode}{ftz}{nan}{magnitude}.f32",
                    lambda *o, n=bool(nan), m=bool(magnitude), z=bool(ftz): expected(
                        *o, nan=n, magnitude=m, ftz=z
                    ),
                    a,
                    b,
                    c,
                )


def test_find_nth_set(reference: Any) -> None:
    mask, base, offset = reference.integers(32, 3, 300, 6)
    base = [x % 32 for x in base]
    offset = [x % 80 - 40 & MASK for x in offset]

    def expected(word: int, start: int, pattern: int) -> int:
        nth = pattern - (1 << 32) if pattern >> 31 else pattern
        if nth == 0:
            return start if word >> start & 1 else MASK
        places = range(start, 32) if nth > 0 else range(start, -1, -1)
        ones = [position for position in places if word >> position & 1]
        return ones[abs(nth) - 1] if abs(nth) <= len(ones) else MASK

    reference.matches("fns.b32", expected, mask, base, offset)
    reference.matches("fns.b32", expected, mask, base, [0] * len(mask))
    assert [expected(0xAAAAAAAA, *x) for x in ((3, 1), (3, MASK), (2, 1), (2, MASK))] == [
        3,
        3,
        3,
        1,
    ]
    edges = [0xFFFFFFFF, 0x80000000, 1, 0] * 2
    reference.matches("fns.b32", expected, edges, [31, 31, 0, 0] * 2, [1 << 31, 1, MASK, 0] * 2)


@in_one_test("name", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_cvt_pack(reference: Any, name: str) -> None:
    a, b, c = reference.integers(32, 3, 200, 7)
    bits = int(name[1:])
    least, most = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def part(x: int) -> Any:
        return min(max(int(reference.signed(x, 32)), least), most) & ((1 << bits) - 1)

    def packed(x: int, y: int, z: int = 0) -> Any:
        return (z << 2 * bits | part(x) << bits | part(y)) & MASK

    if bits == 16:
        reference.matches(f"cvt.pack.sat.{name}.s32", packed, a, b)
    else:
        reference.matches(f"cvt.pack.sat.{name}.s32.b32", packed, a, b, c)


@in_one_test("name", ["f16", "bf16"])
@in_one_test("satfinite", ["", ".satfinite"])
@in_one_test("relu", ["", ".relu"])
def test_stochastic_rounding(reference: Any, name: str, satfinite: str, relu: str) -> None:
    """Between two neighbours the exact fraction, plus the random one, reaches 1 or not."""
    bits = {"f16": 13, "bf16": 16}[name]
    _, fraction = reference.fields[name]
    a, b = reference.floats("f32", 2, 400, 8)
    (random,) = reference.integers(32, 1, len(a) - 15, 9)
    infinity = reference.encode(float("inf"), name)

    def half(x: int, chance: int) -> int:
        value = reference.decode(x, "f32")
        if value != value:
            return 0x7FFF
        down = reference.encode(value, name, "rz", x >> 31)
        if isinstance(value, Fraction) and down & 0x7FFF != infinity - 1:
            low, high = (abs(reference.decode(word, name)) for word in (down, down + 1))
            share = (abs(value) - low) / (high - low)
            down += share + Fraction(chance % 2**bits, 2**bits) >= 1
        elif isinstance(value, Fraction):
            step = Fraction(2) ** (15 - 10 if name == "f16" else 127 - 7)
            share = (abs(value) - abs(reference.decode(down, name))) / step
            down += share + Fraction(chance % 2**bits, 2**bits) >= 1
        if relu and (x >> 31):
            return 0
        if satfinite and down & 0x7FFF == infinity:
            down -= 1
        return int(down)

    def expected(x: int, y: int, r: int) -> int:
        return half(x, r >> 16) << 16 | half(y, r)

    reference.matches(f"cvt.rs{relu}{satfinite}.{name}x2.f32", expected, a, b, random)
    tie = 0x3F800000 | 1 << (22 - fraction)
    never, always = 0, (2**bits - 1) | (2**bits - 1) << 16
    got = reference.run(
        f"cvt.rs{relu}{satfinite}.{name}x2.f32", [tie] * 2, [tie] * 2, [never, always]
    )
    word_of_one = reference.encode(Fraction(1), name)
    assert got.tolist() == [word_of_one * 0x10001, (word_of_one + 1) * 0x10001]
    for_all_threads = [0x7FC00000]
    got = reference.run(
        f"cvt.rs{relu}{satfinite}.{name}x2.f32", for_all_threads, for_all_threads, [never, always]
    )
    assert got.tolist() == [reference.nan[name] * 0x10001] * 2


def test_scales(reference: Any) -> None:
    a, b = reference.floats("f32", 2, 300, 10)
    a += [0x00400000, 0x00400001, 0x003FFFFF, 0x7F000000, 0x7F000001, 0xFF800000]
    b += [0x80400001, 0, 1, 0x7F7FFFFF, 0x7F800000, 0x40000000]

    powers = [Fraction(2) ** exponent for exponent in range(-127, 128)]

    def scale(x: int, mode: str, satfinite: bool) -> int:
        """The least, or the greatest, power of two from 2**-127 on that bounds the magnitude."""
        value = reference.decode(x & 0x7FFFFFFF, "f32")
        if value != value:
            return 255
        if isinstance(value, float):
            return 254 if satfinite else 255
        code = max(bisect_right(powers, value) - 1, 0)
        code += mode == "rp" and value > powers[code]
        return min(code, 254) if satfinite else code

    for mode in ("rz", "rp"):
        for satfinite in ("", ".satfinite"):

            def expected(x: int, y: int, m: str = mode, s: bool = bool(satfinite)) -> int:
                return scale(x, m, s) << 8 | scale(y, m, s)

            reference.matches(f"cvt.{mode}{satfinite}.ue8m0x2.f32", expected, a, b)
            words = [(x >> 16) << 16 | y >> 16 for x, y in zip(a, b, strict=True)]
            reference.matches(
                f"cvt.{mode}{satfinite}.ue8m0x2.bf16x2",
                lambda w, f=expected: f(w & 0xFFFF0000, w << 16 & MASK),
                words,
            )


def test_scales_as_bf16(reference: Any) -> None:
    def value(byte: int) -> Any:
        return 0x7FFF if byte == 255 else reference.encode(Fraction(2) ** (byte - 127), "bf16")

    pairs = [high << 8 | low for high in range(256) for low in (0, 1, 127, 254, 255)]
    reference.matches(
        "cvt.rn.bf16x2.ue8m0x2", lambda w: value(w >> 8) << 16 | value(w & 255), pairs
    )


@in_one_test(
    "name",
    [
        "sub.u16x2",
        "sub.sat.s16x2",
        "neg.u8x4",
        "add.sat.f32x2",
        "fma.f32x2",
        "add.ftz.f32.f16",
        "mul.f32.f16",
        "fma.f32.bf16",
        "cvt.pack.u8.s32.b32",
        "cvt.pack.sat.u16.s32.b32",
        "cvt.rs.f16.f32",
        "cvt.rs.satfinite.e4m3x4.f32",
        "cvt.rn.ue8m0x2.f32",
        "cvt.rz.bf16x2.ue8m0x2",
        "fns.b64",
    ],
)
def test_what_is_not_an_instruction_is_refused(reference: Any, name: str) -> None:
    with pytest.raises(UnknownForm):
        reference.build(name)
