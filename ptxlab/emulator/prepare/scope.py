"""Names inside a function: registers, variables and labels, by nested scope.

Source: PTX ISA, "Variables", "Labels and Function Names". A name belongs to the innermost block
that declares it; ``%r<5>`` declares %r0 to %r4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ptxlab.syntax.tree import (
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Instruction,
)

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


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One instruction of a prepared program.

    ``number`` counts the instructions of its function from 0, in the order of the text. ``reads`` and
    ``writes`` are the numbers of registers in a frame; ``scope`` is where its names are looked up.
    """

    number: int
    function: str
    instruction: Instruction
    scope: Scope
    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def line(self) -> int:
        """The line of the PTX text."""
        return self.instruction.position.line

    def register(self, name: str) -> Register | None:
        """Return the register that ``name`` is here, None where no instruction uses one of that name."""
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            scope = scope.parent
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
