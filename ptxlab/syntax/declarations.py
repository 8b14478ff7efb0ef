"""Declarations of variables and registers, and initialisers (PTX ISA, "Variables")."""

from __future__ import annotations

from ptxlab.isa.targets import WARP
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import expressions
from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.lexer import TokenKind
from ptxlab.syntax.tree import (
    Aggregate,
    Declaration,
    Declarator,
    Initializer,
    Integer,
    Position,
    Symbol,
)

LINKAGES = frozenset((".extern", ".visible", ".weak", ".common"))
SPACES = frozenset((".reg", ".global", ".shared", ".const", ".local", ".param", ".tex"))
_TYPES = frozenset(f".{name}" for name in (*TYPES, "texref", "samplerref", "surfref"))
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
STARTS = SPACES | {".align", ".attribute"}
"""What a declaration without linkage begins with."""

_ORDER = (LINKAGES, STARTS, frozenset(_VECTORS), _TYPES, frozenset((".ptr",)))
_RANKS = {text: at for at, group in enumerate(_ORDER) for text in group}


class _Qualifiers:
    """What precedes the names of a declaration, collected in the order written."""

    def __init__(self, linkage: str) -> None:
        self.linkage = linkage
        self.space = ""
        self.type = ""
        self.vector = 1
        self.alignment: int | None = None
        self.attributes: tuple[str, ...] = ()
        self.pointer: tuple[str, int | None] | None = None
        self._rank = 0

    def read(self, c: Cursor) -> None:
        text = c.token.text
        if not self.pointer and (rank := _RANKS.get(text)) is not None:
            self._in_order(c, text, rank)
        if text in _TYPES:
            self._once(c, self.type, "type")
            self.type = text[1:]
        elif text in SPACES and self.pointer:
            space, alignment = self.pointer
            self._once(c, space, "pointer space")
            self.pointer = text[1:], alignment
        elif text in SPACES:
            self._once(c, self.space, "state space")
            self.space = text[1:]
        elif text in LINKAGES:
            self._once(c, self.linkage, "linkage")
            self.linkage = text[1:]
        elif text in _VECTORS:
            self._once(c, f"v{self.vector}" if self.vector > 1 else "", "vector")
            self.vector = _VECTORS[text]
        elif text == ".ptr":
            self.pointer = self.pointer or ("", None)
        elif text == ".align":
            self._align(c)
            return
        elif text == ".attribute":
            self.attributes = attributes(c)
            return
        else:
            c.fail_unknown("qualifier", _RANKS)
        c.advance()

    def _in_order(self, c: Cursor, text: str, rank: int) -> None:
        """Hold the qualifiers to the order of the PTX ISA, which ptxas insists on."""
        if rank < self._rank:
            hint = "the order is: linkage, state space and alignment, vector, type"
            c.fail(f"{text} comes too late here", hint=hint)
        self._rank = rank

    def _align(self, c: Cursor) -> None:
        c.advance()
        position = c.token.position
        value = c.integer("an alignment in bytes")
        if value == 0 or value & (value - 1):
            c.fail("an alignment is a power of two", position)
        if self.pointer:
            self.pointer = self.pointer[0], value
        else:
            self.alignment = value

    def _once(self, c: Cursor, before: str, what: str) -> None:
        if before:
            c.fail(f"a second {what}, after .{before}")

    def declaration(self, names: tuple[Declarator, ...], position: Position) -> Declaration:
        return Declaration(
            self.space,
            self.type,
            names,
            self.linkage,
            self.alignment,
            self.vector,
            self.pointer,
            self.attributes,
            position=position,
        )


def declaration(c: Cursor, linkage: str = "") -> Declaration:
    """declaration : qualifiers declarator { "," declarator } ";" """
    position = c.token.position
    qualifiers = _qualifiers(c, linkage)
    names = c.listed(lambda: _declarator(c))
    c.expect(";", "the declaration")
    return qualifiers.declaration(names, position)


def parameter_list(c: Cursor) -> tuple[Declaration, ...]:
    """parameter_list : "(" [ parameter { "," parameter } ] ")"

    Without a parenthesis here it is empty.
    """
    if not c.accept("(") or c.accept(")"):
        return ()
    declared = c.listed(lambda: _parameter(c))
    c.expect(")", "the last parameter")
    return declared


def attributes(c: Cursor) -> tuple[str, ...]:
    """attributes : ".attribute" "(" attribute { "," attribute } ")"

    An attribute is kept as text, ``.managed`` or ``.unified(19,95)``.
    """
    c.advance()
    c.expect("(", ".attribute")
    texts = c.listed(lambda: _attribute(c))
    c.expect(")", "the attributes")
    return texts


def _attribute(c: Cursor) -> str:
    """attribute : ".name" [ "(" integer { "," integer } ")" ]"""
    if c.token.kind is not TokenKind.DOTTED:
        c.fail(f"expected an attribute such as .managed, found {c.found()}")
    text = c.advance().text
    if not c.accept("("):
        return text
    numbers = c.listed(lambda: str(c.integer("a number")))
    c.expect(")", "the attribute's values")
    return f"{text}({','.join(numbers)})"


def _parameter(c: Cursor) -> Declaration:
    """parameter : qualifiers declarator"""
    position = c.token.position
    qualifiers = _qualifiers(c, "")
    if qualifiers.space not in ("param", "reg"):
        c.fail("a parameter is .param or .reg", position)
    return qualifiers.declaration((_declarator(c, named=c.token.text != "_"),), position)


def _qualifiers(c: Cursor, linkage: str) -> _Qualifiers:
    """qualifiers : { linkage | space | ".align" n | ".attribute" (...) | vector | type | ".ptr" }"""
    position = c.token.position
    qualifiers = _Qualifiers(linkage)
    while c.token.kind is TokenKind.DOTTED:
        qualifiers.read(c)
    if not qualifiers.space:
        c.fail("a declaration needs a state space", position, "for example .reg or .shared")
    if not qualifiers.type:
        c.fail(f"this .{qualifiers.space} declaration has no type", hint="for example .b32")
    return qualifiers


def _declarator(c: Cursor, *, named: bool = True) -> Declarator:
    """declarator : name [ "<" count ">" ] { "[" [ size ] "]" } [ "=" initializer ]"""
    token = c.name("a name to declare") if named else c.word("a name to declare")
    count = None
    if c.accept("<"):
        count = c.integer("how many registers")
        c.expect(">", "the number of registers")
    dimensions: list[int | None] = []
    while c.accept("["):
        dimensions.append(None if c.token.text == "]" else _dimension(c))
        c.expect("]", "the array's size, one number")
    initializer = _initializer(c) if c.accept("=") else None
    return Declarator(token.text, count, tuple(dimensions), initializer, position=token.position)


def _dimension(c: Cursor) -> int:
    """size : integer | WARP_SZ"""
    return WARP if c.accept(expressions.WARP_SIZE) else c.integer("an array's size, a number")


def _initializer(c: Cursor) -> Initializer:
    """initializer : "{" [ initializer { "," initializer } ] "}" | symbol | mask | constant"""
    token = c.token
    if token.text == "{":
        c.advance()
        elements = () if c.token.text == "}" else c.listed(lambda: _initializer(c))
        c.expect("}", "the initialiser")
        return Aggregate(elements, position=token.position)
    if token.kind is TokenKind.TABLE:
        numbers = c.advance().text[1:-1].split(",")
        integers = [Integer(int(number, 0), position=token.position) for number in numbers]
        return Aggregate(tuple(integers), position=token.position)
    if token.kind is TokenKind.WORD and token.text != expressions.WARP_SIZE:
        return _symbol(c)
    following = c.peek().text
    if token.kind is TokenKind.INTEGER:
        if following in (",", "}", ";"):
            c.advance()
            return Integer(c.integer_value(token), position=token.position)
        if following == "(":
            return _masked(c)
    return expressions.constant(c)


def _masked(c: Cursor) -> Symbol:
    """mask : integer "(" symbol ")" : one byte of an address"""
    token = c.advance()
    mask = c.integer_value(token)
    c.expect("(", "the mask")
    inner = _symbol(c)
    c.expect(")", "the masked address")
    return Symbol(inner.name, inner.offset, inner.generic, mask, position=token.position)


def _symbol(c: Cursor) -> Symbol:
    """symbol : (name | "generic" "(" name ")") offset"""
    token = c.word("a variable or function")
    name, generic = token.text, False
    if name == "generic" and c.accept("("):
        name, generic = c.word("a variable or function").text, True
        c.expect(")", "generic(" + name)
    return Symbol(name, expressions.offset(c), generic, position=token.position)
