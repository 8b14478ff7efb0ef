"""Operands as pictures: boxes of cells with their indices, in each cell who holds its elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.fragments.runs import (
    EVERYTHING,
    ElementRun,
    Selection,
    owner,
    register_name,
    runs,
    span,
)
from ptxlab.view.svg_parts import (
    CELL_HEIGHT,
    CHARACTER,
    INDEX,
    LINE,
    MARGIN,
    PADDING,
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

COLUMNS = 8
"""How many columns are drawn of a matrix whose columns go on alike."""


@dataclass(frozen=True, slots=True)
class CellScale:
    """How wide and how high one element is drawn."""

    width: float
    height: float

    @classmethod
    def of(cls, layout: FragmentLayout, cells: Sequence[ElementRun]) -> CellScale:
        """Return a scale at which the label of every cell has room."""
        text = max(len(label(layout, run)) for run in cells) * CHARACTER + PADDING
        first = cells[0]
        return cls(round(text / first.cols, 3), CELL_HEIGHT / first.rows)


@dataclass(frozen=True, slots=True)
class DrawnOperand:
    """An operand, or some ``cells`` of it, drawn from a corner on; the first cell is at the corner."""

    layout: FragmentLayout
    cells: Sequence[ElementRun]
    left: float
    top: float
    scale: CellScale

    def draw(self, title: str, group: str, selection: Selection) -> list[str]:
        """Return the cells, those outlined last, on top of their neighbours."""
        plain: list[str] = []
        outlined: list[str] = []
        for run in self.cells:
            meant = not selection.everything and run.meets(selection)
            (outlined if meant else plain).append(self._cell(run, meant))
        head = f'<text class="t" x="{n(self.left)}" y="{n(self.top - LINE)}">{title}</text>'
        return [head, f'<g id="{group}">', *plain, *outlined, "</g>"]

    def columns(self) -> Iterator[str]:
        for first, count in dict.fromkeys((run.col, run.cols) for run in self.cells):
            x = self._x(first + count / 2)
            room = count * self.scale.width / 5.6
            index = span(first, count) if len(span(first, count)) <= room else f"{first}.."
            yield column_index(x, self.top - 4, index)

    def rows(self) -> Iterator[str]:
        for first, count in dict.fromkeys((run.row, run.rows) for run in self.cells):
            y = self.top + (first + count / 2) * self.scale.height + 3
            yield row_index(self.left - 4, y, span(first, count))

    def _x(self, col: float) -> float:
        return self.left + (col - self.cells[0].col) * self.scale.width

    def _cell(self, run: ElementRun, outlined: bool) -> str:
        return cell(
            (self._x(run.col), self.top + run.row * self.scale.height),
            (run.cols * self.scale.width, run.rows * self.scale.height),
            label(self.layout, run),
            hover(self.layout, run),
            f'class="l{run.places[0].lane % WARP}"',
            outlined=outlined,
        )


def whole(
    layout: FragmentLayout, matrix: int, left: float, top: float, scale: CellScale
) -> DrawnOperand:
    return DrawnOperand(layout, runs(layout, matrix), left, top, scale)


def window(layout: FragmentLayout, matrix: int, selection: Selection) -> Sequence[ElementRun]:
    """Return the cells of one of the matrices; of a warpgroup's accumulator those of eight columns.

    They are the eight with the first cell that is selected, or the first ones. All others are like these,
    in further registers.
    """
    cells = runs(layout, matrix)
    if layout.kind != "accumulator" or layout.threads == WARP:
        return cells
    first = next((run.col for run in cells if run.meets(selection)), 0) // COLUMNS * COLUMNS
    return [run for run in cells if first <= run.col < first + COLUMNS]


def operand_svg(layout: FragmentLayout, selection: Selection = EVERYTHING) -> str:
    parts, right, bottom = _drawn([layout], selection, MARGIN + 3 * LINE)
    parts = [*notes([key(layout)]), *parts]
    right = max(right, 2 * MARGIN + len(key(layout)) * 6.8)
    group = "warp" if layout.holder == "lane" else "warpgroup"
    about = f"Which {layout.holder} of a {group} holds which element of {layout.operand}"
    return document(about, parts, right, bottom)


def side_by_side(title: str, instruction: Form, selection: Selection) -> str:
    name, room = heading(title)
    top = TITLE + MARGIN + 3 * LINE
    parts, right, bottom = _drawn(instruction.operands, selection, top)
    about = f"Which lane of a warp holds which element in {instruction.name}"
    return document(
        about, [name, *legend([key(instruction.operands[0])]), *parts], max(right, room), bottom
    )


def _drawn(
    layouts: Sequence[FragmentLayout], selection: Selection, top: float
) -> tuple[list[str], float, float]:
    """Return the drawing of all matrices of operands, side by side from ``top`` on, and where it ends."""
    parts: list[str] = []
    right, bottom = 0.0, 0.0
    for layout in layouts:
        right += MARGIN
        for matrix in range(layout.matrices):
            left = right + INDEX
            title = f"{layout.operand} {layout.rows}×{layout.cols} {layout.dtype}"
            if layout.matrices > 1:
                title += f", matrix {matrix}"
            cells = window(layout, matrix, selection)
            scale = CellScale.of(layout, cells)
            box = DrawnOperand(layout, cells, left, top, scale)
            cols = cells[-1].col + cells[-1].cols - cells[0].col
            if cols < layout.cols:
                title += f", {cols} of {layout.cols} columns"
            parts += box.draw(title, f"{layout.operand}{matrix}", selection)
            parts += (*box.columns(), *box.rows())
            right = left + max(cols * scale.width, len(title) * 7.9) + MARGIN
            bottom = max(bottom, top + layout.rows * scale.height + MARGIN)
    return parts, right, bottom


def label(layout: FragmentLayout, run: ElementRun) -> str:
    """Return what a cell says: lane and register, and how many copies there are of them."""
    copies = f"×{len(run.places)}" if len(run.places) > 1 else ""
    return f"{owner(layout, run.places[:1])}{copies}"


def hover(layout: FragmentLayout, run: ElementRun) -> str:
    """Return what hovering over a cell says: the elements, and lane, register and bits of each copy."""
    rows, cols = span(run.row, run.rows), span(run.col, run.cols)
    held = [
        f"{layout.holder} {place.lane}, register {register_name(layout, place.register)}, "
        f"bits {place.element * layout.bits} to {(place.element + run.length) * layout.bits - 1}"
        for place in run.places
    ]
    return f"{layout.operand}[{rows},{cols}]: {' and '.join(held)}"


def key(layout: FragmentLayout) -> str:
    name = register_name(layout, 0)
    return f"6:{name} is register {name} of {layout.holder} 6"
