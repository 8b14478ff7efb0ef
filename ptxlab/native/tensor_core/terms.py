"""The terms of a product as native code finds them in memory, and what an arithmetic makes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ptxlab.matrix.sparse import Metadata
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.text import width
from ptxlab.native.value import VectorValue

Index = VectorValue | int


@dataclass(frozen=True, slots=True)
class Kept:
    """Numbers in memory from an ``address`` on: arrays [depth, outer], one behind the other."""

    address: VectorValue
    kind: str
    depth: int
    outer: int

    @classmethod
    def of(cls, code: FunctionBuilder, kind: str, depth: int, outer: int, arrays: int = 1) -> Self:
        """Return room for so many arrays."""
        return cls(code.buffer(width(kind) // 8 * depth * outer * arrays), kind, depth, outer)

    def at(self, k: Index, outer: Index = 0, array: Index = 0) -> Self:
        """Return the numbers from another one on."""
        address, size = self.address, width(self.kind) // 8
        for index, apart in ((array, self.depth * self.outer), (k, self.outer), (outer, 1)):
            address = address.at(index, apart * size)
        return replace(self, address=address)

    def load(self, lanes: int = 0) -> VectorValue:
        """Return so many numbers of a row, just one for 0."""
        return self.address.load(self.kind, lanes, align=width(self.kind) // 8 * max(1, lanes))

    def store(self, value: VectorValue) -> None:
        self.address.store(value, align=value.width // 8 * max(1, value.lanes))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a step multiplies: of so many ``rows`` of A and a column of B what is kept, from the step's first k on.

    ``kept`` has the parts of A's numbers and of B's, ``scales`` those of their scales.

    Of a sparse A the ``units`` are, [k, rows] in the upper bits of words, which of a chunk its numbers are. If it is
    the other way round, and B is sparse, the ``places`` are the k of its numbers, [k, columns] of words.
    """

    rows: int
    kept: tuple[Sequence[Kept], Sequence[Kept]]
    scales: Sequence[Sequence[Kept]]
    metadata: Metadata | None = None
    units: Kept | None = None
    places: Kept | None = None

    def behind(self, k: Index) -> Terms:
        """Return those from another k on."""
        kept, of = self.metadata.granularity if self.metadata else (1, 1)
        left, right = self.kept
        left = left if self.places else [each.at(k) for each in left]
        return replace(
            self,
            kept=(left, [each.at(k * (of // kept)) for each in right]),
            units=self.units and self.units.at(k),
            places=self.places and self.places.at(k),
        )

    def a(self, part: int, k: Index) -> VectorValue:
        """Return a part of A's elements of all rows."""
        k = k if self.places is None else self.places.at(k).load()
        return self.kept[0][part].at(k).load(self.rows)

    def b(self, part: int, k: Index) -> VectorValue:
        """Return a part of the elements of B that those of A belong to, in all rows."""
        column = self.kept[1][part]
        if self.metadata is None or self.units is None:
            return self._spread(column, k)
        (kept, of), width = self.metadata.granularity, self.metadata.neighbours
        first = k // kept * of + (k & width - 1)
        choices = [self._spread(column, first + unit) for unit in range(0, of, width)]
        unit = self.units.at(k).load(self.rows)
        while len(choices) > 1:
            upper, half = unit.is_("slt", 0), len(choices) // 2
            choices = [upper.choose(choices[half + i], choices[i]) for i in range(half)]
            unit = unit << 1
        return choices[0]

    def scale(self, part: int, block: Index) -> tuple[VectorValue, VectorValue]:
        """Return a part of the scales of A and B in a block along k."""
        left, right = (kept[part] for kept in self.scales)
        return left.at(block).load(self.rows), self._spread(right, block)

    def _spread(self, column: Kept, k: Index) -> VectorValue:
        return column.at(k).load().splat(self.rows)


@dataclass(frozen=True, slots=True)
class Steps(ABC):
    """An arithmetic: what it keeps of elements and scales, and how it adds their products.

    One step takes ``products`` of what is kept, for ``rows`` rows, and D has words of type ``word``. Of a number
    several parts may be kept, of these LLVM types.
    """

    products: int
    rows: int

    kept: ClassVar[Sequence[str]]
    word: ClassVar[str] = "i32"

    @property
    def scales(self) -> Sequence[str]:
        """The types of what is kept of scales."""
        return ()

    @abstractmethod
    def elements(
        self, side: int, words: VectorValue, bits: int
    ) -> Sequence[tuple[VectorValue, ...]]:
        """Return what is kept of the elements of A (0) or B (1) in words that have some, by ``bits`` each."""

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        """Return what is kept of scales, in the low bytes of words."""
        return ()

    def place(self, k: int) -> int:
        """Return the place of an element of A among those that are added."""
        return k

    @abstractmethod
    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        """Return the words of a column of D: a step's products added to these."""
