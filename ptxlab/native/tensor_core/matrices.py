"""The matrices of one product in native code: what is kept of A and B, and the sums that D becomes.

Of A [blocks, k, rows] is kept, of B [k, n], of several products that are added up one behind the other; the sums
are [blocks, n, rows]. Rows and columns lie in the ``order`` of fragments.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.fragments import Line, gather, lines, order, scatter
from ptxlab.native.tensor_core.fused_step import Terms, UnpackedSteps
from ptxlab.native.tensor_core.steps import Steps
from ptxlab.native.value import VectorValue

NAME = "multiply"
"""What functions for whole products are called."""


class Matrices:
    """The matrices of m x n x k products, up to so ``many``, and the code of the function that works on them."""

    def __init__(self, steps: Steps, m: int, n: int, k: int, many: int = 1) -> None:
        self.steps, self.m, self.n, self.k = steps, m, n, k
        self.code = code = FunctionBuilder()
        sizes = [size for _, size in steps.kept]
        self._left = [code.buffer(size * k * m * many) for size in sizes]
        self._right = [code.buffer(size * k * n * many) for size in sizes]
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
        elements, rows = self.steps.left(words, bits), self.steps.rows
        for k, parts in zip(self._places(inner, len(elements)), elements, strict=False):
            at = (block * self.k + k) * rows
            self._keep(self._of(self._left, product, self.k * self.m), at, parts)

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
        for k, parts in zip(self._places(inner, len(elements)), elements, strict=False):
            right = self._of(self._right, product, self.k * self.n)
            self._keep(right, k * self.n, parts, first)

    def _of(
        self, buffers: Sequence[VectorValue], product: VectorValue | int, elements: int
    ) -> list[VectorValue]:
        """Return the part of the buffers that a product has, which keeps so many elements."""
        sizes = [size for _, size in self.steps.kept]
        return [
            buffer.at(product, size * elements) for buffer, size in zip(buffers, sizes, strict=True)
        ]

    def _places(self, inner: Sequence[int], count: int) -> Sequence[int]:
        """Return where along k that belongs which is kept, some of it of several elements."""
        step = max(1, len(inner) // count)
        places = [element // step for element in inner[::step]]
        if isinstance(self.steps, UnpackedSteps):
            places = [self.steps.place(k) for k in places]
        return places

    def _keep(
        self,
        buffers: Sequence[VectorValue],
        at: int,
        parts: Sequence[VectorValue],
        first: VectorValue | int = 0,
    ) -> None:
        for buffer, part, (_, size) in zip(buffers, parts, self.steps.kept, strict=True):
            buffer.at(at, size).at(first, size).store(part, align=part.lanes * size)

    # ---- C and D ----

    def begin(
        self,
        layout: FragmentLayout,
        addresses: Sequence[VectorValue],
        first: VectorValue | int = 0,
        mask: VectorValue | None = None,
    ) -> None:
        """Let the sums of a fragment, from column ``first`` on, begin with C, or zero by a ``mask``."""
        if isinstance(self.steps, UnpackedSteps):
            mask = self.code.number("i32", 0).splat(self.steps.rows)
        for line, words in fragment(layout, addresses):
            given = words if mask is None else words & mask
            for i, inner in enumerate(line.inner):
                word = given >> (layout.bits * i) if i else given
                if len(line.inner) > 1:
                    word = word & ((1 << layout.bits) - 1)
                column = self._column(layout, line.block, inner, first)
                column.store(word, align=self._word * self.steps.rows)

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
        if not isinstance(self.steps, UnpackedSteps):
            return
        rows = self.steps.rows
        for line, words in fragment(layout, addresses):
            for i, inner in enumerate(line.inner):
                c = words >> (layout.bits * i)
                c = c & ((1 << layout.bits) - 1) if layout.bits < 32 else c
                column = self._column(layout, line.block, inner, 0)
                total = column.load(self.steps.word, rows, align=self._word * rows)
                column.store(self.steps.last(total, c), align=self._word * rows)

    def _column(
        self, layout: FragmentLayout, block: int, inner: int, first: VectorValue | int
    ) -> VectorValue:
        number = block * self.n + order(layout.cols).index(inner)
        return self.sums(number).at(first, self._word * self.steps.rows)

    def sums(self, column: VectorValue | int) -> VectorValue:
        """Return where the sums of a column are."""
        return self._sums.at(column, self._word * self.steps.rows)

    # ---- the product ----

    def add(self, product: VectorValue | int = 0) -> None:
        """Add the products of A and B to the sums, step by step."""
        rows, kept = self.steps.rows, self.steps.kept
        of_product = [
            self._of(buffers, product, self.k * outer)
            for buffers, outer in ((self._left, self.m), (self._right, self.n))
        ]
        columns = self.code.number("i64", self.n)
        for block in range(self.m // rows):
            for first in range(0, self.k, self.steps.products):
                with self.code.loop(self.n) as column:
                    left, right = (
                        [
                            buffer.at(at, size)
                            for buffer, (_, size) in zip(buffers, kept, strict=True)
                        ]
                        for buffers, at in zip(
                            of_product,
                            ((block * self.k + first) * rows, first * self.n),
                            strict=True,
                        )
                    )
                    right = [
                        pointer.at(column, size)
                        for pointer, (_, size) in zip(right, kept, strict=True)
                    ]
                    terms = Terms((*left, *right), columns, rows, kept)
                    d = self._sums.at(block * self.n, self._word * rows)
                    self.steps.column(self.code, terms, d.at(column, self._word * rows))


def fragment(
    layout: FragmentLayout, addresses: Sequence[VectorValue]
) -> list[tuple[Line, VectorValue]]:
    """Return the lines of a fragment, whose registers are at these addresses, and their words."""
    kind, size = f"i{layout.register_bits}", layout.register_bits // 8
    registers = [address.load(kind, WARP, align=size) for address in addresses]
    return [(line, gather(registers, line)) for line in lines(layout)]
