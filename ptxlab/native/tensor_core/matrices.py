"""The matrices of one product in native code: what is kept of A and B, and the sums that D becomes.

Of A [blocks, k, rows] is kept, of B [k, n], of several products that are added up one behind the other; the sums
are [blocks, n, rows]. Rows and columns lie in the ``order`` of fragments. Of a sparse A only the numbers that it has
are kept, and which units of their chunks they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.sparse import Metadata
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.operands import fragment, lines, order, scatter
from ptxlab.native.tensor_core.terms import Index, Kept, Steps, Terms
from ptxlab.native.text import width
from ptxlab.native.value import VectorValue

NAME = "multiply"
"""What functions for whole products are called."""


class Matrices:
    """The matrices of m x n products, up to so ``many``, and the code of the function that works on them.

    A has ``k`` numbers a row, chosen by ``metadata`` if it is sparse; where B is, A has ``depth`` numbers a row. Of scales there
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
        metadata: Metadata | None = None,
        depth: int = 0,
        blocks: int = 1,
    ) -> None:
        self.steps, self.m, self.n, self.k, self.metadata = steps, m, n, k, metadata
        self.code = code = FunctionBuilder()
        kept, of = metadata.granularity if metadata else (1, 1)
        blocks_of_rows = m // steps.rows

        def room(kinds: Sequence[str], depth: int, outer: int) -> list[Kept]:
            return [Kept.of(code, kind, depth, outer, many) for kind in kinds]

        self._kept = (
            room(steps.kept, blocks_of_rows * (depth or k), steps.rows),
            room(steps.kept, k // kept * of, n),
        )
        self._units = room(["i32"] if metadata else [], blocks_of_rows * k, steps.rows)
        self._scales = [room(steps.scales, blocks, outer) for outer in (m, n)]
        self._sums = Kept.of(code, steps.word, blocks_of_rows * n, steps.rows)

    # ---- A and B ----

    def keep(
        self,
        side: int,
        words: VectorValue,
        bits: int,
        inner: Sequence[int],
        block: Index = 0,
        product: Index = 0,
    ) -> None:
        """Keep the elements ``inner`` of a block of rows of A (0) or columns of B (1), which lie one above the other."""
        elements = self.steps.elements(side, words, bits)
        kept, of = self.metadata.granularity if side and self.metadata else (1, 1)
        start, first = (0, block * words.lanes) if side else (block * self.k, 0)
        for k, parts in zip(_numbers(inner, len(elements)), elements, strict=False):
            position = self.steps.place(k // of * kept) // kept * of + k % of
            _keep(self._kept[side], parts, start + position, first, product)

    def keep_units(self, values: VectorValue, chunk: int, product: Index = 0) -> None:
        """Keep which units rows of A have of a chunk, two bits each; of a tf32, which is two, the upper one tells."""
        assert self.metadata is not None
        kept, _ = self.metadata.granularity
        for i in range(kept):
            unit = values >> 2 * (i // self.metadata.neighbours)
            k = self.steps.place(chunk * kept + i)
            _keep(self._units, [unit << 30], k, product=product)

    def keep_scales(self, side: int, words: VectorValue, block: int, first: Index = 0) -> None:
        """Keep the scales of a block along k, of A's rows (0) or B's columns (1), in the low bytes of words."""
        _keep(self._scales[side], self.steps.scale(words & 0xFF), block, first)

    # ---- C and D ----

    def begin(
        self,
        layout: FragmentLayout,
        addresses: Sequence[VectorValue],
        first: Index = 0,
        mask: VectorValue | None = None,
    ) -> None:
        """Let the sums of a fragment, from column ``first`` on, begin with C, or zero by a ``mask``."""
        for column, word in self._columns(layout, addresses, first):
            column.store(word if mask is None else word & mask)

    def end(
        self, layout: FragmentLayout, addresses: Sequence[VectorValue], first: Index = 0
    ) -> None:
        """Put the sums into the registers of D's fragment, from column ``first`` on."""
        done = []
        for line in lines(layout):
            words = None
            for i, inner in enumerate(line.inner):
                word = self._column(layout, line.block, inner, first).load(self.steps.rows)
                words = word if words is None else words | (word << (layout.bits * i))
            assert words is not None
            done.append((line, words))
        for register, address in enumerate(addresses):
            address.store(scatter(done, register, WARP), align=width(self.steps.word) // 8)

    def _columns(
        self, layout: FragmentLayout, addresses: Sequence[VectorValue], first: Index
    ) -> Iterator[tuple[Kept, VectorValue]]:
        """Yield for the columns of a fragment where its sums are, and its words."""
        for line, words in fragment(layout, addresses):
            for i, inner in enumerate(line.inner):
                word = words >> (layout.bits * i) if i else words
                if len(line.inner) > 1:
                    word = word & ((1 << layout.bits) - 1)
                yield self._column(layout, line.block, inner, first), word

    def _column(self, layout: FragmentLayout, block: int, inner: int, first: Index) -> Kept:
        return self.sums(block * self.n + order(layout.cols).index(inner)).at(first)

    def sums(self, column: Index) -> Kept:
        """Return where the sums of a column are."""
        return self._sums.at(column)

    # ---- the product ----

    def add(self, product: Index = 0, places: Kept | None = None) -> None:
        """Add the products of A and B to the sums, step by step.

        ``places`` is where the k of the numbers of a sparse B are, [k, n].
        """
        steps, code = self.steps, self.code
        blocks, along = self.m // steps.rows, self.k // steps.products
        with code.loop(blocks) as block, code.loop(along) as step, code.loop(self.n) as column:
            of_block = block * self.k
            terms = Terms(
                steps.rows,
                (
                    [kept.at(0 if places else of_block, 0, product) for kept in self._kept[0]],
                    [kept.at(0, column, product) for kept in self._kept[1]],
                ),
                [
                    [kept.at(0, first) for kept in scales]
                    for first, scales in zip(
                        (block * steps.rows, column), self._scales, strict=True
                    )
                ],
                self.metadata,
                next((kept.at(of_block, 0, product) for kept in self._units), None),
                places and places.at(0, column),
            )
            sums = self.sums(block * self.n + column)
            words = sums.load(steps.rows)
            sums.store(steps.column(code, terms.behind(step * steps.products), words))


def _keep(
    room: Sequence[Kept],
    values: Sequence[VectorValue],
    k: Index,
    first: Index = 0,
    product: Index = 0,
) -> None:
    for kept, value in zip(room, values, strict=True):
        kept.at(k, first, product).store(value)


def _numbers(inner: Sequence[int], count: int) -> Sequence[int]:
    """Return the numbers along k of what is kept, some of it of several elements."""
    step = max(1, len(inner) // count)
    return [element // step for element in inner[::step]]
