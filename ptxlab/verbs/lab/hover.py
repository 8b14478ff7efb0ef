"""What a word of PTX means where it stands: an instruction, what an operand holds, a name."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ptxlab.emulator.prepare.forms import form_of, reason
from ptxlab.emulator.prepare.row import CARRY, ROWS, RowForm, UnknownForm
from ptxlab.emulator.prepare.special import bits
from ptxlab.errors import nearest
from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.matrix.form import Form, SignatureOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.syntax.header import read_header
from ptxlab.syntax.tree import Function, Instruction, Integer, Label, Operand, PtxModule, Vector
from ptxlab.verbs.explain import plain
from ptxlab.verbs.explain.text import in_words, meaning
from ptxlab.verbs.explain.truth import expression
from ptxlab.verbs.fragments.runs import register_name
from ptxlab.verbs.fragments.svg import svg
from ptxlab.verbs.fragments.svg_operands import operand_svg
from ptxlab.verbs.lab.cursor import Word, instruction_at, module_of, word_at

Rows = list[tuple[str, str]]

_LINES = 6
"""So many lines are named at most of those that write or read a register."""


def hover(text: str, line: int, column: int) -> dict[str, Any] | None:
    """Return what stands at a place, counted from 1: a title, rows of a name and words, and a picture if it has one.

    ``from`` and ``to`` are the columns of the word. Returns None where nothing is known, as of what does not parse.
    """
    lines = text.split("\n")
    word = word_at(lines[line - 1], column) if 0 < line <= len(lines) else None
    if word is None:
        return None
    told = _told(text, word, line)
    if told is None:
        return None
    title, rows, picture = told
    return {"from": word.column, "to": word.end, "title": title, "rows": rows, "picture": picture}


_Told = tuple[str, Rows, str | None]


def _told(text: str, word: Word, line: int) -> _Told | None:
    if number := _number(word.text):
        return number
    width = bits(word.text)
    if width is not None:
        return word.text, [("is", f"a special register of {width} bits")], None
    module = module_of(text)
    at = module and instruction_at(module, line, word.column)
    if module is None or not at:
        return None
    function, site = at
    instruction = site.instruction
    if word.text in (instruction.name, instruction.opcode):
        return _instruction(instruction)
    if site.type_of(word.text) is not None:
        return _register(function, site, word.text)
    return _named(text, module, function, word.text)


def _number(word: str) -> _Told | None:
    """Return the value of a float that is written as its bits."""
    match = re.fullmatch(r"0([fF])([0-9a-fA-F]{8})|0([dD])([0-9a-fA-F]{16})", word)
    if match is None:
        return None
    form, digits = (">f", match[2]) if match[1] else (">d", match[4])
    [value] = struct.unpack(form, bytes.fromhex(digits))
    return word, [("is", f"{value!r}, as its {4 * len(digits)} bits")], None


# ---- an instruction -------------------------------------------------------------------------


def _instruction(instruction: Instruction) -> _Told:
    name = instruction.name
    try:
        form = form_of(instruction)
    except KeyError:
        near = nearest(instruction.opcode, ROWS, most=3)
        told = [("is", reason(name) or "nothing that ptxlab knows")]
        return name, [*told, *([("near", ", ".join(near))] if near else [])], None
    except UnknownForm as unknown:
        return name, [("is", f"no form of {instruction.opcode}: {unknown}")], None
    if form.matrix is not None:
        return _matrix(form.matrix)
    rows = [
        ("does", plain.meaning(instruction.opcode, form.row)),
        ("is", form.row.mix),
        *_types(form),
    ]
    if instruction.opcode == "lop3" and isinstance(table := instruction.operands[-1], Integer):
        rows.append(("here", f"d = {expression(table.value & 0xFF)}"))
    if form.row.fidelity == "model":
        rows.append(("bits", "the PTX ISA bounds the error; here it is rounded correctly"))
    return name, [*rows, *_needs(form)], None


def _types(form: RowForm) -> Iterator[tuple[str, str]]:
    for what, types in (("takes", form.operands), ("gives", form.results)):
        told = ["the carry" if name == CARRY else name for name in types]
        if told:
            yield what, ", ".join(told)


def _needs(form: RowForm) -> Iterator[tuple[str, str]]:
    needs = form.needs
    targets = [" or ".join(alternatives) for alternatives in needs.targets]
    version = [f"PTX {needs.ptx[0]}.{needs.ptx[1]}"] if needs.ptx > (1, 0) else []
    if targets or version:
        yield "needs", ", ".join([*targets, *version])


def _matrix(form: Form) -> _Told:
    layouts = [operand.layout for operand in form.signature if operand.layout is not None]
    holder = next((layout.holder for layout in layouts), "lane")
    rows = [
        ("computes", meaning(form)),
        ("PTX ISA", form.section),
        ("needs", f"{form.minimum_target}, PTX {form.version}"),
        *(in_words(operand, holder) for operand in form.signature),
    ]
    return form.name, rows, svg(form) if form.operands else None


# ---- an operand -----------------------------------------------------------------------------


def _register(function: Function, site: Scoped, name: str) -> _Told:
    rows = [("is", f"a register of type .{site.type_of(name)}")]
    layout, number = _fragment(site, name)
    if layout is not None:
        first = [f"{layout.operand}[{row},{col}]" for row, col in layout.table()[0][number]]
        rows += [
            ("holds", f"{layout.operand}, {layout.rows} x {layout.cols} of {layout.dtype}: "
             f"{register_name(layout, number)} of each {layout.holder}"),
            (f"{layout.holder} 0", " and ".join(first)),
        ]  # fmt: skip
    uses = [
        (each.instruction.position.line, name in _written(each))
        for each in instructions(function)
        if any(name in each.registers(operand) for operand in each.instruction.operands)
        or (each.instruction.guard is not None and each.instruction.guard.name == name)
    ]
    for what, lines in (
        ("written", [line for line, writes in uses if writes]),
        ("read", [line for line, writes in uses if not writes]),
    ):
        if lines:
            shown = ", ".join(map(str, dict.fromkeys(lines[:_LINES])))
            rows.append((what, f"line {shown}" + f" and {len(lines) - _LINES} more" * (len(lines) > _LINES)))  # fmt: skip
    return name, rows, None if layout is None else operand_svg(layout)


def _fragment(site: Scoped, name: str) -> tuple[FragmentLayout | None, int]:
    """Return which matrix a register of an instruction holds a part of, and its number there."""
    for operand, wanted in _signature(site.instruction):
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        registers = [site.registers(element) for element in elements]
        if wanted.layout is not None and [name] in registers:
            return wanted.layout, registers.index([name])
    return None, 0


def _signature(instruction: Instruction) -> Sequence[tuple[Operand, SignatureOperand]]:
    """Return the operands of a matrix instruction, each with what its table says of it; of others none."""
    try:
        form = form_of(instruction).matrix
    except (KeyError, UnknownForm):
        return ()
    if form is None:
        return ()
    operands = instruction.operands
    counts = [len(each.elements) if isinstance(each, Vector) else 1 for each in operands]
    return list(zip(operands, form.written(counts), strict=False))


def _written(site: Scoped) -> list[str]:
    """Return the registers that an instruction writes."""
    instruction = site.instruction
    try:
        form = form_of(instruction)
    except (KeyError, UnknownForm):
        return []
    if form.matrix is not None:
        results = [
            operand for operand, wanted in _signature(instruction) if wanted.role == "result"
        ]
    else:
        results = list(instruction.operands[:1]) if form.row.results else []
    return [register for operand in results for register in site.registers(operand)]


# ---- a name ---------------------------------------------------------------------------------


def _named(text: str, module: PtxModule, function: Function, name: str) -> _Told | None:
    for declaration in function.parameters:
        if any(declarator.name == name for declarator in declaration.names):
            about = read_header(text).parameters.get(name)
            rows = [("is", f"a parameter of {function.name}, of type .{declaration.type}")]
            return name, [*rows, *([("for", about)] if about else [])], None
    labels = {
        statement.name: statement.position.line
        for statement in function.body or ()
        if isinstance(statement, Label)
    }
    if name in labels:
        return name, [("is", f"the label of line {labels[name]}")], None
    for other in module.functions:
        if other.name == name:
            return name, [("is", f"the {'kernel' if other.is_entry else 'function'} of line {other.position.line}")], None  # fmt: skip
    return None
