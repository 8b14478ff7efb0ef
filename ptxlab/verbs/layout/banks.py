"""A tile as an SVG picture: one cell a vector or element, coloured by its bank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from ptxlab.view.svg_parts import (
    CELL_HEIGHT,
    CHARACTER,
    INDEX,
    LINE,
    MARGIN,
    PADDING,
    TITLE,
    document,
    heading,
    n,
)


class Cell(NamedTuple):
    """One cell: where it is drawn, what is written in it, its bank, and what it says when hovered."""

    row: int
    col: int
    label: str
    bank: int
    title: str
    outlined: bool = False


def picture(title: str, cells: Sequence[Cell]) -> str:
    """Return the SVG. A bank has the colour of the lane of its number: four, 16 bytes, share a hue."""
    rows = 1 + max(cell.row for cell in cells)
    cols = 1 + max(cell.col for cell in cells)
    wide = CHARACTER * max(len(cell.label) for cell in cells) + PADDING
    name, least = heading(title)
    top = TITLE + LINE
    parts = [name]
    for col in range(cols):
        middle = n(INDEX + wide * (col + 0.5))
        parts.append(f'<text class="i" x="{middle}" y="{top - 4}">{col}</text>')
    for row in range(rows):
        middle = n(top + CELL_HEIGHT * (row + 0.5) + 3)
        parts.append(f'<text class="i e" x="{INDEX - 4}" y="{middle}">{row}</text>')
    for cell in sorted(cells, key=lambda cell: cell.outlined):  # on top of their neighbours
        x, y = INDEX + wide * cell.col, top + CELL_HEIGHT * cell.row
        parts.append(
            f'<g class="c{" m" * cell.outlined}"><title>{escape(cell.title)}</title><rect class="l{cell.bank}" '
            f'x="{n(x)}" y="{n(y)}" width="{n(wide)}" height="{CELL_HEIGHT}"/>'
            f'<text x="{n(x + wide / 2)}" y="{n(y + CELL_HEIGHT / 2 + 3.5)}">'
            f"{escape(cell.label)}</text></g>"
        )
    width = max(INDEX + wide * cols + MARGIN, least)
    return document(title, parts, width, top + CELL_HEIGHT * rows + MARGIN)
