"""Atomics of vectors and of 128 bits, and barriers that join what threads hold, do the same on both engines."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import Writer

THREADS, ROW = 64, 128
PROGRAM = """\
.version 8.7
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


def left(arch: str, engine: str, body: str) -> Array:
    halves = np.random.default_rng(6).standard_normal(THREADS * ROW // 2).astype(np.float16)
    device = open_device("emulator", arch=arch, engine=engine)
    data = device.upload(halves.view(np.uint32))
    device.load(PROGRAM.format(arch=arch, row=ROW, body=body)).kernel("k").launch(
        1, THREADS, [data]
    )
    return data.numpy().reshape(THREADS, -1)


@pytest.mark.parametrize(
    ("arch", "body"), [("sm_80", JOINED), ("sm_90a", JOINED + HOPPER), ("sm_120a", JOINED + HOPPER)]
)
def test_both_engines_leave_the_same(arch: str, body: str) -> None:
    ptx, sass = (left(arch, engine, body) for engine in ("ptx", "sass"))
    np.testing.assert_array_equal(ptx, sass)


def test_a_barrier_joins_what_threads_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of 64 threads are counted; a rule that forgets what was joined is found."""

    def forgetful(w: Writer) -> None:
        w.modifiers.ignore("RESULT")
        w.emit(f"mov.b32 {w.dest()}, 0")

    assert (left("sm_80", "sass", JOINED)[:, 0] == THREADS // 4).all()
    monkeypatch.setitem(table.RULES, "B2R", forgetful)
    assert not (left("sm_80", "sass", JOINED)[:, 0] == THREADS // 4).any()
