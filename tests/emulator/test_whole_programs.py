"""Whole programs: nvJitLink is asked of each whether it is one, and ptxlab takes the same.

What differs is listed with the reason, and has to differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.toolchain import assembler, link_ptx

ARCH = "sm_90a"


def program(
    body: str = "", before: str = "", directives: str = "", parameters: str = ".param .u64 p",
    after: str = "", version: str = "8.5", target: str = ARCH,
) -> str:  # fmt: skip
    return (
        f".version {version}\n.target {target}\n.address_size 64\n{before}\n"
        f".visible .entry k({parameters}) {directives}\n"
        f"{{ .reg .b32 r<4>; .reg .b64 d<4>; .reg .pred q;\n{body}\nret; }}\n{after}\n"
    )


def linked(text: str) -> bool:
    try:
        link_ptx(text, arch=ARCH, path="program")
    except ToolchainError:
        return False
    return True


def taken(text: str) -> bool:
    """Say whether ptxlab takes all kernels of a module; anything but its own errors leaves as it is."""
    try:
        module = open_device("emulator", arch=ARCH).load(text)
        for name in module.kernels:
            module.kernel(name)
    except PtxlabError:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def anew() -> None:
    """Have nvJitLink begin anew, whatever others had it assemble before."""
    if assembler._process is not None:
        assembler._process.end()
        assembler._process = None


F, DECLARED = ".func f() { ret; }", ".extern .func f();"

VARIABLES = """
.extern .global .u32 g;
.extern .const .u32 g;
.extern .shared .u32 g;
.extern .shared .u32 g[4];
.extern .shared .align 16 .b8 g[];
.extern .shared .b8 s[]; .visible .shared .b8 s[4];
.extern .shared .b8 s[]; .extern .shared .b16 s[];
.extern .global .u32 g; .global .u32 g;
.extern .global .u32 g; .visible .global .u32 g = 3;
.extern .global .u32 g; .weak .global .u32 g;
.extern .global .u32 g; .common .global .u32 g;
.visible .global .u32 g; .extern .global .u32 g;
.visible .global .u32 g; .extern .global .u64 g;
.extern .global .u32 g; .visible .global .b32 g;
.extern .global .u32 g[4]; .visible .global .u32 g[5];
.extern .global .u32 g[]; .visible .global .u32 g[5];
.extern .global .u32 g[][2]; .visible .global .u32 g[3][2];
.extern .global .u32 g[2][2]; .visible .global .u32 g[4];
.extern .global .v2 .u32 g; .visible .global .u32 g[2];
.common .const .u32 g;
.common .shared .u32 g;
.common .global .u32 g = 1;
.param .u32 g;
.tex .u32 g;
.const .texref g;
.global .texref g;
.global .bf16 g;
.global .f16 g;
.shared .bf16x2 g;
.global .u16x2 g;
.global .f32x2 g;
.global .u32 _;
.global .u32 WARP_SZ;
.global .u32 .align 4 g;
.align 4 .global .u32 g;
.global .u32 .v2 g;
.global .v2 .align 8 .u32 g;
.global .visible .u32 g;
.attribute(.managed) .global .u32 g;
.global .attribute(.managed) .align 8 .u32 g;
.global .attribute(.foo) .u32 g;
.const .attribute(.managed) .u32 g;
.shared .attribute(.managed) .u32 g;
.global .align 3 .u32 g;
.global .align 0 .u32 g;
.global .align 512 .u32 g;
.global .u32 g[-1];
.global .u32 g[(3)];
.global .u32 g[3*2];
.global .u32 g[+2];
.global .u32 g[WARP_SZ];
.global .u32 g[2U];
.global .u32 g[] = {};
.const .b8 g[65536];
.const .b8 g[65537];
.const .b8 g[40000]; .const .b8 h[40000];
.shared .b8 g[300000];
.global .u32 h; .global .u64 g = h-4;
.global .u32 h; .global .u64 g = h+-4;
.global .u32 h; .global .u64 g = h+8-4;
.global .u32 h; .global .u16 g = h;
.global .u32 h; .global .u32 g = h;
.global .u32 h; .global .s64 g = h;
.global .u32 h; .global .u8 g = 0xFF(h);
.global .u32 h; .global .u16 g = 0xFF(h);
.shared .u32 h; .global .u64 g = h;
.const .u32 h; .global .u64 g = generic(h);
.func f() { ret; } .global .u64 g = f;
.func f() { ret; } .global .u64 g = f+4;
.func f() { ret; } .global .u64 g = generic(f);
.func f() { ret; } .global .u8 g = 0xFF00(f);
.extern .func f(); .global .u64 g = f;
.func f(); .global .u64 g = f; .func f() { ret; }
"""

FUNCTIONS = """
.extern .func f();
.func f();
.visible .func f();
.weak .func f();
.func f(); .func f() { ret; }
.visible .func f(); .func f() { ret; }
.visible .func f(); .weak .func f() { ret; }
.func f(); .visible .func f() { ret; }
.weak .func f(); .visible .func f() { ret; }
.weak .func f(); .weak .func f() { ret; }
.extern .func f(); .visible .func f() { ret; }
.extern .func f(); .extern .func f();
.visible .func f() { ret; } .extern .func f();
.extern .func f() { ret; }
.common .func f() { ret; }
.visible .entry e();
.extern .entry e();
.entry e(); .visible .entry e() { ret; }
.visible .entry e(); .entry e() { ret; }
.func f() { ret; } .func a(); .alias a, f;
.func f() { ret; } .alias a, f;
.weak .func f() { ret; } .weak .func a(); .alias a, f;
.func f(.param .b8 x[40000]) { ret; }
.func _() { ret; }
.func f(.param .u16 x) { ret; }
.func f(.param .b16 x) { ret; }
.func f(.param .u8 x[2]) { ret; }
.func (.reg .s8 x) f() { ret; }
.func f(.reg .pred x) { ret; }
.func f(.reg .v2 .pred x) { ret; }
.func f(.reg .v2 .u16 x) { ret; }
.func f(.reg .v4 .f32 x) { ret; }
.func (.reg .v4 .f32 x) f() { ret; }
.func f(.reg .v4 .f64 x) { ret; }
.func f(.param .v4 .f32 x) { ret; }
.func (.param .v2 .b32 x) f() { ret; }
.func f(.param .b32 n, .param .align 8 .b8 x[]) { ret; }
.func f(.param .b8 x[], .param .b32 n) { ret; }
.func f(.param .f16x2 x) { ret; }
.func f(.reg .f16x2 x) { ret; }
.func f(.param .b8 x[]) { ret; }
.func (.param .b8 x[]) f() { ret; }
.func f(.param .b8 x[2][2]) { ret; }
.func (.param .u32 x, .param .u32 y) f() { ret; }
.func f(.param .align 256 .b8 x[4]) { ret; }
.func f(.param .u64 .ptr x) { ret; }
.func f(.param .u32 _) { ret; }
.func f() .maxntid 32 { ret; }
.func f() .noreturn { ret; }
.func f() .maxnreg 32 { ret; }
.func (.reg .b32 x) f() .noreturn { ret; }
.func f() .abi_preserve 3 { ret; }
.entry .attribute(.managed) e() { ret; }
.file 1 "a" .file 1 "b"
.pragma "nounroll";
.pragma "unroll";
"""

DIRECTIVES = """
.maxntid 0
.maxntid 1025
.maxntid 32,33
.maxntid 1,0
.maxntid 1,2,3,4
.maxntid 4294967296
.maxntid 1 .maxntid 2
.reqntid 0
.reqntid 32 .reqntid 64
.reqntid 32 .maxntid 64
.maxntid 32 .reqntid 32
.minnctapersm 1
.minnctapersm 0
.minnctapersm 2 .maxntid 32
.maxnreg 0
.maxnreg 256
.maxnctapersm 2
.noreturn
.explicitcluster
.reqnctapercluster 0
.reqnctapercluster 8,8,8
.reqnctapercluster 2 .maxclusterrank 4
.maxclusterrank 17
.blocksareclusters .reqntid 32 .reqnctapercluster 2
.abi_preserve 3
.pragma "anything";
.foo 3
"""

PARAMETERS = """
.param .u32 p[0]
.param .u32 p[]
.param .v4 .f32 p
.param .u32 p[2][3]
.param .f16x2 p
.param .align 256 .b8 p[4]
.param .u32 WARP_SZ
.param .u64 _
.reg .u32 p
.param .u64 .ptr .param p
.param .u64 .ptr .local .align 8 p
.param .pred p
.param .b8 p[32764]
.param .b8 p[32765]
"""

BODIES = """
mov.b32 z, 1; .reg .b32 z;
.reg .b32 z; mov.b32 z, 1; .reg .b64 y; mov.b64 y, 1;
{ .reg .b32 z; } mov.b32 z, 1;
mov.b32 r0, 1; { mov.b32 r1, r0; .reg .f32 r0; mov.f32 r0, 1.0; }
brx.idx r0, t; t: .branchtargets L; L:
call d0, t; t: .callprototype _ ();
bra L; { L: ret; }
L: { bra L; }
_: bra _;
.reg .b32 _;
.reg .bf16 z;
.reg .f16x2 z;
.reg .u16x2 z;
.visible .shared .u32 z;
.extern .shared .b8 z[];
.weak .local .u32 z;
.shared .b8 z[232448];
.shared .b8 z[232449];
.const .b8 z[65537];
{ .param .f16x2 z; }
{ .param .align 256 .b8 z[4]; }
ld.global.u32 r0, [d0-4];
ld.global.u32 r0, [d0+-4];
ld.global.u32 r0, [d0+8-4];
ld.global.u32 r0, [d0+1<<3];
mov.u64 d0, k;
call k;
.global .u32 z; cvta.shared.u64 d0, z;
.shared .u32 z; cvta.shared.u64 d0, z+4;
.maxntid 3
.entry e() { ret; }
"""

INDICES = """
ld.global.u32 r0, z[r1];
ld.global.u32 r0, z[r1+3];
ld.global.u32 r0, z[r1+-3];
ld.global.u32 r0, z[r1-3];
ld.global.u32 r0, z[3+r1];
ld.global.u32 r0, z[r1+r2];
ld.global.u32 r0, z[r1*4];
ld.global.u32 r0, z[r1+WARP_SZ];
ld.global.u32 r0, z[r1+1.5];
ld.global.u32 r0, z[r1]+4;
ld.global.u32 r0, [z[r1]];
ld.global.u32 r0, z[d1];
ld.global.u32 r0, z[q];
ld.global.u32 r0, z[%laneid];
ld.global.u32 r0, z[%clock64];
ld.global.u32 r0, z[%tid.x];
ld.global.u32 r0, z[r9];
ld.global.u32 r0, one[r1];
ld.global.u32 r0, d0[r1];
ld.global.u32 r0, two[r1][1];
ld.shared.u32 r0, z[r1];
ld.u32 r0, z[r1];
ldu.global.u32 r0, z[r1];
ldu.global.u32 r0, z[1];
@q ld.global.nc.u32 r0, z[r1];
st.global.u32 z[r1+1], r0;
mov.u64 d0, z[r1];
mov.s64 d0, z[r1];
mov.b64 d0, z[r1];
cvta.global.u64 d0, z[r1+2];
cvta.to.global.u64 d0, z[r1];
cvta.to.global.u64 d0, z[1];
cvta.shared.u64 d0, z[r1];
atom.global.add.u32 r0, z[r1], r2;
red.global.add.u32 z[r1], r2;
prefetch.global.L2 z[r1];
add.u64 d0, z[r1], d1;
setp.eq.u64 q, z[r1], d1;
"""

CALLEES = """
.func f0(.param .b32 n) { ret; } .func f1(.param .f32 n) { ret; }
.func f2(.param .align 8 .b32 n) { ret; } .func f3(.param .align 8 .b8 n[16]) { ret; }
.func f4(.param .u32 n[4]) { ret; } .func f5(.reg .b32 n) { ret; } .func f6(.reg .v2 .b32 n) { ret; }
.func f7(.reg .v4 .f32 n) { ret; } .func f8(.param .b32 n, .param .align 8 .b8 va[]) { ret; }
.func (.param .b32 r) g0(.param .b32 n) { ret; } .func (.reg .f32 r) g1() { ret; }
.func (.reg .v2 .b32 r) g2() { ret; }
""".replace("\n", " ")

OWN = """
.func f(.param .b32 n) { .reg .b32 r; st.param.b32 [n], 3; ret; }
.func (.param .b32 n) f() { .reg .b32 r; ld.param.b32 r, [n]; ret; }
.func (.param .b32 n) f() { call (n), g0, (3); ret; }
.func f(.param .b32 n) { call f0, (n); ret; }
.func f(.param .b32 n) { .reg .pred p; .reg .b32 r; @p ld.param.b32 r, [n]; ret; }
"""

CALLS = """
call f0, (y);
call f0, (x);
call f0, (w);
call f0, (z);
call f0, (one);
call f0, (wide);
call f0, (r0);
call f0, (e);
call f1, (y);
call f1, (x);
call f1, (e);
call f1, (s);
call f2, (wide);
call f2, (y);
call f2, (r0);
call f3, (v);
call f3, (w);
call f3, (a64);
call f3, (a4);
call f4, (a4);
call f4, (s4);
call f4, (b4);
call f4, (v);
call f5, (y);
call f5, (wide);
call f5, (one);
call f5, (z);
call f6, (b2);
call f6, (g2v);
call f6, (s2);
call f6, (b4v);
call f6, (r0);
call f6, ({r0, r1});
call f6, (b2.x);
call f7, (g4v);
call f7, (b4v);
call f7, (s4v);
call f8, (y);
call f8, (y, v);
call f8, (y, a64);
call f8, (y, w);
call f8, (y, z);
call f8, (y, v, v);
call f8, (v);
call (y), g0, (x);
call (one), g0, (x);
call (wide), g0, (x);
call (w), g0, (x);
call (_), g0, (x);
call (y), g1;
call (x), g1;
call (wide), g1;
call (b2), g2;
call (g2v), g2;
call (_), g2;
call (b4v), g2;
call (r0), g2;
ld.param.b32 r0, [y];
st.param.b32 [y], r0; ld.param.b32 r0, [y];
call f0, (y); ld.param.b32 r0, [y];
call (y), g0, (x); ld.param.b32 r0, [y];
call (y), g0, (x); bra L; L: ld.param.b32 r0, [y];
L: @q bra M; ld.param.b32 r0, [y]; M: call (y), g0, (x); bra L;
call (y), g0, (x); { .param .b32 y; ld.param.b32 r0, [y]; }
@q st.param.b32 [y], r0;
call (y), g0, (x); @q ld.param.b32 r0, [y];
@q call (y), g0, (x); ld.param.b32 r0, [y];
P: .callprototype _ (.param .f32 _); call d0, (y), P;
P: .callprototype _ (.param .f32 _); call d0, (x), P;
P: .callprototype _ (.param .align 8 .b32 _); call d0, (wide), P;
P: .callprototype _ (.param .align 8 .b32 _); call d0, (y), P;
P: .callprototype _ (.reg .v2 .b32 _); call d0, (b2), P;
P: .callprototype (.reg .v2 .b32 _) _ (); call (b4v), d0, P;
P: .callprototype _ (.param .align 8 .b8 _[]); call d0, (v), P;
P: .callprototype _ (.param .align 8 .b8 _[]); call d0, P;
P: .callprototype _ (.param .align 8 .b8 _[]); call d0, (), P;
P: .callprototype _ (.param .align 8 .b8 _[], .param .b32 _); call d0, (v, y), P;
P: .callprototype _ (.param .align 4 .b8 _[]); call d0, (v), P;
{ .param .v2 .b32 o; }
"""

PASSED = """
.param .b32 y; .param .u32 x; .param .b32 one[1]; .param .b64 z; .param .align 8 .b32 wide;
.param .align 4 .b8 w[16]; .param .align 8 .b8 v[16]; .param .b64 a64[2]; .param .u32 a4[4];
.param .s32 s4[4]; .param .b32 b4[4]; .reg .v2 .b32 b2; .reg .v2 .f32 g2v; .reg .v2 .s32 s2;
.reg .v4 .b32 b4v; .reg .v4 .f32 g4v; .reg .v4 .s32 s4v; .reg .f32 e; .reg .s32 s;
""".replace("\n", " ")

ARRAYS = ".global .u32 z[4]; .global .u32 one; .global .u32 two[2][2];"

TARGETS = (
    "sm_91", "sm_82", "sm_90f", "sm_80a", "sm_90a, foo", "debug, sm_80", "sm_90a, sm_80",
    "sm_80, map_f64_to_f32", "sm_80,texmode_unified,texmode_independent", "sm_75, texmode_independent",
)  # fmt: skip

AROUND = (
    program("mov.u64 d0, g;", after=".global .u32 g;"),
    program("mov.u64 d0, g;", ".extern .global .u32 g;", after=".visible .global .u32 g;"),
    program("call f;", after=F),
    program("call f;", ".func f();", after=F),
    program("mov.u64 d0, f;", after=F),
    program("mov.u64 d0, f;", F),
    program("mov.u64 d0, f+16;", F),
    program("ld.global.u32 r0, [f];", F),
    program("call f;", DECLARED),
    program("mov.u64 d0, f;", DECLARED),
    program("call e;", ".entry e() { ret; }"),
    *(program(version=version, target="sm_80") for version in ("6.5", "7.0", "7.9", "8.9", "9.1")),
    *(program(version=version) for version in ("7.8", "8.0", "08.5", "5.0")),
    *(program(target=target) for target in TARGETS),
    *(
        program("redux.sync.add.u32 r0, r1, r2;", target=target)
        for target in ("sm_75", "sm_80", "sm_90a")
    ),
    program("wgmma.fence.sync.aligned;", target="sm_90"),
    program(directives=".reqnctapercluster 2", target="sm_80"),
    program(version="7.7", target="sm_80", directives=".explicitcluster"),
    program().replace(".address_size 64", ".address_size 32"),
    program().replace(".address_size 64", ""),
    program().replace(".target", "\v.target"),
)

EXCEPTIONS = {
    "a vector and one register of its size are not passed for each other": [
        program("call f, (1.5);", ".func f(.reg .v2 .f32 x) { ret; }"),
        program("{ .reg .v2 .b32 v; call f, (v); }", ".func f(.reg .b64 x) { ret; }"),
    ],
    "a vector of a prototype is a .reg": [
        program("P: .callprototype _ (.param .v2 .b32 _);"),
    ],
    "the newest ISA that nvJitLink knows is no limit here": [program(version="9.9", target="sm_80")],
    "a module has one head": [program().replace(".address", ".target sm_80\n.address")],
    "what has no name is a slip": [program(before=".global .u32;")],
    "registers and .local outside of functions need another ABI, and are refused where they are used": [
        program(before=".reg .u32 g;"), program(before=".local .u32 g;"),
        program(before=".func (.reg .u32 x, .reg .u32 y) f() { ret; }"),
    ],
    "what surrounds textures and debuggers changes no result": [
        program(before=".global .samplerref g;"), program(target="sm_90a, debug"),
        program('.pragma "frequency 3";'), program(before='.func f() .pragma "nounroll"; { ret; }'),
    ],
    "only what a kernel reaches is read": [program(before=".func f() { nothing; }")],
    "what ptxas makes of it nobody says": [
        program(before=".global .b16 g = 1.0;"), program("ld.param.u32 r0, [p+8];"),
    ],
    "two variables of one name in a function are not modelled": [
        program(".global .u32 z; { .global .u32 z; }")
    ],
}  # fmt: skip


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


TABLE: dict[str, Iterable[str]] = {
    "variables": [program(before=line) for line in lines(VARIABLES)],
    "functions": [program(before=line) for line in lines(FUNCTIONS)],
    "directives": [program(directives=line, version="9.0") for line in lines(DIRECTIVES)],
    "parameters": [program(parameters=line) for line in lines(PARAMETERS)],
    "bodies": [program(line) for line in lines(BODIES)],
    "calls": [program(f"{{ {PASSED} {line} }}", CALLEES) for line in lines(CALLS)],
    "parameters of one's own": [
        program("{ .reg .b64 a; mov.u64 a, f; }", f"{CALLEES} {line}") for line in lines(OWN)
    ],
    "indices": [program(line, ARRAYS) for line in lines(INDICES)],
    "around": AROUND,
}


@pytest.mark.parametrize("part", TABLE)
def test_the_same_programs_are_taken(part: str) -> None:
    verdicts = {text: (linked(text), taken(text)) for text in TABLE[part]}
    assert [t for t, (tool, ours) in verdicts.items() if tool != ours] == []
    assert {tool for tool, _ in verdicts.values()} == {True, False}


@pytest.mark.parametrize("reason", EXCEPTIONS)
def test_what_differs_has_a_reason(reason: str) -> None:
    same = [text for text in EXCEPTIONS[reason] if linked(text) == taken(text)]
    assert same == []
