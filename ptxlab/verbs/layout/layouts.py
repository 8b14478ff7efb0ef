"""Layouts as text, as JSON (schema ``ptxlab.layout/1``) and as pictures coloured by bank."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError
from ptxlab.layouts.code import code
from ptxlab.layouts.layout import ComposedLayout, Layout, Mapping, height, table
from ptxlab.layouts.linear import Bases
from ptxlab.layouts.shared_memory import bank
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.thread_value import ModeStep, steps, thread_value
from ptxlab.view.json import members
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
    row_index,
)
from ptxlab.view.text import fields
from ptxlab.view.width import stacked

T = TypeVar("T")

SCHEMA = "ptxlab.layout/1"
MOST_CELLS = 1 << 16
CHUNK, CHUNKS = 16, 8
"""Bytes that ldmatrix takes as a row, and how many such there are in a line of all banks."""
SWATCH, PER_LINE = 22, 16
"""How wide the colour of a bank is drawn in the legend of a picture, and how many of them a line has."""


class LayoutAnswer(Protocol):
    """An answer, in every form."""

    def text(self, width: int | None = None) -> str: ...

    def as_json(self) -> dict[str, Any]: ...

    def svg(self) -> str:
        """Return it as a picture. Raises PtxlabError when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Offsets:
    """A layout and all its offsets. When it places tiles, ``element`` is the layout within one.

    ``about`` says what it goes from and to where these are no coordinates and offsets, and ``bases`` where each bit
    of a thread and of a register of it leads, where that is known.
    """

    layout: Mapping
    bits: int
    element: Layout | None = None
    about: str = ""
    bases: tuple[Bases, Bases] | None = None

    def text(self, width: int | None = None) -> str:
        """Return the notation and the table; for tiles, where each of them starts.

        What is too wide for its terminal is told by chunks of 16 bytes where these stay together, else with some
        columns below others.
        """
        check_size(self.layout)
        lines_ = [self.layout.notation, *filter(None, [self.about])]
        if self.element is not None:
            lines_ = [f"each {self.element.notation}", f"at   {self.layout.notation}"]
        shown = table(self.layout)
        if width is not None and max(map(len, shown.split("\n"))) > width and self.element is None:
            shown = self._chunks() or "\n".join(stacked(self._rows(), width))
        return "\n".join([*lines_, shown])

    def _rows(self) -> list[list[str]]:
        """Return the table without lines between, headed by its columns."""
        tall = height(self.layout)
        across = range(self.layout.size // tall)
        return [
            ["", *map(str, across)],
            *(
                [str(row), *(str(self.layout(row + tall * col)) for col in across)]
                for row in range(tall)
            ),
        ]

    def _chunks(self) -> str | None:
        """Return which four banks hold each 16 bytes of a row, or None where they do not stay together."""
        tall, per = height(self.layout), CHUNK * 8 // self.bits
        if self.layout.size // tall % per:
            return None
        offsets = np.asarray(self.layout(np.arange(self.layout.size))).reshape(-1, tall).T
        first = offsets[:, ::per]
        if (offsets.reshape(tall, -1, per) != first[..., None] + np.arange(per)).any() or (
            first % per
        ).any():
            return None
        lines = first // per % CHUNKS
        again = next(
            (rows for rows in (1, 2, 4, 8, 16) if not (lines[rows:] != lines[:-rows]).any()), tall
        )
        heads = ["row", *map(str, range(lines.shape[1]))]
        rows = [[str(row), *map(str, lines[row])] for row in range(min(again, tall))]
        told = [
            f"which {CHUNK} of the {CHUNK * CHUNKS} bytes in the banks hold chunk 0, 1, ... of a row: 0 is banks 0 to 3"
        ]
        return "\n".join(
            [*told, *stacked([heads, *rows], 80)]
            + [f"and so on, every {again} rows"] * (again < tall)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the layout and its offsets by row, first mode down."""
        check_size(self.layout)
        data = {"schema": SCHEMA, **layout_json(self.layout)}
        if self.element is not None:
            data["element"] = layout_json(self.element)
        tall = height(self.layout)
        offsets = np.asarray(self.layout(np.arange(self.layout.size)))
        data["offsets"] = offsets.reshape(-1, tall).T.tolist()
        return data

    def svg(self) -> str:
        """Return the elements, coloured by the bank in which each begins."""
        check_size(self.layout)
        tall = height(self.layout)
        cells = []
        for index in range(self.layout.size):
            col, row = divmod(index, tall)
            offset = int(self.layout(index))
            where = bank(offset * self.bits // 8)
            title = f"{row},{col}: offset {offset}, bank {where} with {self.bits}-bit elements"
            cells.append(Cell(row, col, str(offset), where, title))
        lines = [
            "number: the offset of an element, counted in elements",
            f"colour: the bank of shared memory in which it begins, of {self.bits}-bit elements",
        ]
        return picture(self.layout.notation, cells, lines)


@dataclass(frozen=True, slots=True)
class LayoutCode:
    """A layout as source code."""

    layout: Mapping
    language: str

    def text(self, width: int | None = None) -> str:
        return code(self.layout, self.language)

    def as_json(self) -> dict[str, Any]:
        said = {"language": self.language, "code": self.text()}
        return {"schema": SCHEMA, **layout_json(self.layout), **said}

    def svg(self) -> str:
        raise PtxlabError("code is no picture", hint="leave out --code or --format svg")


@dataclass(frozen=True, slots=True)
class Fragments:
    """The fragments of an instruction as thread-value layouts, or that of the ``operand`` alone."""

    instruction: MatrixInstruction
    operand: str | None = None

    @property
    def operands(self) -> tuple[FragmentLayout, ...]:
        """Those that are shown. Raises PtxlabError where it has no such operand in registers."""
        every = self.instruction.operands
        chosen = tuple(each for each in every if self.operand in (None, each.operand))
        if not chosen:
            has = ", ".join(each.operand for each in every)
            raise PtxlabError(
                f"{self.instruction.name} has no operand {self.operand} in registers",
                hint=f"it has {has}",
            )
        return chosen

    def text(self, width: int | None = None) -> str:
        """Return each layout in CuTe's notation and what it says of lanes and registers."""
        parts = [self.instruction.name]
        for fragment in self.operands:
            title = f"{fragment.operand}  {fragment.rows} x {fragment.cols}  {fragment.dtype}"
            formulas = [(f"  {name}", formula) for name, formula in explanation(fragment)]
            parts.append(
                "\n".join([f"{title}  {thread_value(fragment).notation}", *fields(formulas)])
            )
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "instruction": self.instruction.name,
            "operands": {
                fragment.operand: {
                    **members(fragment, "rows", "cols", "dtype"),
                    **layout_json(thread_value(fragment)),
                    "formulas": dict(explanation(fragment)),
                }
                for fragment in self.operands
            },
        }

    def svg(self) -> str:
        raise PtxlabError(
            "thread-value layouts have no picture here", hint="ptxlab fragments draws fragments"
        )


def explanation(fragment: FragmentLayout) -> list[tuple[str, str]]:
    """Return the outer and the inner coordinate by name, each as a formula of lane and register."""
    letter = fragment.kind.removeprefix("quad ").removesuffix(".trans")
    named = {"a": ("m", "k"), "b": ("n", "k")}
    outer, inner = named.get(letter.partition(".")[0], ("m", "n"))
    explained = steps(fragment)
    return [
        (outer, _sum([(step, step.outer) for step in explained], fragment)),
        (inner, _sum([(step, step.inner) for step in explained], fragment)),
    ]


def check_size(layout: Mapping) -> None:
    """Raise PtxlabError for more offsets than anybody reads."""
    if layout.size > MOST_CELLS:
        raise PtxlabError(
            f"{layout.notation} has {layout.size:,} elements, more than the {MOST_CELLS:,} that are "
            "written out",
            hint="look at a part of it with --tile and --at",
        )


def _sum(terms: list[tuple[ModeStep, int]], fragment: FragmentLayout) -> str:
    totals = {
        fragment.holder: fragment.threads,
        "register": fragment.registers_per_lane,
        "element": fragment.elements_per_register,
    }
    written = []
    for step, weight in terms:
        if weight == 0:
            continue
        term = step.counter
        if step.divisor > 1:
            term += f" / {step.divisor}"
        if step.divisor * step.size < totals[step.counter]:
            term += f" % {step.size}"
        bare = term == step.counter
        if weight > 1:
            written.append(f"{weight} * {term}" if bare else f"{weight} * ({term})")
        else:
            written.append(term if bare else f"({term})")
    return " + ".join(written) or "0"


def layout_json(layout: Mapping) -> dict[str, Any]:
    data: dict[str, Any] = {"layout": layout.notation}
    if isinstance(layout, ComposedLayout):
        data |= {"swizzle": dataclasses.astuple(layout.swizzle), "offset": layout.offset}
        layout = layout.layout
    return data | members(layout, "shape", "stride", "size", "cosize")


def known(name: str, table: Table[str, T], what: str) -> T:
    """Return an entry of a table by name, or raise PtxlabError with the nearest names."""
    if name not in table:
        raise PtxlabError(
            f"no {what} {name!r}{suggestion(name, table)}", hint=f"there are {', '.join(table)}"
        )
    return table[name]


# ---- pictures -------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One cell: where it is drawn, what is written in it, its bank, and what it says when hovered."""

    row: int
    col: int
    label: str
    bank: int
    title: str
    outlined: bool = False


def picture(title: str, cells: Sequence[Cell], lines: Sequence[str]) -> str:
    """Return the SVG, with ``lines`` that say what is in it, and the colour of each bank.

    A bank has the colour of the lane of its number: four, 16 bytes, share a hue.
    """
    rows = 1 + max(cell.row for cell in cells)
    cols = 1 + max(cell.col for cell in cells)
    wide = CHARACTER * max(len(cell.label) for cell in cells) + PADDING
    name, least = heading(title)
    least = max(least, 2 * MARGIN + max(map(len, lines)) * 6.8)
    swatches, high = _banks(sorted({cell.bank for cell in cells}), TITLE + LINE * (len(lines) + 1))
    top = high + 2 * LINE
    parts = [name, *legend(lines), '<g id="banks">', *swatches, "</g>", '<g id="cells">']
    parts += [column_index(INDEX + wide * (col + 0.5), top - 4, str(col)) for col in range(cols)]
    for row in range(rows):
        parts.append(row_index(INDEX - 4, top + CELL_HEIGHT * (row + 0.5) + 3, str(row)))
    for drawn in sorted(cells, key=lambda cell: cell.outlined):  # on top of their neighbours
        corner = (INDEX + wide * drawn.col, top + CELL_HEIGHT * drawn.row)
        look = f'class="l{drawn.bank}"'
        size = (wide, CELL_HEIGHT)
        parts.append(cell(corner, size, drawn.label, drawn.title, look, outlined=drawn.outlined))
    parts.append("</g>")
    width = max(INDEX + wide * cols + MARGIN, least, INDEX + PER_LINE * SWATCH + MARGIN)
    return document(title, parts, width, top + CELL_HEIGHT * rows + MARGIN)


def _banks(banks: Sequence[int], top: float) -> tuple[list[str], float]:
    """Return the colours of banks, and where they end."""
    parts = [f'<text class="s" x="{MARGIN}" y="{n(top + 13)}">bank</text>']
    left = MARGIN + 4 * CHARACTER + PADDING
    for i, number in enumerate(banks):
        row, col = divmod(i, PER_LINE)
        corner = (left + SWATCH * col, top + CELL_HEIGHT * row)
        look, about = f'class="l{number}"', f"bank {number}"
        parts.append(cell(corner, (SWATCH, CELL_HEIGHT), str(number), about, look))
    return parts, top + CELL_HEIGHT * -(-len(banks) // PER_LINE)
