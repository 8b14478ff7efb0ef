"""Operands of instructions (PTX ISA, "Instruction Operands")."""

from __future__ import annotations

from typing import NoReturn

from ptxlab.syntax import expressions
from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.lexer import Kind
from ptxlab.syntax.tree import (
    Address,
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
_CONSTANT_WORD = "WARP_SZ"


def operands(c: Cursor, *, call: bool) -> tuple[Operand, ...]:
    """operands : [ operand { "," operand } ] ";" """
    if c.token.text == ";":
        c.advance()
        return ()
    if c.token.text == "}" or c.at_end():
        _fail_at_end(c)
    behind_opcode = c.behind() if c.starts_line() else None
    parsed = [operand(c, call=call)]
    while c.token.text == ",":
        c.advance()
        parsed.append(operand(c, call=call))
    if c.token.text != ";":
        # "ret" and a line below it "mov.u32 x, 1;": what looked like an operand was an opcode.
        if behind_opcode and len(parsed) == 1 and not c.starts_line():
            c.fail("missing ';' after the instruction", behind_opcode, "end it with ';'")
        _fail_at_end(c)
    c.advance()
    return tuple(parsed)


def operand(c: Cursor, *, call: bool = False) -> Operand:
    """operand : name | symbol | pair | address | vector | group | "!" name | "-" name | constant

    A parenthesis opens a group in a ``call`` and an expression elsewhere.
    """
    token = c.token
    kind, text, position = token
    if kind is Kind.WORD:
        return _named(c)
    if kind is Kind.INTEGER and c.peek().text in _ENDS:
        c.advance()
        return Integer(c.integer_value(token), position=position)
    if text == "[":
        return _address(c)
    if text == "{":
        return Vector(_list(c, "}"), position=position)
    if text in ("!", "-"):
        following = c.peek()
        if following.kind is Kind.WORD and following.text != _CONSTANT_WORD:
            c.advance()
            c.advance()
            name = Name(following.text, position=following.position)
            node = Not if text == "!" else Negated
            return node(name, position=position)
    if text == "(" and call:
        return Group(_list(c, ")"), position=position)
    return expressions.constant(c)


def _named(c: Cursor) -> Operand:
    """name | pair : name "|" name | symbol : name offset | "WARP_SZ" ..."""
    _, text, position = c.token
    if text == _CONSTANT_WORD:
        return expressions.constant(c)
    c.advance()
    following = c.token.text
    if following in _ENDS:
        return Name(text, position=position)
    if following == "|":
        c.advance()
        second = c.token
        if second.kind is not Kind.WORD:
            c.fail(f"expected the second destination after '|', found {c.found()}")
        c.advance()
        return Pair(
            Name(text, position=position),
            Name(second.text, position=second.position),
            position=position,
        )
    if following in ("+", "-"):
        return Symbol(text, expressions.offset(c), position=position)
    if following == "[":
        c.fail("array elements are not indexed here", hint=f"write [{text}+BYTES] instead")
    return Name(text, position=position)


def _address(c: Cursor) -> Address:
    """address : "[" (name offset | expression) { "," operand } "]" [ ".unified" ]"""
    position = c.advance().position
    token = c.token
    base = None
    if token.kind is Kind.WORD and token.text != _CONSTANT_WORD:
        c.advance()
        base = Name(token.text, position=token.position)
        offset = 0 if c.token.text == "]" else expressions.offset(c)
    else:
        offset = expressions.integer(c, "an address")
    extra: list[Operand] = []
    while c.accept(","):
        extra.append(operand(c))
    if c.token.text != "]":
        hint = None
        if token.kind is Kind.WORD and c.token.kind is Kind.WORD:
            hint = "an offset is a constant; add a register with an instruction of its own"
        c.fail(f"expected ']' to close the address, found {c.found()}", hint=hint)
    c.advance()
    unified = c.accept(".unified")
    return Address(base, offset, tuple(extra), unified, position=position)


def _list(c: Cursor, close: str) -> tuple[Operand, ...]:
    """list : open [ operand { "," operand } ] close"""
    opened = c.advance()
    elements: list[Operand] = []
    if c.token.text != close:
        elements.append(operand(c))
        while c.accept(","):
            elements.append(operand(c))
    if c.token.text != close:
        _fail_unclosed(c, opened.text, close)
    c.advance()
    return tuple(elements)


def _fail_unclosed(c: Cursor, opened: str, close: str) -> NoReturn:
    c.fail(f"expected ',' or '{close}' in the list that '{opened}' opens, found {c.found()}")


def _fail_at_end(c: Cursor) -> NoReturn:
    """Report operands that do not end in ``;``: forgotten if a new statement follows."""
    if c.starts_line() or c.at_end() or c.token.text == "}":
        c.fail_after("missing ';' after the instruction", "end it with ';'")
    c.fail(f"expected ',' or ';' after an operand, found {c.found()}")
