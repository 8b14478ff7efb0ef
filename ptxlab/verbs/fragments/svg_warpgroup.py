"""A warpgroup's instruction as a picture: 8 columns of D, and what of A and B goes into them.

All other columns of D are like these eight, in further registers. Of an operand in shared memory the
units of 16 bytes are drawn that the matrix descriptor places, 8 lines of them together, with their
offset where nothing is swizzled and the matrix is contiguous along k.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import LINES, UNIT_BITS, SharedPlace
from ptxlab.verbs.fragments.runs import Keep, runs, span
from ptxlab.verbs.fragments.svg_operands import COLUMNS, Box, Scale, key, whole, window
from ptxlab.view.svg_parts import (
    INDEX,
    LINE,
    MARGIN,
    TITLE,
    cell,
    column_index,
    document,
    heading,
    n,
    notes,
    row_index,
)

UNIT = 132.0
"""How wide 16 bytes are drawn along k."""
_OUTLINE = "fill:none;stroke:#818b98"


def svg(instruction: MatrixInstruction, marked: Keep) -> str:
    """Return the picture; what is ``marked`` is outlined, and the columns of D are those around it."""
    d = instruction.operand("D")
    cells = window(d, 0, marked)
    scale = Scale.of(d, cells)
    first = cells[0].col
    lines = [*_notes(instruction, first), "", key(d)]
    a_width = _a_width(instruction)
    across = MARGIN + INDEX + max(a_width, max(map(len, lines)) * 6.8) + INDEX
    b = instruction.shared[-1]
    b_units = b.rows * b.bits // UNIT_BITS
    b_height = 2.5 * LINE * b_units
    top = max(4 * LINE + b_height, (len(lines) + 4) * LINE) + TITLE
    box = Box(d, cells, across, top, scale)
    parts = [
        heading(instruction.name)[0],
        f'<g transform="translate(0,{TITLE})">',
        *notes(lines),
        "</g>",
    ]
    parts += [*box.columns(), *box.draw("D", "D0", marked)]
    parts += _b(
        b, first, across, top - 2.4 * LINE - b_height, COLUMNS * scale.width, b_height / b_units
    )
    parts += _a(instruction, across - INDEX - a_width, top, scale.height, marked)
    width = across + COLUMNS * scale.width + MARGIN + 60
    about = f"Which thread of a warpgroup holds which element in {instruction.name}"
    height = top + d.rows * scale.height + MARGIN
    return document(about, parts, max(width, heading(instruction.name)[1]), height)


def _notes(instruction: MatrixInstruction, first: int) -> Iterator[str]:
    d, ks = instruction.operand("D"), instruction.k
    for layout in instruction.operands[:-1]:
        kept = "/2" * (layout.cols < ks)
        size = f"m×k{kept} = {layout.rows}×{layout.cols} {layout.dtype}"
        yield f"{layout.operand} {size}, {layout.registers_per_lane} registers a thread"
    for shared in instruction.shared:
        axes = "k×n" if shared.operand == "B" else "m×k" + "/2" * (shared.cols < ks)
        size = f"{axes} = {shared.rows}×{shared.cols} {shared.dtype}"
        yield f"{shared.operand} {size}, in shared memory"
    yield f"D m×n = {d.rows}×{d.cols} {d.dtype}, {d.registers_per_lane} registers a thread"
    per_eight = d.registers_per_lane * COLUMNS // d.cols
    if d.cols > COLUMNS:
        yield f"columns {span(first, COLUMNS)}; the next 8 are in the next {per_eight} registers"


def _a_width(instruction: MatrixInstruction) -> float:
    if instruction.variant == "rs":
        a = instruction.operand("A")
        return a.cols * Scale.of(a, runs(a)).width
    a_shared = instruction.shared[0]
    return UNIT * a_shared.cols * a_shared.bits / UNIT_BITS


def _a(
    instruction: MatrixInstruction, left: float, top: float, line: float, marked: Keep
) -> Iterator[str]:
    if instruction.variant == "rs":
        a = instruction.operand("A")
        box = whole(a, 0, left, top, Scale(Scale.of(a, runs(a)).width, line))
        yield from (*box.columns(), *box.draw("A", "A0", marked), *box.rows())
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
