"""A tile as an SVG picture: one cell a vector or element, coloured by its bank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from ptxlab.isa.shared_memory import BANKS

CELL_HEIGHT = 18
MARGIN = 34
GLYPH = 7


class Cell(NamedTuple):
    """One cell: where it is drawn, what is written in it, its bank, and what it says when hovered."""

    row: int
    col: int
    label: str
    bank: int
    title: str


def picture(title: str, cells: Sequence[Cell]) -> str:
    """Return the SVG; the bank decides the hue, and the label says what the colour says."""
    rows = 1 + max(cell.row for cell in cells)
    cols = 1 + max(cell.col for cell in cells)
    wide = GLYPH * max(len(cell.label) for cell in cells) + 10
    width = MARGIN + max(wide * cols, GLYPH * len(title)) + 8
    height = 2 * MARGIN + CELL_HEIGHT * rows + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="monospace" font-size="11">',
        f"<title>{escape(title)}</title>",
        "<style>rect{stroke:#555;stroke-width:.5}text{text-anchor:middle}.i{fill:#777}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff" stroke="none"/>',
        f'<text x="{MARGIN}" y="16" style="text-anchor:start">{escape(title)}</text>',
    ]
    for col in range(cols):
        x = MARGIN + wide * col + wide // 2
        parts.append(f'<text class="i" x="{x}" y="{2 * MARGIN - 6}">{col}</text>')
    for row in range(rows):
        y = 2 * MARGIN + CELL_HEIGHT * row + 13
        parts.append(f'<text class="i" x="{MARGIN // 2}" y="{y}">{row}</text>')
    for cell in cells:
        x, y = MARGIN + wide * cell.col, 2 * MARGIN + CELL_HEIGHT * cell.row
        parts.append(
            f'<g><title>{escape(cell.title)}</title><rect x="{x}" y="{y}" width="{wide}" '
            f'height="{CELL_HEIGHT}" fill="{_colour(cell.bank)}"/>'
            f'<text x="{x + wide // 2}" y="{y + 13}">{escape(cell.label)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"])


def _colour(bank: int) -> str:
    """Return a light hue: neighbouring banks are near each other, black text stays legible."""
    return f"hsl({360 * bank // BANKS},75%,{80 if bank % 8 < 4 else 72}%)"
