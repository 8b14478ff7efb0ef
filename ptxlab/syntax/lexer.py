"""PTX text to tokens (PTX ISA, "Source Format", "Comments", "Identifiers", "Constants").

A word and the dotted parts that touch it are one token: ``ld.shared::cta.b32``, ``%tid.x``. Parts
that stand alone (``.reg``, or a modifier after a space) are tokens of their own.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from ptxlab.errors import Location, PtxSyntaxError
from ptxlab.syntax.tree import Position, SourceText


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()
    DOTTED = auto()
    INTEGER = auto()
    HEX_FLOAT = auto()
    FLOAT = auto()
    STRING = auto()
    SIGN = auto()
    TABLE = auto()
    BODY = auto()
    END = auto()


class Token(NamedTuple):
    """One token: its kind, its text as written and where it starts.

    The text of a BODY is all of a function's body, from its brace to the one that closes it, and that
    of a TABLE the same of a long list of integers.
    """

    kind: TokenKind
    text: str
    position: Position


_PART = r"\.[\w$]+(?:::[\w$]+(?:(?<=::\d):\d+)?)*"
"""A part of a name behind its first: ``.global``, ``.shared::cta``, ``.sp::2:4``."""

_GROUPS: tuple[tuple[TokenKind | str, str], ...] = (
    ("newline", r"\n"),
    ("comment", r"/\*(?s:.*?)\*/"),
    ("open comment", r"/\*"),
    # A lone % is the remainder operator; %3 is a register, as ptxas reads it too.
    (TokenKind.WORD, rf"(?:[A-Za-z][\w$]*|[_$%][\w$]+|_)(?:{_PART})*"),
    (
        TokenKind.FLOAT,
        r"(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w$.:])",
    ),
    (TokenKind.DOTTED, _PART),
    (TokenKind.HEX_FLOAT, r"0(?:[fF][0-9a-fA-F]{8}|[dD][0-9a-fA-F]{16})(?![\w$])"),
    (TokenKind.INTEGER, r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?(?![\w$])"),
    (TokenKind.SIGN, r"<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>=?:;,@(){}\[\]]"),
    (TokenKind.STRING, r'"[^"\n]*"'),
    ("number", r"\d[\w$.]*"),
    ("open string", r'"'),
    ("character", r"."),
)
_BLANKS = r"(?>(?:[ \t\r\f]+|//[^\n]*)*)"
_TOKEN = re.compile(
    _BLANKS + "(?:" + "|".join(f"({pattern})" for _, pattern in _GROUPS) + ")?", re.ASCII
)
_KINDS = (None, *(kind for kind, _ in _GROUPS))
_TOKENS = tuple(kind if isinstance(kind, TokenKind) else None for kind in _KINDS)
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


def locate(source: SourceText, position: Position) -> Location:
    """Return ``position`` of ``source`` in the form that errors carry."""
    line, column = position
    return Location(source.path, line, max(column, 1), source.line(line))


def locate_line(source: SourceText, line: int) -> Location:
    """Return where the text of a line begins."""
    text = source.line(line)
    return locate(source, Position(line, len(text) - len(text.lstrip()) + 1))


_NUMBER = r"\s*(?:0[xX][0-9a-fA-F]{1,16}|0|[1-9]\d{0,18})\s*"
_TABLE = re.compile(rf"\{{(?:{_NUMBER},){{64,}}{_NUMBER}\}}", re.ASCII)
_HIDDEN = re.compile(r"//[^\n]*[{}]"), re.compile(r'"[^\n]*[{}]')
_BRACES = re.compile(r'[{}]|//[^\n]*|/\*(?s:.*?)\*/|"[^"\n]*"')


def tokenize(source: SourceText, body: Token | None = None, *, skim: bool = False) -> list[Token]:
    """Split ``source``, or one ``body`` in it, into tokens, ending in one of kind END.

    To ``skim`` is to make one BODY of every function's body, one TABLE of every long list of integers,
    and not to look inside: much faster.
    Raises PtxSyntaxError at a character, number, string or comment that is none.
    """
    _, text, start = body or Token(TokenKind.BODY, source.text, Position(1, 1))
    tokens: list[Token] = []
    append, new = tokens.append, tuple.__new__  # Token(...) takes three times as long
    line, line_start = start.line, 1 - start.column
    matches = _TOKEN.finditer(text)
    while match := next(matches, None):
        group = match.lastindex
        if group is None:
            continue
        begin, end = match.span(group)
        kind = _TOKENS[group]
        if kind is not None:
            position = new(Position, (line, begin - line_start + 1))
            if skim and text[begin] == "{" and (passed_over := _unread(text, begin, tokens)):
                kind, end = passed_over
                line, line_start = _moved(text, begin, end, line, line_start)
                matches = _TOKEN.finditer(text, end)
            append(new(Token, (kind, text[begin:end], position)))
            continue
        what = _KINDS[group]
        if what == "newline":
            line += 1
            line_start = end
        elif what == "comment":
            line, line_start = _moved(text, begin, end, line, line_start)
        else:
            message, hint = _FAULTS[str(what)]
            if what in ("number", "character"):
                message += f" {match[group]!r}"
            position = Position(line, begin - line_start + 1)
            raise PtxSyntaxError(message, location=locate(source, position), hint=hint)
    append(Token(TokenKind.END, "", Position(line, len(text) - line_start + 1)))
    return tokens


def _moved(text: str, begin: int, end: int, line: int, line_start: int) -> tuple[int, int]:
    """Return the number and the start of the line that ``end`` is on, given those of ``begin``."""
    lines = text.count("\n", begin, end)
    return (line + lines, text.rindex("\n", begin, end) + 1) if lines else (line, line_start)


def _unread(text: str, begin: int, before: list[Token]) -> tuple[TokenKind, int] | None:
    """Return the kind and the end of what is not looked into from a brace on; None where there is nothing."""
    if _opens_body(before):
        end = _closed(text, begin)
        return (TokenKind.BODY, end) if end else None
    table = _TABLE.match(text, begin)
    return (TokenKind.TABLE, table.end()) if table else None


def _opens_body(before: list[Token]) -> bool:
    """Say whether a brace behind these tokens opens a function: not an initialiser, not debugging data."""
    texts = [token.text for token in before[-2:]]
    return bool(texts) and texts[-1] not in ("=", "{", ",") and texts[0] != ".section"


def _closed(text: str, begin: int) -> int:
    """Return where the brace at ``begin`` is closed, behind its partner; 0 if it is not."""
    # Compilers close a body at the beginning of a line. To look for braces alone is much faster.
    end = text.find("\n}", begin) + 2
    if end > 1 and _is_plain(text, begin, end):
        closed = _partner(text, begin, end)
        if closed:
            return closed
    depth = 0
    for match in _BRACES.finditer(text, begin):
        sign = match[0]
        if sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if not depth:
                return match.end()
    return 0


def _partner(text: str, begin: int, end: int) -> int:
    """Return the same of text up to ``end`` in which every brace counts."""
    depth, opens, closes = 0, begin, text.find("}", begin, end)
    while closes >= 0:
        if 0 <= opens < closes:
            depth += 1
            opens = text.find("{", opens + 1, end)
        else:
            depth -= 1
            if not depth:
                return closes + 1
            closes = text.find("}", closes + 1, end)
    return 0


def _is_plain(text: str, begin: int, end: int) -> bool:
    """Say whether no brace from ``begin`` to ``end`` can be part of a comment or a string."""
    if text.find("/*", begin, end) >= 0:
        return False
    return not any(hidden.search(text, begin, end) for hidden in _HIDDEN)
