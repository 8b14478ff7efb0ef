"""Fragments in native code: registers of a warp to lines of a matrix, and back.

A register is a vector of 32 words, one of each lane. A line holds the elements with one inner index
(k of A and B, n of C and D), those of a block of outer indices side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.native.value import VectorValue, joined

BLOCK = 16
"""Outer indices side by side, at most: a vector of int16, and two of float32, of 256 bits."""


@dataclass(frozen=True, slots=True)
class Line:
    """Lines that lie in the same words, the elements of ``inner`` one above the other.

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
    by_column = layout.kind == "b"
    outer = layout.cols if by_column else layout.rows
    table, where = layout.table(), {}
    distinct = layout.registers_per_lane // layout.copies
    for lane in range(layout.threads):
        for register in range(distinct):
            for element in range(layout.elements_per_register):
                row, col = (int(x) for x in table[lane, register, element])
                at = (col, row) if by_column else (row, col)
                where[at] = (register, lane), element
    grouped: dict[tuple[int, tuple[tuple[int, int], ...]], dict[int, int]] = {}
    size = min(BLOCK, outer)
    for inner in range(len(where) // outer):
        for block in range(outer // size):
            here = [where[i, inner] for i in order(outer)[size * block : size * (block + 1)]]
            elements = {element for _, element in here}
            if len(elements) > 1:
                return ()
            places = tuple(index for index, _ in here)
            grouped.setdefault((block, places), {})[elements.pop()] = inner
    return tuple(
        Line(tuple(inner[i] for i in sorted(inner)), block, places)
        for (block, places), inner in grouped.items()
    )


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
