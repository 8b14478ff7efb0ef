"""An operand: what of it is looked at, cut into runs, in words, as matrices and as JSON.

A run are the neighbouring elements that share a register. The PTX ISA's figures draw it as one cell,
and so do the pictures and tables here: an operand of one-bit elements has as many cells as one of 32-bit
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place, Slot, slots
from ptxlab.view.colour import Paint
from ptxlab.view.text import OPEN, grid


@dataclass(frozen=True, slots=True)
class Selection:
    """What to look at: everything, one ``lane``, or one ``element`` (row, col), of all operands or one."""

    lane: int | None = None
    element: tuple[int, int] | None = None
    operand: str | None = None

    @property
    def everything(self) -> bool:
        return self == EVERYTHING

    def operands(self, instruction: Form) -> list[FragmentLayout]:
        return [o for o in instruction.operands if self.operand in (None, o.operand)]

    def check(self, instruction: Form) -> None:
        """Raise PtxlabError if ``instruction`` has no such operand or lane, or no operand such an element."""
        operands = self.operands(instruction)
        if not operands:
            known = ", ".join(o.operand for o in instruction.operands)
            raise PtxlabError(
                f"no operand {self.operand} is in registers", hint=f"{instruction.name} has {known}"
            )
        layout = operands[-1]
        if self.lane is not None and not 0 <= self.lane < layout.threads:
            last = layout.threads - 1
            group = "warp has lanes" if layout.holder == "lane" else "warpgroup has threads"
            raise PtxlabError(
                f"there is no {layout.holder} {self.lane}", hint=f"a {group} 0 to {last}"
            )
        if self.element is None:
            return
        row, col = self.element
        if not any(0 <= row < o.rows and 0 <= col < o.cols for o in operands):
            sizes = ", ".join(f"{o.operand} {o.rows} x {o.cols}" for o in operands)
            raise PtxlabError(f"no operand has an element {row},{col}", hint=f"they are {sizes}")

    def has(self, lane: int, row: int, col: int) -> bool:
        """Say whether what ``lane`` holds of (row, col) is looked at."""
        return self.lane in (None, lane) and self.element in (None, (row, col))

    def places(self, layout: FragmentLayout) -> Iterator[Place]:
        """Yield the places of what is looked at of an operand, lanes and registers upward."""
        if self.operand not in (None, layout.operand):
            return
        for lane, registers in enumerate(layout.table().tolist()):
            for register, elements in enumerate(registers):
                for i, (row, col) in enumerate(elements):
                    if self.has(lane, row, col):
                        yield Place(lane, register, i)


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class ElementRun:
    """``length`` elements from (``row``, ``col``) on, along a row or, ``vertical``, a column.

    ``places`` are those of the first element, more than one where registers hold copies. The next
    elements of the run are the next ones of the same registers.
    """

    row: int
    col: int
    length: int
    vertical: bool
    places: tuple[Place, ...]

    @property
    def rows(self) -> int:
        return self.length if self.vertical else 1

    @property
    def cols(self) -> int:
        return 1 if self.vertical else self.length

    def meets(self, selection: Selection) -> bool:
        return any(
            selection.has(place.lane, self.row + i, self.col + j)
            for place in self.places
            for i in range(self.rows)
            for j in range(self.cols)
        )


@cache
def runs(layout: FragmentLayout, matrix: int = 0) -> tuple[ElementRun, ...]:
    """Return the runs of the operand from the top left, row by row.

    ``matrix`` counts the independent matrices of instructions that hold several in one warp.
    """
    owners = places(layout, matrix)
    downward = vertical(layout)
    starts: dict[tuple[int, int], tuple[int, int]] = {}
    lengths: dict[tuple[int, int], int] = {}
    for (row, col), here in owners.items():
        before = (row - 1, col) if downward else (row, col - 1)
        goes_on = before in owners and here == _next(owners[before])
        start = starts[before] if goes_on else (row, col)
        starts[row, col] = start
        lengths[start] = lengths.get(start, 0) + 1
    return tuple(
        ElementRun(*start, length, downward, owners[start]) for start, length in lengths.items()
    )


@cache
def places(layout: FragmentLayout, matrix: int = 0) -> dict[tuple[int, int], tuple[Place, ...]]:
    """Return all places of every element of the operand, row by row."""
    by_element: dict[tuple[int, int], list[Place]] = {
        (row, col): [] for row in range(layout.rows) for col in range(layout.cols)
    }
    for lane, registers in enumerate(layout.table().tolist()):
        if layout.matrix(lane) == matrix:
            for register, elements in enumerate(registers):
                for i, (row, col) in enumerate(elements):
                    by_element[row, col].append(Place(lane, register, i))
    return {element: tuple(held) for element, held in by_element.items()}


def register_name(layout: FragmentLayout, register: int) -> str:
    """Return what the pictures call a register: ``a0`` of A, ``r0`` of what is no operand."""
    return f"{layout.operand.lower() if len(layout.operand) == 1 else 'r'}{register}"


def owner(layout: FragmentLayout, held: tuple[Place, ...]) -> str:
    """Return ``lane:register`` of an element, ``6:a1``, or of all its copies."""
    if len({place.lane for place in held}) == 1:
        names = ",".join(register_name(layout, place.register) for place in held)
        return f"{held[0].lane}:{names}"
    return " ".join(f"{p.lane}:{register_name(layout, p.register)}" for p in held)


def span(first: int, length: int) -> str:
    """Return ``length`` indices from ``first`` on: ``8``, or ``8..11``."""
    return str(first) if length == 1 else f"{first}..{first + length - 1}"


def _next(held: tuple[Place, ...]) -> tuple[Place, ...]:
    return tuple(place._replace(element=place.element + 1) for place in held)


def vertical(layout: FragmentLayout) -> bool:
    """Say whether the elements of a register go down: they share a column."""
    if layout.elements_per_register == 1:
        return layout.operand == "B"
    (row, col), (next_row, next_col) = layout.table()[0, 0, :2].tolist()
    return bool(col == next_col and row != next_row)


Answer = tuple[Callable[[], str], Callable[[], dict[str, Any]]]
"""What answers a question, as text and as JSON data, each made when it is wanted."""


def title(instruction: Form) -> str:
    return instruction.name + (f"\n{OPEN}" if instruction.layout_open else "")


def start(schema: str, instruction: Form) -> dict[str, Any]:
    return {
        "schema": schema,
        "instruction": instruction.name,
        "variant": instruction.variant or None,
        "layout": "ptxlab" if instruction.layout_open else "isa",
    }


def where(layout: FragmentLayout, place: Place) -> str:
    """Say which lane, register and bits hold an element, and which of the bits are the number."""
    row, col = layout.table()[place].tolist()
    slot = slots(layout)[place.element]
    bits = f"bit{'s' * (slot.bits > 1)} {bit_range(slot)}"
    if slot.data_bits < slot.bits:
        bits += f" (the number in {slot.data_low + slot.data_bits - 1}:{slot.data_low})"
    return (
        f"{layout.operand}[{row},{col}] is in {layout.holder} {place.lane}, register "
        f"{register_name(layout, place.register)}, element {place.element}, {bits}"
    )


def place_json(layout: FragmentLayout, place: Place) -> dict[str, Any]:
    """Return as JSON data where an element is, with the bits of its container, and which it is."""
    row, col = layout.table()[place].tolist()
    return {**place._asdict(), **bits_json(slots(layout)[place.element]), "row": row, "col": col}


def bits_json(slot: Slot) -> dict[str, int]:
    return {"low_bit": slot.low, "high_bit": slot.low + slot.bits - 1}


def bit_range(slot: Slot) -> str:
    """Write ``31:16``, or of a single bit its number."""
    return f"{slot.low + slot.bits - 1}:{slot.low}" if slot.bits > 1 else str(slot.low)


def matrices(
    layout: FragmentLayout,
    title: str,
    cell: Callable[[int, Place, int, int], str],
    selection: Selection,
    paint: Paint,
    width: int | None = None,
) -> list[str]:
    """Return under a title each matrix of the operand, its cells in the colours of their lanes.

    ``cell`` says what stands for an element: of which matrix, at which place, row and column. Rows are
    those that hold something selected, and a dot is an element that is not. Of copies the first that
    is selected counts.
    """
    blocks = []
    for matrix in range(layout.matrices):
        held = {
            (row, col): next((p for p in copies if selection.has(p.lane, row, col)), copies[0])
            for (row, col), copies in places(layout, matrix).items()
        }
        cells = [
            [cell(matrix, held[row, col], row, col) for col in range(layout.cols)]
            for row in range(layout.rows)
        ]
        lanes = {element: place.lane for element, place in held.items()}
        head, *rows = grid(cells, lanes, paint, selection.has, width=width)
        if rows:
            which = f", matrix {matrix}" if layout.matrices > 1 else ""
            blocks.append("\n".join([title + which, head, *rows]))
    return "\n\n".join(blocks).splitlines()
