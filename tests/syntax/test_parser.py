"""Every construct of the grammar, with the tree it must become; ptxas reads the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ptxlab.errors import PtxSyntaxError
from ptxlab.syntax import parse, to_text
from ptxlab.syntax.tree import (
    Address,
    Aggregate,
    Alias,
    Block,
    BranchTargets,
    CallPrototype,
    CallTargets,
    Declaration,
    Declarator,
    Directive,
    File,
    Float,
    Function,
    Group,
    Guard,
    Instruction,
    Integer,
    Label,
    Loc,
    Name,
    Negated,
    Not,
    Operand,
    Pair,
    Position,
    Pragma,
    PtxModule,
    Section,
    Statement,
    Symbol,
    Vector,
)
from tests.together import in_one_test

Assemble = Callable[..., dict[str, bytes]]

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
    .reg .pred p, q; .reg .b16 h<8>; .reg .b32 r<40>; .reg .b64 d<16>; .reg .f32 f<72>;
    .reg .f64 g<4>; .reg .b128 w; .shared .align 128 .b8 s[1024];
"""


def body(text: str) -> Sequence[Statement]:
    function = parse(f"{HEAD}.func f {{\n{text}\n}}").functions[0]
    assert function.body is not None
    return function.body


def only_statement(text: str) -> Statement:
    (statement,) = body(text)
    return statement


def operand(text: str) -> Operand:
    statement = only_statement(f"mov.b32 {text};")
    assert isinstance(statement, Instruction)
    return statement.operands[0]


def item(text: str) -> object:
    (parsed,) = parse(HEAD + text).items
    return parsed


# ---- operands -------------------------------------------------------------------------------

X = Name("x")


@in_one_test(
    ("text", "tree"),
    [
        ("x", X),
        ("_", Name("_")),
        ("%tid.x", Name("%tid.x")),
        ("%v.x", Name("%v.x")),
        ("v.w", Name("v.w")),
        ("a.b0", Name("a.b0")),
        ("$L_1$a", Name("$L_1$a")),
        ("7", Integer(7)),
        ("-7", Integer(-7)),
        ("0xFFFFFFFF", Integer(0xFFFFFFFF)),
        ("WARP_SZ", Integer(32)),
        ("WARP_SZ-1", Integer(31)),
        ("!0", Integer(1)),
        ("(5)", Integer(5)),
        ("0f3F800000", Float(0x3F800000, 32)),
        ("0F3f800000", Float(0x3F800000, 32)),
        ("0d3FF0000000000000", Float(0x3FF0000000000000, 64)),
        ("1.0", Float(0x3FF0000000000000, 64)),
        ("-.5", Float(0xBFE0000000000000, 64)),
        ("!x", Not(X)),
        ("-x", Negated(X)),
        ("x|y", Pair(X, Name("y"))),
        ("_|y", Pair(Name("_"), Name("y"))),
        ("x | _", Pair(X, Name("_"))),
        ("{x, 1, _}", Vector((X, Integer(1), Name("_")))),
        ("{x}", Vector((X,))),
        ("{}", Vector(())),
        ("{{x}, {-x}}", Vector((Vector((X,)), Vector((Negated(X),))))),
        ("[x]", Address(X)),
        ("[ x + 4 ]", Address(X, 4)),
        ("[x+-4]", Address(X, -4)),
        ("[x+4*(2+1)]", Address(X, 12)),
        ("[x+0]", Address(X)),
        ("[%r1+0x10]", Address(Name("%r1"), 16)),
        ("[16]", Address(None, 16)),
        ("[16+4]", Address(None, 20)),
        ("[x].unified", Address(X, unified=True)),
        ("[x, {y, 0}]", Address(X, 0, (Vector((Name("y"), Integer(0))),))),
        ("[x+8, y]", Address(X, 8, (Name("y"),))),
        ("x+4", Symbol("x", 4)),
        ("x + -4", Symbol("x", -4)),
    ],
)
def test_operand(text: str, tree: Operand) -> None:
    assert operand(text) == tree
    assert operand(text + ", y") == tree


def test_call_operands_are_groups() -> None:
    assert only_statement("call.uni (r, s), f, (a, 1, [p]), proto;") == Instruction(
        "call",
        ("uni",),
        (
            Group((Name("r"), Name("s"))),
            Name("f"),
            Group((Name("a"), Integer(1), Address(Name("p")))),
            Name("proto"),
        ),
    )
    assert only_statement("call f, ();") == Instruction("call", (), (Name("f"), Group(())))


# ---- instructions ---------------------------------------------------------------------------


def test_modifiers_keep_their_parts() -> None:
    text = "ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {a, b, c, d}, [x], y;"
    statement = only_statement(text)
    assert isinstance(statement, Instruction)
    assert statement.opcode == "ld"
    assert statement.modifiers == ("global", "L1::no_allocate", "L2::cache_hint", "v4", "b32")
    assert statement.name == text.split()[0]


@pytest.mark.parametrize(
    "name",
    [
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        "tcgen05.cp.cta_group::1.128x256b",
        "tcgen05.ld.sync.aligned.16x64b.x1.b32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    ],
)
def test_modifiers_of_any_shape(name: str) -> None:
    statement = only_statement(f"{name} x;")
    assert isinstance(statement, Instruction)
    assert statement.name == name


def test_spaces_between_modifiers() -> None:
    assert only_statement("mov .u32\n\tx , 1 ;") == only_statement("mov.u32 x,1;")


def test_guards() -> None:
    x = (X,)
    assert only_statement("@p bra x;") == Instruction("bra", (), x, Guard("p"))
    assert only_statement("@!%p1 bra.uni x;") == Instruction("bra", ("uni",), x, Guard("%p1", True))
    assert only_statement("@ ! p bra x;") == Instruction("bra", (), x, Guard("p", True))
    assert only_statement("ret;") == Instruction("ret", (), ())


def test_positions() -> None:
    text = f"{HEAD}.func f\n{{\n  l: @p mov.b32\n\t{{a, b}}, // {{\n    [c+4]; /* x\n */ ret;\n}}"
    statements = parse(text).functions[0].body
    assert statements is not None
    label, move, ret = statements
    assert label.position == Position(6, 3)
    assert isinstance(move, Instruction)
    assert move.position == Position(6, 6)
    assert move.guard is not None
    assert move.guard.position == Position(6, 6)
    vector, address = move.operands
    assert isinstance(vector, Vector)
    assert isinstance(address, Address)
    assert address.base is not None
    assert (vector.position, vector.elements[1].position) == (Position(7, 2), Position(7, 6))
    assert (address.position, address.base.position) == (Position(8, 5), Position(8, 6))
    assert ret.position == Position(9, 5)


def test_positions_do_not_compare() -> None:
    assert only_statement("mov.u32 x, 1;") == only_statement("\n\n   mov.u32    x,   1;")
    assert only_statement("mov.u32 x, 1;") != only_statement("mov.u32 x, 2;")


def test_comments_are_blanks() -> None:
    text = 'mov/*a*/.u32 // ; "\n x,/* // */1/**/; // end'
    assert only_statement(text) == only_statement("mov.u32 x, 1;")
    assert only_statement('.pragma "/* no // comment */";') == Pragma(("/* no // comment */",))


# ---- statements -----------------------------------------------------------------------------


def test_scopes_and_labels() -> None:
    text = "{ .reg .b32 x; again: bra again; } { again: bra again; } end: last: { }"
    loop = (Label("again"), Instruction("bra", (), (Name("again"),)))
    declared = Declaration("reg", "b32", (Declarator("x"),))
    assert body(text) == (
        Block((declared, *loop)),
        Block(loop),
        Label("end"),
        Label("last"),
        Block(()),
    )


def test_labelled_directives() -> None:
    assert only_statement("t: .branchtargets a, $b;") == BranchTargets("t", ("a", "$b"))
    assert only_statement("t: .calltargets f;") == CallTargets("t", ("f",))
    word = Declaration("param", "b32", (Declarator("_"),))
    array = Declaration("param", "b8", (Declarator("_", dimensions=(12,)),), alignment=4)
    assert only_statement("t : .callprototype (.param .b32 _) _ (.param .align 4 .b8 _[12]);") == (
        CallPrototype("t", (word,), (array,))
    )
    assert only_statement("t: .callprototype _ (.param .b32 _, .param .b32 _) .noreturn;") == (
        CallPrototype("t", (), (word, word), (Directive("noreturn"),))
    )
    assert only_statement("t: .callprototype _;") == CallPrototype("t", (), ())
    assert only_statement("t: .callprototype () _ () .abi_preserve 3;") == (
        CallPrototype("t", (), (), (Directive("abi_preserve", (3,)),))
    )


def test_source_locations() -> None:
    assert body(".loc 1 23 5\n.loc\t2 1 0\n") == (Loc(1, 23, 5), Loc(2, 1, 0))
    text = ".loc 1 2 3, function_name $L__info_string0, inlined_at 1 40 3"
    assert only_statement(text) == Loc(1, 2, 3, "function_name $L__info_string0, inlined_at 1 40 3")
    text = ".loc 1 2 3,function_name s + 16 ,inlined_at 1 40 3"
    assert only_statement(text) == Loc(1, 2, 3, "function_name s+16, inlined_at 1 40 3")


def test_pragmas() -> None:
    assert only_statement('.pragma "nounroll";') == Pragma(("nounroll",))
    assert item('.pragma "a", "b";') == Pragma(("a", "b"))


# ---- declarations ---------------------------------------------------------------------------


@in_one_test(
    ("text", "tree"),
    [
        (".reg .b32 %r<5>, a;", Declaration("reg", "b32", (Declarator("%r", 5), Declarator("a")))),
        (".reg .v4 .f32 v;", Declaration("reg", "f32", (Declarator("v"),), vector=4)),
        (
            ".extern .shared .align 16 .b8 s[];",
            Declaration("shared", "b8", (Declarator("s", None, (None,)),), "extern", 16),
        ),
        (
            ".local .align 8 .b8 __local_depot0[2][0x10];",
            Declaration("local", "b8", (Declarator("__local_depot0", None, (2, 16)),), "", 8),
        ),
        (
            ".common .global .u32 c;",
            Declaration("global", "u32", (Declarator("c"),), "common"),
        ),
        (
            ".visible .const .v2 .f32 c[3];",
            Declaration("const", "f32", (Declarator("c", None, (3,)),), "visible", vector=2),
        ),
        (
            ".weak .global .attribute(.managed, .unified(19,95)) .align 4 .s32 g;",
            Declaration(
                "global",
                "s32",
                (Declarator("g"),),
                "weak",
                4,
                attributes=(".managed", ".unified(19,95)"),
            ),
        ),
        (
            ".global .f32 a = 0f3F800000, b[] = {1.0, -2.0};",
            Declaration(
                "global",
                "f32",
                (
                    Declarator("a", initializer=Float(0x3F800000, 32)),
                    Declarator(
                        "b",
                        None,
                        (None,),
                        Aggregate((Float(0x3FF0 << 48, 64), Float(0xC000 << 48, 64))),
                    ),
                ),
            ),
        ),
        (
            ".global .u32 m[2][2] = {{1, 2}, {3}};",
            Declaration(
                "global",
                "u32",
                (
                    Declarator(
                        "m",
                        None,
                        (2, 2),
                        Aggregate((Aggregate((Integer(1), Integer(2))), Aggregate((Integer(3),)))),
                    ),
                ),
            ),
        ),
        (
            ".global .u64 t[] = {f, v+8, generic(v), generic(v)+-8, 0};",
            Declaration(
                "global",
                "u64",
                (
                    Declarator(
                        "t",
                        None,
                        (None,),
                        Aggregate(
                            (
                                Symbol("f"),
                                Symbol("v", 8),
                                Symbol("v", 0, True),
                                Symbol("v", -8, True),
                                Integer(0),
                            )
                        ),
                    ),
                ),
            ),
        ),
        (
            ".global .u8 t[] = {0xFF(v), 0xFF00(v+8), 0xFF0000(generic(v)+4)};",
            Declaration(
                "global",
                "u8",
                (
                    Declarator(
                        "t",
                        None,
                        (None,),
                        Aggregate(
                            (
                                Symbol("v", mask=0xFF),
                                Symbol("v", 8, mask=0xFF00),
                                Symbol("v", 4, True, 0xFF0000),
                            )
                        ),
                    ),
                ),
            ),
        ),
    ],
)
def test_declaration(text: str, tree: Declaration) -> None:
    assert item(text) == tree
    assert only_statement(text) == tree


def test_declaration_in_mid_block() -> None:
    before, declared, after = body("mov.u32 x, 1; .reg .pred p; ret;")
    assert (before, after) == (only_statement("mov.u32 x, 1;"), only_statement("ret;"))
    assert declared == only_statement(".reg .pred p;")


# ---- functions and modules ------------------------------------------------------------------


def test_kernel() -> None:
    text = """.visible .entry k(
        .param .u64 .ptr .global .align 16 a, .param .align 128 .b8 map[128],
        .param .u64 .ptr b, .param .b32 n)
        .maxntid 256, 1, 1 .minnctapersm 2 .reqnctapercluster 2,1 .explicitcluster
        .maxnreg 128
        .pragma "nounroll";
        { ret; }"""
    pointer = Declaration("param", "u64", (Declarator("a"),), pointer=("global", 16))
    assert item(text) == Function(
        "k",
        True,
        (
            pointer,
            Declaration("param", "b8", (Declarator("map", None, (128,)),), alignment=128),
            Declaration("param", "u64", (Declarator("b"),), pointer=("", None)),
            Declaration("param", "b32", (Declarator("n"),)),
        ),
        (),
        "visible",
        (
            Directive("maxntid", (256, 1, 1)),
            Directive("minnctapersm", (2,)),
            Directive("reqnctapercluster", (2, 1)),
            Directive("explicitcluster"),
            Directive("maxnreg", (128,)),
            Pragma(("nounroll",)),
        ),
        (Instruction("ret", (), ()),),
    )


def test_functions() -> None:
    x, y = (Declaration("reg", "b32", (Declarator(name),)) for name in "xy")
    ret = (Instruction("ret", (), ()),)
    assert item(".func (.reg .b32 x) f (.reg .b32 y) { ret; }") == (
        Function("f", False, (y,), (x,), body=ret)
    )
    assert item(".extern .func f() .noreturn;") == (
        Function("f", False, (), (), "extern", (Directive("noreturn"),))
    )
    assert item(".weak .func .attribute(.unified(1, 2)) f { ret; }") == (
        Function("f", False, (), linkage="weak", body=ret, attributes=(".unified(1,2)",))
    )
    assert item(".entry k;") == Function("k", True, ())


def test_module_items() -> None:
    assert item('.file 1 "a b.cu"') == File(1, "a b.cu")
    assert item('.file 2 "x", 123, 45') == File(2, "x", (123, 45))
    assert item(".alias a, b;") == Alias("a", "b")
    text = ".section .debug_str {\n info: .b8 95, 1 // one\n\t.b64 a+4\n\n .b32 info }"
    assert item(text) == Section(".debug_str", ("info: .b8 95, 1", ".b64 a+4", ".b32 info"))
    assert item(".section .debug_macinfo {\t}") == Section(".debug_macinfo", ())


def test_head() -> None:
    def head(module: PtxModule) -> tuple[object, ...]:
        return module.version, module.targets, module.address_size

    assert head(parse(HEAD)) == ((8, 7), ("sm_90a",), 64)
    assert head(parse(".version 6.0\n.target sm_70, debug, texmode_independent")) == (
        (6, 0),
        ("sm_70", "debug", "texmode_independent"),
        64,
    )
    assert head(parse(".version 9.10\r\n.target sm_70\r\n.address_size 32\r\n")) == (
        (9, 10),
        ("sm_70",),
        32,
    )


def test_entries_and_functions() -> None:
    module = parse(HEAD + ".entry a; .func f { ret; } .entry a { ret; } .entry b { ret; }")
    assert [f.name for f in module.functions] == ["a", "f", "a", "b"]
    assert [f.name for f in module.entries] == ["a", "b"]


# ---- instructions of every tier, as ptxas takes them ----------------------------------------

INSTRUCTIONS = {
    "data movement": """
        mov.u32 r0, %tid.x; mov.b64 {r0, r1}, d0; mov.b64 {_, r1}, d0; mov.b128 w, {d0, d1};
        mov.u32 r0, s; mov.u64 d0, table+8; mov.u64 d0, callee; mov.u32 r0, WARP_SZ;
        ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {r0, r1, r2, r3}, [d0+-16];
        ld.shared::cta.b32 r0, [s+16]; ld.f32 f0, [d0]; ld.volatile.global.u32 r0, [d0];
        ld.acquire.gpu.global.u32 r0, [d0]; st.relaxed.sys.global.u32 [d0], r0;
        ld.const.u64 d0, [table]; ld.local.u32 r0, [16]; st.shared.v2.b32 [s], {r0, r1};
        ld.global.cg.u32 r0, [d0]; st.global.wt.u32 [d0], 1; ld.global.u32 r0, [d0].unified;
        cvta.to.global.u64 d0, d1; cvta.shared.u64 d0, d1; prefetch.global.L2 [d0];
        prmt.b32 r0, r1, r2, 0x5410; shfl.sync.bfly.b32 r0|p, r1, 1, 31, -1;
        isspacep.shared p, d0; mapa.shared::cluster.u32 r0, r1, 1;
    """,
    "arithmetic": """
        add.s32 r0, r1, -1; add.cc.u32 r0, r1, r2; addc.u32 r0, r1, 0; sub.cc.s32 r0, r1, r2;
        subc.s32 r0, r1, r2; mad.lo.cc.u32 r0, r1, r2, r3; madc.hi.u32 r0, r1, r2, r3;
        mul.wide.u32 d0, r0, r1; mad24.lo.s32 r0, r1, r2, r3; sad.s32 r0, r1, r2, r3;
        fma.rn.ftz.sat.f32 f0, f1, 0f40000000, f2; fma.rn.relu.f16x2 r0, r1, r2, r3;
        ex2.approx.ftz.f32 f0, f1; tanh.approx.f32 f0, f1; sqrt.rn.f64 g0, g1; rem.u32 r0, r1, 7;
        testp.finite.f32 p, f0; copysign.f32 f0, f1, f2; bfind.shiftamt.u32 r0, r1;
        bmsk.clamp.b32 r0, r1, r2; lop3.or.b32 r0|p, r1, r2, r3, 0x96, q; szext.wrap.u32 r0, r1, 3;
        dp4a.u32.s32 r0, r1, r2, r3; dp2a.lo.s32.s32 r0, r1, r2, r3; vadd.u32.u32.u32 r0, r1.b0, r2.h1;
        setp.eq.and.u32 p|q, r0, r1, !p; setp.neu.f32 p, f0, 0.5; set.lt.u32.f32 r0, f0, f1;
        selp.b32 r0, 1, 0, p; slct.f32.s32 f0, f1, f2, r0; cnot.b32 r0, r1; not.pred p, q;
        cvt.rn.satfinite.e4m3x2.f32 h0, f0, f1; cvt.rn.bf16x2.f32 r0, f0, f1; cvt.rzi.s32.f32 r0, f0;
        shf.l.wrap.b32 r0, r1, r2, 5; bfe.u32 r0, r1, 4, 8; bfi.b32 r0, r1, r2, 4, 8;
    """,
    "control": """
        bra.uni next; next: @p bra next; @!q trap;
        { .reg .b32 x; mov.u32 x, 1; loop: @p bra loop; } { loop: @p bra loop; }
        targets: .branchtargets next, other; brx.idx r0, targets; other:
        { .param .b32 a; .param .align 8 .b8 b[16]; .param .b32 result;
          st.param.b32 [a], r0; st.param.v2.b32 [b+8], {r0, r1};
          call.uni (result), callee, (a, b); ld.param.b32 r0, [result];
          prototype: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]);
          call (result), d0, (a, b), prototype; }
        bar.sync 0; barrier.cta.sync.aligned 1, 128; bar.red.popc.u32 r0, 1, !p; bar.warp.sync -1;
        bar.red.or.pred p, 0, q; nanosleep.u32 20; exit;
    """,
    "warps": """
        vote.sync.ballot.b32 r0, !p, 0xffffffff; vote.sync.all.pred p, q, -1; activemask.b32 r0;
        match.any.sync.b32 r0, r1, -1; match.all.sync.b32 r0|p, r1, -1; redux.sync.add.s32 r0, r1, -1;
        elect.sync r0|p, -1; elect.sync _|p, -1; membar.gl; fence.acq_rel.gpu; fence.proxy.async;
        atom.global.cas.b32 r0, [d0], r1, r2; atom.shared.add.f32 f0, [s], 0f3F800000;
        red.global.add.f32 [d0], f0; atom.add.release.gpu.global.u32 r0, [d0], 1;
        atom.global.v2.f32.add {f0, f1}, [d0], {f2, f3}; griddepcontrol.wait;
        mov.u64 d0, %globaltimer; mov.u64 d0, %clock64; mov.u32 r0, %cluster_ctarank;
    """,
    "ampere": """
        ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r0, r1, r2, r3}, [r4+16];
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [r4], {r0}; movmatrix.sync.aligned.m8n8.trans.b16 r0, r1;
        cp.async.cg.shared.global.L2::128B [r0], [d0], 16, r1; cp.async.ca.shared.global [r0], [d0], 4;
        cp.async.ca.shared.global [r0], [d0], 4, p; cp.async.commit_group; cp.async.wait_group 2;
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
            {f0, f1, f2, f3}, {r0, r1, r2, r3}, {r4, r5}, {f0, f1, f2, f3};
        mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32
            {f0, f1, f2, f3}, {r0, r1, r2, r3}, {r4, r5, r6, r7}, {f0, f1, f2, f3}, r8, 0x0;
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
            {r0, r1, r2, r3, r4, r5, r6, r7}, [s], 16;
    """,
    "hopper": """
        mbarrier.init.shared::cta.b64 [s], 1; mbarrier.arrive.shared::cta.b64 _, [s];
        mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 d0, [s+8], 64;
        mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [s], 1, 100;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [d0], 64, [s+64];
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
            [s], [d0, {r0, r1}], [s+64], h0, d1;
        cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
            [s], [d0, {r0, r1, r2}], [s+64], {h0};
        cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [d0, {r0}], [s];
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [d0], [s], 64;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; prefetch.tensormap [d0];
        fence.mbarrier_init.release.cluster; barrier.cluster.arrive.release; barrier.cluster.wait;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d0, d1, p, 1, -1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, {r0, r1, r2, r3}, d1, 1, 1, 1, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
        setmaxnreg.dec.sync.aligned.u32 40; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [s];
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [r0], r1, [r2];
    """,
}
BLACKWELL = """
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], 64;
    tcgen05.mma.cta_group::1.kind::f16 [r0], d0, d1, r1, p;
    tcgen05.mma.cta_group::1.kind::f16 [r0], [r1], d1, r2, {r3, r4, r5, r6}, p;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [d0];
    tcgen05.cp.cta_group::1.128x256b [r0], d0; tcgen05.shift.cta_group::1.down [r0];
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {r0, r1}, [r2]; tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.16x64b.x1.b32 [r2], {r0}; tcgen05.fence::before_thread_sync;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 r0, 64;
"""
MODULE = """
.const .align 8 .u64 table[2] = {generic(data), generic(data)+4};
.func (.param .b32 result) callee(.param .b32 a, .param .align 8 .b8 b[16])
{ .reg .b32 x; ld.param.b32 x, [a]; st.param.b32 [result], x; ret; }
"""


def in_kernel(text: str, head: str = HEAD) -> str:
    data = ".global .u32 data[2] = {1, 2};"
    return f"{head}{data}{MODULE}.entry k(.param .u64 pointer) {{{REGISTERS}{text}\n ret; }}"


def assert_same(text: str, assemble: Assemble, arch: str = "sm_90a") -> None:
    module = parse(text)
    printed = to_text(module)
    assert parse(printed) == module
    assert assemble(printed, arch) == assemble(text, arch)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions(name: str, assemble: Assemble) -> None:
    assert_same(in_kernel(INSTRUCTIONS[name]), assemble)


def test_blackwell_instructions(assemble: Assemble) -> None:
    head = HEAD.replace("sm_90a", "sm_100a")
    assert_same(in_kernel(BLACKWELL, head), assemble, "sm_100a")


def test_module_forms(assemble: Assemble) -> None:
    text = f"""{HEAD}
    .global .u32 data[2][2] = {{{{1, 2}}, {{3}}}}, more = 5;
    .visible .global .align 4 .u8 bytes[8] = {{0xFF(data), 0xFF00(data), 0xFF0000(data), 3}};
    .visible .func one() {{ ret; }}
    .visible .func another();
    .alias another, one;
    .weak .func (.reg .b32 x) registers (.reg .b32 y) {{ mov.b32 x, y; ret; }}
    .extern .shared .align 16 .b8 dynamic[];
    .entry k(.param .u64 .ptr .global .align 16 p, .param .align 128 .b8 map[128])
    .maxntid 128 .minnctapersm 2 .pragma "nounroll"; {{
        .reg .b32 r<3>; .reg .v4 .f32 v; .reg .b64 d<2>;
        mov.f32 v.x, 1.0; mov.f32 v.y, -0d3FF0000000000000; call (r0), registers, (r1);
        mov.u32 r2, dynamic; st.shared.f32 [r2+4], v.x; ld.param.u64 d0, [p]; st.f32 [d0], v.y;
        {{ .reg .f32 v; mov.f32 v, 2.0; st.f32 [d0], v; }}
        call another; ret; }}
    """
    assert_same(text, assemble)


@pytest.mark.parametrize(
    "text",
    [
        ".func a { ret; }\n.global .b8 x[2] = {1,\n2\n};\n.func b { ret; // }\n}\n",
        '.func a { .pragma "no}"; { ret;\n} }\n.func b {\n{\n}\n}\n',
        ".func a {\nret; /* {\n} */\n}\n.func b {\nret; // {\n}\n.func c {\n}\n",
    ],
)
def test_where_a_body_ends_does_not_depend_on_its_lines(text: str) -> None:
    text = ".version 8.0\n.target sm_90a\n" + text
    assert parse(text, skim=True) == parse(text)


@pytest.mark.parametrize(
    "last", ["0x1F", "18446744073709551615", "017", "0b11", "8U", "1 + 1", "x"]
)
def test_long_lists_passed_over_have_the_same_numbers(last: str) -> None:
    listed = ",\n ".join([*map(str, range(200)), "0xFFFFFFFFFFFFFFFF", last])
    text = f".version 8.0\n.target sm_90a\n.global .u64 x[] = {{ {listed} }};\n.global .u8 y;\n"
    assert parse(text, skim=True) == parse(text)
    for skim in (True, False):
        with pytest.raises(PtxSyntaxError) as caught:
            parse(text.replace(" 150,", " 18446744073709551616,"), skim=skim)
        location = caught.value.location
        assert location is not None
        assert location.line == 153


def test_a_body_passed_over_is_read_when_it_is_asked_for() -> None:
    """Braces in initialisers, comments, strings and debugging data end no body."""
    head = (
        ".version 8.0\n.target sm_90a\n.global .u8 t[2] = {1, 2};\n.section .debug_str { a: 1 }\n"
    )
    first = '.func f { .pragma "}"; // }\n { mov.v2.u32 {a, b}, c; } /* } */ ret; }\n'
    text = head + first + ".func g { mov.u32 x, ¦`; }\n"
    at = text.index("¦")
    module = parse(text.replace("¦", ""), skim=True)
    assert module.functions[0].body == parse(head + first).functions[0].body
    broken = module.functions[1].body
    assert broken is not None
    with pytest.raises(PtxSyntaxError, match="unexpected character") as caught:
        len(broken)
    location = caught.value.location
    assert location is not None
    assert (location.line, location.column) == (7, at - text.rindex("\n", 0, at))
