"""Names inside a function: registers, variables and labels, by nested scope.

Source: PTX ISA, "Variables", "Labels and Function Names". A name belongs to the innermost block
that declares it; ``%r<5>`` declares %r0 to %r4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ptxlab.syntax.tree import BranchTargets, CallPrototype, CallTargets, Declaration, Declarator

Table = BranchTargets | CallPrototype | CallTargets
"""What a label may stand before instead of an instruction."""

NewSlot = Callable[[str], int]
"""Allots the next register number of a frame for a register of the given PTX type."""


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register: its number in the frame, and the PTX type it was declared with."""

    slot: int
    type: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable in memory: state space, byte offset in that space (-1: a module symbol)."""

    space: str
    name: str
    offset: int
    size: int


@dataclass(slots=True)
class Scope:
    """One ``{ }``: ``ranges`` are counted register declarations, their members made when named."""

    parent: Scope | None = None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: list[tuple[str, int, str]] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def counted(self, name: str) -> str | None:
        """Return the type of ``name`` when a counted declaration of this scope holds it."""
        for prefix, count, type_name in self.ranges:
            number = name[len(prefix) :]
            if (
                name.startswith(prefix)
                and number.isascii()
                and number.isdigit()
                and str(int(number)) == number
                and int(number) < count
            ):
                return type_name
        return None


def declare_registers(scope: Scope, declaration: Declaration, new_slot: NewSlot) -> None:
    """Add the registers of a ``.reg`` declaration to ``scope``."""
    for declarator in declaration.names:
        if declarator.count is not None:
            scope.ranges.append((declarator.name, declarator.count, declaration.type))
        elif declaration.vector > 1:
            for component in ("xyzw", "rgba"):
                _declare_components(scope, declaration, declarator, component, new_slot)
        else:
            scope.registers[declarator.name] = Register(
                new_slot(declaration.type), declaration.type
            )


def _declare_components(
    scope: Scope, declaration: Declaration, declarator: Declarator, letters: str, new_slot: NewSlot
) -> None:
    for position, letter in enumerate(letters[: declaration.vector]):
        other = scope.registers.get(f"{declarator.name}.{'xyzw'[position]}")
        register = other or Register(new_slot(declaration.type), declaration.type)
        scope.registers[f"{declarator.name}.{letter}"] = register


def size_of(declaration: Declaration, declarator: Declarator, element_bytes: int) -> int:
    """Return the bytes of a variable; an empty dimension counts its initialiser's elements, or 0."""
    total = element_bytes * declaration.vector
    for position, dimension in enumerate(declarator.dimensions):
        if dimension is None:
            elements = getattr(declarator.initializer, "elements", ())
            dimension = len(elements) if position == 0 else 0
        total *= dimension
    return total
