"""Answers about a fragment layout, as text and as JSON; nothing was run for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.fragments.code import code
from ptxlab.matrix.bit_fields import BitFields, of_fragment
from ptxlab.matrix.form import Form, SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, RegisterPlace, Slot, slots
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import SharedPlace, Term, Trace, Whereabouts, operand
from ptxlab.view.text import OPEN, aligned

TRACE = "ptxlab.trace/1"
REGISTER = "ptxlab.register/1"
FORMULA = "ptxlab.formula/1"
CODE = "ptxlab.code/1"
SHARED = (
    "shared memory: start address and offsets of the descriptor, contiguous along k, no swizzle"
)


def _title(instruction: Form) -> str:
    return instruction.name + (f"\n{OPEN}" if instruction.layout_open else "")


def _start(schema: str, instruction: Form) -> dict[str, Any]:
    return {
        "schema": schema,
        "instruction": instruction.name,
        "variant": instruction.variant or None,
        "layout": "ptxlab" if instruction.layout_open else "isa",
    }


def trace_text(traces: tuple[Trace, ...]) -> str:
    """Return the dot product of an element of D, a product a line, each factor with its register."""
    blocks = [_title(traces[0].instruction)]
    for found in traces:
        form = found.instruction
        which = f" of matrix {found.matrix}" if len(traces) > 1 else ""
        at = f"{found.row},{found.col}"
        added = "D" if form.shared else "C"
        terms = (
            "the number of ones among the terms"
            if form.bit_operation
            else "the sum of the products"
        )
        title = f"D[{at}] = {added}[{at}] + {terms}{which}"
        if form.metadata or form.scales:
            title += f" ({_selectors(form)} 0)"
        if form.shared:
            title += f"\n{SHARED}"
        sums = [("D", found.d)] if form.shared else [("D", found.d), ("C", found.c)]
        ends = [f"{name}[{at}]  {_held(form.operand(name), places)}" for name, places in sums]
        rows = [line for term in found.terms for line in _term_rows(found, term)]
        blocks.append("\n".join([title, *ends, *aligned(rows, "<")]))
    return "\n\n".join(blocks) + "\n"


def trace_json(traces: tuple[Trace, ...]) -> dict[str, Any]:
    """Return the same as JSON data; a place is lane, register, and lowest and highest bit."""
    form = traces[0].instruction
    a, b = operand(form, "A"), operand(form, "B")
    d = form.operand("D")
    c = d if form.shared else form.operand("C")
    return {
        **_start(TRACE, form),
        "row": traces[0].row,
        "col": traces[0].col,
        "matrices": [
            {
                "d": _places_json(d, found.d),
                "c": _places_json(c, found.c),
                "terms": [
                    {
                        "a_col": term.a_col,
                        "b_rows": list(term.b_rows),
                        "a": _places_json(a, term.a),
                        "b": [_places_json(b, places) for places in term.b],
                        "metadata": term.metadata
                        and dict(zip(("lane", "low_bit", "bits"), term.metadata, strict=True)),
                        "scales": [{"lane": lane, "byte": byte} for lane, byte in term.scales],
                    }
                    for term in found.terms
                ],
            }
            for found in traces
        ],
    }


def _selectors(form: MatrixInstruction) -> str:
    """Return what an operand of the instruction could choose otherwise."""
    sparse = ["sparsity selector"] if form.metadata else []
    return ", ".join([*sparse, *(["byte-id, thread-id"] if form.scales else [])])


def _term_rows(found: Trace, term: Term) -> Iterator[list[str]]:
    a, b = (operand(found.instruction, name) for name in "AB")
    scales = [
        f"scale of {name} in lane {lane} byte {byte}"
        for name, (lane, byte) in zip("AB", term.scales, strict=False)
    ]
    for number, (k, places) in enumerate(zip(term.b_rows, term.b, strict=True)):
        left = [f"A[{found.row},{term.a_col}]", _held(a, term.a)] if number == 0 else ["", ""]
        sign = (found.instruction.bit_operation or "*") if number == 0 else "or"
        notes = scales
        if term.metadata is not None and number == 0:
            lane, low, bits = term.metadata
            high = low + bits - 1
            holder = found.instruction.operand("D").holder
            notes = [f"as metadata in {holder} {lane} bits {high}:{low} says", *scales]
        yield [*left, sign, f"B[{k},{found.col}]", _held(b, places), ", ".join(notes)]


def _held(layout: FragmentLayout | SharedOperand, places: tuple[Whereabouts, ...]) -> str:
    if isinstance(layout, SharedOperand):
        return " = ".join(SharedPlace(*place).formula for place in places)
    return " = ".join(f"{layout.holder} {p[0]} {_part(layout, RegisterPlace(*p))}" for p in places)


def _part(layout: FragmentLayout, place: RegisterPlace) -> str:
    """Write a register, with the bits of the element where it has more than one: ``a2[31:16]``."""
    name = f"{layout.operand.lower()}{place.register}"
    if layout.elements_per_register == 1:
        return name
    return f"{name}[{_bits(slots(layout)[place.element])}]"


def _bits(slot: Slot) -> str:
    return f"{slot.low + slot.bits - 1}:{slot.low}" if slot.bits > 1 else str(slot.low)


def _places_json(
    layout: FragmentLayout | SharedOperand, places: tuple[Whereabouts, ...]
) -> list[dict[str, int]]:
    if isinstance(layout, SharedOperand):
        return [
            {"line": line, "unit": unit, "low_bit": bit, "high_bit": bit + layout.bits - 1}
            for line, unit, bit in places
        ]
    found = []
    for lane, register, element in places:
        slot = slots(layout)[element]
        bits = {"low_bit": slot.low, "high_bit": slot.low + slot.bits - 1}
        found.append({"lane": lane, "register": register, **bits})
    return found


def register_text(
    instruction: Form, layout: FragmentLayout, register: int, lane: int | None
) -> str:
    """Return what every lane, or one, holds in a register, with the bits of each element."""
    name = f"{layout.operand.lower()}{register}"
    parts = slots(layout)
    lines = [
        _title(instruction),
        f"{name}: a register of {layout.register_bits} bits, {_contents(layout)}",
    ]
    inside = parts[0]
    if inside.data_bits < inside.bits:
        first = inside.data_low - inside.low
        lines.append(
            f"of the {inside.bits} bits of an element, bits {first + inside.data_bits - 1} to {first} "
            f"are the number"
        )
    rows = [[layout.holder, *(f"[{_bits(slot)}]" for slot in parts)]]
    for number in range(layout.threads) if lane is None else [lane]:
        cells = [",".join(map(str, element)) for element in layout.table()[number, register]]
        rows.append([str(number), *cells])
    return "\n".join([*lines, *aligned(rows)]) + "\n"


def _contents(layout: FragmentLayout) -> str:
    count = layout.elements_per_register
    elements = "one element" if count == 1 else f"{count} elements"
    return f"{elements} of {layout.operand} ({layout.dtype}), row,col from low bits up"


def register_json(
    instruction: Form, layout: FragmentLayout, register: int, lane: int | None
) -> dict[str, Any]:
    """Return the same as JSON data."""
    lanes = range(layout.threads) if lane is None else [lane]
    return {
        **_start(REGISTER, instruction),
        "operand": layout.operand,
        "register": register,
        "dtype": layout.dtype,
        "slots": [
            {
                "low_bit": slot.low,
                "high_bit": slot.low + slot.bits - 1,
                "data_low_bit": slot.data_low,
                "data_high_bit": slot.data_low + slot.data_bits - 1,
            }
            for slot in slots(layout)
        ],
        "lanes": [
            {"lane": number, "elements": layout.table()[number, register].tolist()}
            for number in lanes
        ],
    }


def formula_text(instruction: Form) -> str:
    """Return the closed formulas of all operands, from place to element and back."""
    holder = instruction.operands[0].holder
    derived = f"derived from the layout, bit by bit; true for every {holder}"
    blocks = [f"{_title(instruction)}\n{derived}"]
    for layout in instruction.operands:
        there = of_fragment(layout)
        blocks.append(
            "\n".join(
                [
                    f"{layout.operand}  {layout.rows} x {layout.cols} of {layout.dtype}",
                    *_assignments(there),
                    *_assignments(there.inverse()),
                ]
            )
        )
    return "\n\n".join(blocks) + "\n"


def _assignments(fields: BitFields) -> list[str]:
    width = max(len(output.variable.name) for output in fields.outputs)
    return [f"  {o.variable.name:{width}} = {o.expression}" for o in fields.outputs]


def formula_json(instruction: Form) -> dict[str, Any]:
    """Return the same as JSON data, with the bit fields apart."""
    return {
        **_start(FORMULA, instruction),
        "operands": {
            layout.operand: {
                "element": _fields_json(of_fragment(layout)),
                "place": _fields_json(of_fragment(layout).inverse()),
            }
            for layout in instruction.operands
        },
    }


def _fields_json(fields: BitFields) -> dict[str, Any]:
    return {
        output.variable.name: {
            "formula": output.expression,
            "fields": [
                {"source": f.source, "low_bit": f.low, "bits": f.bits, "to_bit": f.to}
                for f in output.fields
            ],
        }
        for output in fields.outputs
    }


def code_json(instruction: Form, language: str) -> dict[str, Any]:
    """Return the index arithmetic as JSON data."""
    return {
        **_start(CODE, instruction),
        "language": language,
        "code": code(instruction, language),
    }
