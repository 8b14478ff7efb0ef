"""What pictures of operands are made of: boxes of cells with their indices, and the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.view.palette import INK, PAPER, QUIET, lane_rules
from ptxlab.view.runs import Keep, Run, owner, register_name, runs, span

CELL_HEIGHT, CHARACTER, PADDING = 20, 6.1, 10
MARGIN, INDEX, LINE, TITLE = 12, 34, 17, 30
"""Around everything; for row indices; between lines of text; for the instruction's name."""
COLUMNS = 8
"""How many columns are drawn of a matrix whose columns go on alike."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How wide and how high one element is drawn."""

    width: float
    height: float

    @classmethod
    def of(cls, layout: FragmentLayout, cells: Sequence[Run]) -> Scale:
        """Return a scale at which the label of every cell has room."""
        text = max(len(label(layout, run)) for run in cells) * CHARACTER + PADDING
        first = cells[0]
        return cls(round(text / first.cols, 3), CELL_HEIGHT / first.rows)


@dataclass(frozen=True, slots=True)
class Box:
    """An operand, or some ``cells`` of it, drawn from a corner on; the first cell is at the corner."""

    layout: FragmentLayout
    cells: Sequence[Run]
    left: float
    top: float
    scale: Scale

    def draw(self, title: str, group: str, marked: Keep) -> list[str]:
        """Return the cells, those outlined last, on top of their neighbours."""
        plain: list[str] = []
        outlined: list[str] = []
        for run in self.cells:
            meant = run.meets(marked)
            (outlined if meant else plain).append(self._cell(run, meant))
        head = f'<text class="t" x="{n(self.left)}" y="{n(self.top - LINE)}">{title}</text>'
        return [head, f'<g id="{group}">', *plain, *outlined, "</g>"]

    def columns(self) -> Iterator[str]:
        """Yield the column indices, above the matrix."""
        for first, count in dict.fromkeys((run.col, run.cols) for run in self.cells):
            x = self._x(first + count / 2)
            room = count * self.scale.width / 5.6
            index = span(first, count) if len(span(first, count)) <= room else f"{first}.."
            yield f'<text class="i" x="{n(x)}" y="{n(self.top - 4)}">{index}</text>'

    def rows(self) -> Iterator[str]:
        """Yield the row indices, left of the matrix."""
        for first, count in dict.fromkeys((run.row, run.rows) for run in self.cells):
            y = self.top + (first + count / 2) * self.scale.height + 3
            left = n(self.left - 4)
            yield f'<text class="i e" x="{left}" y="{n(y)}">{span(first, count)}</text>'

    def _x(self, col: float) -> float:
        return self.left + (col - self.cells[0].col) * self.scale.width

    def _cell(self, run: Run, outlined: bool) -> str:
        x, y = self._x(run.col), self.top + run.row * self.scale.height
        width, height = run.cols * self.scale.width, run.rows * self.scale.height
        return (
            f'<g class="c{" m" * outlined}"><title>{hover(self.layout, run)}</title>'
            f'<rect class="l{run.places[0].lane % WARP}" x="{n(x)}" y="{n(y)}" '
            f'width="{n(width)}" height="{n(height)}"/>'
            f'<text x="{n(x + width / 2)}" y="{n(y + height / 2 + 3.5)}">'
            f"{label(self.layout, run)}</text></g>"
        )


def whole(layout: FragmentLayout, matrix: int, left: float, top: float, scale: Scale) -> Box:
    return Box(layout, runs(layout, matrix), left, top, scale)


def window(layout: FragmentLayout, matrix: int, marked: Keep) -> Sequence[Run]:
    """Return the cells of one of the matrices; of a warpgroup's accumulator those of eight columns.

    They are the eight with the first cell that is marked, or the first ones. All others are like these,
    in further registers.
    """
    cells = runs(layout, matrix)
    if layout.kind != "accumulator" or layout.threads == WARP:
        return cells
    first = next((run.col for run in cells if run.meets(marked)), 0) // COLUMNS * COLUMNS
    return [run for run in cells if first <= run.col < first + COLUMNS]


def document(about: str, parts: Sequence[str], width: float, height: float) -> str:
    """Return a picture that says what it is ``about``, in light or dark, on its own background."""
    size = f"{n(width)} {n(height)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{n(width)}" '
            f'height="{n(height)}" role="img" class="ptxlab">',
            f"<title>{escape(about)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="p" width="{n(width)}" height="{n(height)}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _style() -> str:
    """Return the style sheet, each rule bound to the picture: a page may hold several."""
    rules = (
        ".ptxlab text{{font:10px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:{ink}}}"
        ".ptxlab .c text{{text-anchor:middle}}.ptxlab .m text{{font-weight:700}}"
        ".ptxlab .i{{fill:{quiet};font-size:9px;text-anchor:middle}}.ptxlab .e{{text-anchor:end}}"
        ".ptxlab .t{{font-size:13px;font-weight:600}}.ptxlab .s{{fill:{quiet};font-size:11px}}"
        ".ptxlab .c rect{{stroke:{paper}}}.ptxlab .m rect{{stroke:{ink};stroke-width:2}}"
        ".ptxlab .p{{fill:{paper}}}"
    )
    light, dark = (
        rules.format(ink=INK[mode], quiet=QUIET[mode], paper=PAPER[mode])
        for mode in ("light", "dark")
    )
    light += lane_rules(".ptxlab .l", "fill", dark=False)
    dark += lane_rules(".ptxlab .l", "fill", dark=True)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def notes(lines: Sequence[str]) -> list[str]:
    """Return lines of quiet text from the top left on."""
    return [
        f'<text class="s" x="{MARGIN}" y="{n(LINE + 6 + LINE * i)}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]


def heading(name: str) -> tuple[str, float]:
    """Return an instruction's name at the top, and how wide the picture must be for it."""
    text = f'<text class="t" x="{MARGIN}" y="26">{escape(name)}</text>'
    return text, 2 * MARGIN + len(name) * 7.9


def label(layout: FragmentLayout, run: Run) -> str:
    """Return what a cell says: lane and register, and how many copies there are of them."""
    copies = f"×{len(run.places)}" if len(run.places) > 1 else ""
    return f"{owner(layout, run.places[:1])}{copies}"


def hover(layout: FragmentLayout, run: Run) -> str:
    """Return what hovering over a cell says: the elements, and lane, register and bits of each copy."""
    rows, cols = span(run.row, run.rows), span(run.col, run.cols)
    held = [
        f"{layout.holder} {place.lane}, register {register_name(layout, place.register)}, "
        f"bits {place.element * layout.bits} to {(place.element + run.length) * layout.bits - 1}"
        for place in run.places
    ]
    return f"{layout.operand}[{rows},{cols}]: {' and '.join(held)}"


def n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
