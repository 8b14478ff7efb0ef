"""The questions of ``ptxlab fragments`` that the layouts alone answer, without a run.

Here what a register holds, the formulas and the code; the other two have files of their own.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from ptxlab.cli.common import emit
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError
from ptxlab.fragments.code import code
from ptxlab.matrix.bit_fields import BitFields, of_fragment
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, slots
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments import moves, observed, trace
from ptxlab.verbs.fragments.runs import Answer, Selection, bit_range, bits_json, start, title
from ptxlab.view.text import aligned

REGISTER = "ptxlab.fragments.register/1"
FORMULA = "ptxlab.fragments.formula/1"
CODE = "ptxlab.fragments.code/1"


def answer(args: argparse.Namespace, instruction: Form, selection: Selection) -> int:
    if args.format not in ("text", "json"):
        raise PtxlabError(
            f"--format {args.format} draws a layout", hint="a question is answered as text or json"
        )
    if args.ptx is not None:
        raise PtxlabError("--ptx names a program to run", hint="a question runs none")
    if selection.element is not None or (selection.lane is not None and not args.register):
        raise PtxlabError(
            "a question is about the whole layout",
            hint="leave out --element and --lane; --lane goes with --register alone",
        )
    if selection.operand is not None and not (args.formula or args.code):
        raise PtxlabError("--operand goes with --formula and --code", hint="leave out --operand")
    text, data = _answer(args, instruction, selection)
    emit(args, text, data)
    return 0


def _answer(args: argparse.Namespace, instruction: Form, selection: Selection) -> Answer:
    if args.trace is not None:
        return trace.answer(_multiplying(instruction), *args.trace)
    if args.register is not None:
        return _register(args.register, instruction, args.lane)
    if args.code is not None:
        written = code(instruction, args.code, selection.operand)
        answered = {**start(CODE, instruction), "language": args.code, "code": written}
        return lambda: written, lambda: answered
    if args.observed is not None:
        return observed.answer(instruction, args.observed, terminal_width(args))
    if args.moves is not None:
        return moves.answer(_multiplying(instruction), args.moves)
    return lambda: formula_text(instruction, selection), lambda: formula_json(
        instruction, selection
    )


def _multiplying(instruction: Form) -> MatrixInstruction:
    """Return the instruction if it makes a D. Raises PtxlabError if it does not."""
    if not isinstance(instruction, MatrixInstruction):
        raise PtxlabError(
            f"{instruction.name} multiplies nothing",
            hint="--register, --formula and --code are about any layout",
        )
    return instruction


# ---- what a register holds -------------------------------------------------------------------


def _register(text: str, instruction: Form, lane: int | None) -> Answer:
    name = re.fullmatch(r"([a-z])(\d{1,3})", text.lower())
    layout = next((o for o in instruction.operands if name and o.operand == name[1].upper()), None)
    if not name or not layout or int(name[2]) >= layout.registers_per_lane:
        known = ", ".join(
            f"{o.operand.lower()}0 to {o.operand.lower()}{o.registers_per_lane - 1}"
            if o.registers_per_lane > 1
            else f"{o.operand.lower()}0"
            for o in instruction.operands
        )
        raise PtxlabError(f"{instruction.name} has no register {text!r}", hint=f"it has {known}")
    number = int(name[2])
    return (
        lambda: register_text(instruction, layout, number, lane),
        lambda: register_json(instruction, layout, number, lane),
    )


def register_text(
    instruction: Form, layout: FragmentLayout, register: int, lane: int | None
) -> str:
    """Return what every lane, or one, holds in a register, with the bits of each element."""
    name = f"{layout.operand.lower()}{register}"
    parts = slots(layout)
    lines = [
        title(instruction),
        f"{name}: a register of {layout.register_bits} bits, {_contents(layout)}",
    ]
    inside = parts[0]
    if inside.data_bits < inside.bits:
        first = inside.data_low - inside.low
        lines.append(
            f"of the {inside.bits} bits of an element, bits {first + inside.data_bits - 1} to {first} "
            f"are the number"
        )
    rows = [[layout.holder, *(f"[{bit_range(slot)}]" for slot in parts)]]
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
    lanes = range(layout.threads) if lane is None else [lane]
    return {
        **start(REGISTER, instruction),
        "operand": layout.operand,
        "register": register,
        "dtype": layout.dtype,
        "slots": [
            {
                **bits_json(slot),
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


# ---- the closed formulas ----------------------------------------------------------------------


def formula_text(instruction: Form, selection: Selection) -> str:
    """Return the closed formulas of the operands that are selected, from place to element and back."""
    holder = instruction.operands[0].holder
    derived = f"derived from the layout, bit by bit; true for every {holder}"
    blocks = [f"{title(instruction)}\n{derived}"]
    for layout in selection.operands(instruction):
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


def formula_json(instruction: Form, selection: Selection) -> dict[str, Any]:
    return {
        **start(FORMULA, instruction),
        "operands": {
            layout.operand: {
                "element": _fields_json(of_fragment(layout)),
                "place": _fields_json(of_fragment(layout).inverse()),
            }
            for layout in selection.operands(instruction)
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
