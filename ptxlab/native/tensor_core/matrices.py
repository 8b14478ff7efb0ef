"""The matrices of one product in native code: what is kept of A and B, and the sums that D becomes.

Of A [blocks, k, rows] is kept, of B [k, n], of several products that are added up one behind the other; the sums
are [blocks, n, rows]. Rows and columns lie in the ``order`` of fragments. Of a sparse A only the numbers that it has
are kept, and which units of their chunks they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.fragments import Line, gather, lines, order, scatter
from ptxlab.native.tensor_core.terms import Chunks, Parts, Steps, Terms
from ptxlab.native.value import VectorValue

NAME = "multiply"
"""What functions for whole products are called."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of A or B, a buffer for each part: of each product ``depth`` times so many ``outer`` numbers."""

    buffers: Sequence[VectorValue]
    parts: Parts
    depth: int
    outer: int

    @classmethod
    def of(cls, code: FunctionBuilder, parts: Parts, depth: int, outer: int, many: int) -> _Kept:
        buffers = [code.buffer(size * depth * outer * many) for _, size in parts]
        return cls(buffers, parts, depth, outer)

    def addresses(self, product: VectorValue | int, at: int) -> list[VectorValue]:
        """Return where the numbers of a product are from one on."""
        return [
            buffer.at(product, size * self.depth * self.outer).at(at, size)
            for buffer, (_, size) in zip(self.buffers, self.parts, strict=True)
        ]

    def keep(
        self,
        values: Sequence[VectorValue],
        at: int,
        first: VectorValue | int = 0,
        product: VectorValue | int = 0,
    ) -> None:
        addresses = zip(values, self.addresses(product, at), self.parts, strict=True)
        for value, address, (_, size) in addresses:
            address.at(first, size).store(value, align=value.lanes * size)


class Matrices:
    """The matrices of m x n products, up to so ``many``, and the code of the function that works on them.

    A has ``k`` numbers a row, in ``chunks`` if it is sparse; where B is, A has ``depth`` numbers a row. Of scales there
    are so many ``blocks`` along k.
    """

    def __init__(
        self,
        steps: Steps,
        m: int,
        n: int,
        k: int,
        *,
        many: int = 1,
        chunks: Chunks | None = None,
        depth: int = 0,
        blocks: int = 1,
    ) -> None:
        self.steps, self.m, self.n, self.k, self.chunks = steps, m, n, k, chunks
        self.code = code = FunctionBuilder()
        of_right = k if chunks is None else k // chunks.kept * chunks.of
        self._left = _Kept.of(code, steps.kept, depth or k, m, many)
        self._right = _Kept.of(code, steps.kept, of_right, n, many)
        self._units = _Kept.of(code, (("i32", 4),) if chunks else (), k, m, many)
        self._scales = [_Kept.of(code, steps.scales, blocks, outer, many) for outer in (m, n)]
        self._word = int(steps.word[1:]) // 8
        self._sums = code.buffer(self._word * m * n)

    # ---- A and B ----

    def keep_left(
        self,
        words: VectorValue,
        bits: int,
        inner: Sequence[int],
        block: int = 0,
        product: VectorValue | int = 0,
    ) -> None:
        """Keep the elements ``inner`` of a block of rows of A, which lie one above the other in words."""
        elements = self.steps.left(words, bits)
        for k, parts in zip(_numbers(inner, len(elements)), elements, strict=False):
            self._left.keep(parts, self._of_rows(block, k), product=product)

    def keep_right(
        self,
        words: VectorValue,
        bits: int,
        inner: Sequence[int],
        first: VectorValue | int = 0,
        product: VectorValue | int = 0,
    ) -> None:
        """Keep the elements ``inner`` of columns of B, of which ``first`` is the first."""
        elements = self.steps.right(words, bits)
        kept, of = (1, 1) if self.chunks is None else (self.chunks.kept, self.chunks.of)
        for k, parts in zip(_numbers(inner, len(elements)), elements, strict=False):
            place = self.steps.place(k // of * kept) // kept * of + k % of
            self._right.keep(parts, place * self.n, first, product)

    def keep_units(
        self, values: VectorValue, chunk: int, block: int = 0, product: VectorValue | int = 0
    ) -> None:
        """Keep which units a block of rows of A has of a chunk, of metadata."""
        assert self.chunks is not None
        shift = 32 - (self.chunks.of // self.chunks.width).bit_length() + 1
        for i, unit in enumerate(self.chunks.units(values)):
            at = self._of_rows(block, chunk * self.chunks.kept + i)
            self._units.keep([unit << shift], at, product=product)

    def keep_scales(
        self, side: int, words: VectorValue, block: int, first: VectorValue | int = 0
    ) -> None:
        """Keep the scales of a block along k, of A's rows (0) or B's columns (1), in the low bytes of words."""
        kept = self._scales[side]
        kept.keep(self.steps.scale(words & 0xFF), block * kept.outer, first)

    def _of_rows(self, block: int, k: int) -> int:
        return (block * self.k + self.steps.place(k)) * self.steps.rows

    # ---- C and D ----

    def begin(
        self,
        layout: FragmentLayout,
        addresses: Sequence[VectorValue],
        first: VectorValue | int = 0,
        mask: VectorValue | None = None,
    ) -> None:
        """Let the sums of a fragment, from column ``first`` on, begin with C, or zero by a ``mask``."""
        if self.steps.adds_last:
            mask = self.code.number("i32", 0).splat(self.steps.rows)
        for column, word in self._columns(layout, addresses, first):
            given = word if mask is None else word & mask
            column.store(given, align=self._word * self.steps.rows)

    def end(
        self, layout: FragmentLayout, addresses: Sequence[VectorValue], first: VectorValue | int = 0
    ) -> None:
        """Put the sums into the registers of D's fragment, from column ``first`` on."""
        rows, done = self.steps.rows, []
        for line in lines(layout):
            words = None
            for i, inner in enumerate(line.inner):
                column = self._column(layout, line.block, inner, first)
                word = column.load(self.steps.word, rows, align=self._word * rows)
                words = word if words is None else words | (word << (layout.bits * i))
            assert words is not None
            done.append((line, words))
        for register, address in enumerate(addresses):
            address.store(scatter(done, register, WARP), align=self._word)

    def add_last(self, layout: FragmentLayout, addresses: Sequence[VectorValue]) -> None:
        """Add C to the sums where the arithmetic has it so."""
        if not self.steps.adds_last:
            return
        rows = self.steps.rows
        for column, c in self._columns(layout, addresses, 0):
            total = column.load(self.steps.word, rows, align=self._word * rows)
            column.store(self.steps.last(total, c), align=self._word * rows)

    def _columns(
        self,
        layout: FragmentLayout,
        addresses: Sequence[VectorValue],
        first: VectorValue | int,
    ) -> Iterator[tuple[VectorValue, VectorValue]]:
        """Yield for the columns of a fragment where its sums are, and its words."""
        for line, words in fragment(layout, addresses):
            for i, inner in enumerate(line.inner):
                word = words >> (layout.bits * i) if i else words
                if len(line.inner) > 1:
                    word = word & ((1 << layout.bits) - 1)
                yield self._column(layout, line.block, inner, first), word

    def _column(
        self, layout: FragmentLayout, block: int, inner: int, first: VectorValue | int
    ) -> VectorValue:
        number = block * self.n + order(layout.cols).index(inner)
        return self.sums(number).at(first, self._word * self.steps.rows)

    def sums(self, column: VectorValue | int) -> VectorValue:
        """Return where the sums of a column are."""
        return self._sums.at(column, self._word * self.steps.rows)

    # ---- the product ----

    def add(self, product: VectorValue | int = 0, places: VectorValue | None = None) -> None:
        """Add the products of A and B to the sums, step by step.

        ``places`` is where the k of the numbers of a sparse B are, [k, n] words.
        """
        rows, steps = self.steps.rows, self.steps
        parts = *steps.kept, *steps.scales
        columns = self.code.number("i64", self.n)
        ratio = self._right.depth // self.k
        for block in range(self.m // rows):
            for first in range(0, self.k, steps.products):
                at = (block * self.k + first) * rows if places is None else 0
                with self.code.loop(self.n) as column:
                    left = [
                        *self._left.addresses(product, at),
                        *self._scales[0].addresses(product, block * rows),
                    ]
                    right = [
                        *self._right.addresses(product, first * ratio * self.n),
                        *self._scales[1].addresses(product, 0),
                    ]
                    right = [
                        address.at(column, size)
                        for address, (_, size) in zip(right, parts, strict=True)
                    ]
                    units = self._units.addresses(product, at)
                    if places is not None:
                        units = [places.at(first * self.n, 8).at(column, 8)]
                    terms = Terms(
                        (*left, *right, *units),
                        columns,
                        rows,
                        parts,
                        len(steps.scales),
                        self.chunks,
                        places is not None,
                    )
                    d = self._sums.at(block * self.n, self._word * rows)
                    steps.column(self.code, terms, d.at(column, self._word * rows))


def _numbers(inner: Sequence[int], count: int) -> Sequence[int]:
    """Return the numbers along k of what is kept, some of it of several elements."""
    step = max(1, len(inner) // count)
    return [element // step for element in inner[::step]]


def fragment(
    layout: FragmentLayout, addresses: Sequence[VectorValue]
) -> list[tuple[Line, VectorValue]]:
    """Return the lines of a fragment, whose registers are at these addresses, and their words."""
    kind, size = f"i{layout.register_bits}", layout.register_bits // 8
    registers = [address.load(kind, WARP, align=size) for address in addresses]
    return [(line, gather(registers, line)) for line in lines(layout)]
