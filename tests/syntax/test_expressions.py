"""Constant expressions: ptxas folds the same ones, into the data of a cubin."""

from __future__ import annotations

import itertools
import operator
import random
import struct
from collections.abc import Callable, Sequence

import pytest

from ptxlab.errors import PtxSyntaxError
from ptxlab.syntax import parse
from ptxlab.syntax.tree import Aggregate, Declaration, Float, Instruction, Integer
from tests.together import in_one_test

Assemble = Callable[[str], dict[str, bytes]]

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

INTEGERS = """
    1 017 0x1F 0X1f 0b101 0B11 7U 0xFFU 18446744073709551615 0x8000000000000000 -1 -(-5) +5 ~5 !5 !0
    -7/2 7/-2 -7/-2 7%-3 -1>>1 (-1)>>60 0xFFFFFFFFFFFFFFFF>>60 1<<63 (1<<63)/2
    (1U<<63)/2 1<<64 1<<65 -1>>64 -5>>33>>1 -1>>1U -1<0 -1<0U -1>0U -1==0xFFFFFFFFFFFFFFFF
    ~0/2 (-1&-1)/2 (-1|0)>>60 (-1^0)/2 (-1&0xFFFFFFFFFFFFFFFF)/2 (-1|1U)/2 7&3==3 1|2^3&4
    1||0 0||0 2&&3 2&&0 1==1 1!=1 3<=3 3>=4 1.5<2.5 1.5==2.5 1.5>=1.5
    (.u64)-1/2 (.s64)0xFFFFFFFFFFFFFFFF/2 (.s64)(.u64)-1>>1
    -9223372036854775808 -9223372036854775807-1 -9223372036854775808/2 9223372036854775807+1
    1?2:3 0?1:0?2:3 1<2?3:4 (1?-1:2U)/2 (0?1U:-1)/2 ((0<1)-2)/2 ((1U&&1)-2)/2 -(1U)/2 +(1U)-2>>1
    1<<2+3 (1<<2)+3 2*-3 1U-2 (1U-2)/2 (-6)/4*2 2-3-4 100/10/5 WARP_SZ WARP_SZ*2-1 ((((7))))
"""
REMAINDERS = ("-7 % 3", "-8 % 3U", "5 % 3 - 7", "((5 % 3) - 7) / 2", "2 * 9 % 4")
FLOATS = (
    "1.0 -1.5 .5 5. 1.e3 1e5 1.5E-3 1.0/3.0 3.0*(2.0+1.0) -(1.5) 1.0-0.9 0d3FF0000000000000/2.0"
)

OPERATION: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}
OPERATORS = ("+", "-", "*", "<<", ">>", "&", "|", "^", "<", ">", "<=", ">=", "==", "!=", "&&", "||")


def initializer(declared: str) -> Aggregate:
    item = parse(HEAD + declared).items[0]
    assert isinstance(item, Declaration)
    value = item.names[0].initializer
    assert isinstance(value, Aggregate)
    return value


def folded(expressions: Sequence[str]) -> list[int]:
    """Return what the parser makes of each expression, as 64 bits."""
    value = initializer(f".global .s64 x[] = {{{', '.join(expressions)}}};")
    return [element.value % 2**64 for element in value.elements if isinstance(element, Integer)]


def assembled(assemble: Assemble, expressions: Sequence[str], kind: str) -> bytes:
    """Return what ptxas makes of them."""
    listed = ", ".join(expressions)
    declared = f".visible .global .{kind} x[{len(expressions)}] = {{{listed}}};\n"
    return assemble(HEAD + declared)[".nv.global.init"]


def test_integers(assemble: Assemble) -> None:
    expressions = [*INTEGERS.split(), *REMAINDERS]
    data = assembled(assemble, expressions, "s64")
    expected = list(struct.unpack(f"<{len(expressions)}Q", data))
    assert dict(zip(expressions, folded(expressions), strict=True)) == dict(
        zip(expressions, expected, strict=True)
    )


def test_floats(assemble: Assemble) -> None:
    expressions = FLOATS.split()
    data = assembled(assemble, expressions, "f64")
    value = initializer(f".global .f64 x[] = {{{', '.join(expressions)}}};")
    assert (
        b"".join(struct.pack("<Q", e.bits) for e in value.elements if isinstance(e, Float)) == data
    )


def random_expression(source: random.Random, depth: int) -> str:
    if depth == 0 or source.random() < 0.1:
        small = str(source.randrange(0, 9))
        large = hex(source.getrandbits(64))
        return source.choice((small, small + "U", large, str(source.getrandbits(62))))
    left, right, other = (random_expression(source, depth - 1) for _ in range(3))
    binary = source.choice(OPERATORS)
    return source.choice(
        (
            f"{left} {binary} {right}",
            f"({left}) {binary} {right}",
            f"({left}) / ({right} | 1)",
            f"({left}) % ({right} | 1)",
            f"{source.choice('+-~!')}({left})",
            f"(.{source.choice('us')}64)({left})",
            f"(({left}) ? {right} : {other})",
        )
    )


def test_random_expressions(assemble: Assemble) -> None:
    source = random.Random(20)
    expressions = [random_expression(source, 3) for _ in range(400)]
    expected = struct.unpack("<400Q", assembled(assemble, expressions, "s64"))
    for expression, ours, theirs in zip(expressions, folded(expressions), expected, strict=True):
        assert (expression, hex(ours)) == (expression, hex(theirs))


def undecided(first: str, second: str) -> str | None:
    """Return ``a first b second c`` that depends on which operator binds tighter, if there is one."""
    for a, b, c in itertools.product(range(5), repeat=3):
        try:
            left = OPERATION[second](OPERATION[first](a, b), c)
            right = OPERATION[first](a, OPERATION[second](b, c))
        except (ZeroDivisionError, ValueError):  # ValueError: a shift by a negative number
            continue
        if left != right:
            return f"{a} {first} {b} {second} {c}"
    return None


def test_which_operator_binds_tighter(assemble: Assemble) -> None:
    """Of every two that it matters for, written in either order."""
    expressions = [e for pair in itertools.product(OPERATION, repeat=2) if (e := undecided(*pair))]
    assert "1 | 0 ^ 1" in expressions
    assert len(expressions) > 300
    data = assembled(assemble, expressions, "s64")
    expected = struct.unpack(f"<{len(expressions)}Q", data)
    ours = folded(expressions)
    assert dict(zip(expressions, ours, strict=True)) == dict(
        zip(expressions, expected, strict=True)
    )


def test_single_precision_keeps_its_bits() -> None:
    module = parse(HEAD + ".func f { mov.f32 a, 0f7FA00001; mov.f32 a, 0F80000000; ret; }")
    body = module.functions[0].body
    assert body is not None
    operands = [s.operands[1] for s in body[:2] if isinstance(s, Instruction)]
    assert operands == [Float(0x7FA00001, 32), Float(0x80000000, 32)]


@in_one_test(
    ("expression", "message"),
    [
        ("1/0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1.0/0.0", "division by zero"),
        ("1e400", "constant overflow"),
        ("1e308*10.0", "constant overflow"),
        ("1.0+2", "an integer and a float"),
        ("1.0?2:3", "expected an integer"),
        ("~1.0", "expected an integer"),
        ("1.0 % 2.0", "needs integers"),
        ("1.0 << 2.0", "needs integers"),
        ("(.u64)1.5", "expected an integer"),
        ("(.f64)1.5", "unknown cast"),
        ("-0f3F800000", "cannot be part of an expression"),
        ("1+", "expected an operand"),
        ("(1", "expected ')'"),
        ("1?2", "expected ':'"),
        ("18446744073709551616", "does not fit"),
        ("0x10000000000000000", "does not fit"),
        ("1" * 5000, "does not fit"),
    ],
)
def test_refused(expression: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(f"{HEAD}.func f {{ mov.u64 a, {expression}; }}")
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == 4
