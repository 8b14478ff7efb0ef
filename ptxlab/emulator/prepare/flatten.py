"""A function's body as a flat list of instructions, each with the scope it stands in.

Nested ``{ }`` only matter for names, so they are gone after this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.scope import Scope, Variable, declare_registers, size_of
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import (
    Block,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Instruction,
    Label,
    Statement,
)


@dataclass(slots=True)
class Body:
    """Instructions with their scopes, labels as positions in that list, and memory declared inside."""

    instructions: list[tuple[Instruction, Scope]] = field(default_factory=list)
    labels: list[tuple[Scope, str, int]] = field(default_factory=list)
    local_bytes: int = 0
    shared_bytes: int = 0


def flatten(context: Context, statements: tuple[Statement, ...], scope: Scope, shared: int) -> Body:
    """Return the body; its shared variables begin at offset ``shared``."""
    body = Body(shared_bytes=shared)
    _walk(context, body, statements, scope)
    return body


def _walk(context: Context, body: Body, statements: tuple[Statement, ...], scope: Scope) -> None:
    for statement in statements:
        if isinstance(statement, Instruction):
            body.instructions.append((statement, scope))
        elif isinstance(statement, Label):
            body.labels.append((scope, statement.name, len(body.instructions)))
        elif isinstance(statement, Declaration):
            _declare(context, body, statement, scope)
        elif isinstance(statement, Block):
            _walk(context, body, statement.statements, Scope(scope))
        elif isinstance(statement, BranchTargets | CallTargets | CallPrototype):
            scope.tables[statement.label] = statement


def _declare(context: Context, body: Body, declaration: Declaration, scope: Scope) -> None:
    if declaration.space == "reg":
        declare_registers(scope, declaration, context.new_slot)
        return
    for declarator in declaration.names:
        scope.variables[declarator.name] = _variable(context, body, declaration, declarator)


def _variable(
    context: Context, body: Body, declaration: Declaration, declarator: Declarator
) -> Variable:
    name = declarator.name
    size = size_of(declaration, declarator, TYPES[declaration.type].bytes)
    alignment = declaration.alignment or TYPES[declaration.type].bytes * declaration.vector
    if declaration.space == "param":
        return Variable("call", name, context.argument_slot(size), size)
    if declaration.space == "local":
        offset = -(-body.local_bytes // alignment) * alignment
        body.local_bytes = offset + size
        return Variable("local", name, offset, size)
    if declaration.space == "shared":
        if declaration.linkage == "extern":
            return Variable("dynamic", name, 0, 0)
        offset = -(-body.shared_bytes // alignment) * alignment
        body.shared_bytes = offset + size
        return Variable("shared", name, offset, size)
    return context.refuse(f".{declaration.space} variable '{name}' inside a function", declaration)
