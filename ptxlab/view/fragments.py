"""A FragmentReport as text and as JSON (schema ``ptxlab.fragments/1``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxlab.fragments.compare import element_bits
from ptxlab.fragments.query import Held, Selection, select
from ptxlab.fragments.report import FragmentReport, Mismatch
from ptxlab.isa import LANES, TYPES, FragmentLayout, Place
from ptxlab.view.colour import Paint, plain
from ptxlab.view.text import aligned, fields, number, values

SCHEMA = "ptxlab.fragments/1"


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
            parts.append(_owners(layout, selection, paint))
        parts.append(_result(report, selection, paint))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def as_json(report: FragmentReport, selection: Selection) -> dict[str, Any]:
    """Return the report as JSON data. A selection that leaves something out adds ``selection``."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "instruction": report.instruction.name,
        "device": report.device_kind,
        "arch": report.target.name,
        "fill": report.shown.inputs.fill,
        "operands": {
            layout.operand: {
                "rows": layout.rows,
                "cols": layout.cols,
                "dtype": layout.dtype,
                "bits": layout.bits,
                "registers": layout.registers_per_lane,
                "map": layout.table().tolist(),
                "dump": [
                    [_hex(int(word), layout.register_bits) for word in lane]
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
        "mismatches": [_mismatch_json(report, mismatch) for mismatch in report.mismatches],
    }
    if not selection.everything:
        data["selection"] = [_held_json(held) for held in select(report, selection)]
    return data


def _header(report: FragmentReport) -> list[str]:
    instruction = report.instruction
    major, minor = instruction.minimum_ptx
    bad_registers = sum(mismatch.where == "register" for mismatch in report.mismatches)
    bad_results = len(report.mismatches) - bad_registers
    fills = " and ".join(dict.fromkeys(run.inputs.fill for run in report.runs))
    checked = f"({fills} inputs)"
    return [
        instruction.name,
        *fields(
            [
                ("PTX ISA", instruction.section),
                ("needs", f"{instruction.minimum_target}, PTX {major}.{minor}"),
                ("device", report.device_name),
                ("target", report.target.name),
                ("layout", _verdict(bad_registers, "every register of every lane", checked)),
                ("result", _verdict(bad_results, "every element of D", checked)),
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
    return f"verified by a register dump of {report.hardware}"


def _mismatches(report: FragmentReport) -> list[str]:
    head = ("fill", "operand", "where", "lane", "register", "element", "row", "col")
    rows: list[tuple[str, ...]] = [(*head, "expected", "found")]
    for m in report.mismatches:
        layout = report.instruction.operand(m.operand)
        numbers = (m.lane, m.register, m.element, m.row, m.col)
        shown = (_value(layout, m.expected), _value(layout, m.found))
        rows.append((m.fill, m.operand, m.where, *map(str, numbers), *shown))
    return ["mismatches", *aligned(rows)]


def _by_lane(report: FragmentReport, layout: FragmentLayout, selection: Selection) -> list[str]:
    """Return the values each lane holds, in the order of its registers, low elements first."""
    words = report.shown.registers[layout.operand]
    names = [_register(layout, register) for register in range(layout.registers_per_lane)]
    packed = layout.elements_per_register
    rows = [["lane", *(name if i == 0 else "" for name in names for i in range(packed))]]
    for lane in range(LANES):
        if selection.lane in (None, lane):
            held = [
                element_bits(layout, int(word), i) for word in words[lane] for i in range(packed)
            ]
            rows.append([str(lane), *(_value(layout, bits) for bits in held)])
    pack = f", {packed} elements in each, low bits first" if packed > 1 else ""
    when = "after" if layout.operand == "D" else "before"
    return [
        f"{layout.operand}: {_size(layout)}, {layout.dtype}; registers {when} the instruction",
        f"{layout.registers_per_lane} registers a lane{pack}",
        *aligned(rows),
    ]


def _owners(layout: FragmentLayout, selection: Selection, paint: Paint) -> list[str]:
    """Return the matrix with, in each cell, the lane and register that hold the element."""
    width = len(f"{LANES - 1}:{_register(layout, layout.registers_per_lane - 1)}")
    cells = np.full((layout.rows, layout.cols), "", dtype=f"U{width}")
    for (lane, register, _), (row, col) in _places(layout):
        cells[row, col] = f"{lane}:{_register(layout, register)}"
    title = f"{layout.operand}: lane and register that hold each element"
    return [title, *_grid(layout, cells.tolist(), selection, paint)]


def _result(report: FragmentReport, selection: Selection, paint: Paint) -> list[str]:
    """Return D as the program stored it, each cell in the colour of the lane that holds it."""
    layout = report.instruction.operand("D")
    stored = values(report.shown.result, TYPES[layout.dtype].dtype)
    cells = [[number(value) for value in row] for row in stored]
    return ["D: as the program stored it", *_grid(layout, cells, selection, paint)]


def _grid(
    layout: FragmentLayout, cells: list[list[str]], selection: Selection, paint: Paint
) -> list[str]:
    """Return a matrix with its indices, each cell painted by lane; a dot is not selected."""
    width = max(len(cell) for line in cells for cell in line)
    edge = len(str(layout.rows - 1))
    lines = [" " * edge + "".join(f"  {col:>{width}}" for col in range(layout.cols))]
    lanes = {element: place.lane for place, element in _places(layout)}
    for row, line in enumerate(cells):
        painted = [
            paint(f"{cell:>{width}}", lanes[row, col])
            if selection.has(lanes[row, col], row, col)
            else f"{'.':>{width}}"
            for col, cell in enumerate(line)
        ]
        lines.append("  ".join([f"{row:>{edge}}", *painted]))
    return lines


def _places(layout: FragmentLayout) -> Iterator[tuple[Place, tuple[int, int]]]:
    """Yield every place of a fragment with the (row, col) it holds."""
    for place in np.ndindex(layout.table().shape[:3]):
        row, col = layout.table()[place]
        yield Place(*place), (int(row), int(col))


def _sentence(held: Held) -> str:
    layout, place = held.layout, held.place
    return (
        f"{layout.operand}[{held.row},{held.col}] is in lane {place.lane}, register "
        f"{_register(layout, place.register)}, element {place.element} and holds "
        f"{_value(layout, held.bits)} ({_hex(held.bits, layout.bits)})"
    )


def _size(layout: FragmentLayout) -> str:
    rows, cols = {"A": ("m", "k"), "B": ("k", "n")}.get(layout.operand, ("m", "n"))
    return f"{layout.rows} x {layout.cols} ({rows} x {cols})"


def _register(layout: FragmentLayout, register: int) -> str:
    return f"{layout.operand.lower()}{register}"


def _value(layout: FragmentLayout, bits: int) -> str:
    return number(values(np.array([bits]), TYPES[layout.dtype].dtype)[0])


def _hex(bits: int, width: int) -> str:
    return f"0x{bits:0{(width + 3) // 4}x}"


def _held_json(held: Held) -> dict[str, Any]:
    return {
        "operand": held.layout.operand,
        **held.place._asdict(),
        "row": held.row,
        "col": held.col,
        "bits": _hex(held.bits, held.layout.bits),
    }


def _mismatch_json(report: FragmentReport, mismatch: Mismatch) -> dict[str, Any]:
    bits = report.instruction.operand(mismatch.operand).bits
    return {
        "fill": mismatch.fill,
        "where": mismatch.where,
        "operand": mismatch.operand,
        "lane": mismatch.lane,
        "register": mismatch.register,
        "element": mismatch.element,
        "row": mismatch.row,
        "col": mismatch.col,
        "expected": _hex(mismatch.expected, bits),
        "found": _hex(mismatch.found, bits),
    }
