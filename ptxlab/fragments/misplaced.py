"""What registers hold beside what they should: elements that are in the wrong place, found by name.

A load with a wrong index leaves the right numbers in the wrong registers. Each number is looked for in the
matrix; where that explains a whole register, lane or operand, the mistake is told once. What ldmatrix reads
at a wrong address is whole chunks of 16 bytes (``misplaced_chunks.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.misplaced_chunks import ChunkSources, Surroundings
from ptxlab.fragments.numbers import decode
from ptxlab.matrix.fragment import FragmentLayout, Place


@dataclass(frozen=True, eq=False)
class Held:
    """The registers of an operand beside the matrix that they should hold.

    ``words`` are the registers [thread, register], ``matrix`` the bits of its elements, as
    ``FragmentLayout.pack`` takes them. ``around`` is what that is a tile of, where it is one.
    """

    layout: FragmentLayout
    words: Array
    matrix: Array
    around: Surroundings | None = None

    @cached_property
    def wrong(self) -> Array:
        """The places [n, 3] of the elements that are not as they should be, by lane and register."""
        return np.argwhere(self._actual != self._wanted)

    def explained(self) -> list[str]:
        """Return what is wrong in words, the most that one sentence explains; nothing if all is right."""
        if not len(self.wrong):
            return []
        whole = (
            [*self._transposed()]
            or [*self._by_address()]
            or [*self._registers(), *self._halves()]
            or [*self._lanes()]
            or [line for sources in self._chunks() for line in sources.examples()]
        )
        return [*whole, self.told(Place(*map(int, self.wrong[0])))]

    def told(self, place: Place) -> str:
        """Say of a place what it holds, and what it should."""
        where = f"{self.layout.holder} {place.lane}: {self._name(place.register)}"
        if self.layout.elements_per_register > 1:
            where += f", element {place.element},"
        should = f"{self._at(place)}, {self._value(self._wanted[place])}"
        return f"{where} holds {self._element(self._actual[place])} and should hold {should}"

    @cached_property
    def _actual(self) -> Array:
        return self._elements(self.words)

    @cached_property
    def _wanted(self) -> Array:
        return self._elements(self.layout.pack(self.matrix))

    def _elements(self, words: Array) -> Array:
        """Return registers as elements [thread, register, element]."""
        bits, count = self.layout.bits, self.layout.elements_per_register
        shifts = np.arange(count, dtype=np.uint64) * np.uint64(bits)
        mask = np.uint64((1 << bits) - 1)
        return (np.asarray(words).astype(np.uint64)[..., np.newaxis] >> shifts) & mask

    def _at(self, place: Place) -> str:
        row, col = self.layout.table()[place].tolist()
        return f"{self.layout.operand}[{row},{col}]"

    def _element(self, bits: int) -> str:
        """Return which element of the matrix has these bits, or what they are where that is none or several."""
        places = np.argwhere(self._wanted == bits)
        elements = {self._at(Place(*map(int, position))) for position in places}
        return elements.pop() if len(elements) == 1 else self._value(bits)

    def _value(self, bits: int) -> str:
        value = float(decode(self.layout, np.array([bits]))[0])
        return f"{value:.9g} (0x{int(bits):x})"

    def _name(self, register: int) -> str:
        return f"{self.layout.operand.lower()}{register}"

    # ---- what one sentence explains ----

    def _transposed(self) -> Iterator[str]:
        rows, cols = self.matrix.shape[-2:]
        if rows == cols and np.array_equal(
            self._actual, self._elements(self.layout.pack(np.swapaxes(self.matrix, -1, -2)))
        ):
            yield f"the registers hold {self.layout.operand} transposed"

    def _by_address(self) -> Iterator[str]:
        """Yield what an address of ldmatrix, or its .trans, explains."""
        if self.matrix.ndim != 2:
            return
        rows, cols = self.matrix.shape
        held = self.layout.unpack(self.words).astype(np.uint64)
        if self.layout.bits == 16 and rows % 8 == cols % 8 == 0:
            tiles = self.matrix.reshape(rows // 8, 8, cols // 8, 8).transpose(0, 3, 2, 1)
            if np.array_equal(held, tiles.reshape(rows, cols)):
                yield (
                    f"each 8 x 8 tile of {self.layout.operand} is transposed: "
                    "ldmatrix lacks .trans, or has it and should not"
                )
                return
        for sources in self._chunks():
            yield from sources.explained()

    def _chunks(self) -> Iterator[ChunkSources]:
        """Yield which chunks of 16 bytes are where, along rows or else along columns, if all of it is such chunks."""
        if self.matrix.ndim != 2:
            return
        held = self.layout.unpack(self.words).astype(np.uint64)
        for axis in (1, 0):
            sources = ChunkSources.find(held, self.matrix, self.around, self.layout.bits, axis)
            if sources is not None:
                yield sources
                return

    def _registers(self) -> Iterator[str]:
        """Yield which registers hold, in all lanes, what belongs in others."""
        held, wanted = self._actual, self._wanted
        of = {
            register: other
            for register in range(self.layout.registers_per_lane)
            for other in range(self.layout.registers_per_lane)
            if other != register
            and np.array_equal(held[:, register], wanted[:, other])
            and not np.array_equal(held[:, register], wanted[:, register])
        }
        for register, other in of.items():
            if of.get(other) != register:
                yield f"{self._name(register)} holds what belongs in {self._name(other)}"
            elif register < other:
                yield f"{self._name(register)} and {self._name(other)} are swapped"

    def _halves(self) -> Iterator[str]:
        """Yield which registers hold their own elements in the wrong order."""
        held, wanted = self._actual, self._wanted
        wrong = [
            self._name(register)
            for register in range(self.layout.registers_per_lane)
            if np.array_equal(held[:, register], wanted[:, register, ::-1])
            and not np.array_equal(held[:, register], wanted[:, register])
        ]
        if wrong:
            yield f"the elements of {', '.join(wrong)} are in reverse order, high bits first"

    def _lanes(self) -> Iterator[str]:
        """Yield that every lane holds what belongs in another, with the first few of them."""
        held, wanted = self._actual.reshape(len(self.words), -1), self._wanted
        wanted = wanted.reshape(len(self.words), -1)
        same = (held[:, np.newaxis] == wanted[np.newaxis]).all(axis=2)
        if same.any(axis=1).all():
            moved = [(lane, int(np.argmax(row))) for lane, row in enumerate(same) if not row[lane]]
            shown = ", ".join(f"{lane} that of {other}" for lane, other in moved[:4])
            holder = self.layout.holder
            yield f"{len(moved)} {holder}s hold what belongs in others: {shown}" + ", …" * (
                len(moved) > 4
            )
