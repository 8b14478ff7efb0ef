"""Matrices in memory as native code: words with neighbouring rows of A or columns of B, by what k they hold.

A matrix is read in units of 16 bytes, which form lines along its major direction and lie anywhere. Four words
say where those of several products are: from which address on; how many bytes behind it each begins; which
pattern each has; and all patterns, how many bytes behind the beginning each unit of each line is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.form import SharedOperand
from ptxlab.native.value import VectorValue, joined, vector

WORDS = 4

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
