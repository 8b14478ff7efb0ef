"""The interpreter of machine code against the emulator of the PTX it was made from."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.values import Array, Bank, Where
from ptxlab.prediction.following.execute import Executor
from ptxlab.prediction.following.program_slice import read_by
from tests.prediction.running import Both
from tests.together import thorough

ARCHS = (
    "sm_80",
    pytest.param("sm_86", marks=pytest.mark.thorough),
    pytest.param("sm_89", marks=pytest.mark.thorough),
    "sm_120a",  # the last of those with a set of instructions alike, and the first of those
    *thorough(("sm_75", "sm_90a", "sm_100a")),
)

HEAD = """\
.version {version}
.target {arch}
.address_size 64
.func (.reg .b32 r) mixed(.reg .b32 x, .reg .b32 y) {{
  .reg .b32 t; mul.lo.u32 t, x, 3; xor.b32 r, t, y; ret;
}}
.func (.reg .b32 r) twice(.reg .b32 x) {{
  .reg .b32 t; .reg .pred u; setp.gt.s32 u, x, 0; @u bra over; xor.b32 r, x, 5; ret;
  over: call (t), mixed, (x, 77); call (r), mixed, (t, x); ret;
}}
"""

BEGIN = """\
.visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 n)
{{
  .reg .b32 a, b, c, d, t<12>; .reg .b64 p, q, w<8>; .reg .pred u, v; .reg .b16 h<4>; .reg .b32 f, g, x, y, z;
  .shared .b32 s[256];
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; ld.param.u32 d, [n];
  mov.u32 t0, %ctaid.x; mov.u32 t1, %ntid.x; mov.u32 t2, %tid.x; mad.lo.u32 t0, t0, t1, t2;
  mad.wide.u32 p, t0, 8, p; mad.wide.u32 q, t0, 4, q;
  ld.global.v2.b32 {{a, b}}, [p]; mov.b32 f, a; mov.b32 g, b;
"""
TAIL = "  st.global.b32 [q], c;\n  ret;\n}}\n"

PROGRAMS = {
    "add and carry": "add.cc.u32 t3, a, b; addc.cc.u32 t4, b, a; addc.u32 t5, t3, t4; xor.b32 c, t5, t3;",
    "subtract with borrow": "sub.cc.u32 t3, a, b; subc.u32 t4, b, a; xor.b32 c, t3, t4;",
    "64 bits": "mov.b64 w0, {{a, b}}; mul.lo.u64 w1, w0, w0; shr.s64 w2, w1, 13; add.s64 w2, w2, w0;"
    " mov.b64 {{t3, t4}}, w2; xor.b32 c, t3, t4;",
    "products": "mul.hi.u32 t3, a, b; mul.hi.s32 t4, a, b; mad.lo.s32 t5, a, b, t3; xor.b32 c, t4, t5;",
    "wide": "mul.wide.s32 w0, a, b; mul.wide.u32 w1, a, b; sub.s64 w2, w0, w1; mov.b64 {{t3, t4}}, w2;"
    " xor.b32 c, t3, t4;",
    "a wide product that carries": "mov.b64 w1, {{b, a}}; mul.wide.s32 w0, a, b; add.cc.s64 w2, w0, w1; addc.u32 t5, 0, 0;"
    " mov.b64 {{t3, t4}}, w2; xor.b32 c, t3, t4; mad.lo.u32 c, t5, 77, c;",
    "upper half of 128 bits": "mov.b64 w0, {{a, b}}; mov.b64 w1, {{b, a}}; mul.hi.u64 w2, w0, w1;"
    " mul.hi.u64 w3, w0, 0xaaaaaaaaaaaaaaab; xor.b64 w2, w2, w3; mov.b64 {{t3, t4}}, w2; xor.b32 c, t3, t4;",
    "shifts": "and.b32 t3, b, 31; shl.b32 t4, a, t3; shr.s32 t5, a, t3; shr.u32 t6, a, b; xor.b32 t4, t4, t5;"
    " xor.b32 c, t4, t6;",
    "generic addresses of shared memory": "mov.u64 w0, s; cvta.shared.u64 w0, w0; mul.wide.u32 w1, t2, 4;"
    " add.u64 w0, w0, w1; setp.gt.u32 u, d, 0x7fffffff; selp.b64 w2, q, w0, u; st.volatile.b32 [w2], a;"
    " ld.volatile.b32 c, [w2];",
    "funnel": "shf.l.wrap.b32 t3, a, b, b; shf.r.clamp.b32 t4, a, b, a; xor.b32 c, t3, t4;",
    "64-bit shifts": "mov.b64 w0, {{a, b}}; and.b32 t3, a, 63; shl.b64 w1, w0, t3; shr.u64 w2, w0, t3;"
    " shr.s64 w3, w0, t3; xor.b64 w1, w1, w2; xor.b64 w1, w1, w3; mov.b64 {{t3, t4}}, w1; xor.b32 c, t3, t4;",
    "logic": "lop3.b32 c, a, b, 0x1234abcd, 0x96; lop3.b32 t3, a, c, b, 0xca; not.b32 t3, t3; xor.b32 c, c, t3;",
    "bits": "bfe.u32 t3, a, 3, 11; bfe.s32 t4, b, 7, 13; bfi.b32 t5, a, b, 5, 9; popc.b32 t6, a; clz.b32 t7, b;"
    " brev.b32 t8, a; add.u32 c, t3, t4; xor.b32 c, c, t5; add.u32 c, c, t6; add.u32 c, c, t7;"
    " xor.b32 c, c, t8;",
    "bytes": "prmt.b32 t3, a, b, 0x6143; prmt.b32 t4, a, b, 0x9ace; xor.b32 c, t3, t4;",
    "least and most": "min.s32 t3, a, b; max.u32 t4, a, b; abs.s32 t5, a; neg.s32 t6, b; add.u32 c, t3, t4;"
    " xor.b32 c, c, t5; add.u32 c, c, t6;",
    "divide": "or.b32 t3, b, 1; shr.u32 t3, t3, 9; add.u32 t3, t3, 1; div.u32 t4, a, t3; rem.u32 t5, a, t3;"
    " div.s32 t6, a, t3; rem.s32 t7, b, t3; xor.b32 c, t4, t5; add.u32 c, c, t6; xor.b32 c, c, t7;",
    "divide by what is known": "div.u32 t3, a, 7; rem.s32 t4, b, 100; div.s32 t5, a, 32; xor.b32 c, t3, t4;"
    " add.u32 c, c, t5;",
    "choose": "setp.lt.s32 u, a, b; setp.ge.u32 v, a, 77777; selp.b32 t3, a, b, u; @v add.u32 t3, t3, 5;"
    " and.pred u, u, v; selp.u32 t4, 1, 0, u; xor.b32 c, t3, t4;",
    "compare 64 bits": "mov.b64 w0, {{a, b}}; mov.b64 w1, {{b, a}}; setp.lt.s64 u, w0, w1; setp.ge.u64 v, w0, w1;"
    " selp.u32 t3, 17, 4, u; selp.u32 t4, 100, 1000, v; add.u32 c, t3, t4;",
    "halves": "mov.b32 {{h0, h1}}, a; mul.wide.u16 t3, h0, h1; add.s16 h2, h0, h1; cvt.s32.s16 t4, h2;"
    " xor.b32 c, t3, t4;",
    "divisions of halves": "mov.b32 {{h0, h1}}, a; or.b16 h1, h1, 1; div.u16 h2, h0, h1; rem.s16 h3, h0, h1;"
    " mov.b32 c, {{h2, h3}}; cvt.rn.f32.u16 x, h0; cvt.rn.f32.s16 y, h1; xor.b32 c, c, x; xor.b32 c, c, y;"
    " and.b32 t3, b, 0xff; cvt.rn.f32.u32 z, t3; cvt.s32.s8 t4, b; cvt.rn.f32.s32 x, t4; xor.b32 c, c, z;"
    " xor.b32 c, c, x;",
    "a loop of one's own length": "and.b32 t3, a, 15; mov.u32 c, b;\n"
    "turn: setp.eq.u32 u, t3, 0; @u bra done; mad.lo.u32 c, c, 3, t3; sub.u32 t3, t3, 1; bra turn; done:",
    "branches apart": "and.b32 t3, a, 1; setp.eq.u32 u, t3, 0; @u bra even; mul.lo.u32 c, b, 3; bra join;\n"
    "even: xor.b32 c, b, a; join: shfl.sync.bfly.b32 t4, c, 5, 31, -1; add.u32 c, c, t4;",
    "shuffles": "shfl.sync.idx.b32 t3, a, b, 31, -1; shfl.sync.up.b32 t4, a, 3, 0, -1;"
    " shfl.sync.down.b32 t5|u, b, 2, 0x181f, -1; selp.b32 t5, t5, 9, u; xor.b32 c, t3, t4; add.u32 c, c, t5;",
    "votes": "setp.lt.s32 u, a, b; vote.sync.ballot.b32 t3, u, -1; vote.sync.any.pred v, u, -1;"
    " selp.u32 t4, 3, 0, v; xor.b32 c, t3, t4;",
    "shared memory": "shl.b32 t3, t2, 2; mov.u32 t4, s; add.u32 t3, t3, t4; st.shared.b32 [t3], a; bar.sync 0;"
    " xor.b32 t5, t2, 33; shl.b32 t5, t5, 2; add.u32 t5, t5, t4; ld.shared.b32 c, [t5]; add.u32 c, c, b;",
    "a shared address that was generic": "mov.u32 t4, s; cvt.u64.u32 w0, t4; cvta.shared.u64 w1, w0;"
    " and.b64 w1, w1, -16; cvta.to.shared.u64 w2, w1; cvt.u32.u64 t3, w2; shl.b32 t5, t2, 2; add.u32 t3, t3, t5;"
    " st.shared.b32 [t3], a; ld.shared.b32 c, [t3]; add.u32 c, c, b;",
    "indices from memory": "and.b32 t3, a, 63; ld.param.u64 w0, [in]; mad.wide.u32 w0, t3, 8, w0;"
    " ld.global.b32 t4, [w0+4]; add.u32 c, t4, b;",
    "functions": "call (t3), twice, (a); call (t4), mixed, (b, a); xor.b32 c, t3, t4;",
    "functions called apart": "setp.lt.s32 u, a, b; @u bra other; call (c), twice, (b); bra join;\n"
    "other: call (c), mixed, (a, b); join: add.u32 c, c, 1;",
    "some threads end": "setp.gt.u32 u, t0, d; mov.u32 c, 1; @u bra gone; add.u32 c, a, b; gone:",
}  # fmt: skip
SINCE_80 = {
    "sums of a warp": "redux.sync.add.s32 t3, a, -1; redux.sync.min.s32 t4, a, -1; redux.sync.max.u32 t5, b, -1;"
    " redux.sync.and.b32 t6, a, -1; redux.sync.or.b32 t7, b, -1; redux.sync.xor.b32 t8, a, -1; xor.b32 c, t3, t4;"
    " xor.b32 c, c, t5; xor.b32 c, c, t6; xor.b32 c, c, t7; xor.b32 c, c, t8; add.u32 c, c, t2;",
    "sums of some lanes": "mov.u32 c, 0; and.b32 t3, t2, 3; setp.ne.u32 u, t3, 2; @u bra over;"
    " redux.sync.min.u32 c, b, 0x44444444; redux.sync.max.s32 t4, a, 0x44444444; xor.b32 c, c, t4; over:",
}  # fmt: skip


FLOATS = {
    "sums": "add.rn.f32 x, f, g; sub.ftz.f32 y, f, g; add.rz.f32 z, x, g; add.rp.f32 x, z, y;"
    " add.sat.f32 y, x, 0f3f000000; xor.b32 c, x, y;",
    "products of numbers": "mul.rn.f32 x, f, g; mul.ftz.f32 y, f, g; mul.rm.f32 z, f, g; mul.rp.ftz.sat.f32 x, x, g;"
    " xor.b32 c, x, y; xor.b32 c, c, z;",
    "products and sums": "fma.rn.f32 x, f, g, f; fma.rz.ftz.f32 y, f, g, x; fma.rp.f32 z, g, g, y; neg.f32 y, y;"
    " fma.rn.sat.f32 f, x, y, z; xor.b32 c, z, f;",
    "least and most of numbers": "min.f32 x, f, g; max.ftz.f32 y, f, g; abs.f32 z, f; min.f32 z, z, 0f40000000;"
    " max.NaN.f32 f, f, g; xor.b32 c, x, y; xor.b32 c, c, z; xor.b32 c, c, f;",
    "choices": "setp.lt.f32 u, f, g; setp.geu.ftz.f32 v, g, 0f3f800000; selp.f32 x, f, g, u; selp.f32 y, x, f, v;"
    " xor.b32 c, x, y;",
    "numbers from integers": "cvt.rn.f32.s32 x, a; cvt.rp.f32.u32 y, b; cvt.rz.f32.s32 z, b; xor.b32 c, x, y;"
    " xor.b32 c, c, z;",
    "integers from numbers": "cvt.rni.s32.f32 t3, f; cvt.rzi.u32.f32 t4, g; cvt.rmi.s32.f32 t5, g;"
    " cvt.rpi.ftz.s32.f32 t6, f; xor.b32 c, t3, t4; xor.b32 c, c, t5; xor.b32 c, c, t6;",
    "approximations": "rcp.approx.ftz.f32 x, f; sqrt.approx.ftz.f32 y, f; rsqrt.approx.ftz.f32 z, g;"
    " xor.b32 c, x, y; xor.b32 c, c, z; ex2.approx.ftz.f32 x, f; lg2.approx.ftz.f32 y, g; xor.b32 c, c, x;"
    " xor.b32 c, c, y; sqrt.approx.f32 y, f;"
    " xor.b32 c, c, y; ex2.approx.f32 x, f; xor.b32 c, c, x; tanh.approx.f32 x, g; xor.b32 c, c, x;",
    "doubles": "cvt.f64.f32 w0, f; cvt.f64.f32 w1, g; fma.rn.f64 w2, w0, w1, w0; setp.lt.f64 u, w2, w1; mov.u32 c, 5;"
    " @u bra over; cvt.rn.f32.f64 x, w2; mov.b32 c, x; over:",
    "halves that decide": "cvt.rn.f16.f32 h0, f; cvt.rn.f16.f32 h1, g; fma.rn.f16 h2, h0, h1, h0; setp.gt.f16 u, h2, h1;"
    " @u bra over; xor.b32 c, a, b; bra done; over: add.u32 c, a, b; done:",
    "a loop as long as a number says": "abs.f32 x, f; mov.u32 c, 0;\n"
    "turn: setp.gt.f32 u, x, 0f3f800000; @!u bra done; mul.f32 x, x, 0f3e000000; add.u32 c, c, 1;"
    " setp.lt.u32 v, c, 30; @v bra turn; done:",
}  # fmt: skip
"""On any bits: what is no number, too, and what is next to zero."""

ORDINARY = {
    "quotients": "div.rn.f32 x, f, g; rcp.rn.f32 y, g; sqrt.rn.f32 z, x; xor.b32 c, x, y; xor.b32 c, c, z;"
    " div.full.f32 x, f, g; div.rz.f32 y, f, z; sqrt.rp.f32 z, g; rcp.approx.f32 f, f; xor.b32 c, c, f;"
    " lg2.approx.f32 f, g; xor.b32 c, c, f; xor.b32 c, c, y; xor.b32 c, c, z;",
}  # fmt: skip
"""On numbers of ordinary size, of which the compiler's short ways are right."""

SINCE_100 = {
    "256 bits": "and.b64 p, p, -32; ld.global.v8.b32 {{t3, t4, t5, t6, t7, t8, t9, t10}}, [p];"
    " st.global.v8.b32 [p], {{t10, t9, t8, t7, t6, t5, t4, t3}}; ld.global.b32 c, [p + 4]; xor.b32 c, c, t4;",
    "some of 256 bits": "and.b64 p, p, -32; ld.global.v8.b32 {{t3, t4, t5, t6, t7, t8, t9, t10}}, [p];"
    " sub.u32 c, t5, t10; xor.b32 c, c, t3;",
}
"""Four threads store the same."""


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the instructions, of all that are run, that read a register without having told so."""
    texts: set[str] = set()
    read_now: list[int] = []
    read, execute = Bank.read, Executor.execute

    def noted(bank: Bank, row: int, where: Where) -> Array | None:
        if row not in bank._fixed:
            read_now.append(row if len(bank._state) > 16 else 512 + row)
        return read(bank, row, where)

    def checked(executor: Executor, i: DecodedInstruction, where: Where, told: bool) -> None:
        read_now.clear()
        execute(executor, i, where, told)
        if not read_by(i).issuperset(read_now):
            texts.add(i.sass.text)

    monkeypatch.setattr(Bank, "read", noted)
    monkeypatch.setattr(Executor, "execute", checked)
    return texts


@pytest.mark.parametrize("arch", ARCHS)
def test_results_are_those_of_the_emulator(arch: str, untold: set[str]) -> None:
    """All programs are kernels of one module, which costs the assembler least."""
    programs = PROGRAMS | FLOATS | ORDINARY | ({} if arch == "sm_75" else SINCE_80)
    newest = arch in ("sm_100a", "sm_120a")
    programs |= SINCE_100 if newest else {}
    kernels = {f"k{n}": name for n, name in enumerate(programs)}
    parts = [(BEGIN + programs[what] + "\n" + TAIL).format(name=k) for k, what in kernels.items()]
    source = HEAD.format(arch=arch, version="8.8" if newest else "8.7") + "".join(parts)
    program = Both(source if arch != "sm_75" else source.replace(".NaN", ""), arch)
    wrong = []
    for kernel, what in kernels.items():
        for seed in range(2):
            data = ordinary(seed) if what in ORDINARY else any_bits(seed)
            args = [data, np.zeros(128, np.uint32), 90]
            expected, computed = program.run(kernel, 2, 64, args, 1)
            if computed is None or not np.array_equal(expected, computed):
                wrong.append(what)
    assert not wrong
    assert not untold


def any_bits(seed: int) -> Array:
    data = np.random.default_rng(seed).integers(0, 2**32, 256, np.uint32)
    data[:8] = (0, 1, 2**31, 2**32 - 1, 0xFFFF, 31, 32, 2**31 - 1)
    return data


def ordinary(seed: int) -> Array:
    """Return numbers from 2^-20 to 2^20."""
    random = np.random.default_rng(seed)
    return np.exp2(random.uniform(-20, 20, 256)).astype(np.float32).view(np.uint32)
