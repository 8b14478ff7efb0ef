"""Integer operations against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

TYPES = ("u16", "u32", "u64", "s16", "s32", "s64")


def _value(reference: Any, name: str) -> tuple[int, int, Callable[[int], int]]:
    bits = int(name[1:])
    read = (lambda x: reference.signed(x, bits)) if name[0] == "s" else (lambda x: x)
    return bits, (1 << bits) - 1, read


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


@pytest.mark.parametrize("name", TYPES)
def test_two_operands(reference: Any, name: str) -> None:
    bits, mask, v = _value(reference, name)
    a, b = reference.integers(bits, 2, 400, 1)
    cases: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul.lo": lambda x, y: x * y,
        "mul.hi": lambda x, y: v(x) * v(y) >> bits,
        "min": lambda x, y: min(v(x), v(y)),
        "max": lambda x, y: max(v(x), v(y)),
        "div": lambda x, y: _truncated(v(x), v(y)) if y else -1,
        "rem": lambda x, y: v(x) - v(y) * _truncated(v(x), v(y)) if y else -1,
    }
    for opcode, expected in cases.items():
        reference.matches(f"{opcode}.{name}", lambda x, y, f=expected: f(x, y) & mask, a, b)
    if name[0] == "s":
        reference.matches(f"neg.{name}", lambda x: -x & mask, a)
        reference.matches(f"abs.{name}", lambda x: abs(v(x)) & mask, a)
    if bits < 64:
        reference.matches(
            f"mul.wide.{name}", lambda x, y: v(x) * v(y) & ((1 << 2 * bits) - 1), a, b
        )


@pytest.mark.parametrize("half", ["lo", "hi"])
def test_products_without_carries(reference: Any, half: str) -> None:
    """A carry-less product is one digit by digit in large base, of which parities are left."""
    a, b, c = reference.integers(64, 3, 200, 5)
    base = 8

    def spread(x: int) -> int:
        return sum((x >> i & 1) << base * i for i in range(64))

    def expected(x: int, y: int, z: int) -> int:
        digits = spread(x) * spread(y)
        product = sum((digits >> base * i & 1) << i for i in range(127))
        return (product >> (64 if half == "hi" else 0) ^ z) & ((1 << 64) - 1)

    reference.matches(f"clmad.{half}.u64", expected, a, b, c)


@pytest.mark.parametrize("name", TYPES)
def test_three_operands(reference: Any, name: str) -> None:
    bits, mask, v = _value(reference, name)
    a, b, c = reference.integers(bits, 3, 300, 2)
    cases: dict[str, Callable[[int, int, int], int]] = {
        "mad.lo": lambda x, y, z: x * y + z,
        "mad.hi": lambda x, y, z: (v(x) * v(y) >> bits) + z,
        "sad": lambda x, y, z: z + abs(v(x) - v(y)),
    }
    for opcode, expected in cases.items():
        reference.matches(f"{opcode}.{name}", lambda *o, f=expected: f(*o) & mask, a, b, c)
    if bits < 64:
        wide = (1 << 2 * bits) - 1
        (d,) = reference.integers(2 * bits, 1, len(a) - 15, 3)
        reference.matches(
            f"mad.wide.{name}", lambda x, y, z: v(x) * v(y) + z & wide, a[-200:], b[-200:], d[-200:]
        )


def test_saturation_and_relu(reference: Any) -> None:
    _, mask, v = _value(reference, "s32")
    a, b, c = reference.integers(32, 3, 300, 4)

    def clamp(x: int) -> int:
        return min(max(x, -(2**31)), 2**31 - 1) & mask

    reference.matches("add.sat.s32", lambda x, y: clamp(v(x) + v(y)), a, b)
    reference.matches("sub.sat.s32", lambda x, y: clamp(v(x) - v(y)), a, b)
    reference.matches("mad.hi.sat.s32", lambda x, y, z: clamp((v(x) * v(y) >> 32) + v(z)), a, b, c)
    reference.matches("max.relu.s32", lambda x, y: max(v(x), v(y), 0), a, b)
    reference.matches("min.relu.s32", lambda x, y: max(min(v(x), v(y)), 0), a, b)


@pytest.mark.parametrize("name", ["u32", "s32"])
def test_24_bit_products(reference: Any, name: str) -> None:
    _, mask, v = _value(reference, name)
    a, b, c = reference.integers(32, 3, 300, 5)

    def low24(x: int) -> int:
        x &= 0xFFFFFF
        return int(reference.signed(x, 24)) if name == "s32" else x

    for mode, shift in (("lo", 0), ("hi", 16)):
        reference.matches(
            f"mul24.{mode}.{name}", lambda x, y, s=shift: low24(x) * low24(y) >> s & mask, a, b
        )
        reference.matches(
            f"mad24.{mode}.{name}",
            lambda x, y, z, s=shift: (low24(x) * low24(y) >> s) + z & mask,
            a,
            b,
            c,
        )
    if name == "s32":
        reference.matches(
            "mad24.hi.sat.s32",
            lambda x, y, z: (
                min(max((low24(x) * low24(y) >> 16) + v(z), -(2**31)), 2**31 - 1) & mask
            ),
            a,
            b,
            c,
        )


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_dot_products(reference: Any, a_type: str, b_type: str) -> None:
    a, b, c = reference.integers(32, 3, 300, 6)

    def part(x: int, index: int, bits: int, name: str) -> int:
        field = x >> bits * index & ((1 << bits) - 1)
        return int(reference.signed(field, bits)) if name == "s32" else field

    def dp4a(x: int, y: int, z: int) -> int:
        terms = (part(x, i, 8, a_type) * part(y, i, 8, b_type) for i in range(4))
        return z + sum(terms) & 0xFFFFFFFF

    reference.matches(f"dp4a.{a_type}.{b_type}", dp4a, a, b, c)
    for mode, start in (("lo", 0), ("hi", 2)):

        def dp2a(x: int, y: int, z: int, s: int = start) -> int:
            terms = (part(x, i, 16, a_type) * part(y, s + i, 8, b_type) for i in range(2))
            return z + sum(terms) & 0xFFFFFFFF

        reference.matches(f"dp2a.{mode}.{a_type}.{b_type}", dp2a, a, b, c)


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_carry_chains(reference: Any, name: str) -> None:
    bits = int(name[1:])
    mask = (1 << bits) - 1
    a, b, c = reference.integers(bits, 3, 300, 7)
    flags = [(x >> 3 ^ y) & 1 for x, y in zip(a, b, strict=True)]

    def check(instruction: str, operands: list[list[int]], exact: Callable[..., int]) -> None:
        result, carry = reference.run(instruction, *operands)
        totals = [exact(*row) for row in zip(*operands, strict=True)]
        assert result.tolist() == [total & mask for total in totals], instruction
        assert carry.tolist() == [not 0 <= total <= mask for total in totals], instruction

    def product(x: int, y: int) -> tuple[int, int]:
        x, y = (reference.signed(x, bits), reference.signed(y, bits)) if name[0] == "s" else (x, y)
        return x * y & mask, x * y >> bits & mask

    check(f"add.cc.{name}", [a, b], lambda x, y: x + y)
    check(f"addc.cc.{name}", [a, b, flags], lambda x, y, k: x + y + k)
    # The flag is the machine's: 1 where nothing was borrowed.
    check(f"sub.cc.{name}", [a, b], lambda x, y: x + (mask ^ y) + 1)
    check(f"subc.cc.{name}", [a, b, flags], lambda x, y, k: x + (mask ^ y) + k)
    for index, mode in enumerate(("lo", "hi")):
        check(f"mad.{mode}.cc.{name}", [a, b, c], lambda x, y, z, i=index: product(x, y)[i] + z)
        check(
            f"madc.{mode}.cc.{name}",
            [a, b, c, flags],
            lambda x, y, z, k, i=index: product(x, y)[i] + z + k,
        )
        result = reference.run(f"madc.{mode}.{name}", a, b, c, flags).tolist()
        assert result == reference.run(f"madc.{mode}.cc.{name}", a, b, c, flags)[0].tolist()
    reference.matches(f"addc.{name}", lambda x, y, k: x + y + k & mask, a, b, flags)
    reference.matches(f"subc.{name}", lambda x, y, k: x - y - (1 - k) & mask, a, b, flags)
