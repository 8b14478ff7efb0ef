"""What a module may declare: each name once, types where they can stand, initialisers that fit.

The rules are the PTX ISA's ("Variables", "Kernel and Function Directives") as ptxas applies them: a block
has one list of names for its registers, variables and labels, ``a<5>`` declares a0 to a4, and an
initialiser nests as the array does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from ptxlab.emulator.prepare.function_check import (
    check_again,
    check_alias,
    check_definition,
    check_directives,
    check_modelled,
    check_parameter,
    check_parameter_bytes,
    check_passed,
    reject,
)
from ptxlab.emulator.prepare.initial_values import KnownNames, check_addresses, check_initial_value
from ptxlab.emulator.prepare.scope import Declared, counts, size_of
from ptxlab.numbers.types import INSTRUCTION_TYPES, TYPES
from ptxlab.syntax.tree import (
    Alias,
    Block,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    File,
    Function,
    Label,
    Node,
    Pragma,
    PtxModule,
    Statement,
)

MOST_CONSTANT_BYTES = 64 * 1024
"""PTX ISA, "State Spaces": of a module's constants."""

_VECTOR_BITS = 128
_MOST_REGISTERS = 1 << 32
_ATTRIBUTES = (".managed", ".unified")
_TABLES = (BranchTargets, CallTargets, CallPrototype)


def check_module(module: PtxModule) -> None:
    """Check what stands outside of functions. Raises PtxSyntaxError at what ptxas or nvJitLink refuses."""
    checker = _Checker(module)
    known: KnownNames = {}
    files: set[int] = set()
    aliased: set[str] = set()
    for item in module.items:
        if isinstance(item, Function):
            before = known.get(item.name)
            if isinstance(before, Function):
                check_again(module, item, before)
            elif before is not None:
                checker.once(f"function '{item.name}'", item, before[1])
            checker.head(item)
            known[item.name] = item
        elif isinstance(item, Declaration):
            for declarator in item.names:
                checker.variable(item, declarator, known)
        elif isinstance(item, Alias):
            check_alias(module, item, known.get(item.name), known.get(item.target))
            aliased.add(item.name)
        elif isinstance(item, File):
            if item.index in files:
                checker.reject(f"a second file {item.index}", item)
            files.add(item.index)
        elif isinstance(item, Pragma) and item.strings != ("nounroll",) * len(item.strings):
            checker.reject('outside of functions there is .pragma "nounroll" alone', item)
    for node in known.values():
        if isinstance(node, Function):
            check_definition(module, node, aliased)
        else:
            checker.defined(*node)
            check_addresses(module, node[1].initializer, known)
    constants = [d for d in known.values() if not isinstance(d, Function) and d[0].space == "const"]
    check_constants(module, constants)


def check_constants(module: PtxModule, constants: Iterable[Declared]) -> None:
    """Refuse more ``constants`` than a module may have."""
    total = 0
    for declaration, declarator in constants:
        total += size_of(declaration, declarator) if declaration.type in TYPES else 0
        if total > MOST_CONSTANT_BYTES:
            what = f"{total} bytes of constants in a module, {MOST_CONSTANT_BYTES} at most"
            reject(module, what, declarator)


def check_function(module: PtxModule, function: Function) -> None:
    """Check what the body of a function declares. Raises PtxSyntaxError at what ptxas refuses."""
    given = (*function.results, *function.parameters)
    names: dict[str, Node] = {d.names[0].name: d.names[0] for d in given}
    _Checker(module).block(function.body or (), names)


class _Checker:
    """Checks against the text of one module, in which it finds the places of what is wrong."""

    def __init__(self, module: PtxModule) -> None:
        self._module = module

    def reject(self, what: str, node: Node, hint: str | None = None) -> NoReturn:
        reject(self._module, what, node, hint)

    def once(self, what: str, node: Node, before: Node | None) -> None:
        """Refuse a name that is declared already."""
        if before is not None and before is not node:
            self.reject(f"{what} is declared already, in line {before.position.line}", node)

    # ---- what stands outside of functions ----

    def head(self, function: Function) -> None:
        """Check what a function takes and returns, and its directives."""
        names: dict[str, Node] = {}
        for declaration in (*function.results, *function.parameters):
            [declarator] = declaration.names
            check_parameter(self._module, declaration, function)
            self.declarator(declaration, declarator, within=not function.is_entry)
            self.once(f"parameter '{declarator.name}'", declarator, names.get(declarator.name))
            names[declarator.name] = declarator
        if function.is_entry:
            check_parameter_bytes(self._module, function)
        check_directives(self._module, function)

    def variable(self, item: Declaration, declarator: Declarator, known: KnownNames) -> None:
        """Check a variable beside what is ``known`` so far, and note it there."""
        self.declarator(item, declarator, within=False)
        name, before = declarator.name, known.get(declarator.name)
        if before is None or item.linkage != "extern":
            known[name] = item, declarator
        check_initial_value(self._module, item, declarator, known)
        if isinstance(before, Function):
            self.once(f"'{name}'", declarator, before)
        elif before is not None:
            declared, other = before
            if "extern" not in (item.linkage, declared.linkage):
                self.once(f"'{name}'", declarator, other)
            if not _alike(before, (item, declarator)):
                self.reject(
                    f"'{name}' is declared otherwise in line {other.position.line}", declarator
                )
            if declared.linkage == "extern" and not item.linkage:
                line = other.position.line
                self.reject(
                    f"'{name}' is .extern in line {line}", declarator, "here it is .visible"
                )

    def defined(self, item: Declaration, declarator: Declarator) -> None:
        """Refuse a variable that is defined nowhere, unless a launch says its size."""
        sizes = declarator.dimensions
        dynamic = item.space == "shared" and sizes and not sizes[0]
        if item.linkage == "extern" and not dynamic:
            self.reject(
                f"'{declarator.name}' is defined nowhere",
                declarator,
                "a module is linked by itself",
            )
        if item.linkage == "common" and item.space != "global":
            self.reject(".common is for .global variables", declarator)
        if item.space in ("param", "tex"):
            self.reject(f"a .{item.space} variable belongs inside of functions", declarator)

    # ---- blocks ----

    def block(self, statements: Sequence[Statement], names: dict[str, Node]) -> None:
        """Check the statements of a block, whose ``names`` so far stand where they are declared."""
        ranges: dict[str, int] = {}
        for statement in statements:
            if isinstance(statement, Block):
                self.block(statement.statements, {})
            elif isinstance(statement, Label | BranchTargets | CallTargets | CallPrototype):
                if isinstance(statement, CallPrototype):
                    for declaration in (*statement.results, *statement.parameters):
                        check_parameter(self._module, declaration, statement)
                        check_modelled(self._module, declaration)
                        self.declarator(declaration, declaration.names[0], within=True)
                name = statement.label if isinstance(statement, _TABLES) else statement.name
                self.once(f"label '{name}'", statement, names.get(name))
                names[name] = statement
            elif isinstance(statement, Declaration):
                if statement.linkage:
                    what = f".{statement.linkage} is for variables outside of functions"
                    self.reject(what, statement)
                for declarator in statement.names:
                    self.declarator(statement, declarator, within=True)
                    if statement.space == "param":
                        check_passed(self._module, statement, declarator)
                    check_initial_value(self._module, statement, declarator, {})
                    self._local(declarator, names, ranges)

    def _local(
        self, declarator: Declarator, names: dict[str, Node], ranges: dict[str, int]
    ) -> None:
        what = f"'{declarator.name}'"
        if declarator.count is None:
            self.once(
                what,
                declarator,
                names.get(declarator.name) or _counted(declarator.name, names, ranges),
            )
            names[declarator.name] = declarator
            return
        if declarator.count >= _MOST_REGISTERS:
            self.reject(f"{declarator.count} registers, fewer than 2^32 are possible", declarator)
        key = declarator.name + "<"
        self.once(what, declarator, names.get(key))
        names[key] = declarator
        ranges[declarator.name] = declarator.count

    def declarator(self, declaration: Declaration, declarator: Declarator, *, within: bool) -> None:
        """Refuse a type, a vector or an array where it cannot stand; ``within`` a function's body."""
        name, space, kind = declarator.name, declaration.space, TYPES.get(declaration.type)
        for attribute in declaration.attributes:
            if attribute.partition("(")[0] not in _ATTRIBUTES or space != "global":
                self.reject(f"a .{space} variable has no attribute {attribute}", declarator)
        if kind is None:
            if within or space not in ("global", "param"):
                what = f"'{name}' of type .{declaration.type} belongs outside of functions"
                self.reject(f"{what}, in .global memory", declarator)
            return
        if kind.name in INSTRUCTION_TYPES:
            self.reject(f"'{name}' cannot be .{kind.name}, a type of instructions only", declarator)
        if kind.kind == "predicate" and (space != "reg" or declaration.vector > 1):
            self.reject(f"predicate '{name}' must be a register of its own", declarator)
        if declaration.vector * kind.bits > _VECTOR_BITS and declaration.vector > 1:
            self.reject(f"'{name}' is a vector of more than {_VECTOR_BITS} bits", declarator)
        if declaration.vector > 4:
            self.reject(f"'{name}': there are variables of .v2 and .v4", declarator)
        if space == "reg" and declarator.dimensions:
            self.reject(f"register '{name}' cannot be an array; 'name<N>' declares N", declarator)
        if any(not size for size in declarator.dimensions[1:]):
            self.reject(f"'{name}': only the first size may be left empty", declarator)


def _counted(name: str, names: dict[str, Node], ranges: dict[str, int]) -> Node | None:
    """Return where ``a3`` is declared as one of ``a<5>``."""
    for prefix, count in ranges.items():
        if counts(prefix, count, name):
            return names[prefix + "<"]
    return None


def _alike(first: Declared, other: Declared) -> bool:
    """Say whether two declarations of a variable have one type; one may leave the first size open."""
    (a, x), (b, y) = first, other
    sizes = zip(x.dimensions[:1], y.dimensions[:1], strict=False)
    return (
        (a.type, a.vector, len(x.dimensions)) == (b.type, b.vector, len(y.dimensions))
        and x.dimensions[1:] == y.dimensions[1:]
        and all(not m or not n or m == n for m, n in sizes)
    )
