"""``ldmatrix`` and ``stmatrix`` as a picture: whose address each row lies at, and who holds its elements."""

from __future__ import annotations

from ptxlab.matrix.ldmatrix import ROW_BYTES, RowMove, StMatrix
from ptxlab.verbs.fragments.runs import Selection, runs
from ptxlab.verbs.fragments.svg_operands import CellScale, key, whole
from ptxlab.view.svg_parts import (
    CELL_HEIGHT,
    INDEX,
    LINE,
    MARGIN,
    TITLE,
    cell,
    document,
    heading,
    legend,
    n,
)

_NAMED = 64
"""How wide the name of a matrix is drawn, and the lane that gives an address."""


def rows_svg(title: str, move: RowMove, selection: Selection) -> str:
    """Return R, all matrices below each other, with the lane that gives the address of each row before it."""
    layout = move.operands[0]
    lines = _legend(move)
    top = TITLE + LINE * (len(lines) + 3)
    scale = CellScale(CellScale.of(layout, runs(layout)).width, CELL_HEIGHT)
    lanes, left = MARGIN + _NAMED, MARGIN + 2 * _NAMED + INDEX + 8
    box = whole(layout, 0, left, top, scale)
    name, room = heading(title)
    parts = [
        name,
        *legend(lines),
        f'<text class="t" x="{n(lanes)}" y="{n(top - LINE)}">address</text>',
        '<g id="address">',
    ]
    for lane in range(move.matrices * move.rows):
        matrix, row = divmod(lane, move.rows)
        y = top + lane * scale.height
        about = f"lane {lane} gives the address of row {row} of matrix {matrix}"
        look, size, meant = f'class="l{lane}"', (_NAMED, CELL_HEIGHT), selection.lane == lane
        parts.append(cell((lanes, y), size, f"lane {lane}", about, look, outlined=meant))
    parts.append("</g>")
    for matrix in range(move.matrices):
        y = top + matrix * move.rows * scale.height + 14
        parts.append(f'<text class="s" x="{MARGIN}" y="{n(y)}">matrix {matrix}</text>')
    held = f"R {layout.rows}×{layout.cols} {layout.dtype}"
    parts += [*box.columns(), *box.draw(held, "R0", selection), *box.rows()]
    about = f"Which lane addresses which row, and which holds which element, in {move.name}"
    width = max(left + layout.cols * scale.width, room, *(len(line) * 6.8 for line in lines))
    return document(about, parts, width + MARGIN, top + layout.rows * scale.height + MARGIN)


def _legend(move: RowMove) -> list[str]:
    """Say what the numbers are; the rows of a matrix may lie anywhere."""
    stores = isinstance(move, StMatrix)
    several = "matrix" if move.matrices == 1 else "matrices, one below the other"
    return [
        f"R: {move.matrices} {several}, of {move.rows}×{move.cols} in shared memory, "
        f"in {move.registers} register{'s' * (move.registers > 1)} a lane",
        f"address: the lane that gives the address of a row's {ROW_BYTES} bytes in shared memory",
        f"{key(move.operands[0])}, which {'gives' if stores else 'gets'} these elements of the row",
    ]
