"""Which chunks of 16 bytes an operand holds in place of its own: what a wrong address of ldmatrix reads.

Each lane of ldmatrix gives the address of 16 bytes, a row of an 8 x 8 matrix. Where a mask cuts a bit of the row,
or a swizzle is on one side only, chunks come from other rows, or from other places in their row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ptxlab.arrays import Array

_EXAMPLES = 4


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The bits of a matrix that an operand is a tile of, and the row and column where the tile begins."""

    matrix: Array
    origin: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ChunkSources:
    """Of each wrong chunk (line, chunk) the line and chunk that is there in its place.

    ``line`` is what they lie in, "row" or "column"; of all there are ``lines``. The chunks are counted in what the
    operand is a tile of.
    """

    line: str
    lines: int
    sources: dict[tuple[int, int], tuple[int, int]]

    @classmethod
    def find(
        cls, held: Array, wanted: Array, around: Surroundings | None, bits: int, axis: int
    ) -> ChunkSources | None:
        """Look for the chunks along an axis of what is held; None where some are nowhere, or none is wrong.

        ``held`` and ``wanted`` are matrices of the bits of elements of ``bits`` each.
        """
        size = 128 // bits
        whole, (row, col) = (around.matrix, around.origin) if around else (wanted, (0, 0))
        if axis == 0:
            held, wanted, whole, row, col = held.T, wanted.T, whole.T, col, row
        if not size or wanted.shape[1] % size or whole.shape[1] % size or col % size:
            return None
        known: dict[bytes, list[tuple[int, int]]] = {}
        for at, chunk in _chunks(whole, size):
            known.setdefault(chunk, []).append(at)
        sources = {}
        for ((line, number), chunk), (_, right) in zip(
            _chunks(held, size), _chunks(wanted, size), strict=True
        ):
            if chunk == right:
                continue
            here = line + row, number + col // size
            places = known.get(chunk)
            if places is None:
                return None
            sources[here] = min(places, key=lambda at: (at[0] != here[0], at[1] != here[1], at))
        if not sources:
            return None
        return cls("row" if axis == 1 else "column", len(wanted), sources)

    def explained(self) -> Iterator[str]:
        """Yield which rows and chunks differ and the bit that explains all of them, if there is such a bit."""
        pairs = self.sources.items()
        if all(here[0] == there[0] for here, there in pairs):
            flips = {here[1] ^ there[1] for here, there in pairs}
            bit = self._bit_of_lines()
            if len(flips) == 1 and bit is not None:
                (flip,) = flips
                yield f"{self._where()}, which hold chunk ^ {flip} of the same {self.line}"
                yield (
                    f"bit {bit} of the {self.line} {'is' if flip & (flip - 1) == 0 else 'selects what is'} "
                    f"XORed into {_bits(flip)} of the chunk on one side alone: "
                    "a swizzle where it is written or read, and not both"
                )
        elif all(here[1] == there[1] for here, there in pairs):
            lost = {here[0] ^ there[0] for here, there in pairs}
            if len(lost) == 1 and (bit := self._bit_of_lines()) is not None:
                (difference,) = lost
                if difference == 1 << bit:
                    lines = _ranges(sorted({there[0] for _, there in pairs}))
                    yield f"{self._where()}, which hold what belongs in {self.line}s {lines}"
                    yield f"bit {bit} of the {self.line} is lost in the address, as by a mask that is too short"

    def examples(self) -> Iterator[str]:
        """Yield which rows and chunks differ, with what is in the first of them."""
        shown = ", ".join(
            f"({line}, {chunk}) holds ({there[0]}, {there[1]})"
            for (line, chunk), there in [*self.sources.items()][:_EXAMPLES]
        )
        more = ", …" * (len(self.sources) > _EXAMPLES)
        yield f"{self._where()}: ({self.line}, chunk) {shown}{more}"

    def _bit_of_lines(self) -> int | None:
        """Return the bit that all wrong lines have and no other has, if all their chunks are wrong; None if none."""
        wrong = {line for line, _ in self.sources}
        chunks = {chunk for _, chunk in self.sources}
        if len(self.sources) != len(wrong) * len(chunks):
            return None
        first = min(wrong) & -self.lines if self.lines & (self.lines - 1) == 0 else 0
        for bit in range((self.lines - 1).bit_length()):
            if wrong == {first + line for line in range(self.lines) if line >> bit & 1}:
                return bit
        return None

    def _where(self) -> str:
        lines = _ranges(sorted({line for line, _ in self.sources}))
        chunks = _ranges(sorted({chunk for _, chunk in self.sources}))
        return f"wrong are {self.line}s {lines} in chunks {chunks} of 16 bytes"


def _chunks(matrix: Array, size: int) -> Iterator[tuple[tuple[int, int], bytes]]:
    for line, elements in enumerate(np.ascontiguousarray(matrix)):
        for number in range(len(elements) // size):
            yield (line, number), elements[number * size : (number + 1) * size].tobytes()


def _ranges(numbers: Sequence[int]) -> str:
    """Write numbers in order with what is without a gap as a range: ``4-7, 12-15``."""
    begins = [numbers[0], *(b for a, b in pairwise(numbers) if b != a + 1)]
    ends = [*(a for a, b in pairwise(numbers) if b != a + 1), numbers[-1]]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True))


def _bits(mask: int) -> str:
    bits = [str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1]
    return f"bit{'s' * (len(bits) > 1)} {', '.join(bits)}"
