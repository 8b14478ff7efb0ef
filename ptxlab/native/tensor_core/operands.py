"""Operands in native code: words with neighbouring rows of A, columns of B or of D, by the inner indices they hold.

The inner index is k of A and B, n of C and D; what has one lies side by side, of a block of outer indices.
Of a fragment a register is a vector of 32 words, one of each lane. A matrix in memory is read in units of 16 bytes,
which form lines along its major direction and lie anywhere. Four words say where those of several products are: from
which address on; how many bytes behind it each begins; which pattern each has; and all patterns, how many bytes
behind the beginning each unit of each line is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxlab.isa.targets import WARP
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.native.value import VectorValue, joined, vector

BLOCK = 16
"""Outer indices side by side, at most: a vector of int16, and two of float32, of 256 bits."""

WORDS = 4
"""The words of matrices in memory."""

# ---- in registers ----


@dataclass(frozen=True, slots=True)
class Line:
    """What lies in the same words of a fragment, the elements of ``inner`` one above the other.

    ``block`` says which outer indices they are of, ``places`` in which register and lane the words are.
    """

    inner: tuple[int, ...]
    block: int
    places: tuple[tuple[int, int], ...]


@cache
def order(outer: int) -> tuple[int, ...]:
    """Return the outer indices as they lie side by side, block after block.

    So 8 groups of 4 lanes are transposed within each 128 bits of a vector, which is quicker.
    """
    return tuple(i // 8 * 8 + i % 4 * 2 + i % 8 // 4 for i in range(outer))


@cache
def lines(layout: FragmentLayout) -> tuple[Line, ...]:
    """Return the lines of a fragment; none where its elements do not lie in lines."""
    if layout.matrices > 1:
        return ()
    outer = layout.cols if layout.kind == "b" else layout.rows
    size = min(BLOCK, outer)
    numbers = layout.numbers()[:, : layout.registers_per_lane // layout.copies]
    held = np.array(np.unravel_index(numbers.argsort(axis=None), numbers.shape))
    held = held.reshape(3, layout.rows, layout.cols)
    held = held.transpose(0, 2, 1) if layout.kind == "b" else held
    grouped: dict[tuple[int, tuple[tuple[int, int], ...]], dict[int, int]] = {}
    for inner in range(held.shape[2]):
        lanes, registers, elements = held[:, list(order(outer)), inner].tolist()
        for first in range(0, outer, size):
            part = slice(first, first + size)
            if len(set(elements[part])) > 1:
                return ()
            places = tuple(zip(registers[part], lanes[part], strict=True))
            grouped.setdefault((first // size, places), {})[elements[first]] = inner
    return tuple(
        Line(tuple(inner[i] for i in sorted(inner)), block, places)
        for (block, places), inner in grouped.items()
    )


def fragment(
    layout: FragmentLayout, addresses: Sequence[VectorValue]
) -> list[tuple[Line, VectorValue]]:
    """Return the lines of a fragment, whose registers are at these addresses, and their words."""
    kind, size = f"i{layout.register_bits}", layout.register_bits // 8
    registers = [address.load(kind, WARP, align=size) for address in addresses]
    return [(line, gather(registers, line)) for line in lines(layout)]


def gather(registers: Sequence[VectorValue], line: Line) -> VectorValue:
    first, *others = sorted({register for register, _ in line.places})
    lanes = registers[first].lanes
    picks = [lane + lanes * (register != first) for register, lane in line.places]
    if not others:
        return registers[first].shuffle(picks)
    [second] = others
    return registers[first].shuffle(picks, registers[second])


def scatter(words: Sequence[tuple[Line, VectorValue]], register: int, lanes: int) -> VectorValue:
    """Return a register, whose numbers stand in some of the lines."""
    holding = [
        (line.places, value)
        for line, value in words
        if any(held == register for held, _ in line.places)
    ]
    position = {
        lane: number * value.lanes + i
        for number, (places, value) in enumerate(holding)
        for i, (held, lane) in enumerate(places)
        if held == register
    }
    values, half = [value for _, value in holding], len(holding) // 2
    low, high = joined(values[:half]), joined(values[half:])
    return low.shuffle([position[lane] for lane in range(lanes)], high)


# ---- in memory ----

Lines = Iterator[tuple[Sequence[int], VectorValue]]


@dataclass(frozen=True, slots=True)
class UnitMatrix:
    """The matrix of one product: where it begins, and the pattern of its units."""

    operand: SharedOperand
    major: str
    begin: VectorValue
    pattern: VectorValue

    @classmethod
    def of(
        cls, operand: SharedOperand, major: str, words: VectorValue, number: VectorValue
    ) -> UnitMatrix:
        """Return that of the product of a ``number``; ``words`` is where the four words are."""
        data, starts, which, patterns = (words.address(i) for i in range(WORDS))
        size = operand.rows * operand.cols * operand.bits // (8 * UNIT_BYTES)
        pattern = patterns.at(which.word(number), 8 * size)
        return cls(operand, major, data.at(starts.word(number), 1), pattern)

    def words(self, first: VectorValue, order: Sequence[int]) -> Lines:
        """Yield the words of rows of A or columns of B, those from ``first`` on in this ``order``.

        Where the matrix is contiguous along k a word holds several numbers, otherwise one in its low bits.
        """
        return self._along_k(first, order) if self.major == "k" else self._across_k(first, order)

    @property
    def _sizes(self) -> tuple[int, int]:
        """How many rows of A or columns of B there are, and the k."""
        rows, cols = self.operand.rows, self.operand.cols
        return (rows, cols) if self.operand.operand == "A" else (cols, rows)

    def _along_k(self, first: VectorValue, order: Sequence[int]) -> Lines:
        bits, (_, depth) = self.operand.bits, self._sizes
        units, in_word = depth * bits // (8 * UNIT_BYTES), 32 // bits
        lines = self.pattern.at(first, 8 * units)
        for unit in range(units):
            rows = [self.begin.at(lines.word(line * units + unit), 1) for line in order]
            for word in range(UNIT_BYTES // 4):
                values = [row.at(word, 4).load("i32", align=4) for row in rows]
                k = (UNIT_BYTES // 4 * unit + word) * in_word
                yield range(k, k + in_word), vector(values)

    def _across_k(self, first: VectorValue, order: Sequence[int]) -> Lines:
        bits, (outer, depth) = self.operand.bits, self._sizes
        in_unit = 8 * UNIT_BYTES // bits
        for k in range(depth):
            line = self.pattern.at(k * (outer // in_unit), 8)
            words = self._neighbours(line, first, len(order), in_unit).shuffle(order)
            yield (k,), words.to("zext", "i32") if bits < 32 else words

    def _neighbours(
        self, line: VectorValue, first: VectorValue, count: int, in_unit: int
    ) -> VectorValue:
        """Return so many elements of a line that has as many in each unit."""
        bits, unit = self.operand.bits, first // in_unit
        if count < in_unit:
            address = self.begin.at(line.word(unit), 1).at(first - unit * in_unit, bits // 8)
            return address.load(f"i{bits}", count, align=bits // 8)
        line = line.at(unit, 8)
        return joined(
            [
                self.begin.at(line.word(i), 1).load(f"i{bits}", in_unit, align=bits // 8)
                for i in range(count // in_unit)
            ]
        )
