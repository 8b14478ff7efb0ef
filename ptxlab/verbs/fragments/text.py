"""A FragmentReport as text and as JSON (schema ``ptxlab.fragments/1``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.fragments.numbers import decode
from ptxlab.fragments.query import Held, Selection, select
from ptxlab.fragments.report import FragmentReport, Mismatch, element_bits
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, RegisterPlace, slots
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.view.colour import Paint, plain
from ptxlab.view.runs import register_name
from ptxlab.view.tables import by_register
from ptxlab.view.text import OPEN, aligned, fields, grid, hexadecimal, number

Array = npt.NDArray[Any]

SCHEMA = "ptxlab.fragments/1"
LEFT_TO_IT = "which lane holds what is left to the GPU"
OWN = "the device's own, which PTX leaves open; these are ptxlab's"
_VALUES = 4
"""Of so many elements of a register, at most, the values are shown."""


def text(report: FragmentReport, selection: Selection, paint: Paint = plain) -> str:
    """Return the verdict, any mismatches, and each operand by lane and as a coloured matrix."""
    parts = [_header(report)]
    if report.mismatches:
        parts.append(_mismatches(report))
    if selection.element is not None:
        parts.append([_sentence(held) for held in select(report, selection)])
    else:
        for layout in report.instruction.operands:
            parts.append(_by_lane(report, layout, selection))
            parts.append(owners(layout, selection, paint))
        if report.shown.result is not None:
            layout = report.instruction.operand("D")
            parts.append(_result(layout, report.shown.result, selection, paint))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def as_json(report: FragmentReport, selection: Selection) -> dict[str, Any]:
    """Return the report as JSON data. A selection that leaves something out adds ``selection``."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "instruction": report.instruction.name,
        "device": report.device_kind,
        "arch": report.target.name,
        "fill": report.shown.fill,
        "operands": {
            layout.operand: {
                "rows": layout.rows,
                "cols": layout.cols,
                "dtype": layout.dtype,
                "bits": layout.bits,
                "matrices": layout.matrices,
                "registers": layout.registers_per_lane,
                "map": layout.table().tolist(),
                "dump": [
                    [hexadecimal(int(word), layout.register_bits) for word in lane]
                    for lane in report.shown.registers[layout.operand]
                ],
            }
            for layout in report.instruction.operands
        },
        "verified": {
            "layout": report.layout_verified,
            "result": report.result_verified,
            "hardware": report.hardware,
        },
        "mismatches": [
            mismatch_json(report.instruction, mismatch) for mismatch in report.mismatches
        ],
    }
    if not selection.everything:
        data["selection"] = [_held_json(held) for held in select(report, selection)]
    return data


def _header(report: FragmentReport) -> list[str]:
    instruction = report.instruction
    major, minor = instruction.minimum_ptx
    wheres = [mismatch.where for mismatch in report.mismatches]
    bad_layout = sum(where != "memory" for where in wheres)
    bad_results = sum(where != "register" for where in wheres)
    *first, last = dict.fromkeys(run.fill for run in report.runs)
    fills = f"{', '.join(first)} and {last}" if first else last
    probes = f"{report.probes} generated probe{'s' * (report.probes > 1)}"
    checked = f"({probes})" if report.probes else f"({fills} inputs)"
    layout = _verdict(bad_layout, "every register of every lane", checked)
    result = "every element of D" if report.shown.result is not None else "everything it left"
    return [
        instruction.name,
        *([OPEN] if instruction.layout_open and not report.own_layout else []),
        *fields(
            [
                ("PTX ISA", instruction.section),
                ("needs", f"{instruction.minimum_target}, PTX {major}.{minor}"),
                ("device", report.device_name),
                ("target", report.target.name),
                ("layout", OWN if report.own_layout else layout),
                ("result", _verdict(bad_results, result, checked)),
                ("hardware", _hardware(report)),
            ]
        ),
    ]


def _verdict(wrong: int, everything: str, checked: str) -> str:
    if wrong:
        return f"WRONG: {wrong} element{'s' * (wrong > 1)} not as predicted {checked}"
    return f"verified: {everything} is as predicted {checked}"


def _hardware(report: FragmentReport) -> str:
    if report.hardware is None:
        return "unverified on hardware: no register dump of a GPU is on record"
    if report.instruction.layout_open:
        return f"verified on {report.hardware} from memory to memory; {LEFT_TO_IT}"
    return f"verified by a register dump of {report.hardware}"


def _mismatches(report: FragmentReport) -> list[str]:
    head = ("fill", "operand", "where", "lane", "register", "element", "bits", "row", "col")
    rows: list[tuple[str, ...]] = [(*head, "expected", "found")]
    for m in report.mismatches:
        layout = report.instruction.operand(m.shown_by)
        numbers = (m.lane, m.register, m.element, f"{m.high_bit}:{m.low_bit}", m.row, m.col)
        shown = (_value(layout, m.expected), _value(layout, m.found))
        rows.append((m.fill, m.operand, m.where, *map(str, numbers), *shown))
    return ["mismatches", *aligned(rows)]


def _by_lane(report: FragmentReport, layout: FragmentLayout, selection: Selection) -> list[str]:
    """Return the elements and values each lane holds, in the order of its registers."""
    words = report.shown.registers[layout.operand]
    table = by_register(layout, selection.has)
    packed, count = layout.elements_per_register, layout.registers_per_lane
    width = len(_contents(layout, 0))
    rows = [[table.head[0], *(cell for name in table.head[1:] for cell in (name, *[""] * width))]]
    for lane, *held in table.lines:
        pairs = zip(held, words[int(lane)], strict=True)
        rows.append([lane, *(c for e, word in pairs for c in (e, *_contents(layout, int(word))))])
    pack = f", {packed} elements in each" if packed > 1 else ""
    when = "after" if layout.operand in report.shown.after else "before"
    first = ", low bits first" if packed > 1 else ""
    return [
        f"{layout.operand}: {_size(report, layout)}, {layout.dtype}; registers {when} the instruction",
        f"{count} register{'s' * (count > 1)} a lane{pack}: row,column and what it held{first}",
        *aligned(rows),
    ]


def _contents(layout: FragmentLayout, word: int) -> list[str]:
    """Return the values of a register, low bits first; of many small ones the bits of all."""
    packed = layout.elements_per_register
    if packed > _VALUES:
        return [hexadecimal(word, layout.register_bits)]
    return [_value(layout, element_bits(layout, word, i)) for i in range(packed)]


def owners(layout: FragmentLayout, selection: Selection, paint: Paint) -> list[str]:
    """Return the matrix, or matrices, with in each cell the lane and register that hold the element."""
    width = len(f"{layout.threads - 1}:{register_name(layout, layout.registers_per_lane - 1)}")
    cells = np.full((layout.matrices, layout.rows, layout.cols), "", dtype=f"U{width}")
    for (lane, register, _), (row, col) in _places(layout):
        if not cells[layout.matrix(lane), row, col]:  # of copies the first
            cells[layout.matrix(lane), row, col] = f"{lane}:{register_name(layout, register)}"
    title = f"{layout.operand}: {layout.holder} and register that hold each element"
    return _grids(layout, title, cells, selection, paint)


def _result(layout: FragmentLayout, result: Array, selection: Selection, paint: Paint) -> list[str]:
    """Return D as the program stored it, each cell in the colour of the lane that holds it."""
    stored = decode(layout, result).reshape(-1, layout.rows, layout.cols)
    cells = [[[number(value) for value in row] for row in matrix] for matrix in stored]
    return _grids(layout, "D: as the program stored it", np.array(cells), selection, paint)


def _grids(
    layout: FragmentLayout, title: str, cells: Array, selection: Selection, paint: Paint
) -> list[str]:
    """Return one grid a matrix, each under the title."""
    lines: list[str] = []
    for matrix, each in enumerate(cells):
        which = f", matrix {matrix}" if layout.matrices > 1 else ""
        lanes = {
            element: place.lane
            for place, element in _places(layout)
            if layout.matrix(place.lane) == matrix
        }
        head, *rows = grid(each.tolist(), lanes, paint, selection.has)
        if rows:
            lines += [*([""] if lines else []), f"{title}{which}", head, *rows]
    return lines


def _places(layout: FragmentLayout) -> Iterator[tuple[RegisterPlace, tuple[int, int]]]:
    """Yield every place of a fragment with the (row, col) it holds."""
    for place in np.ndindex(layout.table().shape[:3]):
        row, col = layout.table()[place]
        yield RegisterPlace(*place), (int(row), int(col))


def _sentence(held: Held) -> str:
    value = f"{_value(held.layout, held.bits)} ({hexadecimal(held.bits, held.layout.bits)})"
    return f"{where(held.layout, held.place)} and holds {value}"


def where(layout: FragmentLayout, place: RegisterPlace) -> str:
    """Say which lane, register and bits hold an element, and which of the bits are the number."""
    row, col = layout.table()[place].tolist()
    slot = slots(layout)[place.element]
    bits = f"bits {slot.low + slot.bits - 1}:{slot.low}" if slot.bits > 1 else f"bit {slot.low}"
    if slot.data_bits < slot.bits:
        bits += f" (the number in {slot.data_low + slot.data_bits - 1}:{slot.data_low})"
    return (
        f"{layout.operand}[{row},{col}] is in {layout.holder} {place.lane}, register "
        f"{register_name(layout, place.register)}, element {place.element}, {bits}"
    )


def _size(report: FragmentReport, layout: FragmentLayout) -> str:
    multiplies = isinstance(report.instruction, MatrixInstruction)
    names = {"A": "m x k", "B": "k x n"}.get(layout.operand, "m x n") if multiplies else ""
    several = f"{layout.matrices} times " if layout.matrices > 1 else ""
    return f"{several}{layout.rows} x {layout.cols}" + (f" ({names})" if names else "")


def _value(layout: FragmentLayout, bits: int) -> str:
    return number(decode(layout, np.array([bits]))[0])


def _held_json(held: Held) -> dict[str, Any]:
    return {
        "operand": held.layout.operand,
        **place_json(held.layout, held.place),
        "bits": hexadecimal(held.bits, held.layout.bits),
    }


def place_json(layout: FragmentLayout, place: RegisterPlace) -> dict[str, Any]:
    """Return as JSON data where an element is, with the bits of its container, and which it is."""
    slot = slots(layout)[place.element]
    row, col = layout.table()[place].tolist()
    bits = {"low_bit": slot.low, "high_bit": slot.low + slot.bits - 1}
    return {**place._asdict(), **bits, "row": row, "col": col}


def mismatch_json(instruction: Form, mismatch: Mismatch) -> dict[str, Any]:
    """Return a mismatch as JSON data: the bits of the register, and what they should say and do."""
    bits = instruction.operand(mismatch.shown_by).bits
    return {
        "fill": mismatch.fill,
        "where": mismatch.where,
        "operand": mismatch.operand,
        "lane": mismatch.lane,
        "register": mismatch.register,
        "element": mismatch.element,
        "low_bit": mismatch.low_bit,
        "high_bit": mismatch.high_bit,
        "row": mismatch.row,
        "col": mismatch.col,
        "expected": hexadecimal(mismatch.expected, bits),
        "found": hexadecimal(mismatch.found, bits),
    }
