"""What names stand for: registers, variables and labels, by nested scope.

Source: PTX ISA, "Variables", "Labels and Function Names". A name belongs to the innermost block
that declares it; ``%r<5>`` declares %r0 to %r4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ptxlab.errors import Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import locate
from ptxlab.syntax.tree import (
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Instruction,
    Module,
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
    """A declared variable in memory: state space, byte offset in that space (-1: a module symbol).

    ``element`` is the size of an element of an array, of vectors that of their components; 0 for
    what is no array.
    """

    space: str
    name: str
    offset: int
    size: int
    element: int = 0


@dataclass(slots=True)
class Scope:
    """One ``{ }``: ``ranges`` are counted register declarations, their members made when named."""

    parent: Scope | None = None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: list[tuple[str, int, str]] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def outward(self) -> Iterator[Scope]:
        """Yield this scope and those round it; the last one is the module's."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

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
        found = (scope.registers.get(name) for scope in self.scope.outward())
        return next(filter(None, found), None)


def declare_registers(scope: Scope, declaration: Declaration, new_slot: NewSlot) -> None:
    """Add the registers of a ``.reg`` declaration to ``scope``."""
    for declarator in declaration.names:
        name = declarator.name
        if declarator.count is not None:
            scope.ranges.append((name, declarator.count, declaration.type))
        elif declaration.vector > 1:
            for letters in ("xr", "yg", "zb", "wa")[: declaration.vector]:
                register = Register(new_slot(declaration.type), declaration.type)
                scope.registers |= {f"{name}.{letter}": register for letter in letters}
        else:
            scope.registers[name] = Register(new_slot(declaration.type), declaration.type)


MODULE_SPACES = ("global", "const")
"""Where variables live as long as the module."""


@dataclass(slots=True)
class Segment:
    """Memory that variables are given one after the other, ``size`` bytes of it so far."""

    size: int = 0


def declared_variable(
    declaration: Declaration, declarator: Declarator, segments: Mapping[str, Segment]
) -> Variable | None:
    """Return a variable with its place in the segment of its space; None where that has none."""
    space, size = declaration.space, size_of(declaration, declarator)
    if space == "shared" and declaration.linkage == "extern":
        return Variable("dynamic", declarator.name, 0, size, element_of(declaration, declarator))
    if space not in segments:
        return None
    segment = segments[space]
    alignment = declaration.alignment or TYPES[declaration.type].bytes * declaration.vector
    offset = -(-segment.size // alignment) * alignment
    segment.size = offset + size
    return Variable(space, declarator.name, offset, size, element_of(declaration, declarator))


def module_scope(module: Module, shared: Segment) -> Scope:
    """Return the module's own variables, those in ``shared`` memory with their places.

    Raises Unsupported for one of a kind that is not modelled.
    """
    scope = Scope()
    for item in module.items:
        if isinstance(item, Declaration):
            for found in item.names:
                scope.variables[found.name] = _module_variable(module, item, found, shared)
    return scope


def _module_variable(
    module: Module, declaration: Declaration, declarator: Declarator, shared: Segment
) -> Variable:
    name, space, location = (
        declarator.name,
        declaration.space,
        locate(module.source, declaration.position),
    )
    if declaration.type not in TYPES:
        raise Unsupported(
            f"variable '{name}' of type .{declaration.type} is not modelled", location=location
        )
    if space in MODULE_SPACES:
        return module_variable(declaration, declarator, name)
    found = declared_variable(declaration, declarator, {"shared": shared})
    if found is None:
        raise Unsupported(
            f"module-level .{space} variable '{name}' is not modelled", location=location
        )
    return found


def module_variable(declaration: Declaration, declarator: Declarator, name: str) -> Variable:
    """Return a variable that the program has in global or constant memory under ``name``."""
    size, element = size_of(declaration, declarator), element_of(declaration, declarator)
    return Variable(declaration.space, name, -1, size, element)


def element_of(declaration: Declaration, declarator: Declarator) -> int:
    """Return the bytes between elements that an index counts, those of vectors one by one."""
    return TYPES[declaration.type].bytes if declarator.dimensions else 0


def size_of(declaration: Declaration, declarator: Declarator) -> int:
    """Return the bytes of a variable; an empty dimension counts its initialiser's elements, or 0."""
    total = TYPES[declaration.type].bytes * declaration.vector
    for position, dimension in enumerate(declarator.dimensions):
        if not dimension:
            elements = getattr(declarator.initializer, "elements", ())
            dimension = len(elements) if position == 0 else 0
        total *= dimension
    return total
