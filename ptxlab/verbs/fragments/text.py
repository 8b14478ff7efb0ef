"""The fragments of an instruction as text and as JSON (schema ``ptxlab.fragments/1``): what a run of it showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.code import accesses
from ptxlab.fragments.numbers import OwnFill, decode
from ptxlab.fragments.report import FragmentReport, FragmentRun, Mismatch, element_bits
from ptxlab.matrix.form import Form, SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import shared_place
from ptxlab.matrix.wmma_observed import chips
from ptxlab.verbs.fragments.picture import owners, pictures
from ptxlab.verbs.fragments.runs import Selection, matrices, place_json, where
from ptxlab.verbs.fragments.tables import by_register
from ptxlab.view.colour import Paint, plain
from ptxlab.view.fidelity import NEAREST
from ptxlab.view.json import members
from ptxlab.view.text import OPEN, aligned, counted, fields, hexadecimal, number
from ptxlab.view.width import stacked

SCHEMA = "ptxlab.fragments/1"
LEFT_TO_IT = "which lane holds what is left to the GPU"
OWN = "the device's own, which PTX leaves open; these are ptxlab's"
_MISMATCHES = 8
"""How many mismatches are shown unless all are wanted."""
_VALUES = 4
"""Of so many elements of a register, at most, the values are shown."""


def text(
    report: FragmentReport,
    selection: Selection,
    paint: Paint = plain,
    *,
    full: bool = False,
    width: int | None = None,
) -> str:
    """Return the verdict, any mismatches, and who holds each element.

    ``full``, or of what is selected, it goes on with what every register held.
    """
    parts = [_header(report)]
    if report.mismatches:
        parts += [[*report.explained]] * bool(report.explained)
        parts.append(_mismatches(report, full))
    instruction = report.instruction
    operands = selection.operands(instruction)
    if selection.element is not None:
        held = [(o, place) for o in operands for place in selection.places(o)]
        sentences = [_sentence(report, layout, place) for layout, place in held]
        parts.append([*sentences, *_shared_sentences(instruction, *selection.element)])
        parts += _accesses(held, selection)
    elif selection.everything and not full:
        parts += [pictures(instruction, paint, width), _more(instruction)]
    else:
        for layout in operands:
            parts.append(_by_lane(report, layout, selection, width))
            parts.append(owners(layout, selection, paint, width))
        parts += [[_described(shared)] for shared in instruction.shared]
        if report.shown.result is not None and instruction.operand("D") in operands:
            layout = instruction.operand("D")
            parts.append(_result(layout, report.shown.result, selection, paint, width))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _accesses(
    held: Sequence[tuple[FragmentLayout, Place]], selection: Selection
) -> list[list[str]]:
    """Return how an element of a named operand is loaded or stored, where there is a line for it."""
    if selection.operand is None:
        return []
    return [lines for layout, place in held if (lines := accesses(layout, place))]


def _more(instruction: Form) -> list[str]:
    """Return what lies in shared memory, and how to see more than the picture."""
    first = instruction.operands[-1].operand
    options = f"--full, --operand {first}, --lane 5 or --element {first}[3,5]"
    return [*map(_described, instruction.shared), f"what the registers held: {options}"]


def as_json(report: FragmentReport, selection: Selection) -> dict[str, Any]:
    """Return the report as JSON data. A selection that leaves something out adds ``selection``."""

    def dump(layout: FragmentLayout) -> list[list[str]]:
        words = report.shown.registers[layout.operand].tolist()
        return [[hexadecimal(word, layout.register_bits) for word in lane] for lane in words]

    def bits(layout: FragmentLayout, place: Place) -> dict[str, str]:
        return {"bits": hexadecimal(report.bits(layout, place), layout.bits)}

    return {
        "schema": SCHEMA,
        "instruction": report.instruction.name,
        "variant": report.instruction.variant or None,
        "device": report.device_kind,
        "arch": report.target.name,
        "fidelity": report.instruction.fidelity_on(report.target),
        "fill": str(report.shown.fill),
        "operands": {
            layout.operand: _operand_json(layout, "matrices", "threads") | {"dump": dump(layout)}
            for layout in report.instruction.operands
        },
        "shared": _shared_json(report.instruction),
        "verified": {
            "layout": report.layout_verified,
            "result": report.result_verified,
            "hardware": report.hardware,
        },
        "explained": [*report.explained],
        "mismatches": [
            mismatch_json(report.instruction, mismatch) for mismatch in report.mismatches
        ],
        **_selected_json(report.instruction, selection, bits),
    }


def _header(report: FragmentReport) -> list[str]:
    instruction = report.instruction
    wheres = [mismatch.where for mismatch in report.mismatches]
    bad_layout = sum(where != "memory" for where in wheres)
    bad_results = sum(where != "register" for where in wheres)
    places = f"every register of every {instruction.operands[-1].holder}"
    if instruction.shared:
        places += " and every element in shared memory"
    layout = _verdict(bad_layout, places, _checked(report, report.runs))
    multiplied = [run for run in report.runs if not isinstance(run.fill, OwnFill)]
    result = "every element of D" if report.shown.result is not None else "everything it left"
    return [
        instruction.name,
        *([OPEN] if instruction.layout_open and not report.own_layout else []),
        *_seen(instruction),
        *fields(
            [
                *_needs(instruction),
                ("device", _device(report)),
                ("layout", OWN if report.own_layout else layout),
                ("result", _verdict(bad_results, result, _checked(report, multiplied))),
                *_bits(report),
                ("hardware", _hardware(report)),
            ]
        ),
    ]


def _checked(report: FragmentReport, runs: Sequence[FragmentRun]) -> str:
    """Say by what it was checked; of what one fills in oneself D is shown, and not compared."""
    if report.probes:
        return f"({counted(report.probes, 'generated probe')})"
    *first, last = dict.fromkeys(str(run.fill) for run in runs)
    return f"({', '.join(first)} and {last} inputs)" if first else f"({last} inputs)"


def _seen(instruction: Form) -> list[str]:
    """Say how fragments that PTX leaves open are seen as chips have them."""
    known = chips(instruction) if isinstance(instruction, MatrixInstruction) else ()
    return (
        [f"--observed {known[0]} shows what was seen of it there; also {', '.join(known[1:])}"]
        if known
        else []
    )


def _bits(report: FragmentReport) -> list[tuple[str, str]]:
    """Return what is to be known of other sums than those of probes, which are exact."""
    if report.instruction.fidelity_on(report.target) != "unverified":
        return []
    return [("bits", f"unverified: nobody has measured how sums are rounded, {NEAREST}")]


def _device(report: FragmentReport) -> str:
    name, target = report.device_name, report.target.name
    return name if target in name else f"{name}, {target}"


def _needs(instruction: Form) -> list[tuple[str, str]]:
    return [
        ("PTX ISA", instruction.section),
        ("needs", f"{instruction.minimum_target}, PTX {instruction.version}"),
    ]


def _verdict(wrong: int, everything: str, checked: str) -> str:
    if wrong:
        return f"WRONG: {counted(wrong, 'element')} not as predicted {checked}"
    return f"verified: {everything} is as predicted {checked}"


def _hardware(report: FragmentReport) -> str:
    if report.hardware is None:
        return "unverified on hardware: no register dump of a GPU is on record"
    if report.instruction.layout_open:
        return f"verified on {report.hardware} from memory to memory; {LEFT_TO_IT}"
    return f"verified by a register dump of {report.hardware}"


def _mismatches(report: FragmentReport, full: bool) -> list[str]:
    head = ("fill", "operand", "where", "lane", "register", "element", "bits", "row", "col")
    rows: list[tuple[str, ...]] = [(*head, "expected", "found")]
    first = report.mismatches if full else report.mismatches[:_MISMATCHES]
    for m in first:
        layout = report.instruction.operand(m.shown_by)
        where = ("-" if at is None else at for at in (m.lane, m.register, m.element))
        numbers = (*where, f"{m.high_bit}:{m.low_bit}", m.row, m.col)
        shown = (_value(layout, m.expected), _value(layout, m.actual))
        rows.append((m.fill, m.operand, m.where, *map(str, numbers), *shown))
    left = len(report.mismatches) - len(first)
    more = [f"... and {left} more; --full has them all"] * (left > 0)
    return ["mismatches", *aligned(rows), *more]


def _by_lane(
    report: FragmentReport, layout: FragmentLayout, selection: Selection, width: int | None
) -> list[str]:
    """Return the elements and values each lane holds, in the order of its registers."""
    words = report.shown.registers[layout.operand]
    table = by_register(layout, selection)
    packed, count = layout.elements_per_register, layout.registers_per_lane
    shown = len(_contents(layout, 0))
    rows = [[table.head[0], *(cell for name in table.head[1:] for cell in (name, *[""] * shown))]]
    for lane, *held in table.lines:
        pairs = zip(held, words[int(lane)], strict=True)
        rows.append([lane, *(c for e, word in pairs for c in (e, *_contents(layout, int(word))))])
    pack = f", {packed} elements in each" if packed > 1 else ""
    when = "after" if layout.operand in report.shown.after else "before"
    first = ", low bits first" if packed > 1 else ""
    return [
        f"{layout.operand}: {_size(report, layout)}, {layout.dtype}; registers {when} the instruction",
        f"{counted(count, 'register')} a lane{pack}: row,column and what it held{first}",
        *stacked(rows, width),
    ]


def _contents(layout: FragmentLayout, word: int) -> list[str]:
    """Return the values of a register, low bits first; of many small ones the bits of all."""
    packed = layout.elements_per_register
    if packed > _VALUES:
        return [hexadecimal(word, layout.register_bits)]
    return [_value(layout, element_bits(layout, word, i)) for i in range(packed)]


def _result(
    layout: FragmentLayout, result: Array, selection: Selection, paint: Paint, width: int | None
) -> list[str]:
    """Return D as the program stored it, each cell in the colour of the lane that holds it."""
    stored = decode(layout, result).reshape(-1, layout.rows, layout.cols)

    def value(matrix: int, place: Place, row: int, col: int) -> str:
        return number(stored[matrix, row, col])

    return matrices(layout, "D: as the program stored it", value, selection, paint, width)


def _sentence(report: FragmentReport, layout: FragmentLayout, place: Place) -> str:
    bits = report.bits(layout, place)
    value = f"{_value(layout, bits)} ({hexadecimal(bits, layout.bits)})"
    return f"{where(layout, place)} and holds {value}"


def _size(report: FragmentReport, layout: FragmentLayout) -> str:
    multiplies = isinstance(report.instruction, MatrixInstruction)
    names = {"A": "m x k", "B": "k x n"}.get(layout.operand, "m x n") if multiplies else ""
    several = f"{layout.matrices} times " if layout.matrices > 1 else ""
    return f"{several}{layout.rows} x {layout.cols}" + (f" ({names})" if names else "")


def _value(layout: FragmentLayout, bits: int) -> str:
    return number(decode(layout, np.array([bits]))[0])


def _operand_json(layout: FragmentLayout, *more: str) -> dict[str, Any]:
    return {
        **members(layout, "rows", "cols", "dtype", "bits", *more),
        "registers": layout.registers_per_lane,
        "map": layout.table().tolist(),
    }


def _shared_json(instruction: Form) -> dict[str, Any]:
    return {
        shared.operand: members(shared, "rows", "cols", "dtype", "bits", "majors")
        for shared in instruction.shared
    }


def _selected_json(
    instruction: Form,
    selection: Selection,
    more: Callable[[FragmentLayout, Place], dict[str, str]] = lambda layout, place: {},
) -> dict[str, Any]:
    """Return as ``selection`` where what is selected is, and ``more`` of it; nothing of everything."""
    if selection.everything:
        return {}
    return {
        "selection": [
            {"operand": layout.operand, **place_json(layout, place), **more(layout, place)}
            for layout in instruction.operands
            for place in selection.places(layout)
        ]
    }


def mismatch_json(instruction: Form, mismatch: Mismatch) -> dict[str, Any]:
    """Return a mismatch as JSON data: the bits of the register, and what they should say and do."""
    bits = mismatch.shown_bits(instruction)
    where = (
        "operand",
        "lane",
        "register",
        "element",
        "column",
        "low_bit",
        "high_bit",
        "row",
        "col",
    )
    return {
        **members(mismatch, "fill", "where", *where),
        "expected": hexadecimal(mismatch.expected, bits),
        "found": hexadecimal(mismatch.actual, bits),
    }


def _shared_sentences(instruction: Form, row: int, col: int) -> Iterator[str]:
    for shared in instruction.shared:
        if row < shared.rows and col < shared.cols:
            formula = shared_place(shared, row, col).formula
            yield (
                f"{shared.operand}[{row},{col}] is in shared memory, {formula} (along k, no swizzle)"
            )


def _described(shared: SharedOperand) -> str:
    along = " or ".join(shared.majors).replace("mn", "m" if shared.operand == "A" else "n")
    return (
        f"{shared.operand} {shared.rows}×{shared.cols} {shared.dtype}: in shared memory, contiguous "
        f"along {along}, where its matrix descriptor says"
    )
