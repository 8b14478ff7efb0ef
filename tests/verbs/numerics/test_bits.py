"""Drawings of bits, read back into the numbers they were drawn from."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pytest

from ptxlab.verbs.numerics.text import Ruler, floor_log2, power


def read(drawing: str, ruler: Ruler) -> Fraction:
    """Return the number that a drawing shows, column by column."""
    kept, behind = drawing.split("|")
    assert len(kept) == ruler.width
    if long := re.match(r"\((\d+) zeros\)", behind):
        behind = "0" * int(long[1]) + behind[long.end() :]
    bits = kept.replace(".", "0") + behind
    return sum(
        (Fraction(2) ** (ruler.top - column) for column, bit in enumerate(bits) if bit == "1"),
        Fraction(0),
    )


def test_a_drawing_shows_the_number() -> None:
    generator = random.Random(1)
    for _ in range(300):
        unit = generator.randint(-60, 5)
        numbers = [
            generator.choice((-1, 1))
            * generator.getrandbits(22)
            * Fraction(2) ** (unit + generator.randint(-60, 8))
            for _ in range(4)
        ]
        ruler = Ruler.over(numbers, unit)
        assert all(read(ruler.draw(number), ruler) == abs(number) for number in numbers)


def test_columns_and_dots() -> None:
    ruler = Ruler.over([Fraction(3), Fraction(1, 4)], -3)
    assert (ruler.top, ruler.width) == (1, 5)
    assert ruler.draw(Fraction(3)) == "11000|"
    assert ruler.draw(Fraction(-5, 16)) == "...10|1"
    assert ruler.draw(Fraction(0)) == ".....|"
    assert ruler.draw(Fraction(1, 1 << 20)) == ".....|(16 zeros)1"
    assert ruler.draw_to(Fraction(5, 2), -1) == "101  |"
    assert ruler.draw_to(Fraction(1, 4), -9) == "...10|"


def test_the_heading_has_the_weights_over_the_first_and_the_last_column() -> None:
    ruler = Ruler(1, -24)
    columns, behind = ruler.heading().split("|")
    assert columns.startswith("2^1 ")
    assert columns.endswith(" 2^-24")
    assert len(columns) == ruler.width
    assert behind == " cut off"


def test_a_zero_whose_last_bit_is_above_the_first_column() -> None:
    assert Ruler(-133, -135).draw_to(Fraction(0), -24) == "0  |"


@pytest.mark.parametrize(
    ("number", "exponent"),
    [(1, 0), (Fraction(3, 2), 0), (2, 1), (Fraction(1, 3), -2), (Fraction(-7, 8), -1), (-8, 3)],
)
def test_floor_log2(number: Fraction, exponent: int) -> None:
    assert floor_log2(Fraction(number)) == exponent


def test_power() -> None:
    assert power(Fraction(-37, 32)) == "-37 * 2^-5"
    assert power(Fraction(96)) == "3 * 2^5"
    assert power(Fraction(0)) == "0 * 2^0"
