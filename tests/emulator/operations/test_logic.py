"""Logic, shifts, bit fields and byte permutations against bit-by-bit readings of the PTX ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ONES = 0xFFFFFFFF


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(reference: Any, bits: int) -> None:
    mask = (1 << bits) - 1
    a, b = reference.integers(bits, 2, 200, 1)
    reference.matches(f"and.b{bits}", lambda x, y: x & y, a, b)
    reference.matches(f"or.b{bits}", lambda x, y: x | y, a, b)
    reference.matches(f"xor.b{bits}", lambda x, y: x ^ y, a, b)
    reference.matches(f"not.b{bits}", lambda x: x ^ mask, a)
    reference.matches(f"cnot.b{bits}", lambda x: int(x == 0), a)
    reference.matches(f"mov.b{bits}", lambda x: x, a)


def test_logic_on_predicates(reference: Any) -> None:
    a, b = [0, 0, 1, 1] * 3, [0, 1, 0, 1] * 3
    reference.matches("and.pred", lambda x, y: x & y, a, b)
    reference.matches("or.pred", lambda x, y: x | y, a, b)
    reference.matches("xor.pred", lambda x, y: x ^ y, a, b)
    reference.matches("not.pred", lambda x: 1 - x, a)
    reference.matches("mov.pred", lambda x: x, a)


COUNTS = [0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 65535, 65536, 65537, 1 << 31, ONES]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp(reference: Any, bits: int) -> None:
    mask = (1 << bits) - 1
    values, _ = reference.integers(bits, 2, 100, 2)
    a = [value for value in values[::7] for _ in COUNTS]
    n = COUNTS * (len(a) // len(COUNTS))

    def arithmetic(x: int, count: int) -> int:
        return int(reference.signed(x, bits) >> min(count, bits) & mask)

    reference.matches(f"shl.b{bits}", lambda x, y: x << min(y, bits) & mask, a, n)
    reference.matches(f"shr.u{bits}", lambda x, y: x >> min(y, bits), a, n)
    reference.matches(f"shr.b{bits}", lambda x, y: x >> min(y, bits), a, n)
    reference.matches(f"shr.s{bits}", arithmetic, a, n)


def test_funnel_shifts(reference: Any) -> None:
    a, b, c = reference.integers(32, 3, 300, 3)

    def shift(x: int, y: int, n: int, left: bool) -> int:
        both = y << 32 | x
        return (both << n >> 32 if left else both >> n) & ONES

    for side in "lr":
        left = side == "l"
        reference.matches(
            f"shf.{side}.clamp.b32", lambda x, y, n, s=left: shift(x, y, min(n, 32), s), a, b, c
        )
        reference.matches(
            f"shf.{side}.wrap.b32", lambda x, y, n, s=left: shift(x, y, n & 31, s), a, b, c
        )


def test_lop3_tables(reference: Any) -> None:
    a, b, c = 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA  # bit i of each spells i in binary
    for table in range(256):
        got = reference.run("lop3.b32", [a], [b], [c], [table]).tolist()
        assert got == [table * 0x01010101], table
    x, y, z = reference.integers(32, 3, 100, 4)
    got = reference.run("lop3.b32", x, y, z, [0x96])
    assert got.tolist() == [i ^ j ^ k for i, j, k in zip(x, y, z, strict=True)]
    d, p = reference.run("lop3.and.b32", x, y, z, [0x80], [1])
    assert p.tolist() == [bool(i & j & k) for i, j, k in zip(x, y, z, strict=True)]
    d, p = reference.run("lop3.or.b32", x, y, z, [0x80], [1])
    assert p.all()
    assert d.tolist() == [i & j & k for i, j, k in zip(x, y, z, strict=True)]


@pytest.mark.parametrize("bits", [32, 64])
def test_counting(reference: Any, bits: int) -> None:
    (a,) = reference.integers(bits, 1, 500, 5)
    a += [1 << i for i in range(bits)] + [(1 << i) - 1 for i in range(bits)]
    reference.matches(f"popc.b{bits}", lambda x: x.bit_count(), a)
    reference.matches(f"clz.b{bits}", lambda x: bits - x.bit_length(), a)
    reference.matches(f"brev.b{bits}", lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)

    def place(x: int, is_signed: bool) -> int:
        if is_signed and x >> (bits - 1):
            x ^= (1 << bits) - 1
        return (x.bit_length() - 1) & ONES

    def amount(x: int, is_signed: bool) -> int:
        position = place(x, is_signed)
        return position if position == ONES else bits - 1 - position

    for kind, is_signed in (("u", False), ("s", True)):
        reference.matches(f"bfind.{kind}{bits}", lambda x, s=is_signed: place(x, s), a)
        reference.matches(f"bfind.shiftamt.{kind}{bits}", lambda x, s=is_signed: amount(x, s), a)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(reference: Any, bits: int) -> None:
    values, others = reference.integers(bits, 2, 400, 6)
    values, others = values[-400:], others[-400:]
    rng = np.random.default_rng(7)
    edges = [0, 1, 31, 32, 33, 63, 64, 255, 256 + 5, ONES]
    where = [edges[i % 10] if i % 3 == 0 else int(rng.integers(0, 70)) for i in range(400)]
    length = [edges[i // 10 % 10] if i % 3 == 1 else int(rng.integers(0, 70)) for i in range(400)]

    def bfe(a: int, b: int, c: int, is_signed: bool) -> int:
        at, count, last = b & 0xFF, c & 0xFF, bits - 1
        fill = a >> min(at + count - 1, last) & 1 if is_signed and count else 0
        field = 0
        for i in range(bits):
            field |= (a >> (at + i) & 1 if i < count and at + i <= last else fill) << i
        return field

    def bfi(a: int, b: int, c: int, d: int) -> int:
        at, count = c & 0xFF, d & 0xFF
        for i in range(count):
            if at + i < bits:
                b = b & ~(1 << (at + i)) | (a >> i & 1) << (at + i)
        return b

    reference.matches(f"bfe.u{bits}", lambda x, y, z: bfe(x, y, z, False), values, where, length)
    reference.matches(f"bfe.s{bits}", lambda x, y, z: bfe(x, y, z, True), values, where, length)
    reference.matches(f"bfi.b{bits}", bfi, values, others, where, length)


def test_masks_and_extension(reference: Any) -> None:
    a, b = reference.integers(32, 2, 200, 8)
    small = [(x % 40, y % 40) for x, y in zip(a, b, strict=True)]
    a, b = a + [x for x, _ in small], b + [y for _, y in small]

    def bmsk(x: int, y: int, clamp: bool) -> int:
        start, width = x & 31, y & 31
        low = ONES << start & ONES
        high = ONES << (start + width) & ONES
        if clamp and x >= 32:
            low = 0
        if start + width >= 32 or (clamp and (x >= 32 or y >= 32)):
            high = 0
        elif width == 0:
            high = ONES
        return low & ~high & ONES if high or low else 0

    def szext(x: int, y: int, clamp: bool, is_signed: bool) -> int:
        if clamp and y >= 32:
            return x
        width = y & 31
        low = x & ((1 << width) - 1)
        return (reference.signed(low, width) if is_signed and width else low) & ONES

    for mode in ("clamp", "wrap"):
        clamp = mode == "clamp"
        reference.matches(f"bmsk.{mode}.b32", lambda x, y, k=clamp: bmsk(x, y, k), a, b)
        reference.matches(f"szext.{mode}.u32", lambda x, y, k=clamp: szext(x, y, k, False), a, b)
        reference.matches(f"szext.{mode}.s32", lambda x, y, k=clamp: szext(x, y, k, True), a, b)


# PTX ISA, "prmt": the four source bytes, highest first, for control values 0 to 3.
PRMT_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def test_byte_permutations(reference: Any) -> None:
    a, b, c = reference.integers(32, 3, 400, 9)

    def pick(x: int, y: int, nibbles: list[int]) -> int:
        source = (y << 32 | x).to_bytes(8, "little")
        chosen = []
        for nibble in nibbles:
            byte = source[nibble & 7]
            chosen.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
        return int.from_bytes(bytes(chosen), "little")

    reference.matches(
        "prmt.b32", lambda x, y, z: pick(x, y, [z >> 4 * i & 15 for i in range(4)]), a, b, c
    )
    for z in (0x5410, 0x7632, 0x3210, 0xFEDC, 0x8B40, 0x10123):
        wanted = [
            pick(x, y, [z >> 4 * i & 15 for i in range(4)]) for x, y in zip(a, b, strict=True)
        ]
        assert reference.run("prmt.b32", a, b, [z]).tolist() == wanted
    for mode, rows in PRMT_MODES.items():

        def expected(x: int, y: int, z: int, table: tuple[str, ...] = rows) -> int:
            return pick(x, y, [int(digit) for digit in reversed(table[z & 3])])

        reference.matches(f"prmt.b32.{mode}", expected, a, b, c)
