"""What goes into a ``tcgen05.mma`` so that each number of D tells where one element of an operand is.

Of one factor each line has a single one: a column of B picks a k, and D shows that column of A, or a row of A
picks a k, and D shows that row of B. Numbers are told apart in as many rounds as their types need. C is numbered over
a product of zeros. With metadata each column of B looks at one chunk, and its numbers tell which elements meet A;
of scales, too, it looks at one block, and each is another power of two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import numbers
from ptxlab.fragments.probes.tensor_places import Contents
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.sparse import Metadata
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.types import TYPES

_POWERS = np.arange(-4, 4)
"""Exponents of scales."""
_FIRST_HALF, _LAST_HALF = 0b0100, 0b1110
"""Metadata, of every type, that keeps the first, and the last, half of each chunk."""
_SECOND = 4
"""What the second unit of a chunk is multiplied with, so that two numbers below it are told apart."""


class ProductProbes:
    """Makes the probes of one problem: what the operands hold, what D is then, and what it shows."""

    def __init__(self, made: TensorCoreProblem) -> None:
        self._problem = made
        rows = made.a.rows * made.form.group
        kept = made.k >> made.form.sparse
        self._m, self._n, self._k, self._kept = made.m, made.n, made.k, kept
        self.a = SharedOperand("A", rows, kept, made.a_type, made.bits)
        self.b = SharedOperand("B", made.k, made.n, made.b_type, made.bits)
        self.c = SharedOperand("C", made.m, made.n, made.d_type, TYPES[made.d_type].bits)
        self.metadata = (
            Metadata(made.k, made.bits, ordered=True, rows=made.m) if made.form.sparse else None
        )
        self._contents: list[Contents] = []
        self._expected: list[Array] = []
        self.looked_at: list[tuple[str, Array, Array]] = []

    def all(self) -> tuple[Contents, Contents, Array]:
        """Return the contents of probes that do not add C, of those that do, and D of all as bit patterns."""
        for pattern in (_FIRST_HALF, _LAST_HALF) if self.metadata else (0,):
            self._factors(pattern)
        if self.metadata:
            self._metadata()
        if self._problem.scale_type:
            self._scales()
        self._addends()
        plain, adding = (
            _together([content for content in self._contents if content.adds == adds])
            for adds in (False, True)
        )
        return plain, adding, np.concatenate(self._expected)

    def _add(
        self, operand: str, shows: tuple[Array, Array], *, a: Array, b: Array, c: Array | None = None,
        metadata: Array | None = None, scales: tuple[Array, Array] | None = None,
    ) -> None:  # fmt: skip
        """Add a probe of an operand, A, B and C as indices of numbers: of what ``shows`` in each number of D."""
        made = self._problem
        zeros = np.zeros((self._m, self._n), np.int64)
        full, right = (numbers(operand).values[at] for operand, at in ((self.a, a), (self.b, b)))
        addend = numbers(self.c).values[zeros if c is None else c]
        values = None
        if self.metadata is not None:
            values = self._base(_FIRST_HALF) if metadata is None else metadata
            full = self.metadata.expand(full[np.newaxis], values[np.newaxis])[0]
        codes: tuple[Array, ...] = ()
        if made.scale_type:
            exponents = scales or tuple(
                np.zeros((count, made.blocks), np.int64) for count in (self._m, self._n)
            )
            size = self._k // made.blocks
            full = full * (2.0 ** exponents[0]).repeat(size, axis=1)
            right = right * (2.0 ** exponents[1]).repeat(size, axis=1).T
            codes = tuple(_codes(made.scale_type, scale)[np.newaxis] for scale in exponents)
        kind = TYPES[made.d_type].dtype
        d = (full @ right + addend).astype(kind)
        given = (self.a, a), (self.b, b), (self.c, zeros if c is None else c)
        left, other, c_patterns = (
            numbers(operand).patterns[at][np.newaxis] for operand, at in given
        )
        held = None if values is None else values[np.newaxis]
        self._contents.append(Contents(left, other, c_patterns, c is not None, held, codes))
        self._expected.append(d.view(f"u{d.itemsize}")[np.newaxis])
        self.looked_at.append((operand, *shows))

    def _base(self, pattern: int) -> Array:
        assert self.metadata is not None
        return np.full((self._m, self.metadata.chunks), pattern)

    def _rows_met(self, pattern: int) -> Array:
        """Return the k of B that each column of A meets."""
        if self.metadata is None:
            return np.arange(self._k)
        return np.asarray(self.metadata.columns(self._base(pattern)[np.newaxis])[0, 0])

    def _factors(self, pattern: int) -> None:
        """Have columns of B pick columns of A, and rows of A pick rows of B."""
        met = self._rows_met(pattern)
        m, n = np.indices((self._m, self._n))
        held = None if self.metadata is None else self._base(pattern)
        one_a, one_b = numbers(self.a).one, numbers(self.b).one
        for first in range(0, self._kept, self._n):
            column = (first + np.arange(self._n)) % self._kept
            b = np.zeros((self._k, self._n), np.int64)
            b[met[column], np.arange(self._n)] = one_b
            for a in _numbered(self.a):
                self._add("A", (m, column[n]), a=a, b=b, metadata=held)
        column = np.arange(self._m) % self._kept
        a = np.zeros((self._m, self._kept), np.int64)
        a[np.arange(self._m), column] = one_a
        for b in _numbered(self.b):
            self._add("B", (met[column][m], n), a=a, b=b, metadata=held)

    def _addends(self) -> None:
        shows = np.indices((self._m, self._n))
        for c in _numbered(self.c):
            a, b = (
                np.zeros((operand.rows, operand.cols), np.int64) for operand in (self.a, self.b)
            )
            self._add("D", (shows[0], shows[1]), a=a, b=b, c=c)

    def _metadata(self) -> None:
        """Have each column of B look at one chunk: its two units are told apart by what A multiplies them with."""
        known = self.metadata
        assert known is not None
        kept, of = known.granularity
        unit = max(1, kept // 2)
        chunk = np.zeros(kept, np.int64)
        chunk[0] = numbers(self.a).one
        if kept > 1:
            chunk[unit] = int(numbers(self.a).indices(np.array([_SECOND]))[0])
        a = np.broadcast_to(np.tile(chunk, self._kept // kept), (self._m, self._kept))
        m, n = np.indices((self._m, self._n))
        index = np.arange(self._m * known.chunks).reshape(self._m, known.chunks)
        kinds = len(known.allowed)
        rounds = [*((index + turn) % kinds for turn in range(kinds)), *_digits(index, kinds)]
        for first in range(0, known.chunks, self._n):
            looked = (first + np.arange(self._n)) % known.chunks
            within = np.arange(self._k) % of // max(1, of // _SECOND)
            values = numbers(self.b).indices(within if kept > 1 else 1 + within)
            here = np.arange(self._k)[:, np.newaxis] // of == looked
            b = np.where(here, values[:, np.newaxis], 0)
            for chosen in rounds:
                patterns = np.array(known.allowed)[chosen]
                self._add("E", (m, looked[n]), a=a, b=b, metadata=patterns)

    def _scales(self) -> None:
        """Have each column of B look at one block, whose scales are powers of two."""
        blocks = self._problem.blocks
        met = self._rows_met(_FIRST_HALF)
        size = self._kept // blocks
        a = np.zeros((self._m, self._kept), np.int64)
        a[:, ::size] = numbers(self.a).one
        m, n = np.indices((self._m, self._n))
        for name, lines in (("scale-A", self._m), ("scale-B", self._n)):
            index = np.arange(lines * blocks).reshape(lines, blocks)
            plain = np.zeros((self._n if name == "scale-A" else self._m, blocks), np.int64)
            for turn in range(1 if name == "scale-A" and self._n >= blocks else blocks):
                looked = (np.arange(self._n) + turn) % blocks
                b = np.zeros((self._k, self._n), np.int64)
                b[met[looked * size], np.arange(self._n)] = numbers(self.b).one
                for digit in _digits(index, len(_POWERS)):
                    both = (_POWERS[digit], plain)
                    scales = both if name == "scale-A" else both[::-1]
                    shows = (m if name == "scale-A" else n, looked[n])
                    self._add(name, shows, a=a, b=b, scales=scales)


def _together(several: list[Contents]) -> Contents:
    held = [content.metadata for content in several if content.metadata is not None]
    scales = zip(*(content.scales for content in several), strict=True)
    return Contents(
        np.concatenate([content.a for content in several]),
        np.concatenate([content.b for content in several]),
        np.concatenate([content.c for content in several]),
        several[0].adds,
        np.concatenate(held) if held else None,
        tuple(np.concatenate(codes) for codes in scales),
    )


def _codes(scale_type: str, exponents: Array) -> Array:
    """Return the scales that are 2 to the exponents."""
    powers: Array = 2.0**exponents
    return np.asarray(powers.astype(FORMATS[scale_type].dtype).view(np.uint8))


def _numbered(operand: SharedOperand) -> Iterator[Array]:
    """Yield rounds of indices of numbers, no two elements the same in all of them, and none of them zero."""
    index = np.arange(operand.rows * operand.cols).reshape(operand.rows, operand.cols)
    known = len(numbers(operand).values) - 1
    yield from (1 + digit for digit in _digits(index, known))


def _digits(index: Array, base: int) -> list[Array]:
    """Return the digits of numbers, the low one first."""
    digits = [index % base]
    while (index := index // base).any():
        digits.append(index % base)
    return digits
