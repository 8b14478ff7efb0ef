"""A function as a whole: its statements in order, where they come from, its block of parameters.

Source: PTX ISA, "Debugging Directives: .loc" and ".file"; "State Spaces: Kernel Function Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ptxlab.errors import Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import (
    Block,
    File,
    Function,
    Instruction,
    Loc,
    PtxModule,
    SourceText,
    Statement,
)

_PLACE = re.compile(r"(?P<file>.*\.\w+):(?P<line>\d+)")
_INLINED = re.compile(r"inlined_at (\d+) (\d+) (\d+)")


def statements(function: Function) -> Iterator[Statement]:
    """Yield the statements of ``function`` in text order, those inside ``{ }`` in place of the block."""
    yield from _flat(function.body or ())


def _flat(body: Sequence[Statement]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, Block):
            yield from _flat(statement.statements)
        else:
            yield statement


class SourceLine(NamedTuple):
    """A line, counted from 1, of the file ``path``, as the compiler names it."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line as a user names it, ``naive.cu:52``: of the files whose path ends so."""

    file: str
    line: int

    @classmethod
    def read(cls, text: str) -> SourcePlace | None:
        """Return the place that ``FILE:LINE`` names, None for anything else."""
        match = _PLACE.fullmatch(text)
        return cls(match["file"], int(match["line"])) if match else None

    def is_line(self, source: SourceLine | None) -> bool:
        if source is None or source.line != self.line:
            return False
        return f"/{source.path}".endswith(f"/{self.file.removeprefix('./').lstrip('/')}")


def source_lines(module: PtxModule, function: Function) -> tuple[SourceLine | None, ...]:
    """Return for every instruction of ``function``, in text order, where it comes from.

    Of an inlined function it is the line inside it. None before the first ``.loc``, and where one
    names line 0 or a file that is not declared.
    """
    files = {item.index: item.path for item in module.items if isinstance(item, File)}
    here: SourceLine | None = None
    lines: list[SourceLine | None] = []
    for statement in _outside_assembly(module, function):
        if isinstance(statement, Loc):
            known = statement.file in files and statement.line > 0
            here = SourceLine(files[statement.file], statement.line) if known else None
        elif isinstance(statement, Instruction):
            lines.append(here)
    return tuple(lines)


def call_lines(module: PtxModule, function: Function) -> tuple[tuple[SourceLine, ...], ...]:
    """Return for every instruction of ``function``, in text order, the calls that it was inlined from.

    The innermost comes first. A ``.loc`` names one call; where that lies in an inlined function too, an
    earlier ``.loc`` of the same place says from where it is called.
    """
    files = {item.index: item.path for item in module.items if isinstance(item, File)}
    known: dict[tuple[int, ...], tuple[SourceLine, ...]] = {}
    here: tuple[SourceLine, ...] = ()
    chains: list[tuple[SourceLine, ...]] = []
    for statement in _outside_assembly(module, function):
        if isinstance(statement, Loc):
            here = ()
            if inlined := _INLINED.search(statement.rest):
                file, line, column = map(int, inlined.groups())
                outer = known.get((file, line, column), ())
                here = (SourceLine(files[file], line), *outer) if file in files else ()
            known[statement.file, statement.line, statement.column] = here
        elif isinstance(statement, Instruction):
            chains.append(here)
    return tuple(chains)


def _outside_assembly(module: PtxModule, function: Function) -> Iterator[Statement]:
    """Yield the statements of ``function``, without the ``.loc`` of lines of inline assembly.

    There LLVM goes on counting: it takes each line of the assembly for one of the source.
    """
    inside: set[int] = set()
    begin = 0
    for number, line in enumerate(module.source.text.split("\n"), 1):
        if "// begin inline asm" in line:
            begin = number
        elif begin and "// end inline asm" in line:
            inside.update(range(begin, number))
            begin = 0
    for statement in statements(function):
        if not isinstance(statement, Loc) or statement.position.line not in inside:
            yield statement


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel ``.param``: its position, PTX type, size and alignment in bytes, block offset.

    ``is_pointer`` is declared by ``.ptr``; ``count`` is the number of elements of ``type``, more
    than 1 for a struct or array passed by value.
    """

    index: int
    name: str
    type: str
    count: int
    size: int
    alignment: int
    offset: int
    is_pointer: bool


def parameters(function: Function, source: SourceText | None = None) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel with the size, alignment and offset of each, in bytes.

    Their names are those of the PTX, or with the ``source`` of a module what that knows they are called. Compilers
    put the kernel's name before: of ``k_param_0`` it is ``param_0``.

    Each lies at the next multiple of its alignment, the size of its type unless ``.align`` says more, which is
    counted from the function's ``origin``.
    """
    laid_out: list[Parameter] = []
    names = source.arguments.get(function.name, ()) if source else ()
    end = 0
    for index, declaration in enumerate(function.parameters):
        (declarator,) = declaration.names
        scalar = TYPES.get(declaration.type)
        if scalar is None or None in declarator.dimensions:
            raise Unsupported(
                f"kernel {called(function.name)}: parameter {index} ({declarator.name}) has type "
                f".{declaration.type}, which no argument can be bound to"
            )
        count = prod(size or 0 for size in declarator.dimensions) * declaration.vector
        natural = scalar.bytes * declaration.vector
        alignment = max(natural, declaration.alignment or 1)
        offset = end + -(function.origin + end) % alignment
        size = count * scalar.bytes
        pointer = declaration.pointer is not None
        name = declarator.name.removeprefix(f"{function.name}_")
        if index < len(names):  # who instruments a kernel adds some behind those of the source
            name = names[index]
        laid_out.append(
            Parameter(index, name, scalar.name, count, size, alignment, offset, pointer)
        )
        end = offset + size
    return tuple(laid_out)
