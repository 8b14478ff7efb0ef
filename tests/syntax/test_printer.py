"""The printed form: what it looks like, and that ptxas and the parser read what the tree holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptxlab.syntax import parse, to_text
from ptxlab.syntax.printer import instruction_text, operand_text
from ptxlab.syntax.tree import Address, Float, Instruction, Integer, Name, Symbol, Vector
from tests.together import in_one_test

Assemble = Callable[[str], dict[str, bytes]]

MESSY = """// a comment
.version 8.0 .target   sm_90a,debug
.address_size 64
.extern .shared .align 16 .b8 s[]; .global .u32 t[2]={1,0x10};
.visible .entry k(.param .u64 .ptr .global .align 8 p,.param .align 128 .b8 m[128]) .maxntid 32,1,1
.pragma "x"; { .reg .pred q;.reg .b32 %r<5>; mov.u32 %r1,%tid.x; @!q bra L; { .reg .f32 f; mov .f32 f,1.5;
ld.global.v2.b32 {%r1,%r2},[%r3 + -8];} L:ret; }
.func(.reg .b32 x)f(){ call(x),f,();ret;}
.extern .func g() .noreturn;
"""
NEAT = """\
.version 8.0
.target sm_90a, debug
.address_size 64

.extern .shared .align 16 .b8 s[];
.global .u32 t[2] = {1, 16};

.visible .entry k(
    .param .u64 .ptr .global .align 8 p,
    .param .align 128 .b8 m[128])
.maxntid 32, 1, 1
.pragma "x";
{
    .reg .pred q;
    .reg .b32 %r<5>;

    mov.u32         %r1, %tid.x;
    @!q bra         L;
    {
        .reg .f32 f;

        mov.f32         f, 0d3FF8000000000000;
        ld.global.v2.b32 {%r1, %r2}, [%r3+-8];
    }
L:
    ret;
}

.func (.reg .b32 x) f()
{
    call            (x), f, ();
    ret;
}

.extern .func g()
.noreturn;
"""


def test_layout() -> None:
    assert to_text(parse(MESSY)) == NEAT
    assert to_text(parse(NEAT)) == NEAT


def test_long_instructions_wrap() -> None:
    registers = Vector(tuple(Name(f"%f{i}") for i in range(64)))
    name = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"
    text = f"{name} {operand_text(registers)}, %rd1, %rd2, p, 1, 1, 0, 0;"
    module = parse(f".version 8.0\n.target sm_90a\n.func f {{ {text} }}")
    printed = to_text(module)
    assert max(map(len, printed.splitlines())) <= 100
    assert printed.count("\n") > 10
    assert parse(printed) == module


@in_one_test(
    ("operand", "text"),
    [
        (Address(Name("a"), -8), "[a+-8]"),
        (Address(Name("a")), "[a]"),
        (Address(None, 0), "[0]"),
        (Address(Name("m"), 0, (Vector((Integer(0),)),), True), "[m, {0}].unified"),
        (Symbol("a", -4), "a+-4"),
        (Symbol("a", 4, True, 0xFF00), "0xFF00(generic(a)+4)"),
        (Float(1, 32), "0f00000001"),
        (Float(1, 64), "0d0000000000000001"),
    ],
)
def test_operands(operand: Address | Symbol | Float, text: str) -> None:
    assert operand_text(operand) == text


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**31, -(2**31), 2**63 - 1, 1 - 2**63, -(2**63), 2**63, 2**64 - 1]
)
def test_integers_read_back(value: int, assemble: Assemble) -> None:
    move = Instruction("mov", ("b64",), (Name("d"), Integer(value)))
    store = "st.global.b64 [a], d; ret;"
    text = f".version 8.0\n.target sm_90a\n.entry k() {{ .reg .b64 a, d; {instruction_text(move)} {store} }}"
    (body,) = (function.body for function in parse(text).functions)
    assert body is not None
    assert body[1] == move
    literal = text.replace(f" {operand_text(Integer(value))};", f" {value % 2**64:#x};")
    assert assemble(text) == assemble(literal)
