"""The layouts of an instruction that nothing here runs, as text and as JSON (``ptxlab.fragments/1``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.fragments import receipts
from ptxlab.fragments.query import Selection
from ptxlab.matrix.form import Form, SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, RegisterPlace
from ptxlab.matrix.trace import shared_place
from ptxlab.verbs.fragments.text import SCHEMA, owners, place_json, where
from ptxlab.view.colour import Paint, plain
from ptxlab.view.tables import by_register
from ptxlab.view.text import aligned, fields


def text(instruction: Form, selection: Selection, paint: Paint = plain) -> str:
    """Return what is known of each operand: by thread and as a coloured matrix, or one element."""
    parts = [_header(instruction)]
    if selection.element is not None:
        parts.append(
            [
                *(where(o, place) for o in instruction.operands for place in _at(o, selection)),
                *(_shared_sentence(o, selection) for o in instruction.shared if _has(o, selection)),
            ]
        )
    else:
        for layout in instruction.operands:
            table = by_register(layout, selection.has)
            parts.append([table.caption, *aligned([table.head, *table.lines])])
            parts.append(owners(layout, selection, paint))
        parts += [[_described(shared)] for shared in instruction.shared]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def as_json(instruction: Form, selection: Selection) -> dict[str, Any]:
    """Return the layouts as JSON data; there is no device, and no dump."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "instruction": instruction.name,
        "variant": instruction.variant or None,
        "device": None,
        "arch": None,
        "operands": {
            layout.operand: {
                "rows": layout.rows,
                "cols": layout.cols,
                "dtype": layout.dtype,
                "bits": layout.bits,
                "threads": layout.threads,
                "registers": layout.registers_per_lane,
                "map": layout.table().tolist(),
            }
            for layout in instruction.operands
        },
        "shared": {
            shared.operand: {
                "rows": shared.rows,
                "cols": shared.cols,
                "dtype": shared.dtype,
                "bits": shared.bits,
                "majors": list(shared.majors),
            }
            for shared in instruction.shared
        },
        "verified": {"layout": None, "result": None, "hardware": receipts.hardware(instruction)},
        "mismatches": [],
    }
    if not selection.everything:
        data["selection"] = [
            {"operand": layout.operand, **place_json(layout, place)}
            for layout in instruction.operands
            for place in _selected(layout, selection)
        ]
    return data


def _header(instruction: Form) -> list[str]:
    major, minor = instruction.minimum_ptx
    hardware = receipts.hardware(instruction)
    known = f"verified by a register dump of {hardware}" if hardware else "unverified on hardware"
    return [
        instruction.name,
        *fields(
            [
                ("PTX ISA", instruction.section),
                ("needs", f"{instruction.minimum_target}, PTX {major}.{minor}"),
                ("layout", f"that of the PTX ISA, {known}; nothing was run"),
            ]
        ),
    ]


def _shared_sentence(shared: SharedOperand, selection: Selection) -> str:
    row, col = selection.element or (0, 0)
    where = shared_place(shared, row, col).formula
    return f"{shared.operand}[{row},{col}] is in shared memory, {where} (along k, no swizzle)"


def _described(shared: SharedOperand) -> str:
    along = " or ".join(shared.majors).replace("mn", "m" if shared.operand == "A" else "n")
    return (
        f"{shared.operand} {shared.rows}×{shared.cols} {shared.dtype}: in shared memory, contiguous "
        f"along {along}, where its matrix descriptor says"
    )


def _has(shared: SharedOperand, selection: Selection) -> bool:
    row, col = selection.element or (0, 0)
    return row < shared.rows and col < shared.cols


def _at(layout: FragmentLayout, selection: Selection) -> Iterator[RegisterPlace]:
    """Yield the places of the selected element, none where the operand is too small for it."""
    row, col = selection.element or (0, 0)
    if row < layout.rows and col < layout.cols:
        yield from layout.registers(row, col)


def _selected(layout: FragmentLayout, selection: Selection) -> Iterator[RegisterPlace]:
    for lane, registers in enumerate(layout.table().tolist()):
        for register, elements in enumerate(registers):
            for i, (row, col) in enumerate(elements):
                if selection.has(lane, row, col):
                    yield RegisterPlace(lane, register, i)
