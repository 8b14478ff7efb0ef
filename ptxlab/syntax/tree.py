"""The PTX syntax tree: plain frozen data, one class per construct of the grammar.

Names are kept as written. Whether ``x`` is a register, a variable, a label or a function is
decided by whoever walks the tree, because PTX resolves names by scope and not by spelling.
Positions do not take part in comparison, so a printed and reparsed tree equals its original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from ptxlab.garbage import record


class Position(NamedTuple):
    """1-based line and column of the first character of a construct."""

    line: int
    column: int


NOWHERE = Position(0, 0)


@record(frozen=True, slots=True)
class Node:
    """Anything that stands at a place in the text."""

    position: Position = field(default=NOWHERE, compare=False, kw_only=True)


# ---- operands -------------------------------------------------------------------------------


@record(frozen=True, slots=True)
class Name(Node):
    """An identifier: register, special register (``%tid.x``), variable, label, function, ``_``."""

    text: str


@record(frozen=True, slots=True)
class Integer(Node):
    """An integer constant expression, folded. ``value`` is the mathematical value."""

    value: int


@record(frozen=True, slots=True)
class Float(Node):
    """A floating-point constant as its bits: ``0f`` literals are 32 wide, all others 64."""

    bits: int
    width: int


@record(frozen=True, slots=True)
class Not(Node):
    """A negated predicate operand, ``!p``."""

    operand: Name


@record(frozen=True, slots=True)
class Negated(Node):
    """An arithmetically negated name, ``-x``, as some source operands allow."""

    operand: Name


@record(frozen=True, slots=True)
class Pair(Node):
    """Two destinations written ``p|q``."""

    first: Operand
    second: Operand


@record(frozen=True, slots=True)
class Vector(Node):
    """A brace-enclosed list, ``{a, b, c, d}``."""

    elements: tuple[Operand, ...]


@record(frozen=True, slots=True)
class Group(Node):
    """A parenthesised list, as in ``call (results), f, (arguments)``."""

    elements: tuple[Operand, ...]


@record(frozen=True, slots=True)
class Address(Node):
    """A memory operand ``[base + offset]``; ``extra`` holds what follows a comma inside it.

    ``base`` is None for an absolute immediate address, whose value is then ``offset``.
    ``unified`` marks ``[...].unified``.
    """

    base: Name | None
    offset: int = 0
    extra: tuple[Operand, ...] = ()
    unified: bool = False


@record(frozen=True, slots=True)
class Symbol(Node):
    """The address of a variable or function plus a byte offset, in an operand or an initialiser.

    In an operand it may be a register, to whose value the offset is added.
    ``generic`` marks ``generic(name)``; ``mask`` is the byte selector of ``0xFF00(name)``.
    A plain ``name`` without offset in an operand is a ``Name``.
    """

    name: str
    offset: int = 0
    generic: bool = False
    mask: int | None = None


@record(frozen=True, slots=True)
class Element(Node):
    """An element of an array, ``name[index]``: its place in memory, counted in elements.

    The index is a constant, a register, or a register plus a constant.
    """

    name: str
    index: Integer | Name | Symbol


@record(frozen=True, slots=True)
class Aggregate(Node):
    """A braced initialiser, nested like the array it fills."""

    elements: tuple[Initializer, ...]


Operand = (
    Name | Integer | Float | Not | Negated | Pair | Vector | Group | Address | Symbol | Element
)
Initializer = Integer | Float | Symbol | Aggregate


# ---- statements -----------------------------------------------------------------------------


@record(frozen=True, slots=True)
class Declarator(Node):
    """One name of a declaration: ``%r<5>`` has count 5, ``a[2][3]`` has dimensions (2, 3).

    A dimension is None where it is left empty, as in ``.extern .shared .b8 s[]``.
    """

    name: str
    count: int | None = None
    dimensions: tuple[int | None, ...] = ()
    initializer: Initializer | None = None


@record(frozen=True, slots=True)
class Declaration(Node):
    """A variable declaration. ``space`` is reg, global, shared, const, local, param or tex.

    ``attributes`` are ``.attribute(...)`` texts and ``.ptr`` parts of kernel parameters are kept in
    ``pointer`` as (space or "", alignment).
    """

    space: str
    type: str
    names: tuple[Declarator, ...]
    linkage: str = ""
    alignment: int | None = None
    vector: int = 1
    pointer: tuple[str, int | None] | None = None
    attributes: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class Guard(Node):
    """``@p`` or ``@!p`` before an instruction."""

    name: str
    negated: bool = False


@record(frozen=True, slots=True)
class Instruction(Node):
    """``@p opcode.modifier.modifier a, b, c;`` Modifiers are without their dot, ``::`` kept."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None

    @property
    def name(self) -> str:
        """The opcode with all its modifiers, as written."""
        return ".".join((self.opcode, *self.modifiers))


@record(frozen=True, slots=True)
class Label(Node):
    """``name:``"""

    name: str


@record(frozen=True, slots=True)
class Block(Node):
    """``{ ... }``: its registers and labels are its own."""

    statements: tuple[Statement, ...]


@record(frozen=True, slots=True)
class Loc(Node):
    """``.loc file line column``; ``rest`` is the text after them (``function_name``, ...)."""

    file: int
    line: int
    column: int
    rest: str = ""


@record(frozen=True, slots=True)
class Pragma(Node):
    """``.pragma "nounroll";``"""

    strings: tuple[str, ...]


@record(frozen=True, slots=True)
class BranchTargets(Node):
    """``label: .branchtargets a, b;``"""

    label: str
    targets: tuple[str, ...]


@record(frozen=True, slots=True)
class CallPrototype(Node):
    """``label: .callprototype (results) _ (parameters);``"""

    label: str
    results: tuple[Declaration, ...]
    parameters: tuple[Declaration, ...]
    directives: tuple[Directive, ...] = ()


@record(frozen=True, slots=True)
class CallTargets(Node):
    """``label: .calltargets f, g;``"""

    label: str
    targets: tuple[str, ...]


Statement = (
    Declaration
    | Instruction
    | Label
    | Block
    | Loc
    | Pragma
    | BranchTargets
    | CallPrototype
    | CallTargets
)


# ---- module level ---------------------------------------------------------------------------


@record(frozen=True, slots=True)
class Directive(Node):
    """A performance or other directive of a function: ``.maxntid 256, 1, 1``, ``.noreturn``."""

    name: str
    values: tuple[int, ...] = ()


@record(frozen=True, slots=True)
class Function(Node):
    """A kernel (``is_entry``) or device function. ``body`` is None for a declaration only.

    Of a module only skimmed, to ask for statements of the body may raise PtxSyntaxError. Parameters lie at multiples of
    their alignment, counted from ``origin`` bytes before the first.
    """

    name: str
    is_entry: bool
    parameters: tuple[Declaration, ...]
    results: tuple[Declaration, ...] = ()
    linkage: str = ""
    directives: tuple[Directive | Pragma, ...] = ()
    body: Sequence[Statement] | None = None
    attributes: tuple[str, ...] = ()
    origin: int = 0


@record(frozen=True, slots=True)
class File(Node):
    """``.file index "path"``; ``rest`` holds timestamp and size when given."""

    index: int
    path: str
    rest: tuple[int, ...] = ()


@record(frozen=True, slots=True)
class Section(Node):
    """``.section name { ... }`` of debugging data, its lines kept as text."""

    name: str
    lines: tuple[str, ...]


@record(frozen=True, slots=True)
class Alias(Node):
    """``.alias name, aliasee;``"""

    name: str
    target: str


Item = Declaration | Function | File | Section | Alias | Pragma


@record(frozen=True, slots=True)
class PtxModule(Node):
    """A PTX file: ``.version``, ``.target``, ``.address_size`` and its items in order.

    What is ``lifted`` was made of machine code: its source is the listing of that.
    """

    version: tuple[int, int]
    targets: tuple[str, ...]
    address_size: int
    items: tuple[Item, ...]
    source: SourceText = field(compare=False)
    lifted: bool = False

    @property
    def functions(self) -> tuple[Function, ...]:
        """All kernels and device functions, declarations included, in file order."""
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels that have a body, in file order."""
        return tuple(f for f in self.functions if f.is_entry and f.body is not None)


@record(frozen=True, slots=True)
class SourceText:
    """The text a tree was parsed from, and the name errors call it by.

    ``arguments`` has, by kernel, what the language it was compiled from calls the parameters.
    """

    text: str
    path: str = "<ptx>"
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)

    def line(self, number: int) -> str:
        """Return the text of 1-based line ``number``, or "" when there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 1 <= number <= len(lines) else ""
