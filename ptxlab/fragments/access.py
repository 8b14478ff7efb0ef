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
    ``reg`` and element; PTX is for this one, and takes the registers that its first line names. Nothing
    is said of elements smaller than a byte, nor of a warp that holds several matrices.
    """
    if layout.bits < _BYTE or layout.matrices > 1:
        return []
    row, col = layout.table()[place].tolist()
    memory = f"in row-major memory of ld{layout.operand.lower()} elements a row"
    return [
        f"{layout.operand}[{row},{col}] {memory}, in CUDA C++ and in PTX",
        f"  {cuda(layout)}",
        *(f"  {line}" for line in ptx(layout, place)),
    ]


def cuda(layout: FragmentLayout) -> str:
    """Return the C++ expression of an element, by ``lane`` (or ``thread``), ``reg`` and ``element``."""
    row, col, *_ = of_fragment(layout).outputs
    name = layout.operand.lower()
    return f"{name}[({c_expression(row)}) * ld{name} + {c_expression(col)}]"


def ptx(layout: FragmentLayout, place: Place) -> list[str]:
    """Return the PTX that moves the element at ``place`` between memory and its register."""
    name, slot = layout.operand.lower(), slots(layout)[place.element]
    row, col, *_ = of_fragment(layout).outputs
    known = {"register": place.register, "element": place.element}
    register = f"{name}{place.register}"
    whole = slot.bits == layout.register_bits
    value = register if whole else "part"
    bits = f"bits {slot.low + slot.bits - 1}:{slot.low} of {register}"
    declared = "" if whole else f" .reg .b{max(16, slot.bits)} part;"
    move = "st" if layout.operand == "D" else "ld"
    operands = f"[at], {value}" if move == "st" else f"{value}, [at]"
    return [
        f"// takes .b32 {layout.holder}, ld{name} and .u64 {name}"
        + (f"; part is {bits}" if not whole else ""),
        f".reg .b32 bits, row, col; .reg .u64 at;{declared}",
        *_assigned(row, known),
        *_assigned(col, known),
        f"mad.lo.u32 row, row, ld{name}, col;",
        f"mad.wide.u32 at, row, {slot.bits // _BYTE}, {name};",
        f"{move}.global.b{slot.bits} {operands};",
    ]


def _assigned(output: Assignment, known: dict[str, int]) -> list[str]:
    """Return the statements for a number out, with the numbers in that are ``known`` worked out."""
    constant = 0
    for field in output.fields:
        constant ^= field.take(known.get(field.source, 0))
    left = tuple(field for field in output.fields if field.source not in known)
    return [*ptx_assignment(replace(output, fields=left), constant)]
