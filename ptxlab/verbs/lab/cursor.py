"""What stands at a place of PTX that may not be whole: the word, and the instruction that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import Function, PtxModule

_NAME = re.compile(r"%?[A-Za-z_$%][\w$]*(?:\.[\w$]+(?:::[\w$]+)*)*")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line and the column where it begins, from 1 on; what is in a comment is none."""

    text: str
    column: int

    @property
    def end(self) -> int:
        return self.column + len(self.text)


def word_at(line: str, column: int) -> Word | None:
    """Return the name or number that has the character at ``column``, counted from 1."""
    code = line.partition("//")[0]
    for match in re.finditer(rf"{_NAME.pattern}|\.?[\w$]+(?:::\w+)*", code):
        if match.start() < column <= match.end():
            return Word(match[0], match.start() + 1)
    return None


def word_before(line: str, column: int) -> Word:
    """Return what is being typed before ``column``, "" at the end of nothing."""
    before = line.partition("//")[0][: column - 1]
    begun = re.search(r"[\w$%.:]*$", before)
    text = begun[0] if begun else ""
    return Word(text, column - len(text))


def module_of(text: str) -> PtxModule | None:
    """Return the tree of PTX, None of what does not parse."""
    try:
        return parse(text)
    except PtxlabError:
        return None


def every_instruction(module: PtxModule) -> Iterator[tuple[Function, Scoped]]:
    for function in module.functions:
        for site in instructions(function):
            yield function, site


def instruction_at(module: PtxModule, line: int, column: int) -> tuple[Function, Scoped] | None:
    """Return the last instruction that begins before a place, with its function."""
    before = (
        pair
        for pair in every_instruction(module)
        if tuple(pair[1].instruction.position) <= (line, column)
    )
    return max(before, key=lambda pair: tuple(pair[1].instruction.position), default=None)
