"""What a module may declare: each name once, types where they can stand, initialisers that fit.

The rules are the PTX ISA's ("Variables", "Kernel and Function Directives") as ptxas applies them: a block
has one list of names for its registers, variables and labels, ``a<5>`` declares a0 to a4, and an
initialiser nests as the array does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NoReturn

from ptxlab.emulator.prepare.scope import counts, size_of
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import locate
from ptxlab.syntax.tree import (
    Aggregate,
    Block,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Float,
    Function,
    Initializer,
    Integer,
    Label,
    Module,
    Node,
    Statement,
    Symbol,
)

MOST_CONSTANT_BYTES = 64 * 1024
MOST_PARAMETER_BYTES = 32764
"""PTX ISA, "State Spaces": of a module's constants, and of a kernel's parameters."""

_VECTOR_BITS = 128
_MOST_REGISTERS = 1 << 32
_INITIALISED = ("global", "const")
_TABLES = (BranchTargets, CallTargets, CallPrototype)


def check_module(module: Module) -> None:
    """Check what stands outside of functions. Raises PtxSyntaxError at what ptxas refuses."""
    checker = _Checker(module)
    defined: dict[str, Node] = {}
    external: dict[str, Declarator] = {}
    constant = 0
    for item in module.items:
        if isinstance(item, Function):
            checker.function(item, defined.setdefault(item.name, item))
            defined[item.name] = item
        elif isinstance(item, Declaration):
            for found in item.names:
                checker.declarator(item, found, within=False)
                if item.linkage == "extern":
                    external[found.name] = found
                else:
                    checker.once(f"'{found.name}'", found, defined.get(found.name))
                    defined[found.name] = found
                checker.initialiser(item, found, external | defined)
                if item.space == "const" and item.type in TYPES:
                    constant += size_of(item, found)
                if constant > MOST_CONSTANT_BYTES:
                    what = (
                        f"{constant} bytes of constants in a module, {MOST_CONSTANT_BYTES} at most"
                    )
                    checker.reject(what, found)


def check_function(module: Module, function: Function) -> None:
    """Check what a function declares. Raises PtxSyntaxError at what ptxas refuses."""
    checker = _Checker(module)
    names: dict[str, Node] = {}
    for declaration in (*function.results, *function.parameters):
        [found] = declaration.names
        checker.passed(declaration, function)
        if found.count is not None or found.initializer is not None:
            checker.reject("a parameter is one name, without a value", found)
        checker.declarator(declaration, found, within=not function.is_entry)
        checker.once(f"parameter '{found.name}'", found, names.get(found.name))
        names[found.name] = found
    size = sum(size_of(d, n) for d in function.parameters for n in d.names if d.type in TYPES)
    if size > MOST_PARAMETER_BYTES:
        what = f"parameters of {size} bytes, {MOST_PARAMETER_BYTES} at most"
        checker.reject(what, function)
    checker.block(function.body or (), names)


class _Checker:
    """Checks against the text of one module, in which it finds the places of what is wrong."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def reject(self, what: str, node: Node) -> NoReturn:
        raise PtxSyntaxError(what, location=locate(self._module.source, node.position))

    def once(self, what: str, node: Node, before: Node | None) -> None:
        """Refuse a name that is declared already."""
        if before is not None and before is not node:
            self.reject(f"{what} is declared already, in line {before.position.line}", node)

    def function(self, function: Function, before: Node) -> None:
        """Refuse a second body, and another signature than was declared."""
        if before is function:
            return
        if not isinstance(before, Function) or before.body is not None:
            self.once(f"function '{function.name}'", function, before)
        elif before.is_entry != function.is_entry or _signature(before) != _signature(function):
            line = before.position.line
            self.reject(
                f"function '{function.name}' is declared otherwise in line {line}", function
            )

    def block(self, statements: Sequence[Statement], names: dict[str, Node]) -> None:
        """Check the statements of a block, whose ``names`` so far stand where they are declared."""
        ranges: dict[str, int] = {}
        for statement in statements:
            if isinstance(statement, Block):
                self.block(statement.statements, {})
            elif isinstance(statement, Label | BranchTargets | CallTargets | CallPrototype):
                if isinstance(statement, CallPrototype):
                    for declaration in (*statement.results, *statement.parameters):
                        self.passed(declaration, statement)
                        self.declarator(declaration, declaration.names[0], within=True)
                name = statement.label if isinstance(statement, _TABLES) else statement.name
                self.once(f"label '{name}'", statement, names.get(name))
                names[name] = statement
            elif isinstance(statement, Declaration):
                for found in statement.names:
                    self.declarator(statement, found, within=True)
                    self.initialiser(statement, found, {})
                    self._local(found, names, ranges)

    def _local(self, found: Declarator, names: dict[str, Node], ranges: dict[str, int]) -> None:
        what = f"'{found.name}'"
        if found.count is None:
            self.once(what, found, names.get(found.name) or _counted(found.name, names, ranges))
            names[found.name] = found
            return
        if found.count >= _MOST_REGISTERS:
            self.reject(f"{found.count} registers, fewer than 2^32 are possible", found)
        key = found.name + "<"
        self.once(what, found, names.get(key))
        names[key] = found
        ranges[found.name] = found.count

    def passed(self, declaration: Declaration, to: Function | CallPrototype) -> None:
        """Refuse a vector as a parameter or result of a function."""
        is_entry = isinstance(to, Function) and to.is_entry
        if declaration.vector > 1 and not is_entry:
            where = locate(self._module.source, declaration.position)
            what = "a vector as a parameter or result of a function is not modelled"
            raise Unsupported(what, location=where)

    def declarator(self, declaration: Declaration, found: Declarator, *, within: bool) -> None:
        """Refuse a type, a vector or an array where it cannot stand; ``within`` a function's body."""
        name, space, kind = found.name, declaration.space, TYPES.get(declaration.type)
        if kind is None:
            if within:
                what = f"'{name}' of type .{declaration.type} belongs outside of functions"
                self.reject(what, found)
            return
        if kind.kind == "predicate" and (space != "reg" or declaration.vector > 1):
            self.reject(f"predicate '{name}' must be a register of its own", found)
        if declaration.vector * kind.bits > _VECTOR_BITS and declaration.vector > 1:
            self.reject(f"'{name}' is a vector of more than {_VECTOR_BITS} bits", found)
        if declaration.vector > 4:
            self.reject(f"'{name}': there are variables of .v2 and .v4", found)
        if space == "reg" and found.dimensions:
            self.reject(f"register '{name}' cannot be an array; 'name<N>' declares N", found)
        if any(not size for size in found.dimensions[1:]):
            self.reject(f"'{name}': only the first size may be left empty", found)

    def initialiser(
        self, declaration: Declaration, found: Declarator, before: Mapping[str, Node]
    ) -> None:
        """Refuse an initial value of the wrong kind or shape, and none for an array without a size."""
        name, sizes = found.name, found.dimensions
        if found.initializer is None:
            if sizes and not sizes[0] and declaration.linkage != "extern":
                self.reject(f"'{name}' needs the size of its array", found)
            return
        if declaration.space not in _INITIALISED or declaration.linkage == "extern":
            linkage = ".extern " if declaration.linkage == "extern" else ""
            what = f"{linkage}.{declaration.space} variable '{name}' takes no initial value"
            self.reject(what, found)
        vector = (declaration.vector,) if declaration.vector > 1 else ()
        self._shape(found.initializer, found, declaration, (*sizes, *vector), before)

    def _shape(
        self,
        value: Initializer,
        found: Declarator,
        declaration: Declaration,
        sizes: tuple[int | None, ...],
        before: Mapping[str, Node],
    ) -> None:
        name = found.name
        if not sizes:
            self._scalar(value, declaration, before)
            return
        if not isinstance(value, Aggregate):
            self.reject(f"the initial value of '{name}' is to nest as it does, with braces", value)
        count, most, is_vector = len(value.elements), sizes[0], declaration.vector > 1
        if len(sizes) == 1 and is_vector and count != most:
            self.reject(f"'{name}' has vectors of {most}, not {count}", value)
        if most and count > most:
            self.reject(f"{count} initial values for {most} elements of '{name}'", value)
        for element in value.elements:
            self._shape(element, found, declaration, sizes[1:], before)

    def _scalar(
        self,
        value: Initializer,
        declaration: Declaration,
        before: Mapping[str, Node],
    ) -> None:
        kind = TYPES[declaration.type]
        fits = {
            Aggregate: False,
            Integer: kind.is_integer,
            Float: kind.name in ("f32", "f64") or (kind.kind == "bits" and kind.bits in (32, 64)),
            Symbol: kind.kind in ("unsigned", "signed"),
        }
        if not fits[type(value)]:
            self.reject(f"a .{kind.name} takes no such initial value", value)
        if not isinstance(value, Symbol):
            return
        if value.name not in before:
            what = f"'{value.name}' is no variable or function declared before"
            self.reject(what, value)
        if value.mask is not None and value.mask not in (
            0xFF << shift for shift in range(0, 64, 8)
        ):
            self.reject(f"mask {value.mask:#x} does not select a byte", value)


def _counted(name: str, names: dict[str, Node], ranges: dict[str, int]) -> Node | None:
    """Return where ``a3`` is declared as one of ``a<5>``."""
    for prefix, count in ranges.items():
        if counts(prefix, count, name):
            return names[prefix + "<"]
    return None


def _signature(function: Function) -> list[list[tuple[object, ...]]]:
    """Return what two declarations of a function have in common: spaces, types and sizes."""
    return [
        [
            (d.space, d.type, d.vector, prod(size or 0 for n in d.names for size in n.dimensions))
            for d in declarations
        ]
        for declarations in (function.results, function.parameters)
    ]
