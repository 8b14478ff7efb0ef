"""What names stand for: registers, variables and labels, by nested scope.

Source: PTX ISA, "Variables", "Labels and Function Names". A name belongs to the innermost block
that declares it; ``%r<5>`` declares %r0 to %r4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ptxlab.garbage import record
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import (
    Aggregate,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Initializer,
    Instruction,
    PtxModule,
    Symbol,
)

LabelledTable = BranchTargets | CallPrototype | CallTargets
"""What a label may stand before instead of an instruction."""

Declared = tuple[Declaration, Declarator]
"""A variable as the text declares it."""

NewSlot = Callable[[str], int]
"""Allots the next register number of a frame for a register of the given PTX type."""


@record(frozen=True, slots=True)
class Register:
    """A declared register: its number in the frame, and the PTX type it was declared with."""

    slot: int
    type: str


@record(frozen=True, slots=True, eq=False)
class Variable:
    """A declared variable in memory: its state space, and its byte offset there.

    Of one in ``shared`` memory the place depends on the launched kernel, see ``SharedLayout``; that of
    ``dynamic`` shared memory too, and a module's global or const one is where the device put it.
    ``element`` is the size of an element of an array, of vectors that of their components; 0 for
    what is no array. ``type`` is that of what a call passes: see ``PASSED``.
    """

    space: str
    name: str
    offset: int
    size: int
    alignment: int = 1
    element: int = 0
    type: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is the array at the end of the parameters whose size each call decides."""
        return bool(self.element) and not self.size


def counts(prefix: str, count: int, name: str) -> bool:
    """Say whether ``name`` is one of the registers that ``prefix<count>`` declares."""
    if not name.startswith(prefix):
        return False
    number = name[len(prefix) :]
    return (
        number.isascii()
        and number.isdigit()
        and len(number) <= len(str(count))
        and str(int(number)) == number
        and int(number) < count
    )


@dataclass(slots=True)
class Scope:
    """One ``{ }``: ``ranges`` are counted register declarations, their members made when named.

    ``unmodelled`` says by name what a variable is that no program can use here.
    """

    parent: Scope | None = None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: list[tuple[str, int, str, int]] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    unmodelled: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, LabelledTable] = field(default_factory=dict)

    def outward(self) -> Iterator[Scope]:
        """Yield this scope and those round it; the last one is the module's."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def declare_counted(self, name: str, new_slot: NewSlot) -> None:
        """Declare the register, or vector of which it is a component, that a counted declaration holds."""
        whole, component, _ = name.partition(".")
        if component and f"{whole}.x" in self.registers:
            return
        for prefix, count, type_name, vector in self.ranges:
            if not whole.startswith(prefix):
                continue
            if bool(component) == (vector > 1) and counts(prefix, count, whole):
                self.declare(whole, type_name, vector, new_slot)

    def declare(self, name: str, type_name: str, vector: int, new_slot: NewSlot) -> None:
        """Declare a register, or the components of one that is a vector of several."""
        if vector == 1:
            self.registers[name] = Register(new_slot(type_name), type_name)
            return
        for letters in ("xr", "yg", "zb", "wa")[:vector]:
            register = Register(new_slot(type_name), type_name)
            self.registers |= {f"{name}.{letter}": register for letter in letters}


@record(frozen=True, slots=True, eq=False)
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
        return self.instruction.position.line

    def register(self, name: str) -> Register | None:
        """Return the register that ``name`` is here, None where no instruction uses one of that name."""
        registers = (scope.registers.get(name) for scope in self.scope.outward())
        return next(filter(None, registers), None)


def declare_registers(scope: Scope, declaration: Declaration, new_slot: NewSlot) -> None:
    for declarator in declaration.names:
        name, kind, vector = declarator.name, declaration.type, declaration.vector
        if declarator.count is not None:
            scope.ranges.append((name, declarator.count, kind, vector))
        else:
            scope.declare(name, kind, vector, new_slot)


PASSED = ("call", "given", "returned")
"""The .param variables that are registers: of a call, and what a function is given and returns."""

MOST_LOCAL_BYTES = 512 * 1024
"""Local memory of a thread. Source: CUDA C++ Programming Guide, "Technical Specifications"."""

MODULE_SPACES = ("global", "const")
"""Where variables live as long as the module."""


@record(frozen=True, slots=True)
class SharedLayout:
    """Where the shared variables that a kernel reaches begin: ``starts``.

    They take ``static_bytes``, and what a launch adds begins at ``dynamic_base``.
    """

    starts: Mapping[Variable, int]
    static_bytes: int
    dynamic_base: int

    def at(self, address: int) -> tuple[Variable, int] | None:
        """Return the variable that holds ``address``, and how far into it that is."""
        for variable, start in self.starts.items():
            size = variable.size if variable.space == "shared" else address + 1
            if start <= address < start + size:
                return variable, address - start
        return None


def lay_out(variables: Iterable[Variable]) -> SharedLayout:
    """Place shared variables as ptxas does: the largest alignment first, of equal ones the smallest.

    ptxas has no rule for those of one size and alignment; here they stay in order. All ``dynamic`` ones
    begin at the same place behind them, at a multiple of 16 or what they ask for.
    """
    ordered = sorted(variables, key=lambda variable: (-variable.alignment, variable.size))
    dynamic = [variable for variable in ordered if variable.space == "dynamic"]
    starts: dict[Variable, int] = {}
    end = 0
    for variable in ordered:
        if variable.space == "shared":
            starts[variable] = aligned(end, variable.alignment)
            end = starts[variable] + variable.size
    base = aligned(end, max([16, *(variable.alignment for variable in dynamic)]))
    return SharedLayout(starts | dict.fromkeys(dynamic, base), end, base)


def aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def declared_variable(
    declaration: Declaration, declarator: Declarator, offset: int = 0
) -> Variable:
    """Return a variable; a shared one is ``dynamic`` where the launch says its size."""
    dynamic = declaration.space == "shared" and declaration.linkage == "extern"
    return Variable(
        "dynamic" if dynamic else declaration.space,
        declarator.name,
        offset,
        size_of(declaration, declarator),
        alignment_of(declaration),
        element_bytes(declaration, declarator),
    )


def element_bytes(declaration: Declaration, declarator: Declarator) -> int:
    """Return the size of an element of an array; see ``Variable``."""
    return TYPES[declaration.type].bytes if declarator.dimensions else 0


def module_scope(module: PtxModule) -> Scope:
    scope = Scope()
    for name, (declaration, declarator) in definitions(module).items():
        space, kind = declaration.space, declaration.type
        if kind not in TYPES:
            scope.unmodelled[name] = f"variable '{name}' of type .{kind}"
        elif space in (*MODULE_SPACES, "shared"):
            scope.variables[name] = declared_variable(declaration, declarator)
        else:
            scope.unmodelled[name] = f"module-level .{space} variable '{name}'"
    return scope


def definitions(module: PtxModule) -> dict[str, Declared]:
    """Return a module's own variables by name; of several declarations of one, the definition."""
    declared: dict[str, Declared] = {}
    for item in module.items:
        if isinstance(item, Declaration):
            for declarator in item.names:
                if item.linkage != "extern" or declarator.name not in declared:
                    declared[declarator.name] = item, declarator
    return declared


def names_in(initializer: Initializer | None) -> Iterator[str]:
    """Yield the names whose addresses an initial value holds."""
    match initializer:
        case Aggregate(elements=elements):
            for element in elements:
                yield from names_in(element)
        case Symbol(name=name):
            yield name


def alignment_of(declaration: Declaration) -> int:
    """Return the alignment of a variable in bytes: that of its type, or what is asked for."""
    return declaration.alignment or TYPES[declaration.type].bytes * declaration.vector


def registers_in(declaration: Declaration) -> int:
    """Return how many registers a parameter of a function is passed in: a vector's components apart."""
    return declaration.vector if declaration.space == "reg" else 1


def size_of(declaration: Declaration, declarator: Declarator) -> int:
    """Return the bytes of a variable; an empty dimension counts its initialiser's elements, or 0."""
    total = TYPES[declaration.type].bytes * declaration.vector
    for position, dimension in enumerate(declarator.dimensions):
        if not dimension:
            elements = getattr(declarator.initializer, "elements", ())
            dimension = len(elements) if position == 0 else 0
        total *= dimension
    return total
