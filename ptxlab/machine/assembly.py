"""A program and the machine code it becomes: every line of PTX with the SASS made from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ptxlab.instrument.sites import calls, instructions, sources
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.sass import SassFunction, SassInstruction, sass
from ptxlab.pictured import Readable
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.tree import Function, PtxModule
from ptxlab.toolchain.cubin import Cubin


@dataclass(frozen=True, slots=True)
class PtxLine:
    """A line of PTX, where it comes from and from which calls it was inlined, and its instructions, by address.

    ``number`` is 0, and ``text`` empty, for instructions of which the cubin names no line.
    """

    number: int
    text: str
    source: SourceLine | None
    sass: tuple[SassInstruction, ...]
    calls: tuple[SourceLine, ...] = ()


@dataclass(frozen=True)
class Assembly(Readable):
    """A program and its machine code for ``cubin.arch``; ``module`` is None where only that is at hand.

    ``launched`` is how, where it is that of a launch.
    """

    module: PtxModule | None
    cubin: Cubin
    launched: LaunchConfig | None = None

    def __repr__(self) -> str:
        of = "" if self.module is None else f" of {self.module.source.path}"
        return f"<machine code{of} for {self.cubin.arch}>"

    @cached_property
    def functions(self) -> dict[str, SassFunction]:
        """The SASS, by function. Of an instruction of several lines ptxas names the last one; here it is the first."""
        functions = sass(self.cubin)
        first = {} if self.module is None else dict(_continued(self.module))
        if not first:
            return functions
        return {
            name: replace(
                function,
                instructions=tuple(
                    replace(each, line=first[each.line]) if each.line in first else each
                    for each in function.instructions
                ),
            )
            for name, function in functions.items()
        }

    @cached_property
    def sources(self) -> dict[int, SourceLine]:
        return {} if self.module is None else sources(self.module, self.module.functions)

    @cached_property
    def calls(self) -> dict[int, tuple[SourceLine, ...]]:
        return {} if self.module is None else calls(self.module, self.module.functions)

    def lines(self, name: str) -> list[PtxLine]:
        """Return the lines of PTX that the SASS of function ``name`` was made from, in text order.

        All lines with instructions of the PTX function of that name are there, those without SASS
        too; then those of functions inlined into it. Where there is no PTX there are no lines.
        """
        if self.module is None:
            return []
        by_line: dict[int, list[SassInstruction]] = {}
        for instruction in self.functions[name].instructions:
            by_line.setdefault(instruction.line or 0, []).append(instruction)
        own = {
            site.instruction.position.line
            for function in _defined(self.module)
            if function.name == name
            for site in instructions(function)
        }
        text = self.module.source.text.splitlines()
        return [
            PtxLine(
                number,
                _bare(text[number - 1]) if 0 < number <= len(text) else "",
                self.sources.get(number),
                tuple(by_line.get(number, ())),
                self.calls.get(number, ()),
            )
            for number in sorted(own | by_line.keys())
        ]


def _defined(module: PtxModule) -> Iterator[Function]:
    return (item for item in module.items if isinstance(item, Function) and item.body is not None)


def _continued(module: PtxModule) -> Iterator[tuple[int, int]]:
    """Yield each line on which an instruction goes on, with the line on which it begins."""
    text = module.source.text.splitlines()
    for function in _defined(module):
        for site in instructions(function):
            first = line = site.instruction.position.line
            while ";" not in text[line - 1].partition("//")[0] and line < len(text):
                line += 1
                yield line, first


def _bare(line: str) -> str:
    """Return a line without its comment, and one blank where there are several."""
    return " ".join(line.partition("//")[0].split())
