"""The text of a function as one list of instructions: what it declares is known, nested blocks are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.scope import (
    MOST_LOCAL_BYTES,
    Scope,
    Variable,
    aligned,
    alignment_of,
    declare_registers,
    declared_variable,
    element_bytes,
    registers_in,
    size_of,
)
from ptxlab.syntax import tree
from ptxlab.syntax.functions import parameters

_UNDECLARING = (tree.Instruction, tree.Label, tree.Block, tree.Loc, tree.Pragma)
"""Statements after which a block knows the same names."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The registers that a device function is given ``arguments`` in and gives ``results`` in."""

    arguments: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlatFunction:
    """The instructions of a function in order, each with the scope it stands in.

    ``labels`` are positions among them, ``local_bytes`` the memory that its local variables take.
    """

    instructions: Sequence[tuple[tree.Instruction, Scope]]
    labels: Sequence[tuple[Scope, str, int]]
    local_bytes: int


def declare_signature(context: Context, function: tree.Function, scope: Scope) -> Signature:
    """Declare what a function is given and returns: a kernel has parameters, each at its place, no registers."""
    if function.is_entry:
        given = zip(parameters(function), function.parameters, strict=True)
        for parameter, declaration in given:
            (declarator,) = declaration.names
            scope.variables[declarator.name] = Variable(
                *("param", declarator.name, parameter.offset, parameter.size),
                element=element_bytes(declaration, declarator),
            )
    arguments, results = (
        tuple(slot for each in declarations for slot in _passed_in(context, scope, each, space))
        for declarations, space in (
            (() if function.is_entry else function.parameters, "given"),
            (function.results, "returned"),
        )
    )
    return Signature(arguments, results)


def _passed_in(
    context: Context, scope: Scope, declaration: tree.Declaration, space: str
) -> list[int]:
    """Declare a parameter or result of a device function and return its registers."""
    [declarator] = declaration.names
    if declaration.space != "reg":
        return [_declare_passed(context, scope, declaration, declarator, space).offset]
    declare_registers(scope, declaration, context.new_slot)
    count, name = registers_in(declaration), declarator.name
    names = [name] if count == 1 else [f"{name}.{x}" for x in "xyzw"[:count]]
    slots = [scope.registers[each].slot for each in names]
    context.pinned.update(slots)
    return slots


def _declare_passed(
    context: Context,
    scope: Scope,
    declaration: tree.Declaration,
    declarator: tree.Declarator,
    space: str,
) -> Variable:
    """Declare a ``.param`` variable of a call or a function, which is a register."""
    size = size_of(declaration, declarator)
    if size > MOST_LOCAL_BYTES:
        what = f".param variable '{declarator.name}' of {size} bytes"
        context.refuse(what, declaration)
    slot = context.argument_slot(size)
    variable = replace(
        declared_variable(declaration, declarator, slot), space=space, type=declaration.type
    )
    scope.variables[declarator.name] = variable
    return variable


def flatten(context: Context, function: tree.Function, scope: Scope) -> FlatFunction:
    """Declare what a function declares, and take its instructions out of their nested blocks."""
    flattening = _Flattening(context, function.name)
    flattening.take(function.body or (), Scope(scope))
    return FlatFunction(flattening.instructions, flattening.labels, flattening.local_bytes)


class _Flattening:
    def __init__(self, context: Context, function: str) -> None:
        self.context = context
        self.function = function
        self.instructions: list[tuple[tree.Instruction, Scope]] = []
        self.labels: list[tuple[Scope, str, int]] = []
        self.local_bytes = 0

    def take(self, statements: Sequence[tree.Statement], block: Scope) -> None:
        """Take the statements of a block. What it declares is known from there on, its labels everywhere."""
        scope, known_to = block, len(self.instructions)
        for statement in statements:
            if not isinstance(statement, _UNDECLARING) and known_to < len(self.instructions):
                scope, known_to = Scope(scope), len(self.instructions)
            match statement:
                case tree.Instruction():
                    self.context.begin(statement, scope)
                    self.instructions.append((self.context.plain(statement), scope))
                case tree.Label():
                    self.labels.append((block, statement.name, len(self.instructions)))
                case tree.Declaration():
                    self._declare(scope, statement)
                case tree.Block():
                    self.take(statement.statements, Scope(scope))
                case tree.BranchTargets() | tree.CallTargets() | tree.CallPrototype():
                    scope.tables[statement.label] = statement

    def _declare(self, scope: Scope, declaration: tree.Declaration) -> None:
        if declaration.space == "reg":
            declare_registers(scope, declaration, self.context.new_slot)
            return
        for declarator in declaration.names:
            match declaration.space:
                case "global" | "const":
                    variable = self._module_variable(declaration, declarator)
                    scope.variables[declarator.name] = variable
                case "param":
                    _declare_passed(self.context, scope, declaration, declarator, "call")
                case "shared":
                    variable = declared_variable(declaration, declarator)
                    scope.variables[declarator.name] = variable
                    self.context.needs_place(variable)  # even if nothing names it, as in ptxas
                case "local":
                    self._local_variable(scope, declaration, declarator)
                case space:
                    what = f".{space} variable '{declarator.name}' inside a function"
                    self.context.refuse(what, declaration)

    def _local_variable(
        self, scope: Scope, declaration: tree.Declaration, declarator: tree.Declarator
    ) -> None:
        offset = aligned(self.local_bytes, alignment_of(declaration))
        variable = declared_variable(declaration, declarator, offset)
        scope.variables[declarator.name] = variable
        self.local_bytes = offset + variable.size

    def _module_variable(
        self, declaration: tree.Declaration, declarator: tree.Declarator
    ) -> Variable:
        """Declare a variable that lives as long as the module, of which only this function knows."""
        key = f"{self.function}.{declarator.name}"
        program = self.context.program
        if key in program.variables:
            self.context.refuse(f"a second variable '{declarator.name}' in a function", declaration)
        if program.shared is not None:
            what = f"variable '{declarator.name}' of a function called by an address from elsewhere"
            self.context.refuse(what, declaration)
        program.variables[key] = declaration, declarator
        return replace(declared_variable(declaration, declarator), name=key)
