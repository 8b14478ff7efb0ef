"""What an instruction takes: every operand held against its class in the row of the operation.

A matrix instruction's operands are held against those that its table gives it.
"""

from __future__ import annotations

import re

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import matrix_form
from ptxlab.emulator.prepare.operand import OperandCheck
from ptxlab.emulator.prepare.row import CARRY, OperandClass, RowForm, RowKind
from ptxlab.matrix.form import UNTYPED, Form, SignatureOperand
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Address, Integer, Name, Operand, Pair, Vector

_ALTERNATE = re.compile(r"bf16(x2)?|tf32|u?e\d+m\d+(x\d)?")
_FOUR = re.compile(r"u?e\d+m\d+(p4)?x4")


def check_operands(context: Context, form: RowForm) -> None:
    """Check the guard and the operands of the instruction in hand.

    Raises PtxSyntaxError at one that cannot be. What stands behind a label, or the name of a function, is
    checked by who knows what it is.
    """
    shape = _shape(context)
    if shape in context.accepted:
        return
    guard = context.instruction.guard
    if guard is not None:
        name = Name(guard.name, position=guard.position)
        OperandCheck(context, OperandClass("pred", "special"), TYPES["pred"]).source(name)
    if form.matrix is not None:
        _check_signature(context, matrix_form(context, form))
    elif not any(kind.kind == "name" for kind in form.row.sources):
        _check_row(context, form)
    if shape is not None:
        context.accepted.add(shape)


def _shape(context: Context) -> tuple[object, ...] | None:
    """Return all that decides about an instruction of registers and constants, of others None.

    Most instructions of a program are like one before them, with other registers of the same types.
    """
    instruction = context.instruction
    names = () if instruction.guard is None else (Name(instruction.guard.name),)
    kinds = [_kind(context, operand) for operand in (*names, *instruction.operands)]
    if None in kinds:
        return None
    return instruction.opcode, instruction.modifiers, len(names), *kinds


def _kind(context: Context, operand: Operand) -> object:
    """Return the type of a register, of a vector those of its elements, a constant; of others None."""
    if isinstance(operand, Name):
        register = context.register(operand.text)
        return None if register is None else register.type
    if isinstance(operand, Integer):
        return operand.value
    if isinstance(operand, Address) and operand.base is not None and not operand.extra:
        kind = _kind(context, operand.base)
        return None if kind is None else ("address", kind)
    if isinstance(operand, Vector):
        kinds = tuple(_kind(context, element) for element in operand.elements)
        return None if None in kinds else kinds
    return None


def check_value(context: Context, operand: Operand, type_name: str) -> None:
    """Check a register or constant that is passed as, or stands for, a value of a type."""
    OperandCheck(context, OperandClass(type_name), TYPES[type_name]).source(operand)


def check_result(context: Context, operand: Operand, type_name: str) -> None:
    """Check a register, or ``_``, that takes a value of a type."""
    OperandCheck(context, OperandClass(type_name, optional=True), TYPES[type_name]).result(operand)


def _check_row(context: Context, form: RowForm) -> None:
    """Hold operands against the classes that the row of the operation gives."""
    instruction, row = context.instruction, form.row
    operands = list(instruction.operands)
    sources = [(c, t) for c, t in zip(row.sources, form.operands, strict=True) if t != CARRY]
    results = [(c, t) for c, t in zip(row.results, form.results, strict=True) if t != CARRY]
    if results:
        if not operands:
            context.reject(f"{instruction.name} needs operands")
        first = operands.pop(0)
        targets = [first.first, first.second] if isinstance(first, Pair) else [first]
        if len(targets) > len(results):
            context.reject(f"{instruction.name} has one result", first)
        for target, (kind, name) in zip(targets, results, strict=False):
            _of_row(context, form, kind, name).result(target)
        if len(results) > 2 and operands and not isinstance(operands[0], Address):
            _of_row(context, form, *results[2]).result(operands.pop(0))
    needed = [source for source in sources if not source[0].optional]
    if not len(needed) <= len(operands) <= len(sources):
        wanted = f"{len(needed)} to {len(sources)}" if needed != sources else len(needed)
        context.reject(f"{instruction.name} takes {wanted} source operands, found {len(operands)}")
    if len(operands) == len(needed):
        sources = needed
    for operand, (kind, name) in zip(operands, sources, strict=False):
        _of_row(context, form, kind, name).source(operand)


def _of_row(context: Context, form: RowForm, kind: OperandClass, name: str) -> OperandCheck:
    # The alternate formats, which no register is declared with, are told from their words alone. Where none may
    # be wider those of 16 bits stand beside other operands: a cache policy, a size.
    formats = _ALTERNATE if form.row.wider else _FOUR
    alternate = any(formats.fullmatch(part) for part in form.modifiers)
    untyped = UNTYPED if alternate else "integer"
    return OperandCheck(
        context,
        kind,
        TYPES[name],
        form.count(kind) if kind.vector else 0,
        braced=bool(kind.more),
        wider=form.row.wider and not alternate,
        rule="type" if name in form.modifiers else untyped,
        allowed=() if kind.allowed is None else (kind.allowed,),
        space=form[kind.space],
    )


def _check_signature(context: Context, form: Form) -> None:
    """Hold operands against those that its table gives a matrix instruction."""
    operands = context.instruction.operands
    signature = form.written([len(context.elements(operand)) for operand in operands])
    for operand, wanted in zip(context.operands(len(signature)), signature, strict=True):
        check = _of_signature(context, wanted)
        if wanted.role == "result":
            check.result(operand)
        if wanted.role != "result" or form.shared:  # what a product is added to is read too
            check.source(operand)


def _of_signature(context: Context, wanted: SignatureOperand) -> OperandCheck:
    untyped = wanted.holds == UNTYPED
    kind: RowKind = "value"
    if wanted.role in ("address", "tensor memory"):
        kind = wanted.role
    if wanted.role == "constant" and wanted.count == 1 and wanted.fixed:
        kind = "constant"
    return OperandCheck(
        context,
        OperandClass(wanted.type, kind),
        TYPES[wanted.type if untyped else wanted.holds or wanted.type],
        # The one register of metadata or scales may have braces all the same.
        wanted.count if wanted.braces else int(wanted.layout is None and wanted.type == "b32"),
        braced=wanted.braces,
        rule=UNTYPED if untyped else "type",
        allowed=wanted.allowed,
        about=f"{wanted.name} is {wanted.meaning}",
    )
