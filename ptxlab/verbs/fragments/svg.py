"""A matrix instruction as a picture: A left of D and B above it, each element with its owner.

Every cell says lane and register, so the picture needs no colour; hovering adds the bits. It follows
the light or dark scheme of whoever shows it, and brings its own background.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments import svg_operands, svg_warpgroup
from ptxlab.verbs.fragments.runs import Keep, nothing, runs
from ptxlab.verbs.fragments.svg_operands import Scale, key, whole
from ptxlab.view.svg_parts import INDEX, LINE, MARGIN, TITLE, document, heading, n, notes

AXES = {"A": "m×k", "B": "k×n", "C": "m×n", "D": "m×n"}


def svg(instruction: Form, marked: Keep = nothing) -> str:
    """Return the picture of all operands; what is ``marked`` is outlined.

    An instruction that multiplies several matrices at once has one picture of each, side by side.
    Operands that are no fragments of A, B, C and D are not drawn, but of a warpgroup's instruction the
    16-byte units in shared memory are. Of an instruction that multiplies nothing the operands stand
    side by side.
    """
    if not isinstance(instruction, MatrixInstruction):
        return svg_operands.side_by_side(_title(instruction), instruction, marked)
    if instruction.shared:
        return svg_warpgroup.svg(instruction, marked)
    count = instruction.operand("D").matrices
    parts: list[str] = []
    left, height = 0.0, 0.0
    for matrix in range(count):
        figure, width, figure_height = _figure(instruction, matrix, marked)
        parts.append(f'<g transform="translate({n(left)},{TITLE})">{figure}</g>')
        left, height = left + width, max(height, figure_height + TITLE)
    name, room = heading(_title(instruction))
    about = f"Which lane of a warp holds which element in {instruction.name}"
    return document(about, [name, *parts], max(left, room), height)


def _figure(instruction: MatrixInstruction, matrix: int, marked: Keep) -> tuple[str, float, float]:
    a, b, c, d = (instruction.operand(name) for name in "ABCD")
    same = _same_places(c, d)
    sums = (d,) if same else (d, c)
    scales = [Scale.of(layout, runs(layout)) for layout in (a, b, *sums)]
    line = max(scale.height for scale in (scales[0], *scales[2:]))
    column = max(scale.width for scale in scales[1:])
    lines = [*_notes(instruction), "", key(a)]
    if d.matrices > 1:
        lines.append(f"product {matrix} of the {d.matrices} in the warp")
    wide = max(a.cols * scales[0].width, max(map(len, lines)) * 6.8)
    across = MARGIN + INDEX + wide + INDEX
    top = max(3 * LINE + b.rows * scales[1].height, (len(lines) + 3) * LINE)
    a_left, b_top = (
        across - INDEX - a.cols * scales[0].width,
        top - LINE - b.rows * scales[1].height,
    )
    top += LINE
    boxes = [
        ("A", whole(a, matrix, a_left, top, Scale(scales[0].width, line))),
        ("B", whole(b, matrix, across, b_top, Scale(column, scales[1].height))),
    ]
    parts = notes(lines)
    for title, box in boxes:
        parts += [*box.columns(), *box.draw(title, f"{title}{matrix}", marked), *box.rows()]
    left = across
    for layout in sums:
        title = "C and D" if same else layout.operand
        box = whole(layout, matrix, left, top, Scale(column, line))
        parts += box.draw(title, f"{title.replace(' ', '')}{matrix}", marked)
        left += layout.cols * column + INDEX
    height = top + max(a.rows, d.rows) * line + MARGIN
    return "\n".join(parts), left - INDEX + MARGIN, height


def _same_places(c: FragmentLayout, d: FragmentLayout) -> bool:
    shapes_equal = c.table().shape == d.table().shape
    return bool(shapes_equal and (c.table() == d.table()).all())


def _title(instruction: Form) -> str:
    return instruction.name + " (ptxlab's layout; PTX leaves it open)" * instruction.layout_open


def _notes(instruction: MatrixInstruction) -> Iterator[str]:
    for name, axes in AXES.items():
        layout, count = instruction.operand(name), instruction.operand(name).registers_per_lane
        kept = "/2" * (name == "A" and layout.cols < instruction.k)
        size = f"{axes}{kept} = {layout.rows}×{layout.cols}"
        yield f"{name} {size} {layout.dtype}, {count} register{'s' * (count > 1)} a lane"
