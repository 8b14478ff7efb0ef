"""Words that a B200 gave, by ``tcgen05.mma``, for operands that anyone can draw again.

Source: github.com/sf-tensor/tcgen05 6f19f22, ``tcgen05_model/validation.py``: formats, seeds and results.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.isa.targets import TARGETS, DotProduct, GroupedDotProduct
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_integer import multiply_add_integer
from ptxlab.numbers.tensor_core_scaled import multiply_add_grouped, multiply_add_scaled

B200 = TARGETS["sm_100a"].arithmetic
EIGHT = cast(DotProduct, B200.dot8_async)
FOUR = cast(GroupedDotProduct, B200.grouped4)

Draw = Callable[[Random], int]


def below(end: int) -> Draw:
    return lambda random: random.randrange(end)


def finite(random: Random) -> int:
    """Draw a word of f32; what would be an infinity or NaN is made subnormal."""
    word = random.getrandbits(32)
    return word & 0x807FFFFF if word & 0x7F800000 == 0x7F800000 else word


def row(words: Any, dtype: str) -> Array:
    """Return A [1, k, 1] in the words that our products take: of bf16 the upper half, of e2m1 the middle of a byte."""
    offset = {"bf16": -16, "e2m1": 2}.get(dtype, 0)
    moved = [word << offset if offset > 0 else word >> -offset for word in words]
    word = {"tf32": np.uint32, "bf16": np.uint16, "f16": np.uint16}.get(dtype, np.uint8)
    return np.array(moved, word)[None, :, None]


def column(words: Any, dtype: str) -> Array:
    return row(words, dtype).transpose(1, 0, 2)


def one(word: int) -> Array:
    return np.array([[[word]]], np.uint32)


FLOATS: list[tuple[str, int, int, Draw, tuple[int, int]]] = [
    ("tf32", 8, 104, finite, (0xFF800000, 0xFC347E7C)),
    ("bf16", 16, 104, finite, (0x7F800000, 0x7F800000)),
    ("f16", 16, 103, lambda random: random.getrandbits(16), (0x7FFFFFFF, 0x49776BBA)),
    ("e4m3", 32, 104, below(0x7F), (0xEC63D12A, 0x452AF963)),
    ("e5m2", 32, 300, below(0x7C), (0x4D92B09A, 0x4C9C1102)),
    ("e2m3", 32, 301, below(0x40), (0xC29DD800, 0x449D14C1)),
    ("e3m2", 32, 302, below(0x40), (0x52C9EC63, 0xC33B7700)),
    ("e2m1", 32, 303, below(0x10), (0xC1FE0000, 0xDC3B62A3)),
]


@pytest.mark.parametrize(("dtype", "k", "seed", "draw", "known"), FLOATS, ids=lambda x: str(x)[:5])
def test_sums(dtype: str, k: int, seed: int, draw: Draw, known: tuple[int, int]) -> None:
    random = Random(seed)
    rules = B200.dot16 if dtype in ("tf32", "bf16", "f16") else EIGHT
    for result in known:
        a, b = ([draw(random) for _ in range(k)] for _ in range(2))
        c = one(finite(random))
        d = multiply_add(row(a, dtype), column(b, dtype), c, dtype=dtype, acc="f32", rules=rules)
        assert d.item() == result


@pytest.mark.parametrize(
    ("seed", "types", "satfinite", "known"),
    [
        (500, "u8 u8", False, 0x078A5C64), (501, "s8 u8", False, 0xF66E2FA6),
        (502, "u8 s8", False, 0xD73F1A46), (503, "s8 s8", True, 0x8063D12F),
        (504, "s8 s8", False, 0xA4679E93), (505, "u8 u8", True, 0x55DB8BB8),
        (506, "s8 u8", True, 0xB47F6330), (507, "u8 s8", True, 0x8533C14D),
    ],
)  # fmt: skip
def test_integers(seed: int, types: str, satfinite: bool, known: int) -> None:
    random = Random(seed)
    a, b = ([random.randrange(256) for _ in range(32)] for _ in range(2))
    c = one(finite(random))
    a_type, b_type = types.split()
    how: dict[str, Any] = {"a_type": a_type, "b_type": b_type, "satfinite": satfinite}
    assert multiply_add_integer(row(a, a_type), column(b, b_type), c, **how).item() == known


def grouped(a: Any, b: Any, c: int, scales: list[Any], scale_type: str) -> int:
    return int(
        multiply_add_grouped(
            row(a, "u8"),
            column(b, "u8"),
            one(c),
            row(scales[0], "u8"),
            column(scales[1], "u8"),
            scale_type=scale_type,
            rules=FOUR,
        ).item()
    )


@pytest.mark.parametrize(
    ("seed", "blocks", "known"),
    [(920, 2, 0x46BA8000), (921, 2, 0x40580000), (922, 4, 0xC6A88896)],
)
def test_powers_of_two_as_scales(seed: int, blocks: int, known: int) -> None:
    random = Random(seed)
    a, b = ([random.randrange(16) for _ in range(64)] for _ in range(2))
    scales = [[random.randrange(115, 140) for _ in range(blocks)] for _ in range(2)]
    assert grouped(a, b, 0, scales, "ue8m0") == known


def test_eight_bits_with_scales() -> None:
    random = Random(910)
    a, b = ([random.randrange(16) for _ in range(32)] for _ in range(2))
    scales = [random.randrange(115, 140) for _ in range(2)]
    d = multiply_add_scaled(
        row(a, "e2m1"),
        column(b, "e2m1"),
        one(0),
        row(scales[:1], "u8"),
        column(scales[1:], "u8"),
        a_type="e2m1",
        b_type="e2m1",
        rules=EIGHT,
    )
    assert d.item() == 0x3F094000


def test_scales_of_ue4m3() -> None:
    random = Random(700)
    for known in (0x4429730B, 0xC30545D3):
        a, b = ([random.randrange(16) for _ in range(64)] for _ in range(2))
        c = finite(random)
        scales = [[random.randrange(0x77) for _ in range(4)] for _ in range(2)]
        assert grouped(a, b, c, scales, "ue4m3") == known


A_CARRY = "eeb608f9ab39f7e02615a8647c6b1c6dbb86c8c5041f16f52465a7b701adbfe7"
B_CARRY = "6cb289b43d299c187263d29a59f5a8608dd2cc52834ff11aba5bf3bea571178a"


def test_groups_keep_a_carry_that_single_products_would_lose() -> None:
    a, b = ([int(digit, 16) for digit in digits] for digits in (A_CARRY, B_CARRY))
    scales = [[0x09, 0x7C, 0x6D, 0x44], [0x07, 0x78, 0x26, 0x79]]
    assert grouped(a, b, 0x094E5986, scales, "ue4m3") == 0x49FCAFB7
