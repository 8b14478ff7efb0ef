"""PTX text to tokens (PTX ISA, "Source Format", "Comments", "Identifiers", "Constants").

A word and the dotted parts that touch it are one token: ``ld.shared::cta.b32``, ``%tid.x``. Parts
that stand alone (``.reg``, or a modifier after a space) are tokens of their own.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from ptxlab.errors import Location, PtxSyntaxError
from ptxlab.syntax.tree import Position, Source


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    DOTTED = auto()
    INTEGER = auto()
    HEX_FLOAT = auto()
    FLOAT = auto()
    STRING = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """One token: its kind, its text as written and where it starts."""

    kind: Kind
    text: str
    position: Position


_GROUPS: tuple[tuple[Kind | str, str], ...] = (
    ("newline", r"\n"),
    ("comment", r"/\*(?s:.*?)\*/"),
    ("open comment", r"/\*"),
    # A lone % is the remainder operator; %3 is a register, as ptxas reads it too.
    (Kind.WORD, r"(?:[A-Za-z][\w$]*|[_$%][\w$]+|_)(?:\.[\w$]+(?:::[\w$]+)*)*"),
    (
        Kind.FLOAT,
        r"(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w$.:])",
    ),
    (Kind.DOTTED, r"\.[\w$]+(?:::[\w$]+)*"),
    (Kind.HEX_FLOAT, r"0(?:[fF][0-9a-fA-F]{8}|[dD][0-9a-fA-F]{16})(?![\w$])"),
    (Kind.INTEGER, r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?(?![\w$])"),
    (Kind.SIGN, r"<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>=?:;,@(){}\[\]]"),
    (Kind.STRING, r'"[^"\n]*"'),
    ("number", r"\d[\w$.]*"),
    ("open string", r'"'),
    ("character", r"."),
)
_BLANKS = r"(?>(?:[ \t\r\f\v]+|//[^\n]*)*)"
_TOKEN = re.compile(
    _BLANKS + "(?:" + "|".join(f"({pattern})" for _, pattern in _GROUPS) + ")?", re.ASCII
)
_KINDS = (None, *(kind for kind, _ in _GROUPS))
_FAULTS: dict[str, tuple[str, str | None]] = {
    "number": (
        "malformed number",
        "integers are 10, 0x1F, 017, 0b101 with an optional U; floats 1.5, 0f3F800000 (8 digits), "
        "0d3FF0000000000000 (16 digits)",
    ),
    "open comment": ("this comment is never closed", "add */"),
    "open string": ("this string is not closed on its line", 'add "'),
    "character": ("unexpected character", None),
}


def locate(source: Source, position: Position) -> Location:
    """Return ``position`` of ``source`` in the form that errors carry."""
    line, column = position
    return Location(source.path, line, max(column, 1), source.line(line))


def tokenize(source: Source) -> list[Token]:
    """Split ``source`` into tokens, ending in one of kind END.

    Raises PtxSyntaxError at a character, number, string or comment that is none.
    """
    tokens: list[Token] = []
    append = tokens.append
    line, line_start = 1, 0
    for match in _TOKEN.finditer(source.text):
        group = match.lastindex
        if group is None:
            continue
        kind = _KINDS[group]
        if kind == "newline":
            line += 1
            line_start = match.end()
        elif isinstance(kind, Kind):
            start, end = match.span(group)
            append(Token(kind, match.string[start:end], Position(line, start - line_start + 1)))
        elif kind == "comment":
            text = match[group]
            if "\n" in text:
                line += text.count("\n")
                line_start = match.start(group) + text.rindex("\n") + 1
        else:
            position = Position(line, match.start(group) - line_start + 1)
            message, hint = _FAULTS[str(kind)]
            if kind in ("number", "character"):
                message += f" {match[group]!r}"
            raise PtxSyntaxError(message, location=locate(source, position), hint=hint)
    append(Token(Kind.END, "", Position(line, len(source.text) - line_start + 1)))
    return tokens
