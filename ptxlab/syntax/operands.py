"""Operands of instructions (PTX ISA, "Instruction Operands")."""

from __future__ import annotations

from typing import NoReturn

from ptxlab.syntax import expressions
from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.expressions import WARP_SIZE
from ptxlab.syntax.lexer import TokenKind
from ptxlab.syntax.tree import (
    Address,
    Element,
    Group,
    Integer,
    Name,
    Negated,
    Not,
    Operand,
    Pair,
    Symbol,
    Vector,
)

_ENDS = frozenset((",", ";", "]", "}", ")"))
_INSTRUCTION = "the instruction"


def operands(c: Cursor, *, call: bool) -> tuple[Operand, ...]:
    """operands : [ operand { "," operand } ] ";" """
    if c.token.text == ";":
        c.advance()
        return ()
    if c.token.text == "}" or c.at_end():
        _fail_at_end(c)
    behind_opcode = c.behind() if c.starts_line() else None
    parsed = c.listed(lambda: operand(c, call=call))
    if c.token.text != ";":
        # "ret" and a line below it "mov.u32 x, 1;": what looked like an operand was an opcode.
        if behind_opcode and len(parsed) == 1 and not c.starts_line():
            c.fail_unended(_INSTRUCTION, behind_opcode)
        _fail_at_end(c)
    c.advance()
    return parsed


def operand(c: Cursor, *, call: bool = False) -> Operand:
    """operand : name | symbol | pair | address | vector | group | "!" name | "-" name | constant

    A parenthesis opens a group in a ``call`` and an expression elsewhere.
    """
    token = c.token
    kind, text, position = token
    if kind is TokenKind.WORD:
        return _named(c)
    if kind is TokenKind.INTEGER and c.peek().text in _ENDS:
        c.advance()
        return Integer(c.integer_value(token), position=position)
    if text == "[":
        return _address(c)
    if text == "{":
        return Vector(_list(c, "}"), position=position)
    if text in ("!", "-"):
        following = c.peek()
        if following.kind is TokenKind.WORD and following.text != WARP_SIZE:
            c.advance()
            node = Not if text == "!" else Negated
            return node(_name(c), position=position)
    if text == "(" and call:
        return Group(_list(c, ")"), position=position)
    return expressions.constant(c)


def _named(c: Cursor) -> Operand:
    """name | pair : name "|" name | symbol : name offset | element | "WARP_SZ" ..."""
    _, text, position = c.token
    if text == WARP_SIZE:
        return expressions.constant(c)
    name = _name(c)
    following = c.token.text
    if following in _ENDS:
        return name
    if following == "|":
        c.advance()
        if c.token.kind is not TokenKind.WORD:
            c.fail(f"expected the second destination after '|', found {c.found()}")
        return Pair(name, _name(c), position=position)
    if following in ("+", "-"):
        return Symbol(text, expressions.offset(c), position=position)
    if following == "[":
        return _element(c, name)
    return name


def _element(c: Cursor, array: Name) -> Element:
    """element : name "[" (name [offset] | expression) "]" """
    c.advance()
    token = c.token
    index: Integer | Name | Symbol
    if token.kind is TokenKind.WORD and token.text != WARP_SIZE:
        index = _name(c)
        if c.token.text != "]":
            index = Symbol(index.text, expressions.offset(c), position=index.position)
    else:
        index = Integer(expressions.integer(c, "an index"), position=token.position)
    c.expect("]", "the index")
    return Element(array.text, index, position=array.position)


def _name(c: Cursor) -> Name:
    _, text, position = c.advance()
    return Name(text, position=position)


def _address(c: Cursor) -> Address:
    """address : "[" (name offset | expression) { "," operand } "]" [ ".unified" ]"""
    position = c.advance().position
    token = c.token
    base = None
    if token.kind is TokenKind.WORD and token.text != WARP_SIZE:
        base = _name(c)
        offset = 0 if c.token.text == "]" else expressions.offset(c)
    else:
        offset = expressions.integer(c, "an address")
    extra = c.listed(lambda: operand(c)) if c.accept(",") else ()
    if c.token.text != "]":
        hint = None
        if token.kind is TokenKind.WORD and c.token.kind is TokenKind.WORD:
            hint = "an offset is a constant; add a register with an instruction of its own"
        c.fail(f"expected ']' to close the address, found {c.found()}", hint=hint)
    c.advance()
    unified = c.accept(".unified")
    return Address(base, offset, extra, unified, position=position)


def _list(c: Cursor, close: str) -> tuple[Operand, ...]:
    """list : open [ operand { "," operand } ] close"""
    opened = c.advance().text
    if c.accept(close):
        return ()
    elements = c.listed(lambda: operand(c))
    if not c.accept(close):
        c.fail(f"expected ',' or '{close}' in the list that '{opened}' opens, found {c.found()}")
    return elements


def _fail_at_end(c: Cursor) -> NoReturn:
    """Report operands that do not end in ``;``: forgotten if a new statement follows."""
    if c.starts_line() or c.at_end() or c.token.text == "}":
        c.fail_unended(_INSTRUCTION)
    c.fail(f"expected ',' or ';' after an operand, found {c.found()}")
