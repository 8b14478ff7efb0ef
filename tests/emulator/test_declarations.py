"""What a module declares: refused where ptxas refuses it, with the place, and taken beside that."""

from __future__ import annotations

import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError, PtxSyntaxError
from tests.together import in_one_test


def text(body: str = "", before: str = "", parameters: str = ".param .u64 p") -> str:
    return (
        f".version 8.5\n.target sm_90a\n{before}\n.visible .entry k({parameters})\n"
        f"{{ .reg .b32 r<4>; .reg .b64 d<4>; .reg .pred q;\n{body}\nret; }}\n"
    )


def run(module: str) -> None:
    kernel = open_device("emulator", arch="sm_90a").load(module).kernel("k")
    kernel.launch(1, 1, [0] * len(kernel.parameters))


# ptxas refuses each of these, and takes each of test_taken; the messages are our own.
@in_one_test(
    ("body", "what"),
    [
        (".reg .b32 a; .reg .b32 a;", "'a' is declared already, in line 6"),
        (".reg .b32 a; .reg .b64 a;", "'a' is declared already, in line 6"),
        (".reg .b32 a<5>;\n.reg .b32 a<5>;", "'a' is declared already, in line 6"),
        (".reg .b32 a<5>; .reg .b32 a3;", "'a3' is declared already, in line 6"),
        (".shared .b32 s; .reg .b32 s;", "'s' is declared already, in line 6"),
        (".reg .b32 p;", "'p' is declared already, in line 4"),
        ("a: a:", "label 'a' is declared already, in line 6"),
        (".reg .b32 a; a:", "label 'a' is declared already, in line 6"),
        ("a: .reg .b32 a;", "'a' is declared already, in line 6"),
        ("p:", "label 'p' is declared already, in line 4"),
        ("t: g: .branchtargets t; g: .branchtargets t;", "label 'g' is declared already, in line 6"),
        (".reg .texref t;", "'t' of type .texref belongs outside of functions"),
        (".local .samplerref t;", "'t' of type .samplerref belongs outside of functions"),
        (".reg .v4 .pred v;", "predicate 'v' must be a register of its own"),
        (".local .pred v;", "predicate 'v' must be a register of its own"),
        (".reg .v4 .b64 v;", "'v' is a vector of more than 128 bits"),
        (".reg .v8 .b16 v;", "there are variables of .v2 and .v4"),
        (".reg .b32 v[3];", "register 'v' cannot be an array"),
        (".reg .b32 v<99999999999>;", "99999999999 registers, fewer than 2^32 are possible"),
        (".local .b32 v = 1;", ".local variable 'v' takes no initial value"),
        (".reg .b32 v = 1;", ".reg variable 'v' takes no initial value"),
        ("{ .param .b8 x[0]; }", "'x' needs the size of its array"),
        ("call k, (d0);", "'k' is a kernel; a function (.func) is called"),
        ("st.param.b32 [d0], r1;", "st.param.b32 names the parameter it writes"),
        (".param .b32 x; st.param.b32 [x+4], r1;", "bytes 4 to 8 are outside parameter 'x'"),
        ("@%tid.x ret;", "%tid.x has 32 bits, .pred is needed"),
        ("neg.s32 r1, !q;", "'!' negates a predicate only"),
        (".shared .b32 w; st.global.b128 [d1], w;", "st.global.b128 takes no address of 'w'"),
        ("t: .callprototype _ (.param .texref _);", "'_' of type .texref belongs outside"),
    ],
)  # fmt: skip
def test_refused_in_a_body(body: str, what: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        run(text(body))
    assert what in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line in (6, 7)


@in_one_test(
    ("before", "what"),
    [
        (".global .u32 g; .global .u32 g;", "'g' is declared already, in line 3"),
        (".weak .global .u32 g; .weak .global .u32 g;", "'g' is declared already, in line 3"),
        (".global .u32 g; .func g() { ret; }", "function 'g' is declared already, in line 3"),
        (".func g() { ret; } .func g() { ret; }", "function 'g' is declared already, in line 3"),
        (".func g() { ret; } .func g();", "function 'g' is declared already, in line 3"),
        (".func g(.reg .b32 x); .func g() { ret; }", "function 'g' is declared otherwise in line 3"),
        (".func g(.reg .u32 x); .func g(.reg .b32 x) { ret; }", "function 'g' is declared otherwise"),
        (".func g(.reg .b32 x); .func g(.param .b32 x) { ret; }", "function 'g' is declared otherwise"),
        (".func g(.reg .b32 x, .reg .b32 x) { ret; }", "parameter 'x' is declared already, in line 3"),
        (".func (.reg .b32 x) g(.reg .b32 x) { ret; }", "parameter 'x' is declared already, in line 3"),
        (".func g(.reg .b32 x<3>) { ret; }", "a parameter is one name, without a value"),
        (".func g(.param .texref x) { ret; }", "'x' of type .texref belongs outside of functions"),
        (".global .pred g;", "predicate 'g' must be a register of its own"),
        (".global .u32 g[2] = {1, 2, 3};", "3 initial values for 2 elements of 'g'"),
        (".global .u32 g[2][2] = {{1, 2}, {1}, {2}};", "3 initial values for 2 elements of 'g'"),
        (".global .u32 g[2][2] = {{1, 2, 3}};", "3 initial values for 2 elements of 'g'"),
        (".global .u32 g[2][2] = {1, {2, 3}};", "the initial value of 'g' is to nest as it does"),
        (".global .u32 g[2] = {{1}, {2}};", "a .u32 takes no such initial value"),
        (".global .u32 g = {1, 2, 3};", "a .u32 takes no such initial value"),
        (".global .u32 g[3] = 1;", "the initial value of 'g' is to nest as it does"),
        (".global .v4 .u32 g = {1, 2, 3, 4, 5};", "'g' has vectors of 4, not 5"),
        (".global .v2 .u32 g[2] = {1, 2};", "the initial value of 'g' is to nest as it does"),
        (".global .u32 g = 1.5;", "a .u32 takes no such initial value"),
        (".global .f32 g = 1;", "a .f32 takes no such initial value"),
        (".global .f16 g = 1.5;", "a .f16 takes no such initial value"),
        (".global .u32 h; .global .f64 g = h;", "a .f64 takes no such initial value"),
        (".global .u64 g = h; .global .u32 h;", "'h' is no variable or function declared before"),
        (".global .u32 h; .global .u8 g = 0(h);", "mask 0x0 does not select a byte"),
        (".global .u32 h; .global .u8 g = 0x1(h);", "mask 0x1 does not select a byte"),
        (".global .u32 g[2][] = {{1}, {2}};", "only the first size may be left empty"),
        (".global .u32 g[];", "'g' needs the size of its array"),
        (".shared .u32 g = 1;", ".shared variable 'g' takes no initial value"),
        (".extern .global .u32 g = 1;", ".extern .global variable 'g' takes no initial value"),
        (".const .b8 h[65537];", "65537 bytes of constants in a module, 65536 at most"),
        (".const .b8 h[65536]; .const .b8 i[1];", "65537 bytes of constants in a module"),
    ],
)  # fmt: skip
def test_refused_in_a_module(before: str, what: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        run(text("mov.u64 d0, g;" if ".func" in before else "", before))
    assert what in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == 3


@in_one_test(
    ("body", "before"),
    [
        (".reg .b32 a<5>; .reg .b32 a; .reg .b32 a5; .reg .b32 a03;", ""),
        (".reg .b32 a<50>; .reg .b32 a1<5>;", ""),
        (".reg .b32 a; { .reg .b64 a; mov.b64 a, 1; }", ""),
        ("{ .reg .b32 p; } a: { a: } k: g:", ".global .u32 g;"),
        (".shared .b32 s; { .shared .b32 s; }", ""),
        (".reg .b32 g; mov.u32 g, 1;", ".func g() { ret; }"),
        ("call g;", ".func g(); .func g(); .func g() { ret; }"),
        ("", ".visible .global .u32 g; .extern .global .u32 g;"),
        ("", ".extern .global .u32 g; .visible .global .u32 g;"),
        ("", ".extern .shared .b8 s[]; .extern .shared .b8 s[];"),
        ("", ".global .u32 g[2] = {}; .global .u32 h[] = {1, 2}; .global .u32 i[][2] = {{1, 2}, {3}};"),
        ("", ".global .f32 g = 1.5; .global .f64 h = 0f3F800000; .global .b64 i = 1.5; .global .u8 j = -1;"),
        ("", ".global .v2 .u32 g[2] = {{1, 2}, {3, 4}}; .global .u32 h[0] = {1};"),
        ("", ".global .u32 h; .global .u64 g = h; .global .u64 i = i; .global .u8 j[2] = {0xFF(h), 0xFF00(h)};"),
        ("", ".const .b8 h[65536];"),
    ],
)  # fmt: skip
def test_taken(body: str, before: str) -> None:
    run(text(body, before))


def test_parameters_of_a_kernel() -> None:
    with pytest.raises(PtxSyntaxError, match="parameter 'p' is declared already, in line 4"):
        run(text(parameters=".param .u64 p, .param .u64 p"))
    with pytest.raises(PtxSyntaxError, match="parameters of 40000 bytes, 32764 at most"):
        run(text(parameters=".param .b8 p[40000]"))
    with pytest.raises(PtxSyntaxError, match=r"no \.param is a vector, as 'x' is"):
        run(text("mov.u64 d0, g;", ".func g(.param .v4 .b32 x) { ret; }"))


@pytest.mark.parametrize("name", ["sm_", "sm_9x", "sm_a", "debug", "sm_80, sm_x"])
def test_a_target_that_is_none(name: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"an? \.?target") as caught:
        run(text().replace("sm_90a", name))
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_a_name_is_known_from_its_declaration_on() -> None:
    """Before that it is what it was outside of the block; a label is known in all of its block."""
    body = """
    mov.b32 r0, 7;
    {
        mov.b32 r1, r0;
        bra over;
        .reg .b32 r0, r3;
        mov.b32 r1, 9;
    over:
        mov.b32 r0, 5;
        add.u32 r1, r1, r0;
    }
    mad.lo.u32 r1, r0, 100, r1;
    ld.param.u64 d0, [p];
    st.global.u32 [d0], r1;
    """
    device = open_device("emulator", arch="sm_90a")
    with device.zeros(1, "u32") as out:
        device.load(text(body)).kernel("k").launch(1, 1, [out])
        assert out.numpy().tolist() == [712]


def test_a_kernel_without_clusters() -> None:
    run(text().replace("\n{", "\n.reqnctapercluster 0 {", 1))


def test_many_parentheses_are_refused() -> None:
    with pytest.raises(PtxlabError, match="nest too deeply"):
        run(text(f"mov.u32 r0, {'(' * 5000}1{')' * 5000};"))
