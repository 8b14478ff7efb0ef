"""The instructions of a function, what each can see, and its registers by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ptxlab.errors import PtxlabError, Unsupported, did_you_mean
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.functions import SourceLine, call_lines, source_lines
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import (
    Address,
    Block,
    Declaration,
    Declarator,
    Function,
    Group,
    Instruction,
    Name,
    Negated,
    Not,
    Operand,
    Pair,
    Position,
    PtxModule,
    Statement,
    Symbol,
    Vector,
)

RESERVED = "ptxlab_"
"""How the names begin that rewriting adds."""


class Scoped(NamedTuple):
    """An instruction and the declarations it can see, the outermost first."""

    instruction: Instruction
    declarations: tuple[Declaration, ...]

    def type_of(self, register: str) -> str | None:
        """Return the PTX type of a register, None for what is none.

        It may be one of a ``%r<5>``, or a component such as ``%v.x`` of a vector register.
        """
        base, _, component = register.partition(".")
        for declaration in reversed(self.declarations):
            if any(_declares(declarator, base) for declarator in declaration.names):
                matches = declaration.space == "reg" and (declaration.vector > 1) == bool(component)
                return declaration.type if matches else None
        return None

    def registers(self, operand: Operand) -> list[str]:
        """Return the registers in ``operand``, those of an address too."""
        match operand:
            case Name(text) | Symbol(text):
                return [text] if self.type_of(text) else []
            case Not(name) | Negated(name):
                parts: Sequence[Operand] = (name,)
            case Pair(first, second):
                parts = (first, second)
            case Vector(elements) | Group(elements):
                parts = elements
            case Address(base, _, extra):
                parts = extra if base is None else (base, *extra)
            case _:
                parts = ()
        return [register for part in parts for register in self.registers(part)]


def instructions(function: Function) -> Iterator[Scoped]:
    """Yield every instruction of ``function`` in text order, those of nested blocks included."""
    yield from _sites(function.body or (), function.results + function.parameters)


def sources(module: PtxModule, functions: Iterable[Function]) -> dict[int, SourceLine]:
    """Return where each line of PTX with an instruction of ``functions`` comes from, as its ``.loc`` say."""
    lines: dict[int, SourceLine] = {}
    for function in functions:
        origins = source_lines(module, function)
        for site, origin in zip(instructions(function), origins, strict=True):
            if origin is not None:
                lines.setdefault(site.instruction.position.line, origin)
    return lines


def own_lines(module: PtxModule, functions: Iterable[Function]) -> dict[int, SourceLine]:
    """Return each line of PTX with an instruction of ``functions`` as what it is, a line of its own text."""
    path = module.source.path
    lines = {site.instruction.position.line for each in functions for site in instructions(each)}
    return {line: SourceLine(path, line) for line in sorted(lines)}


def calls(module: PtxModule, functions: Iterable[Function]) -> dict[int, tuple[SourceLine, ...]]:
    """Return of each line of PTX with an instruction the calls that it was inlined from, the innermost first."""
    chains: dict[int, tuple[SourceLine, ...]] = {}
    for function in functions:
        every = call_lines(module, function)
        for site, chain in zip(instructions(function), every, strict=True):
            chains.setdefault(site.instruction.position.line, chain)
    return chains


def _sites(statements: Sequence[Statement], visible: tuple[Declaration, ...]) -> Iterator[Scoped]:
    for statement in statements:
        if isinstance(statement, Declaration):
            visible = (*visible, statement)
        elif isinstance(statement, Block):
            yield from _sites(statement.statements, visible)
        elif isinstance(statement, Instruction):
            yield Scoped(statement, visible)


def _declares(declarator: Declarator, name: str) -> bool:
    if declarator.count is None:
        return declarator.name == name
    index = name.removeprefix(declarator.name)
    if len(index) == len(name) or not index.isdecimal() or len(index) > 10:
        return False
    return str(int(index)) == index and int(index) < declarator.count


def definition(module: PtxModule, kernel: str) -> Function:
    """Return the kernel of that name. Raises PtxlabError when there is none."""
    names = [function.name for function in module.entries]
    if kernel not in names:
        raise PtxlabError(
            f"{module.source.path} has no kernel named {kernel}",
            hint=f"its kernels: {', '.join(names)}" if names else None,
        )
    return module.entries[names.index(kernel)]


def site_at(
    module: PtxModule, function: Function, sites: Mapping[Position, Scoped], position: Position
) -> Scoped:
    """Return the one of ``sites`` at ``position``. Raises PtxlabError when it cannot be dumped there."""
    location = locate(module.source, position)
    site = sites.get(position)
    if site is None:
        raise PtxlabError(
            f"no instruction of {called(function.name)} starts here", location=location
        )
    for declaration in site.declarations:
        for declarator in declaration.names:
            if declarator.name.lstrip("%").startswith(RESERVED):
                raise PtxlabError(
                    f"the name {declarator.name} is needed for the dump",
                    location=locate(module.source, declarator.position),
                    hint=f"names that begin with {RESERVED} are reserved",
                )
    return site


def dumped_type(module: PtxModule, site: Scoped, register: str) -> str:
    """Return the type of a register that is to be dumped at ``site``.

    Raises PtxlabError for a register that is none, and Unsupported for one wider than 64 bits.
    """
    location = locate(module.source, site.instruction.position)
    declared = site.type_of(register)
    if declared is None:
        raise PtxlabError(
            f"no register named {register} is declared here",
            location=location,
            hint=_suggestion(site.declarations, register),
        )
    if declared not in TYPES or TYPES[declared].bits > 64:
        raise Unsupported(
            f"cannot dump {register}: .{declared} is no register of 64 bits or fewer",
            location=location,
        )
    return declared


def _suggestion(declarations: Sequence[Declaration], register: str) -> str | None:
    names = {
        declarator.name + (f"<{declarator.count}>" if declarator.count is not None else "")
        for declaration in declarations
        if declaration.space == "reg"
        for declarator in declaration.names
    }
    return did_you_mean(register, sorted(names))
