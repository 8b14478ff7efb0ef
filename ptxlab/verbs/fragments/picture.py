"""Who holds each element of an operand, as a picture in text: lane and register of each run."""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.fragments.runs import ElementRun, Selection, owner, runs, span
from ptxlab.view.colour import Paint
from ptxlab.view.text import grid
from ptxlab.view.width import beside

CORNER = 16
"""How many rows and columns of runs a short picture shows."""


def pictures(instruction: Form, paint: Paint, width: int | None) -> list[str]:
    """Return the operands of an instruction on one screen, the last two side by side where they fit.

    C is shown by D where they are alike; of large operands the corner is shown.
    """
    blocks = []
    for layout in instruction.operands:
        if layout.operand == "C" and layout.table().tolist() == _d(instruction):
            continue
        blocks += list(_blocks(layout, Selection(), paint, width, CORNER))
    if len(blocks) > 2:
        blocks = [*blocks[:-2], beside(blocks[-2:], width)]
    return "\n\n".join("\n".join(block) for block in blocks).splitlines()


def owners(
    layout: FragmentLayout, selection: Selection, paint: Paint, width: int | None
) -> list[str]:
    """Return an operand whole, or what is selected of it."""
    blocks = _blocks(layout, selection, paint, width, layout.rows * layout.cols)
    return "\n\n".join("\n".join(block) for block in blocks).splitlines()


def _d(instruction: Form) -> object:
    return instruction.operands[-1].table().tolist()


def _blocks(
    layout: FragmentLayout, selection: Selection, paint: Paint, width: int | None, most: int
) -> Iterator[list[str]]:
    """Yield under a title each matrix of the operand, of no more than ``most`` rows and columns of runs."""
    for matrix in range(layout.matrices):
        cells = {(run.row, run.col): run for run in runs(layout, matrix)}
        down = dict.fromkeys((run.row, run.rows) for run in cells.values())
        across = dict.fromkeys((run.col, run.cols) for run in cells.values())
        rows = [[cells[row, col] for col, _ in [*across][:most]] for row, _ in [*down][:most]]
        which = f", matrix {matrix}" if layout.matrices > 1 else ""
        size = f"{layout.operand} {layout.rows}×{layout.cols} {layout.dtype}{which}"
        cut = len(down) > most or len(across) > most
        title = f"{size}: {layout.holder}:register of each element" + ", the corner" * cut
        heads = (
            [span(*labels) for labels in down][:most],
            [span(*labels) for labels in across][:most],
        )
        head, *lines = _grid(layout, rows, heads, selection, paint, width)
        if lines:
            yield [title, head, *lines]


def _grid(
    layout: FragmentLayout,
    rows: list[list[ElementRun]],
    heads: tuple[list[str], list[str]],
    selection: Selection,
    paint: Paint,
    width: int | None,
) -> list[str]:
    lanes = {
        (i, j): next((p.lane for p in run.places if p.lane == selection.lane), run.places[0].lane)
        for i, row in enumerate(rows)
        for j, run in enumerate(row)
    }
    cells = [[owner(layout, run.places) for run in row] for row in rows]

    def is_meant(lane: int, row: int, col: int) -> bool:
        return rows[row][col].meets(selection)

    return grid(cells, lanes, paint, is_meant, heads=heads, width=width)
