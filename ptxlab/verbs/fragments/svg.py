"""A matrix instruction as a picture: A left of D and B above it, each element with its owner.

Every cell says lane and register, so the picture needs no colour; hovering adds the bits. It follows
the light or dark scheme of whoever shows it, and brings its own background.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxlab.matrix.form import Form, SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import RowMove, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import LINES, UNIT_BITS, SharedPlace
from ptxlab.verbs.fragments.runs import EVERYTHING, Selection, runs, span
from ptxlab.verbs.fragments.svg_operands import (
    COLUMNS,
    CellScale,
    DrawnOperand,
    key,
    side_by_side,
    whole,
    window,
)
from ptxlab.view.svg_parts import (
    CELL_HEIGHT,
    INDEX,
    LINE,
    MARGIN,
    TITLE,
    cell,
    column_index,
    document,
    heading,
    legend,
    n,
    notes,
    row_index,
)
from ptxlab.view.text import counted

AXES = {"A": "m×k", "B": "k×n", "C": "m×n", "D": "m×n"}
UNIT = 132.0
"""How wide 16 bytes are drawn along k."""
_OUTLINE = "fill:none;stroke:#818b98"


def svg(instruction: Form, selection: Selection = EVERYTHING) -> str:
    """Return the picture of all operands; what is selected is outlined.

    An instruction that multiplies several matrices at once has one picture of each, side by side.
    Operands that are no fragments of A, B, C and D are not drawn, but of a warpgroup's instruction the
    16-byte units in shared memory are. Of an instruction that multiplies nothing the operands stand
    side by side, and rows of shared memory beside the lanes that give their addresses.
    """
    if isinstance(instruction, RowMove):
        return rows_svg(_title(instruction), instruction, selection)
    if not isinstance(instruction, MatrixInstruction):
        return side_by_side(_title(instruction), instruction, selection)
    if instruction.shared:
        return _warpgroup(instruction, selection)
    count = instruction.operand("D").matrices
    parts: list[str] = []
    left, height = 0.0, 0.0
    for matrix in range(count):
        figure, width, figure_height = _figure(instruction, matrix, selection)
        parts.append(f'<g transform="translate({n(left)},{TITLE})">{figure}</g>')
        left, height = left + width, max(height, figure_height + TITLE)
    name, room = heading(_title(instruction))
    about = f"Which lane of a warp holds which element in {instruction.name}"
    return document(about, [name, *parts], max(left, room), height)


def _figure(
    instruction: MatrixInstruction, matrix: int, selection: Selection
) -> tuple[str, float, float]:
    a, b, c, d = (instruction.operand(name) for name in "ABCD")
    same = np.array_equal(c.table(), d.table())
    sums = (d,) if same else (d, c)
    scales = [CellScale.of(layout, runs(layout)) for layout in (a, b, *sums)]
    line = max(scale.height for scale in (scales[0], *scales[2:]))
    column = max(scale.width for scale in scales[1:])
    lines = [*_notes(instruction), "", key(a)]
    if d.matrices > 1:
        lines.append(f"product {matrix} of the {d.matrices} in the warp")
    wide = max(a.cols * scales[0].width, max(map(len, lines)) * 6.8)
    across = MARGIN + INDEX + wide + INDEX
    top = max(3 * LINE + b.rows * scales[1].height, (len(lines) + 3) * LINE)
    a_left = across - INDEX - a.cols * scales[0].width
    b_top = top - LINE - b.rows * scales[1].height
    top += LINE
    boxes = [
        ("A", whole(a, matrix, a_left, top, CellScale(scales[0].width, line))),
        ("B", whole(b, matrix, across, b_top, CellScale(column, scales[1].height))),
    ]
    parts = notes(lines)
    for title, box in boxes:
        parts += [*box.columns(), *box.draw(title, f"{title}{matrix}", selection), *box.rows()]
    left = across
    for layout in sums:
        title = "C and D" if same else layout.operand
        box = whole(layout, matrix, left, top, CellScale(column, line))
        parts += box.draw(title, f"{title.replace(' ', '')}{matrix}", selection)
        left += layout.cols * column + INDEX
    height = top + max(a.rows, d.rows) * line + MARGIN
    return "\n".join(parts), left - INDEX + MARGIN, height


def _title(instruction: Form) -> str:
    return instruction.name + " (ptxlab's layout; PTX leaves it open)" * instruction.layout_open


def _notes(instruction: MatrixInstruction) -> Iterator[str]:
    """Yield a line an operand: its axes and size, its type, and where it lies."""
    for name in "ABD" if instruction.shared else "ABCD":
        of = instruction.held(name)
        where = "in shared memory"
        if isinstance(of, FragmentLayout):
            where = f"{counted(of.registers_per_lane, 'register')} a {of.holder}"
        kept = "/2" * (name == "A" and of.cols < instruction.k)
        yield f"{name} {AXES[name]}{kept} = {of.rows}×{of.cols} {of.dtype}, {where}"


def _warpgroup(instruction: MatrixInstruction, selection: Selection) -> str:
    """Return 8 columns of D, those around what is selected, and what of A and B goes into them.

    All other columns of D are like these eight, in further registers. Of an operand in shared memory
    the units of 16 bytes are drawn that the matrix descriptor places, 8 lines of them together, with
    their offset where nothing is swizzled and the matrix is contiguous along k.
    """
    d = instruction.operand("D")
    cells = window(d, 0, selection)
    scale = CellScale.of(d, cells)
    first = cells[0].col
    lines = [*_notes(instruction)]
    if d.cols > COLUMNS:
        more = d.registers_per_lane * COLUMNS // d.cols
        lines.append(f"columns {span(first, COLUMNS)}; the next 8 are in the next {more} registers")
    lines += ["", key(d)]
    a_width = _a_width(instruction)
    across = MARGIN + INDEX + max(a_width, max(map(len, lines)) * 6.8) + INDEX
    b = instruction.shared[-1]
    b_units = b.rows * b.bits // UNIT_BITS
    b_height = 2.5 * LINE * b_units
    top = max(4 * LINE + b_height, (len(lines) + 4) * LINE) + TITLE
    box = DrawnOperand(d, cells, across, top, scale)
    parts = [
        heading(instruction.name)[0],
        *legend(lines),
    ]
    parts += [*box.columns(), *box.draw("D", "D0", selection)]
    parts += _b(
        b, first, across, top - 2.4 * LINE - b_height, COLUMNS * scale.width, b_height / b_units
    )
    parts += _a(instruction, across - INDEX - a_width, top, scale.height, selection)
    width = across + COLUMNS * scale.width + MARGIN + 60
    about = f"Which thread of a warpgroup holds which element in {instruction.name}"
    height = top + d.rows * scale.height + MARGIN
    return document(about, parts, max(width, heading(instruction.name)[1]), height)


def _a_width(instruction: MatrixInstruction) -> float:
    if instruction.variant == "rs":
        a = instruction.operand("A")
        return a.cols * CellScale.of(a, runs(a)).width
    a_shared = instruction.shared[0]
    return UNIT * a_shared.cols * a_shared.bits / UNIT_BITS


def _a(
    instruction: MatrixInstruction, left: float, top: float, line: float, selection: Selection
) -> Iterator[str]:
    if instruction.variant == "rs":
        a = instruction.operand("A")
        box = whole(a, 0, left, top, CellScale(CellScale.of(a, runs(a)).width, line))
        yield from (*box.columns(), *box.draw("A", "A0", selection), *box.rows())
        return
    a_shared = instruction.shared[0]
    yield f'<text class="t" x="{n(left)}" y="{n(top - LINE)}">A in shared memory</text>'
    for unit in range(a_shared.cols * a_shared.bits // UNIT_BITS):
        x = left + unit * UNIT
        per_unit = UNIT_BITS // a_shared.bits
        yield column_index(x + UNIT / 2, top - 4, span(unit * per_unit, per_unit))
        for first in range(0, a_shared.rows, LINES):
            yield _units(a_shared, first, unit, x, top + first * line, UNIT, LINES * line)
    for first in range(0, a_shared.rows, LINES):
        y = top + (first + LINES / 2) * line + 3
        yield row_index(left - 4, y, span(first, LINES))


def _b(
    b: SharedOperand, first: int, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    yield f'<text class="t" x="{n(left)}" y="{n(top - LINE)}">B in shared memory</text>'
    yield column_index(left + width / 2, top - 4, span(first, COLUMNS))
    per_unit = UNIT_BITS // b.bits
    for unit in range(b.rows * b.bits // UNIT_BITS):
        y = top + unit * height
        yield _units(b, first, unit, left, y, width, height)
        yield row_index(left - 4, y + height / 2 + 3, span(unit * per_unit, per_unit))


def _units(
    shared: SharedOperand, first: int, unit: int, x: float, y: float, width: float, height: float
) -> str:
    """Return eight lines of one unit each, with the offset of the first."""
    where = SharedPlace(first, unit, 0).formula
    per_unit = UNIT_BITS // shared.bits
    lines, ks = span(first, LINES), span(unit * per_unit, per_unit)
    element = f"{lines},{ks}" if shared.operand == "A" else f"{ks},{lines}"
    title = f"{shared.operand}[{element}]: 8 lines of 16 bytes from {where} on"
    return cell((x, y), (width, height), where, title, f'style="{_OUTLINE}"')


# ---- rows of shared memory ----------------------------------------------------------------------


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
        f"in {counted(move.registers, 'register')} a lane",
        f"address: the lane that gives the address of a row's {move.row_bytes} bytes in shared memory",
        f"{key(move.operands[0])}, which {'gives' if stores else 'gets'} these elements of the row",
    ]
