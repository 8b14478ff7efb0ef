"""The index arithmetic of a fragment as source code, generated from its bit fields.

For each operand two functions, ``a_element`` from a place to an element and ``a_place`` back, in
CUDA C++, Python, or as blocks of PTX to put into a kernel, which take and give registers by name (PTX
functions could return but one value). In C++ a register is called ``reg``: ``register`` is a keyword.
And for one element the line of C++ and of PTX that loads it from row-major memory, or stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ptxlab.matrix.bit_fields import Assignment, BitFields, of_fragment
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place, slots

_RENAMED = {"register": "reg"}


def code(instruction: Form, language: str, operand: str | None = None) -> str:
    """Return the source text, in ``cuda``, ``ptx`` or ``python``, for an operand or all different ones.

    Of all, D is left out where its layout is that of C.
    """
    write = LANGUAGES[language]
    mark = "#" if language == "python" else "//"
    holder = instruction.operands[-1].holder
    parts = [f"{mark} {instruction.name}: which {holder} holds which element"]
    if instruction.family == "wmma":
        parts[0] += f"\n{mark} (on ptxlab's emulator: PTX leaves the layout open)"
    operands = instruction.operands if operand is None else (instruction.operand(operand),)
    for layout in _different(operands):
        name = layout.operand.lower()
        there = of_fragment(layout)
        size = f"{layout.rows} x {layout.cols} of {layout.dtype}"
        parts.append(
            write(f"{name}_element", there, f"{layout.operand}, {size}: what a {holder} holds")
        )
        what = f"{layout.operand}, {size}: who holds an element"
        parts.append(write(f"{name}_place", there.inverse(), what))
    return "\n\n".join(parts) + "\n"


def _different(operands: Sequence[FragmentLayout]) -> Iterator[FragmentLayout]:
    seen = set()
    for layout in operands:
        like = "C" if layout.operand == "D" else layout.operand
        if (like, layout.kind, layout.bits) not in seen:
            yield layout
        seen.add((like, layout.kind, layout.bits))


def _python(name: str, fields: BitFields, what: str) -> str:
    lines = [f"def {name}({', '.join(v.name for v in fields.inputs)}):", f'    """{what}."""']
    lines += [f"    {o.variable.name} = {o.expression}" for o in fields.outputs]
    results = ", ".join(o.variable.name for o in fields.outputs)
    return "\n".join([*lines, f"    return {results}"])


def _cuda(name: str, fields: BitFields, what: str) -> str:
    sources = [f"unsigned {_c(v.name)}" for v in fields.inputs]
    results = [f"unsigned &{_c(o.variable.name)}" for o in fields.outputs]
    lines = [f"// {what}", "__device__ __forceinline__", f"void {name}({', '.join(sources)},"]
    lines.append(f"{'':{len(name) + 6}}{', '.join(results)})")
    body = [f"    {_c(o.variable.name)} = {c_expression(o)};" for o in fields.outputs]
    return "\n".join([*lines, "{", *body, "}"])


def _c(name: str) -> str:
    return _RENAMED.get(name, name)


def c_expression(output: Assignment) -> str:
    """Return the formula of a number out in C++."""
    text = output.expression
    for name, other in _RENAMED.items():
        text = text.replace(name, other)
    return text


def _ptx(name: str, fields: BitFields, what: str) -> str:
    sources = ", ".join(v.name for v in fields.inputs)
    results = ", ".join(o.variable.name for o in fields.outputs)
    lines = [f"// {name}: {what}", f"// takes .b32 {sources}; gives .b32 {results}", "{"]
    lines.append("    .reg .b32 bits;")
    for output in fields.outputs:
        lines += [f"    {line}" for line in ptx_assignment(output)]
    return "\n".join([*lines, "}"])


def ptx_assignment(output: Assignment, constant: str = "0") -> Iterator[str]:
    """Yield the statements, which use a register ``bits``; they begin with a ``constant``."""
    name = output.variable.name
    yield f"mov.b32 {name}, {constant};"
    for field in output.fields:
        yield f"bfe.u32 bits, {field.source}, {field.low}, {field.bits};"
        if field.to:
            yield f"shl.b32 bits, bits, {field.to};"
        yield f"xor.b32 {name}, {name}, bits;"


LANGUAGES: dict[str, Callable[[str, BitFields, str], str]] = {
    "cuda": _cuda,
    "ptx": _ptx,
    "python": _python,
}
"""How each language writes one function: name, bit fields, and what it answers."""


# ---- loads and stores of an element -------------------------------------------------------------


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
