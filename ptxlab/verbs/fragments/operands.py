"""Operands in words, as matrices and as JSON: what a report and a mere layout say of them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place, Slot, slots
from ptxlab.verbs.fragments.runs import Selection, places, register_name
from ptxlab.view.colour import Paint
from ptxlab.view.text import OPEN, grid

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


def owners(layout: FragmentLayout, selection: Selection, paint: Paint) -> list[str]:
    """Return the matrices with in each cell the lane and register that hold the element."""
    title = f"{layout.operand}: {layout.holder} and register that hold each element"

    def owner(matrix: int, place: Place, row: int, col: int) -> str:
        return f"{place.lane}:{register_name(layout, place.register)}"

    return matrices(layout, title, owner, selection, paint)


def matrices(
    layout: FragmentLayout,
    title: str,
    cell: Callable[[int, Place, int, int], str],
    selection: Selection,
    paint: Paint,
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
        head, *rows = grid(cells, lanes, paint, selection.has)
        if rows:
            which = f", matrix {matrix}" if layout.matrices > 1 else ""
            blocks.append("\n".join([title + which, head, *rows]))
    return "\n\n".join(blocks).splitlines()
