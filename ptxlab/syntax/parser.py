"""PTX modules: the directives at the top of a file, functions, variables and debugging data.

Recursive descent over the tokens; the grammar rule stands above each function. Source: PTX ISA,
"Directives".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar, overload

from ptxlab.errors import did_you_mean, shortened
from ptxlab.garbage import uncollected
from ptxlab.isa.targets import TARGETS, ptx_since
from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.declarations import (
    LINKAGES,
    SPACES,
    STARTS,
    attributes,
    declaration,
    parameter_list,
)
from ptxlab.syntax.lexer import Token, TokenKind
from ptxlab.syntax.statements import body, directives, pragma
from ptxlab.syntax.tree import (
    Alias,
    File,
    Function,
    Item,
    PtxModule,
    Section,
    SourceText,
    Statement,
)

T = TypeVar("T")

_OLDEST_MAJOR, _NEWEST_MAJOR = 6, 19
_LAST_MINOR = {6: 5, 7: 8, 8: 8}
_TARGET_OPTIONS = ("debug", "texmode_unified", "texmode_independent")
_TARGET = re.compile(r"sm_\d{2,4}[af]?")
_HEADER = (".version", ".target", ".address_size")
_KNOWN = (*_HEADER, ".entry", ".func", ".file", ".section", ".alias", ".pragma")


@lru_cache(maxsize=8)
@uncollected()
def parse(text: str, path: str = "<ptx>", *, skim: bool = False) -> PtxModule:
    """Parse a PTX module; ``path`` is the name errors call it by.

    ``.version`` 6.0 and later are read. Constant expressions arrive folded; nothing is resolved or
    checked beyond the grammar. To ``skim`` is to read the body of a function when it is first asked
    for, which then raises what is wrong in it: of a library of kernels few are used. The trees of the
    latest texts are kept: nobody can change them.

    Raises PtxSyntaxError with the place of the first thing that is not PTX.
    """
    return _parsed(Cursor(SourceText(text, path), skim=skim), _module)


def _parsed(c: Cursor, rule: Callable[[Cursor], T]) -> T:
    try:
        return rule(c)
    except RecursionError:
        position = c.token.position
    return c.fail("blocks, lists or expressions nest too deeply here", position)


class Unread(Sequence[Statement]):
    """The statements of a body that was passed over, read when they are first asked for."""

    __slots__ = ("_read", "_source", "_token")

    def __init__(self, source: SourceText, token: Token) -> None:
        self._source = source
        self._token = token
        self._read: tuple[Statement, ...] | None = None

    def _statements(self) -> tuple[Statement, ...]:
        if self._read is None:
            self._read = _parsed(Cursor(self._source, self._token), body)
        return self._read

    @overload
    def __getitem__(self, index: int) -> Statement: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Statement]: ...
    def __getitem__(self, index: int | slice) -> Statement | Sequence[Statement]:
        return self._statements()[index]

    def __len__(self) -> int:
        return len(self._statements())

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._statements())

    def __eq__(self, other: object) -> bool:
        return self._statements() == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._statements())


def _module(c: Cursor) -> PtxModule:
    """module : version target [ address_size ] { item }"""
    version = _version(c)
    targets = _targets(c, version)
    address_size = _address_size(c)
    items: list[Item] = []
    while not c.at_end():
        items.append(_item(c))
    return PtxModule(version, targets, address_size, tuple(items), c.source)


def _version(c: Cursor) -> tuple[int, int]:
    """version : ".version" major "." minor"""
    if c.token.text != ".version":
        c.fail(f"a module begins with .version, found {c.found()}", hint="add .version 8.0")
    c.advance()
    number = c.token
    major, _, minor = number.text.partition(".")
    if number.kind is not TokenKind.FLOAT or not (major.isdecimal() and minor.isdecimal()):
        c.fail(f"expected a version such as 8.0, found {c.found()}")
    c.advance()
    known = _OLDEST_MAJOR <= int(major[:4]) <= _NEWEST_MAJOR
    if len(minor) > 2 or not known or int(minor) > _LAST_MINOR.get(int(major), 99):
        c.fail(f"PTX version {number.text} is not supported", number.position, "6.0 and later are")
    return int(major), int(minor)


def _targets(c: Cursor, version: tuple[int, int]) -> tuple[str, ...]:
    """target : ".target" architecture { "," (architecture | option) }"""
    if c.token.text != ".target":
        c.fail(f".version is followed by .target, found {c.found()}", hint="add .target sm_90a")
    c.advance()
    first = c.token
    names = [c.word("a target such as sm_90a").text]
    while c.accept(","):
        names.append(c.word("a target option such as debug").text)
    if not names[0].startswith("sm_"):
        c.fail("a .target names an architecture such as sm_90a, first of all", first.position)
    for name in names:
        if not name.startswith("sm_"):
            if name not in _TARGET_OPTIONS:
                hint = did_you_mean(name, _TARGET_OPTIONS)
                c.fail(f"'{shortened(name)}' is no option of a target", first.position, hint)
            continue
        if not _TARGET.fullmatch(name):
            c.fail("a target is sm_ and a number, such as sm_90a", first.position)
        since = ptx_since(name)
        if since is None:
            c.fail(f"there is no target {name}", first.position, did_you_mean(name, TARGETS))
        if version < since:
            hint = f"write .version {since[0]}.{since[1]} or later"
            c.fail(f"PTX {version[0]}.{version[1]} has no target {name}", first.position, hint)
    if {"texmode_unified", "texmode_independent"} <= {*names}:
        c.fail("a target has one texmode", first.position)
    return tuple(names)


def _address_size(c: Cursor) -> int:
    """address_size : ".address_size" ("32" | "64"). Without it, 64, as ptxas takes it."""
    if not c.accept(".address_size"):
        return 64
    position = c.token.position
    size = c.integer("32 or 64")
    if size not in (32, 64):
        c.fail(f"an address size is 32 or 64, not {size}", position)
    return size


def _item(c: Cursor) -> Item:
    """item : [ linkage ] (function | declaration) | file | section | alias | pragma"""
    token = c.token
    text = token.text
    if text in LINKAGES:
        following = c.peek().text
        if following in (".entry", ".func"):
            c.advance()
            return _function(c, text[1:], token)
        return declaration(c)
    if text in (".entry", ".func"):
        return _function(c, "", token)
    if text in STARTS:
        return declaration(c)
    if text == ".file":
        return _file(c)
    if text == ".section":
        return _section(c)
    if text == ".alias":
        return _alias(c)
    if text == ".pragma":
        return pragma(c)
    if text in _HEADER:
        c.fail(
            f"{text} is not at the top of the file", hint="order: .version .target .address_size"
        )
    if token.kind is TokenKind.DOTTED:
        c.fail_unknown("directive", (*_KNOWN, *LINKAGES, *SPACES))
    hint = "is there one '}' too many above?" if text == "}" else None
    return c.fail(f"expected a function or a variable, found {c.found()}", hint=hint)


def _function(c: Cursor, linkage: str, first: Token) -> Function:
    """function : (".entry" | ".func" [ attributes ] [ parameter_list ]) name [ parameter_list ] directives (body | ";")"""
    is_entry = c.advance().text == ".entry"
    attached = attributes(c) if c.token.text == ".attribute" and not is_entry else ()
    results = () if is_entry else parameter_list(c)
    name = c.name("the name of a kernel" if is_entry else "the name of a function").text
    accepted = parameter_list(c)
    body_directives = directives(c)
    statements: Sequence[Statement] | None = None
    if c.token.kind is TokenKind.BODY:
        statements = Unread(c.source, c.advance())
    elif c.token.text == "{":
        statements = body(c)
    elif not c.accept(";"):
        c.fail(f"expected '{{' or ';' after the head of {name}, found {c.found()}")
    return Function(
        name,
        is_entry,
        accepted,
        results,
        linkage,
        body_directives,
        statements,
        attached,
        position=first.position,
    )


def _file(c: Cursor) -> File:
    """file : ".file" index string [ "," timestamp "," size ]"""
    position = c.advance().position
    index = c.integer("a file index")
    path = c.string("a path")
    rest: list[int] = []
    while c.accept(","):
        rest.append(c.integer("a timestamp or size"))
    return File(index, path, tuple(rest), position=position)


def _section(c: Cursor) -> Section:
    """section : ".section" name "{" { debugging data } "}" """
    position = c.advance().position
    if c.token.kind is not TokenKind.DOTTED:
        c.fail(f"expected the name of a section, found {c.found()}")
    name = c.advance().text
    opened = c.expect("{", "the name of a section")
    lines: list[str] = []
    while c.token.text != "}":
        if c.at_end() or c.token.text in ("{", ".section", ".entry", ".func"):
            c.fail("this '{' is never closed", opened.position, "add '}'")
        lines.append(_line(c))
    c.advance()
    return Section(name, tuple(lines), position=position)


def _line(c: Cursor) -> str:
    """Take the tokens of one line of debugging data, up to a closing brace, as text."""
    line = c.token.position.line
    words: list[str] = []
    end = 0
    while c.token.position.line == line and not c.at_end() and c.token.text != "}":
        token = c.advance()
        if words and token.position.column > end:
            words.append(" ")
        words.append(token.text)
        end = token.position.column + len(token.text)
    return "".join(words)


def _alias(c: Cursor) -> Alias:
    """alias : ".alias" name "," name ";" """
    position = c.advance().position
    name = c.word("the alias").text
    c.expect(",", "the alias")
    target = c.word("the function it stands for").text
    c.expect(";", "the alias")
    return Alias(name, target, position=position)
