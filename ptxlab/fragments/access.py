"""How an element of a fragment is loaded from or stored to row-major memory: the line of C++ and of PTX.

Both follow from the layout's bit fields, as everything that ``ptxlab.fragments.code`` writes.
"""

from __future__ import annotations

from dataclasses import replace

from ptxlab.fragments.code import c_expression, ptx_assignment
from ptxlab.matrix.bit_fields import Assignment, of_fragment
from ptxlab.matrix.fragment import FragmentLayout, Place, slots

_BYTE = 8


def accesses(layout: FragmentLayout, place: Place) -> list[str]:
    """Return how the element at ``place`` of an operand is loaded, or of D stored.

    Memory is row-major, of ``ld`` elements a row. In C++ the expression holds for every register
    ``reg`` and element; PTX is for this one, and takes the registers that its first line names.
    """
    if not accessible(layout):
        return []
    row, col = layout.table()[place].tolist()
    memory = f"in row-major memory of ld{layout.operand.lower()} elements a row"
    return [
        f"{layout.operand}[{row},{col}] {memory}, in CUDA C++ and in PTX",
        f"  {cuda(layout)}",
        *(f"  {line}" for line in ptx(layout, place)),
    ]


def accessible(layout: FragmentLayout) -> bool:
    """Say whether elements are loaded and stored alone: whole bytes, of one matrix a warp."""
    return layout.bits >= _BYTE and layout.matrices == 1


def cuda(layout: FragmentLayout) -> str:
    """Return the C++ expression of an element, by ``lane`` (or ``thread``), ``reg`` and ``element``."""
    row, col, *_ = of_fragment(layout).outputs
    name = layout.operand.lower()
    return f"{name}[({c_expression(row)}) * ld{name} + {c_expression(col)}]"


def ptx(layout: FragmentLayout, place: Place) -> list[str]:
    """Return the PTX that moves the element at ``place`` between memory and its register."""
    slot = slots(layout)[place.element]
    row, col = layout.table()[0, place.register, place.element].tolist()
    numbers = {
        "row": row,
        "col": col,
        "register": place.register,
        "high": slot.low + slot.bits - 1,
        "low": slot.low,
    }
    return [line.format(**numbers) for line in template(layout)]


def template(layout: FragmentLayout) -> list[str]:
    """Return the PTX of any place of an operand.

    It leaves open the ``{register}``, the bits ``{high}`` to ``{low}`` of it, and where lane 0 has the
    element: its ``{row}`` and ``{col}``.
    """
    name, slot = layout.operand.lower(), slots(layout)[0]
    row, col, *_ = of_fragment(layout).outputs
    whole = slot.bits == layout.register_bits
    register = f"{name}{{register}}"
    value = register if whole else "part"
    declared = "" if whole else f" .reg .b{max(16, slot.bits)} part;"
    move = "st" if layout.operand == "D" else "ld"
    operands = f"[at], {value}" if move == "st" else f"{value}, [at]"
    return [
        f"// takes .b32 {layout.holder}, ld{name} and .u64 {name}"
        + ("" if whole else f"; part is bits {{high}}:{{low}} of {register}"),
        f".reg .b32 bits, row, col; .reg .u64 at;{declared}",
        *_assigned(row),
        *_assigned(col),
        f"mad.lo.u32 row, row, ld{name}, col;",
        f"mad.wide.u32 at, row, {slot.bits // _BYTE}, {name};",
        f"{move}.global.b{slot.bits} {operands};",
    ]


def _assigned(output: Assignment) -> list[str]:
    """Return the statements for a number out: that of lane 0, and what the bits of the lane add."""
    of_lane = (field for field in output.fields if field.source not in ("register", "element"))
    lines = ptx_assignment(replace(output, fields=tuple(of_lane)), f"{{{output.variable.name}}}")
    return list(lines)
