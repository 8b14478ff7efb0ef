"""A matrix instruction as a picture: A left of D and B above it, each element with its owner.

Every cell says lane and register, so the picture needs no colour; hovering adds the bits. It follows
the light or dark scheme of whoever shows it, and brings its own background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ptxlab.isa import FragmentLayout, MatrixInstruction
from ptxlab.view.palette import INK, PAPER, QUIET, lane_rules
from ptxlab.view.runs import Keep, Run, owner, register_name, runs, span

CELL_HEIGHT, CHARACTER, PADDING = 20, 6.1, 10
MARGIN, INDEX, LINE, TITLE = 12, 34, 17, 30
"""Around everything; for row indices; between lines of text; for the instruction's name."""

AXES = {"A": "m×k", "B": "k×n", "C": "m×n", "D": "m×n"}


def nothing(lane: int, row: int, col: int) -> bool:
    """Mark no element."""
    return False


@dataclass(frozen=True, slots=True)
class _Scale:
    """How wide and how high one element is drawn."""

    width: float
    height: float


def svg(instruction: MatrixInstruction, marked: Keep = nothing) -> str:
    """Return the picture of all operands; what is ``marked`` is outlined.

    An instruction that multiplies several matrices at once has one picture of each, side by side.
    Operands that are no fragments of A, B, C and D are not drawn.
    """
    count = instruction.operand("D").matrices
    parts: list[str] = []
    left, height = 0.0, 0.0
    for matrix in range(count):
        figure, width, figure_height = _figure(instruction, matrix, marked)
        parts.append(f'<g transform="translate({_n(left)},{TITLE})">{figure}</g>')
        left, height = left + width, max(height, figure_height + TITLE)
    left = max(left, 2 * MARGIN + len(instruction.name) * 7.9)
    name = f'<text class="t" x="{MARGIN}" y="26">{escape(instruction.name)}</text>'
    about = f"Which lane of a warp holds which element in {instruction.name}"
    return _document(about, [name, *parts], left, height)


def operand_svg(layout: FragmentLayout, marked: Keep = nothing) -> str:
    """Return the picture of one operand; what is ``marked`` is outlined."""
    parts: list[str] = []
    left, scale = float(MARGIN + INDEX), _scale(layout)
    top = MARGIN + 2 * LINE
    for matrix in range(layout.matrices):
        title = layout.operand if layout.matrices == 1 else f"{layout.operand}, matrix {matrix}"
        parts += _operand(layout, matrix, marked, left, top, scale, title)
        parts += _columns(layout, matrix, left, top, scale)
        parts += _rows(layout, matrix, left, top, scale)
        left += max(layout.cols * scale.width, 130) + MARGIN + INDEX
    about = f"Which lane of a warp holds which element of {layout.operand}"
    return _document(about, parts, left - INDEX, top + layout.rows * scale.height + MARGIN)


def _document(about: str, parts: Sequence[str], width: float, height: float) -> str:
    size = f"{_n(width)} {_n(height)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{_n(width)}" '
            f'height="{_n(height)}" role="img" class="ptxlab">',
            f"<title>{escape(about)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="p" width="{_n(width)}" height="{_n(height)}" rx="8"/>',
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


def _figure(instruction: MatrixInstruction, matrix: int, marked: Keep) -> tuple[str, float, float]:
    """Return the drawing of one multiplication, and its width and height."""
    a, b, c, d = (instruction.operand(name) for name in "ABCD")
    same = _same_places(c, d)
    sums = (d,) if same else (d, c)
    scales = [_scale(layout) for layout in (a, b, *sums)]
    line = max(scale.height for scale in (scales[0], *scales[2:]))
    column = max(scale.width for scale in scales[1:])
    notes = [*_notes(instruction), "", _key(a)]
    if d.matrices > 1:
        notes.append(f"product {matrix} of the {d.matrices} in the warp")
    wide = max(a.cols * scales[0].width, max(map(len, notes)) * 6.8)
    across = MARGIN + INDEX + wide + INDEX
    top = max(3 * LINE + b.rows * scales[1].height, (len(notes) + 3) * LINE)
    a_left, b_top = (
        across - INDEX - a.cols * scales[0].width,
        top - LINE - b.rows * scales[1].height,
    )
    parts = [
        f'<text class="s" x="{MARGIN}" y="{_n(LINE + 6 + LINE * i)}">{escape(note)}</text>'
        for i, note in enumerate(notes)
    ]
    a_scale, b_scale = _Scale(scales[0].width, line), _Scale(column, scales[1].height)
    top += LINE
    parts += _columns(a, matrix, a_left, top, a_scale)
    parts += _operand(a, matrix, marked, a_left, top, a_scale, "A")
    parts += _rows(a, matrix, a_left, top, a_scale)
    parts += _columns(b, matrix, across, b_top, b_scale)
    parts += _operand(b, matrix, marked, across, b_top, b_scale, "B")
    parts += _rows(b, matrix, across, b_top, b_scale)
    scale, left = _Scale(column, line), across
    for layout in sums:
        title = "C and D" if same else layout.operand
        parts += _operand(layout, matrix, marked, left, top, scale, title)
        left += layout.cols * column + INDEX
    height = top + max(a.rows, d.rows) * line + MARGIN
    return "\n".join(parts), left - INDEX + MARGIN, height


def _same_places(c: FragmentLayout, d: FragmentLayout) -> bool:
    shapes_equal = c.table().shape == d.table().shape
    return bool(shapes_equal and (c.table() == d.table()).all())


def _notes(instruction: MatrixInstruction) -> Iterator[str]:
    for name, axes in AXES.items():
        layout, count = instruction.operand(name), instruction.operand(name).registers_per_lane
        kept = "/2" * (name == "A" and layout.cols < instruction.k)
        size = f"{axes}{kept} = {layout.rows}×{layout.cols}"
        yield f"{name} {size} {layout.dtype}, {count} register{'s' * (count > 1)} a lane"


def _key(layout: FragmentLayout) -> str:
    return f"6:{register_name(layout, 0)} is register {register_name(layout, 0)} of lane 6"


def _scale(layout: FragmentLayout) -> _Scale:
    cells = runs(layout)
    text = max(len(label(layout, run)) for run in cells) * CHARACTER + PADDING
    first = cells[0]
    return _Scale(round(text / first.cols, 3), CELL_HEIGHT / first.rows)


def _operand(
    layout: FragmentLayout,
    matrix: int,
    marked: Keep,
    left: float,
    top: float,
    scale: _Scale,
    title: str,
) -> list[str]:
    """Return the cells of an operand, those outlined last, on top of their neighbours."""
    plain: list[str] = []
    outlined: list[str] = []
    for run in runs(layout, matrix):
        meant = run.meets(marked)
        (outlined if meant else plain).append(_cell(layout, run, left, top, scale, meant))
    head = f'<text class="t" x="{_n(left)}" y="{_n(top - LINE)}">{title}</text>'
    return [head, f'<g id="{title.replace(" ", "")}{matrix}">', *plain, *outlined, "</g>"]


def _cell(
    layout: FragmentLayout, run: Run, left: float, top: float, scale: _Scale, outlined: bool
) -> str:
    x, y = left + run.col * scale.width, top + run.row * scale.height
    width, height = run.cols * scale.width, run.rows * scale.height
    return (
        f'<g class="c{" m" * outlined}"><title>{hover(layout, run)}</title>'
        f'<rect class="l{run.places[0].lane}" x="{_n(x)}" y="{_n(y)}" '
        f'width="{_n(width)}" height="{_n(height)}"/>'
        f'<text x="{_n(x + width / 2)}" y="{_n(y + height / 2 + 3.5)}">'
        f"{label(layout, run)}</text></g>"
    )


def label(layout: FragmentLayout, run: Run) -> str:
    """Return what a cell says: lane and register, and how many copies there are of them."""
    copies = f"×{len(run.places)}" if len(run.places) > 1 else ""
    return f"{owner(layout, run.places[:1])}{copies}"


def hover(layout: FragmentLayout, run: Run) -> str:
    """Return what hovering over a cell says: the elements, and lane, register and bits of each copy."""
    rows, cols = span(run.row, run.rows), span(run.col, run.cols)
    held = [
        f"lane {place.lane}, register {register_name(layout, place.register)}, "
        f"bits {place.element * layout.bits} to {(place.element + run.length) * layout.bits - 1}"
        for place in run.places
    ]
    return f"{layout.operand}[{rows},{cols}]: {' and '.join(held)}"


def _columns(
    layout: FragmentLayout, matrix: int, left: float, top: float, scale: _Scale
) -> Iterator[str]:
    """Yield the column indices, above the matrix."""
    spans = dict.fromkeys((run.col, run.cols) for run in runs(layout, matrix))
    for first, count in spans:
        x = left + (first + count / 2) * scale.width
        room = count * scale.width / 5.6
        index = span(first, count) if len(span(first, count)) <= room else f"{first}.."
        yield f'<text class="i" x="{_n(x)}" y="{_n(top - 4)}">{index}</text>'


def _rows(
    layout: FragmentLayout, matrix: int, left: float, top: float, scale: _Scale
) -> Iterator[str]:
    """Yield the row indices, left of the matrix."""
    spans = dict.fromkeys((run.row, run.rows) for run in runs(layout, matrix))
    for first, count in spans:
        y = top + (first + count / 2) * scale.height + 3
        yield f'<text class="i e" x="{_n(left - 4)}" y="{_n(y)}">{span(first, count)}</text>'


def _n(value: float) -> str:
    """Write a coordinate, shortly."""
    return f"{value:.1f}".removesuffix(".0")
