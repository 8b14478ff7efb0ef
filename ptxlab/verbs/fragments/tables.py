"""Fragment layouts as tables for other programs: CSV, Markdown and LaTeX.

CSV has one line an element and place. Markdown and LaTeX have two tables an operand: by register,
what each lane holds, and by matrix, who holds each element. Neighbouring elements of one register
share a cell, as in the PTX ISA's figures, and are written ``row,first..last``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.fragments.runs import EVERYTHING, Selection, owner, register_name, runs, span
from ptxlab.view.text import Table, on_github

CSV_HEAD = "operand,matrix,lane,register,element,low_bit,high_bit,row,col"


def csv(instruction: Form, selection: Selection = EVERYTHING) -> str:
    """Return every element of every operand with its place, by lane and register."""
    lines = [CSV_HEAD]
    for layout in selection.operands(instruction):
        for place in selection.places(layout):
            bits = (place.element * layout.bits, (place.element + 1) * layout.bits - 1)
            where = (layout.matrix(place.lane), *place, *bits, *layout.table()[place].tolist())
            lines.append(",".join([layout.operand, *map(str, where)]))
    return "\n".join(lines) + "\n"


def markdown(instruction: Form, selection: Selection = EVERYTHING) -> str:
    parts = [f"# `{instruction.name}`"]
    parts += [
        f"### {table.caption}\n\n{on_github(table)}" for table in tables(instruction, selection)
    ]
    return "\n\n".join(parts) + "\n"


def latex(instruction: Form, selection: Selection = EVERYTHING) -> str:
    """Return the tables as ``tabular``, which need no package."""
    parts = [f"% {instruction.name}"]
    for table in tables(instruction, selection):
        columns = "r|" + "c" * (len(table.head) - 1)
        lines = [" & ".join(line) + r" \\" for line in (table.head, *table.lines)]
        parts.append(
            "\n".join(
                [
                    f"% {table.caption}",
                    rf"\begin{{tabular}}{{{columns}}}",
                    lines[0],
                    r"\hline",
                    *lines[1:],
                    r"\end{tabular}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def tables(instruction: Form, selection: Selection = EVERYTHING) -> Iterator[Table]:
    for layout in selection.operands(instruction):
        yield by_register(layout, selection)
        for matrix in range(layout.matrices):
            yield by_matrix(layout, matrix, selection)


def by_register(layout: FragmentLayout, selection: Selection = EVERYTHING) -> Table:
    """Return the lanes down and the registers across; in each cell elements, low bits first."""
    names = [register_name(layout, register) for register in range(layout.registers_per_lane)]
    lines = []
    for lane in range(layout.threads):
        cells = [
            " ".join(_joined([e for e in elements if selection.has(lane, *e)]))
            for elements in layout.table()[lane].tolist()
        ]
        if any(cells):
            lines.append((str(lane), *cells))
    caption = f"{layout.operand} {layout.rows}×{layout.cols} {layout.dtype}: what each {layout.holder} holds"
    return Table(caption, (layout.holder, *names), tuple(lines))


def by_matrix(layout: FragmentLayout, matrix: int, selection: Selection) -> Table:
    """Return the matrix with lane and register of each run of elements.

    ``matrix`` counts those of an instruction that holds several in one warp.
    """
    cells = {(run.row, run.col): run for run in runs(layout, matrix)}
    across = dict.fromkeys((run.col, run.cols) for run in cells.values())
    down = dict.fromkeys((run.row, run.rows) for run in cells.values())
    lines = []
    for row, rows in down:
        here = [cells[row, col] for col, _ in across]
        owners = [owner(layout, run.places) if run.meets(selection) else "" for run in here]
        lines.append((span(row, rows), *owners))
    which = f", matrix {matrix}" if layout.matrices > 1 else ""
    caption = f"{layout.operand} {layout.rows}×{layout.cols} {layout.dtype}{which}: who holds what"
    return Table(caption, ("", *(span(*columns) for columns in across)), tuple(lines))


def _joined(elements: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the elements of one register as ``row,col``, neighbours as one."""
    start = 0
    for end in range(1, len(elements) + 1):
        if end < len(elements) and _steps(elements[start : end + 1]):
            continue
        (row, col), (last_row, last_col) = elements[start], elements[end - 1]
        yield f"{span(row, last_row - row + 1)},{span(col, last_col - col + 1)}"
        start = end


def _steps(elements: Sequence[Sequence[int]]) -> bool:
    """Say whether the elements are neighbours along one row or one column, in order."""
    row, col = elements[0]
    right = all(list(e) == [row, col + i] for i, e in enumerate(elements))
    return right or all(list(e) == [row + i, col] for i, e in enumerate(elements))
