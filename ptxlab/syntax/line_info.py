"""Which line of the original source each instruction comes from, as ``.loc`` and ``.file`` say.

Source: PTX ISA, "Debugging Directives: .loc" and ".file". Of an inlined function it is the line inside it.
"""

from __future__ import annotations

from typing import NamedTuple

from ptxlab.syntax.tree import File, Function, Instruction, Location, Module
from ptxlab.syntax.walk import statements


class SourceLine(NamedTuple):
    """A line, counted from 1, of the file ``path``, as the compiler names it."""

    path: str
    line: int


def source_lines(module: Module, function: Function) -> tuple[SourceLine | None, ...]:
    """Return for every instruction of ``function``, in text order, where it comes from.

    None before the first ``.loc``, and where one names line 0 or a file that is not declared.
    """
    files = {item.index: item.path for item in module.items if isinstance(item, File)}
    here: SourceLine | None = None
    found: list[SourceLine | None] = []
    for statement in statements(function):
        if isinstance(statement, Location):
            known = statement.file in files and statement.line > 0
            here = SourceLine(files[statement.file], statement.line) if known else None
        elif isinstance(statement, Instruction):
            found.append(here)
    return tuple(found)
