"""Atomics of vectors and of 128 bits, barriers that join, what is stored later, and where parameters are: the same on both engines."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import Writer

THREADS, ROW = 64, 128
PROGRAM = """\
.version 9.3
.target {arch}
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .b64 x, y, s, t, state; .reg .b32 n, a, b, c, d, tile; .reg .pred p, q;
    .shared .align 16 .b8 memory[2048];
    ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, {row}, x;
    mov.u32 tile, memory; mad.lo.u32 tile, n, 16, tile;
    ld.global.L1::evict_unchanged.v2.b32 {{a, b}}, [x];
    {body}
    ret;
}}
"""
JOINED = """\
    and.b32 c, n, 3; setp.eq.u32 p, c, 1; bar.red.popc.u32 d, 0, p; st.global.b32 [x], d;
    setp.lt.u32 p, n, 60; bar.red.and.pred q, 1, 64, p; selp.b32 a, a, 5, q; st.global.b32 [x + 4], a;
    barrier.red.or.pred q, 2, !p; selp.b32 b, b, 5, q; st.global.b32 [x + 8], b;
    membar.proxy.alias;"""
HOPPER = """\
    .reg .b128 whole, other; .reg .f32 f, g, h, i; .reg .b16 u, v;
    ld.global.v2.b64 {s, t}, [x + 16]; mov.b128 whole, {s, t}; mov.b128 other, {t, s};
    atom.global.exch.b128 other, [x + 32], other; mov.b128 {s, t}, other; st.global.v2.b64 [x + 16], {t, s};
    atom.cas.b128 other, [x + 48], other, whole; mov.b128 {s, t}, other; st.global.v2.b64 [x], {s, t};
    st.shared.v2.b64 [tile], {s, t}; setp.lt.u32 p, n, 32; selp.b64 s, s, t, p; mov.b128 other, {s, t};
    atom.shared.cas.b128 other, [tile], other, whole; mov.b128 {s, t}, other; st.global.b64 [x + 48], t;
    ld.shared.v2.b64 {s, t}, [tile]; st.global.v2.b64 [x + 112], {s, t};
    mov.b32 f, a; mov.b32 g, b; cvt.u16.u32 u, a; cvt.u16.u32 v, b;
    atom.global.add.v2.f32 {h, i}, [x + 64], {f, g}; st.global.v2.f32 [x + 72], {i, h};
    red.global.add.v4.f32 [x + 64], {f, g, f, f};
    red.global.add.noftz.v8.f16 [x + 80], {u, v, u, u, v, v, u, v}; red.global.max.noftz.v2.bf16x2 [x + 96], {a, b};
    atom.global.min.noftz.v4.f16 {u, v, u, v}, [x + 104], {u, v, v, u};
    cvta.shared.u64 y, 0; isspacep.shared::cluster p, y; isspacep.shared::cluster q, t; and.pred q, p, !q;
    mov.u32 tile, memory; setp.eq.u32 p, n, 0; bar.sync 0; @p mbarrier.init.shared.b64 [tile], 200; bar.sync 0;
    mbarrier.arrive.noComplete.shared.b64 state, [tile], 2; mbarrier.pending_count.b64 c, state; add.u32 c, c, d;
    selp.b32 c, c, 0, q; st.global.b32 [x + 12], c;"""

ANYWHERE = """
    st.shared.v2.b32 [tile], {a, b}; cvt.u64.u32 y, tile; cvta.shared.u64 y, y; and.b32 c, n, 3; setp.eq.u32 p, c, 0; add.u64 s, x, 32;
    selp.b64 s, s, y, p; atom.add.noftz.bf16x2 c, [s], b; red.add.noftz.f16x2 [s + 4], a; st.global.b32 [x + 40], c;
    ld.shared.v2.b32 {c, d}, [tile]; st.global.v2.b32 [x + 48], {c, d};"""
"""Every fourth thread adds in global memory, the others in shared memory: the first way does it, or another behind it."""

PARAMETERS = """\
    mov.u64 y, data; cvta.param.u64 y, y; isspacep.param p, y; selp.b32 c, 1, 0, p; add.u64 s, y, 0x20000000000; isspacep.param q, s;
    selp.b32 d, 1, 0, q; shl.b32 d, d, 1; add.s32 c, c, d; isspacep.param q, x; selp.b32 d, 4, 0, q; add.s32 c, c, d;
    cvta.shared.u64 s, 0; isspacep.param q, s; selp.b32 d, 8, 0, q; add.s32 c, c, d; st.global.b32 [x + 4], c;
    isspacep.global p, x; isspacep.global q, y; selp.b32 c, 1, 0, p; selp.b32 d, 2, 0, q; add.u32 c, c, d; isspacep.const p, x;
    isspacep.global q, s; selp.b32 d, 4, 0, p; add.u32 c, c, d; selp.b32 d, 8, 0, q; add.u32 c, c, d; st.global.b32 [x + 124], c;"""
BYTES = """
    vabsdiff4.u32.u32.u32 c, a, b, d; st.global.b32 [x + 20], c; vabsdiff4.u32.u32.u32.add c, b, a, d; st.global.b32 [x + 24], c;"""
LAYOUTS = """
    setp.eq.u32 p, n, 0; bar.sync 0; @p mbarrier.init.layout::v1.shared.b64 [memory + 1040], 9; @p mbarrier.init.shared.b64 [memory + 1048], 9;
    bar.sync 0; mbarrier.check_layout.layout::v1.shared.b64 p, [memory + 1040]; mbarrier.check_layout.layout::v1.shared.b64 q, [memory + 1048];
    selp.b32 c, 1, 0, p; selp.b32 d, 2, 0, q; add.u32 c, c, d; mbarrier.check_layout.layout::v0.shared.b64 p, [memory + 1048];
    selp.b32 d, 4, 0, p; add.u32 c, c, d; cvta.shared.u64 y, 0; mad.wide.u32 y, n, 4, y; add.u64 y, y, 64;
    isspacep.shared p, y; add.u64 y, x, 64; isspacep.shared q, y; selp.b32 d, 8, 0, p; add.u32 c, c, d;
    selp.b32 d, 16, 0, q; add.u32 c, c, d; st.global.b32 [x + 28], c;"""
NONE_BELOW = """
    .reg .b16 h; setp.lt.u32 p, n, 40; set.ne.xor.f16.u64 h, 1, 31, p; st.global.b16 [x + 8], h;"""
"""Of two zeros the upper words are compared alone: what came of the lower ones is left out."""
LATER = """\
    .reg .b32 e, f, g, h; .reg .b8 byte; ld.global.L2::evict_last.v8.b32 {a, b, c, d, e, f, g, h}, [x + 64];
    st.global.L2::evict_first.v8.b32 [x + 32], {h, a, b, c, d, e, f, g}; and.b32 n, n, 5; setp.ne.u32 p, n, 0;
    @p st.async.release.gpu.global.b32 [x], a; st.async.mmio.release.sys.global.b64 [x + 8], x; cvt.u8.u32 byte, b; st.async.release.gpu.global.u8 [x + 5], byte;
    mov.b64 y, {c, d}; red.async.relaxed.gpu.global.add.u64 [x + 16], y; @!p red.async.release.sys.global.add.s32 [x + 24], d;
    red.async.mmio.release.sys.global.add.u32 [x + 28], e; st.shared.v2.b32 [tile], {a, b}; st.shared.v2.b32 [tile + 8], {c, d};
    bar.sync 0; mov.u32 tile, memory; st.bulk.shared::cta [tile + 264], 256, 0; bar.sync 0; mov.u32 n, %tid.x;
    mad.lo.u32 tile, n, 16, tile; ld.shared.v4.b32 {a, b, c, d}, [tile]; st.global.v4.b32 [x + 96], {a, b, c, d};"""


def left(arch: str, engine: str, body: str) -> Array:
    halves = np.random.default_rng(6).standard_normal(THREADS * ROW // 2).astype(np.float16)
    device = open_device("emulator", arch=arch, engine=engine)
    data = device.upload(halves.view(np.uint32))
    device.load(PROGRAM.format(arch=arch, row=ROW, body=body)).kernel("k").launch(
        1, THREADS, [data]
    )
    return data.numpy().reshape(THREADS, -1)


@pytest.mark.parametrize(
    ("arch", "body"),
    [
        ("sm_75", PARAMETERS + NONE_BELOW),
        ("sm_80", JOINED + PARAMETERS + BYTES),
        ("sm_90a", JOINED + HOPPER + PARAMETERS + LAYOUTS),
        ("sm_90a", ANYWHERE),
        ("sm_120a", ANYWHERE),
        ("sm_100a", LATER + PARAMETERS),
        ("sm_120a", JOINED + HOPPER + LAYOUTS),
    ],
)
def test_both_engines_leave_the_same(arch: str, body: str) -> None:
    ptx, sass = (left(arch, engine, body) for engine in ("ptx", "sass"))
    np.testing.assert_array_equal(ptx, sass)


def test_ptxas_makes_a_sum_of_every_reduction_that_is_done_later() -> None:
    """Of docs/ptxas.md: what is in the machine code, whose bytes are the same, is what runs."""
    bodies = [f"red.async.relaxed.gpu.global.{name}.u32 [x + 16], a;" for name in ("max", "add")]
    most, total = (left("sm_100a", "sass", body) for body in bodies)
    np.testing.assert_array_equal(most, total)
    assert (left("sm_100a", "ptx", bodies[0]) != total).any()


def test_parameters_are_told_from_what_lies_beside_them() -> None:
    """Of the parameter, what is far behind it, global and shared memory only the first is one, and the third global memory."""
    of_parameters, *_, of_global = left("sm_80", "sass", PARAMETERS)[:, 1:].T
    assert (of_parameters == 1).all()
    assert (of_global == 1).all()


def test_a_barrier_joins_what_threads_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of 64 threads are counted; a rule that forgets what was joined is found."""

    def forgetful(w: Writer) -> None:
        w.modifiers.ignore("RESULT")
        w.emit(f"mov.b32 {w.dest()}, 0")

    assert (left("sm_80", "sass", JOINED)[:, 0] == THREADS // 4).all()
    monkeypatch.setitem(table.RULES, "B2R", forgetful)
    assert not (left("sm_80", "sass", JOINED)[:, 0] == THREADS // 4).any()
