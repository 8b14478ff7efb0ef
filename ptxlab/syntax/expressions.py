"""Constant expressions, folded as they are read (PTX ISA, "Constant Expressions").

Integers are .s64 or .u64 and wrap; floats are .f64; the two do not mix. Where the ISA's summary of
evaluation rules and ptxas differ, the values here are those of ptxas: ``&``, ``|``, ``^`` and ``%``
convert as ``+`` does (``%`` then divides unsigned), ``?:`` keeps the type of the operand it picks,
shift counts are taken modulo 64.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ptxlab.syntax.cursor import Cursor
from ptxlab.syntax.lexer import Token, TokenKind
from ptxlab.syntax.tree import Float, Integer, Position

WARP_SIZE = "WARP_SZ"
"""The one word that is a constant."""

_MASK = (1 << 64) - 1
_PRECEDENCE = {
    text: level
    for level, texts in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"), start=1
    )
    for text in texts.split()
}
_COMPARE: dict[str, Callable[[int | float, int | float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_FLOAT: dict[str, Callable[[float, float], float]] = {**_ARITHMETIC, "/": operator.truediv}
_INTEGER: dict[str, Callable[[int, int], int]] = {
    **_ARITHMETIC,
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A folded value: an int within .s64 or, if ``unsigned``, .u64; or a float."""

    value: int | float
    unsigned: bool = False


def constant(c: Cursor) -> Integer | Float:
    """constant : expression | hex-float

    The hexadecimal floats keep their exact bits and take part in no expression when 32 bits wide.
    """
    token = c.token
    if token.kind is TokenKind.HEX_FLOAT and token.text[1] in "fF":
        c.advance()
        return Float(int(token.text[2:], 16), 32, position=token.position)
    value = expression(c).value
    if isinstance(value, int):
        return Integer(value, position=token.position)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return Float(bits, 64, position=token.position)


def integer(c: Cursor, what: str) -> int:
    token = c.token
    value = expression(c).value
    if not isinstance(value, int):
        c.fail(f"{what} must be an integer", token.position)
    return value


def offset(c: Cursor) -> int:
    """offset : [ "+" expression ]"""
    if c.token.text == "-":
        c.fail("an offset is added to an address", hint="write +-4 for 4 bytes before it")
    return integer(c, "an offset") if c.accept("+") else 0


def expression(c: Cursor) -> Constant:
    """expression : binary [ "?" expression ":" expression ]"""
    position = c.token.position
    condition = _binary(c, 1, _unary(c))
    if not c.accept("?"):
        return condition
    chosen = expression(c)
    c.expect(":", "the first choice of '?'")
    other = expression(c)
    return chosen if _truth(c, condition, position) else other


def _binary(c: Cursor, lowest: int, left: Constant) -> Constant:
    """binary : unary { operator unary }, by precedence from ``lowest`` up."""
    while (level := _PRECEDENCE.get(c.token.text, 0)) >= lowest:
        sign = c.advance()
        right = _unary(c)
        while _PRECEDENCE.get(c.token.text, 0) > level:
            right = _binary(c, level + 1, right)
        left = _combine(c, sign, left, right)
    return left


def _unary(c: Cursor) -> Constant:
    """unary : ("+" | "-" | "!" | "~") unary | "(" (".u64" | ".s64") ")" unary | primary"""
    token = c.token
    if token.text == "+":
        c.advance()
        return _unary(c)
    if token.text == "-":
        c.advance()
        operand = _unary(c)
        if isinstance(operand.value, float):
            return Constant(-operand.value)
        return _wrap(-operand.value, operand.unsigned)
    if token.text == "!":
        c.advance()
        return Constant(int(not _truth(c, _unary(c), token.position)))
    if token.text == "~":
        c.advance()
        return _wrap(~_integer(c, _unary(c), token.position), True)
    if token.text == "(":
        return _parenthesised(c)
    return _primary(c)


def _parenthesised(c: Cursor) -> Constant:
    """Parse ``(expression)`` or a cast, ``(.u64) unary``."""
    c.advance()
    cast = c.token
    if cast.kind is TokenKind.DOTTED:
        if cast.text not in (".u64", ".s64"):
            c.fail_unknown("cast", (".u64", ".s64"))
        c.advance()
        c.expect(")", "the cast")
        return _wrap(_integer(c, _unary(c), cast.position), cast.text == ".u64")
    inner = expression(c)
    c.expect(")", "the expression")
    return inner


def _primary(c: Cursor) -> Constant:
    """primary : integer | float | 0d-float | "WARP_SZ" """
    token = c.token
    if token.kind is TokenKind.INTEGER:
        c.advance()
        value = c.integer_value(token)
        return Constant(value, token.text[-1] == "U" or value >= 1 << 63)
    if token.kind is TokenKind.FLOAT:
        c.advance()
        return _float(c, float(token.text), token.position)
    if token.kind is TokenKind.HEX_FLOAT:
        if token.text[1] in "fF":
            c.fail("a 0f constant cannot be part of an expression", hint="use a 0d constant")
        c.advance()
        (number,) = struct.unpack(">d", bytes.fromhex(token.text[2:]))
        return Constant(number)
    if token.text == WARP_SIZE:
        c.advance()
        return Constant(32)
    return c.fail(f"expected an operand, found {c.found()}")


def _combine(c: Cursor, sign: Token, left: Constant, right: Constant) -> Constant:
    a, b = left.value, right.value
    if sign.text in ("&&", "||"):
        first, second = _truth(c, left, sign.position), _truth(c, right, sign.position)
        return Constant(int(first and second if sign.text == "&&" else first or second))
    if isinstance(a, float) != isinstance(b, float):
        c.fail("an integer and a float in one expression", sign.position, "write 2.0 for 2")
    if sign.text in "/%" and b == 0:
        c.fail("division by zero", sign.position)
    if isinstance(a, int) and isinstance(b, int):
        return _combine_integers(sign.text, left, right)
    if sign.text in _COMPARE:
        return Constant(int(_COMPARE[sign.text](a, b)))
    if sign.text not in _FLOAT:
        c.fail(f"'{sign.text}' needs integers", sign.position)
    return _float(c, _FLOAT[sign.text](a, b), sign.position)


def _combine_integers(sign: str, left: Constant, right: Constant) -> Constant:
    """Apply an integer operator after the usual conversions: unsigned if either side is."""
    a, b = int(left.value), int(right.value)
    if sign == "<<":
        return _wrap(a << (b & 63), left.unsigned)
    if sign == ">>":
        return _wrap(a >> (b & 63), left.unsigned)
    unsigned = left.unsigned or right.unsigned
    if sign == "%":
        return Constant((a & _MASK) % (b & _MASK), True)
    if unsigned:
        a, b = a & _MASK, b & _MASK
    if sign in _COMPARE:
        return Constant(int(_COMPARE[sign](a, b)))
    if sign == "/":
        quotient = abs(a) // abs(b)
        return _wrap(quotient if (a < 0) == (b < 0) else -quotient, unsigned)
    return _wrap(_INTEGER[sign](a, b), unsigned)


def _wrap(value: int, unsigned: bool) -> Constant:
    """Reduce to 64 bits and read them as .u64 or .s64."""
    value &= _MASK
    if not unsigned and value >> 63:
        value -= 1 << 64
    return Constant(value, unsigned)


def _float(c: Cursor, value: float, position: Position) -> Constant:
    if math.isinf(value):
        c.fail("constant overflow", position)
    return Constant(value)


def _truth(c: Cursor, operand: Constant, position: Position) -> bool:
    return _integer(c, operand, position) != 0


def _integer(c: Cursor, operand: Constant, position: Position) -> int:
    if isinstance(operand.value, float):
        c.fail("expected an integer expression", position)
    return operand.value
