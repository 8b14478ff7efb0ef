"""What was seen of fragments that PTX leaves open, on the chip that one names (``ptxlab.fragments.observed/1``)."""

from __future__ import annotations

from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma_observed import SOURCE, ObservedFragment, chips, observed
from ptxlab.verbs.fragments.runs import Answer
from ptxlab.view.colour import plain
from ptxlab.view.text import grid

SCHEMA = "ptxlab.fragments.observed/1"


def answer(form: Form, chip: str, width: int | None) -> Answer:
    """Return the fragments of a multiplication on a chip. Raises PtxlabError where nobody has published them."""
    known = chips(form) if isinstance(form, MatrixInstruction) else ()
    if not isinstance(form, MatrixInstruction) or chip not in known:
        seen = (
            f"seen on {', '.join(known)}"
            if known
            else "wmma.m16n16k16 of f16 and m16n16k8 of tf32 were seen"
        )
        raise PtxlabError(f"nobody has published the fragments of {form.name} on {chip}", hint=seen)
    fragments = observed(form, chip)
    return lambda: text(form, chip, fragments, width), lambda: as_json(form, chip, fragments)


def text(
    form: MatrixInstruction, chip: str, fragments: tuple[ObservedFragment, ...], width: int | None
) -> str:
    blocks = [f"{form.name}\nas observed on {chip} by {SOURCE}; PTX leaves this layout open"]
    for fragment in fragments:
        layout = form.operand(fragment.operand)
        holders = _holders(fragment)
        cells = [
            [" ".join(holders[row, col]) for col in range(layout.cols)]
            for row in range(layout.rows)
        ]
        title = (
            f"{layout.operand} {layout.rows} x {layout.cols} {layout.dtype}: lane:x of each element"
        )
        lanes = dict.fromkeys(holders, 0)
        blocks.append("\n".join([title, *grid(cells, lanes, plain, width=width)]))
    return "\n\n".join(blocks) + "\n"


def _holders(fragment: ObservedFragment) -> dict[tuple[int, int], list[str]]:
    """Return who holds each element: ``5:x0,x8`` of each lane that does."""
    held: dict[tuple[int, int], dict[int, list[int]]] = {}
    for lane in range(WARP):
        for i in range(fragment.count):
            at = held.setdefault(fragment.element(lane, i), {})
            at.setdefault(lane, []).append(i)
    return {
        element: [f"{lane}:{','.join(f'x{i}' for i in each)}" for lane, each in lanes.items()]
        for element, lanes in held.items()
    }


def as_json(
    form: MatrixInstruction, chip: str, fragments: tuple[ObservedFragment, ...]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "instruction": form.name,
        "chip": chip,
        "source": SOURCE,
        "operands": {
            fragment.operand: [
                [list(fragment.element(lane, i)) for i in range(fragment.count)]
                for lane in range(WARP)
            ]
            for fragment in fragments
        },
    }
