"""Which registers feed an element of D, as text and as JSON (schema ``ptxlab.fragments.trace/1``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, Place, slots
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import ElementTrace, SharedPlace, Term, Whereabouts, trace
from ptxlab.verbs.fragments.runs import Answer, bit_range, bits_json, start, title
from ptxlab.view.json import members
from ptxlab.view.text import aligned

SCHEMA = "ptxlab.fragments.trace/1"
SHARED = (
    "shared memory: start address and offsets of the descriptor, contiguous along k, no swizzle"
)


def answer(instruction: MatrixInstruction, row: int, col: int) -> Answer:
    try:
        traced = trace(instruction, row, col)
    except IndexError as error:
        raise PtxlabError(f"--trace {row},{col}: {error}") from None
    return lambda: text(traced), lambda: as_json(traced)


def text(traces: tuple[ElementTrace, ...]) -> str:
    """Return the dot product of an element of D, a product a line, each factor with its register."""
    blocks = [title(traces[0].instruction)]
    for traced in traces:
        form = traced.instruction
        which = f" of matrix {traced.matrix}" if len(traces) > 1 else ""
        at = f"{traced.row},{traced.col}"
        added = "D" if form.shared else "C"
        terms = (
            "the number of ones among the terms"
            if form.bit_operation
            else "the sum of the products"
        )
        head = f"D[{at}] = {added}[{at}] + {terms}{which}"
        if form.metadata or form.scales:
            head += f" ({_selectors(form)} 0)"
        if form.shared:
            head += f"\n{SHARED}"
        sums = [("D", traced.d)] if form.shared else [("D", traced.d), ("C", traced.c)]
        ends = [f"{name}[{at}]  {_held(form.operand(name), places)}" for name, places in sums]
        rows = [line for term in traced.terms for line in _term_rows(traced, term)]
        blocks.append("\n".join([head, *ends, *aligned(rows, "<")]))
    return "\n\n".join(blocks) + "\n"


def as_json(traces: tuple[ElementTrace, ...]) -> dict[str, Any]:
    """Return the same as JSON data; a place is lane, register, and lowest and highest bit."""
    form = traces[0].instruction
    a, b = form.held("A"), form.held("B")
    d = form.operand("D")
    c = d if form.shared else form.operand("C")
    return {
        **start(SCHEMA, form),
        **members(traces[0], "row", "col"),
        "matrices": [
            {
                "d": _places_json(d, traced.d),
                "c": _places_json(c, traced.c),
                "terms": [
                    {
                        **members(term, "a_col", "b_rows"),
                        "a": _places_json(a, term.a),
                        "b": [_places_json(b, places) for places in term.b],
                        "metadata": term.metadata
                        and dict(zip(("lane", "low_bit", "bits"), term.metadata, strict=True)),
                        "scales": [{"lane": lane, "byte": byte} for lane, byte in term.scales],
                    }
                    for term in traced.terms
                ],
            }
            for traced in traces
        ],
    }


def _selectors(form: MatrixInstruction) -> str:
    sparse = ["sparsity selector"] if form.metadata else []
    return ", ".join([*sparse, *(["byte-id, thread-id"] if form.scales else [])])


def _term_rows(traced: ElementTrace, term: Term) -> Iterator[list[str]]:
    a, b = map(traced.instruction.held, "AB")
    scales = [
        f"scale of {name} in lane {lane} byte {byte}"
        for name, (lane, byte) in zip("AB", term.scales, strict=False)
    ]
    for number, (k, places) in enumerate(zip(term.b_rows, term.b, strict=True)):
        left = [f"A[{traced.row},{term.a_col}]", _held(a, term.a)] if number == 0 else ["", ""]
        sign = (traced.instruction.bit_operation or "*") if number == 0 else "or"
        notes = scales
        if term.metadata is not None and number == 0:
            lane, low, bits = term.metadata
            high = low + bits - 1
            holder = traced.instruction.operand("D").holder
            notes = [f"as metadata in {holder} {lane} bits {high}:{low} says", *scales]
        yield [*left, sign, f"B[{k},{traced.col}]", _held(b, places), ", ".join(notes)]


def _held(layout: FragmentLayout | SharedOperand, places: tuple[Whereabouts, ...]) -> str:
    if isinstance(layout, SharedOperand):
        return " = ".join(SharedPlace(*row_and_col).formula for row_and_col in places)
    return " = ".join(f"{layout.holder} {p[0]} {_part(layout, Place(*p))}" for p in places)


def _part(layout: FragmentLayout, place: Place) -> str:
    """Write a register, with the bits of the element where it has more than one: ``a2[31:16]``."""
    name = f"{layout.operand.lower()}{place.register}"
    if layout.elements_per_register == 1:
        return name
    return f"{name}[{bit_range(slots(layout)[place.element])}]"


def _places_json(
    layout: FragmentLayout | SharedOperand, places: tuple[Whereabouts, ...]
) -> list[dict[str, int]]:
    if isinstance(layout, SharedOperand):
        return [
            {"line": line, "unit": unit, "low_bit": bit, "high_bit": bit + layout.bits - 1}
            for line, unit, bit in places
        ]
    return [
        {"lane": lane, "register": register, **bits_json(slots(layout)[element])}
        for lane, register, element in places
    ]
