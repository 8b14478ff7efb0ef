"""Exact numbers drawn bit by bit below each other, with a line where a step cuts them off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

LONG_RUN = 8
"""Zeros behind the cut that are still drawn one by one."""


@dataclass(frozen=True, slots=True)
class Ruler:
    """The columns of a drawing: one for each power of two from ``top`` down to ``unit``."""

    top: int
    unit: int

    @classmethod
    def over(cls, numbers: Sequence[Fraction], unit: int) -> Ruler:
        return cls(max([unit, *(floor_log2(number) for number in numbers if number)]), unit)

    @property
    def width(self) -> int:
        return self.top - self.unit + 1

    def heading(self) -> str:
        """Return the weights of the first and the last column, above them, and what is behind."""
        first, last = f"2^{self.top}", f"2^{self.unit}"
        return f"{first}{last:>{max(self.width - len(first), len(last) + 1)}}| cut off"

    def draw(self, number: Fraction) -> str:
        """Return the bits of |number|, dots before the first, and those below the last after "|"."""
        units = abs(number) / Fraction(2) ** self.unit
        whole = int(units)
        kept = f"{whole:b}" if whole else ""
        return f"{kept:.>{self.width}}|{_behind(units - whole)}"

    def draw_to(self, number: Fraction, last: int) -> str:
        """Return the bits of |number| down to 2**last, which is all of them, and blanks after."""
        end = min(max(last, self.unit), self.top)
        kept = f"{int(abs(number) / Fraction(2) ** end):b}"
        return f"{kept:.>{self.top - end + 1}}{'':{end - self.unit}}|"


def _behind(rest: Fraction) -> str:
    """Return the bits of ``rest``, which is below 1, from the binary point on."""
    if not rest:
        return ""
    length = rest.denominator.bit_length() - 1
    bits = f"{rest.numerator:0{length}b}"
    zeros = len(bits) - len(bits.lstrip("0"))
    return f"({zeros} zeros){bits[zeros:]}" if zeros > LONG_RUN else bits


def floor_log2(number: Fraction) -> int:
    """Return the exponent of the power of two at or below |number|, which is not zero."""
    numerator, denominator = abs(number).as_integer_ratio()
    exponent = numerator.bit_length() - denominator.bit_length()
    return exponent - (abs(number) < Fraction(2) ** exponent)


def power(number: Fraction) -> str:
    """Return a multiple of a power of two exactly, as ``-37 * 2^-5``."""
    numerator, denominator = number.as_integer_ratio()
    exponent = -(denominator.bit_length() - 1)
    while numerator and numerator % 2 == 0:
        numerator //= 2
        exponent += 1
    return f"{numerator} * 2^{exponent}"
