"""The terms of a product as native code finds them in memory, and what an arithmetic makes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from ptxlab.matrix.sparse import Metadata
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.value import VectorValue

Parts = tuple[tuple[str, int], ...]
"""Of what is kept of a number the parts: their LLVM types, and bytes."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Of each ``of`` neighbours along k a sparse A has ``kept``, in units of ``width`` of them."""

    kept: int
    of: int
    width: int

    @classmethod
    def of_metadata(cls, metadata: Metadata) -> Self:
        kept, of = metadata.granularity
        return cls(kept, of, 2 if metadata.bits == 4 else 1)

    def units(self, value: VectorValue) -> list[VectorValue]:
        """Return which unit of a chunk each number is of that A has, as its metadata says."""
        if self.kept == 1:  # of a tf32, which is two units, the upper one tells
            return [(value >> 1) & 1]
        return [(value >> 2 * (i // self.width)) & 3 for i in range(self.kept)]


@dataclass(frozen=True, slots=True)
class Terms:
    """Where the kept numbers of A and B lie: addresses of the first k of a block and of a column.

    A is [k, rows] and B [k, columns], each of several ``parts``; of a sparse A follow which units its numbers are of,
    [k, rows] in the upper bits of words. If it is the other way round, and B is sparse, as ``placed`` says, follow the
    k of its numbers, [k, columns] of words. The last ``scales`` parts are of scales, which have an index of their own.
    """

    addresses: tuple[VectorValue, ...]
    columns: VectorValue
    rows: int
    parts: Parts
    scales: int
    chunks: Chunks | None
    placed: bool = False

    def left(self, part: int, k: VectorValue | int) -> VectorValue:
        """Return a part of A's elements of all rows."""
        kind, size = self.parts[part]
        if self.placed and not self._is_scale(part):
            k = self.addresses[-1].word(self.columns * k)
        return self._of_rows(self.addresses[part], kind, size, k)

    def right(self, part: int, k: VectorValue | int) -> VectorValue:
        """Return a part of the elements of B that those of A belong to, in all rows."""
        if self.chunks is None or self._is_scale(part):
            return self._of_column(part, k)
        kept, of, width = self.chunks.kept, self.chunks.of, self.chunks.width
        number = self.columns.like(k)
        first = number // kept * of + (number & width - 1)
        choices = [self._of_column(part, first + unit) for unit in range(0, of, width)]
        unit = self._of_rows(self.addresses[-1], "i32", 4, k)
        while len(choices) > 1:
            upper, half = unit.is_("slt", 0), len(choices) // 2
            choices = [upper.choose(choices[half + i], choices[i]) for i in range(half)]
            unit = unit << 1
        return choices[0]

    def _is_scale(self, part: int) -> bool:
        return part >= len(self.parts) - self.scales

    def _of_rows(self, at: VectorValue, kind: str, size: int, k: VectorValue | int) -> VectorValue:
        return at.at(k, size * self.rows).load(kind, self.rows, align=size * self.rows)

    def _of_column(self, part: int, k: VectorValue | int) -> VectorValue:
        kind, size = self.parts[part]
        address = self.addresses[len(self.parts) + part].at(self.columns * k, size)
        return address.load(kind, align=size).splat(self.rows)


@dataclass(frozen=True, slots=True)
class Steps(ABC):
    """An arithmetic: what it keeps of elements and scales, and how it adds their products.

    One step takes ``products`` of what is kept, for ``rows`` rows, and D has words of type ``word``.
    """

    products: int
    rows: int

    kept: ClassVar[Parts]
    scales: ClassVar[Parts] = ()
    word: ClassVar[str] = "i32"
    adds_last: ClassVar[bool] = False

    @abstractmethod
    def left(self, words: VectorValue, bits: int) -> Sequence[tuple[VectorValue, ...]]:
        """Return what is kept of the elements of A in words that have some, by ``bits`` each."""

    @abstractmethod
    def right(self, words: VectorValue, bits: int) -> Sequence[tuple[VectorValue, ...]]:
        """Return what is kept of those of B."""

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        """Return what is kept of scales, in the low bytes of words."""
        return ()

    def place(self, k: int) -> int:
        """Return the place of an element of A among those that are added."""
        return k

    @abstractmethod
    def column(self, code: FunctionBuilder, terms: Terms, d: VectorValue) -> None:
        """Write how a step's products are added to a column of D."""

    def last(self, words: VectorValue, c: VectorValue) -> VectorValue:
        """Add C to words of D, where the arithmetic ``adds_last``."""
        raise NotImplementedError
