"""Programs with a pipeline, made for the tests: what they do when can be said by hand."""

from __future__ import annotations

STAGES, STEPS = 4, 16
A_BYTES, B_BYTES = 2048, 256
STAGE_BYTES = A_BYTES + B_BYTES

RING = f"""\
// A warp fills a ring of stages by bulk copies, four others multiply what is there.
// Run: ptxlab run FILE --block 160 --arg "a=randn({STEPS * 1024},bf16)" --arg "b=randn({STEPS * 128},bf16)"
//      --arg "d=zeros(64x8,f32)"
.version 8.7
.target sm_90a
.address_size 64
.visible .entry ring(.param .u64 a, .param .u64 b, .param .u64 d)
{{
    .shared .align 128 .b8 tiles[{STAGES * STAGE_BYTES}];
    .shared .align 8 .b64 full[{STAGES}];
    .shared .align 8 .b64 empty[{STAGES}];
    .reg .pred p, first;
    .reg .b32 t, warp, k, stage, parity, tile, into, is_full, is_empty, r<4>;
    .reg .b64 from_a, from_b, to, off, da, db;
    .reg .f32 f<4>;
    mov.u32 t, %tid.x;
    shr.u32 warp, t, 5;
    setp.ne.u32 p, t, 0;
    @p bra made;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [full+16], 1;
    mbarrier.init.shared::cta.b64 [full+24], 1;
    mbarrier.init.shared::cta.b64 [empty], 4;
    mbarrier.init.shared::cta.b64 [empty+8], 4;
    mbarrier.init.shared::cta.b64 [empty+16], 4;
    mbarrier.init.shared::cta.b64 [empty+24], 4;
made:
    bar.sync 0;
    mov.u32 k, 0;
    setp.lt.u32 p, t, 128;
    @p bra multiply;
    setp.ne.u32 p, t, 128;
    @p bra done;
    ld.param.u64 from_a, [a];
    ld.param.u64 from_b, [b];
fill:
    and.b32 stage, k, {STAGES - 1};
    shr.u32 parity, k, 2;
    xor.b32 parity, parity, 1;
    and.b32 parity, parity, 1;
    mov.u32 is_full, full;
    mad.lo.u32 is_full, stage, 8, is_full;
    mov.u32 is_empty, empty;
    mad.lo.u32 is_empty, stage, 8, is_empty;
    mov.u32 into, tiles;
    mad.lo.u32 into, stage, {STAGE_BYTES}, into;
drained:
    mbarrier.try_wait.parity.shared::cta.b64 p, [is_empty], parity;
    @!p bra drained;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [is_full], {STAGE_BYTES};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [into], [from_a], {A_BYTES}, [is_full];
    add.u32 tile, into, {A_BYTES};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [from_b], {B_BYTES}, [is_full];
    add.u64 from_a, from_a, {A_BYTES};
    add.u64 from_b, from_b, {B_BYTES};
    add.u32 k, k, 1;
    setp.lt.u32 p, k, {STEPS};
    @p bra fill;
    bra done;
multiply:
    mov.f32 f0, 0f00000000;
    mov.f32 f1, f0;
    mov.f32 f2, f0;
    mov.f32 f3, f0;
    and.b32 r0, t, 31;
    setp.eq.u32 first, r0, 0;
step:
    and.b32 stage, k, {STAGES - 1};
    shr.u32 parity, k, 2;
    and.b32 parity, parity, 1;
    mov.u32 is_full, full;
    mad.lo.u32 is_full, stage, 8, is_full;
    mov.u32 is_empty, empty;
    mad.lo.u32 is_empty, stage, 8, is_empty;
    mov.u32 tile, tiles;
    mad.lo.u32 tile, stage, {STAGE_BYTES}, tile;
filled:
    mbarrier.try_wait.parity.shared::cta.b64 p, [is_full], parity;
    @!p bra filled;
    shr.u32 r1, tile, 4;
    cvt.u64.u32 da, r1;
    or.b64 da, da, {(128 >> 4) << 16 | (256 >> 4) << 32};
    add.u64 db, da, {A_BYTES >> 4};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{f0, f1, f2, f3}}, da, db, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    @first mbarrier.arrive.shared::cta.b64 _, [is_empty];
    add.u32 k, k, 1;
    setp.lt.u32 p, k, {STEPS};
    @p bra step;
    ld.param.u64 to, [d];
    shl.b32 r0, t, 4;
    cvt.u64.u32 off, r0;
    add.u64 to, to, off;
    st.global.v4.f32 [to], {{f0, f1, f2, f3}};
done:
    ret;
}}
"""

SENT = 256

EXCHANGE = f"""\
// Each CTA of a cluster of two sends {SENT} bytes to the other, and hears by an mbarrier of what it gets.
.version 8.7
.target sm_90a
.address_size 64
.visible .entry exchange(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1
{{
    .shared .align 128 .b8 mine[{SENT}];
    .shared .align 128 .b8 theirs[{SENT}];
    .shared .align 8 .b64 ready;
    .reg .pred p, one;
    .reg .b32 t, rank, peer, to, bell, at, v;
    .reg .b64 place, off;
    mov.u32 t, %tid.x;
    mov.u32 rank, %cluster_ctarank;
    xor.b32 peer, rank, 1;
    shl.b32 at, t, 2;
    mov.u32 to, mine;
    add.u32 to, to, at;
    mad.lo.u32 v, rank, 1000, t;
    st.shared.u32 [to], v;
    setp.eq.u32 one, t, 0;
    @one mbarrier.init.shared::cta.b64 [ready], 1;
    @one mbarrier.arrive.expect_tx.shared::cta.b64 _, [ready], {SENT};
    fence.proxy.async;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 to, theirs;
    mapa.shared::cluster.u32 to, to, peer;
    mov.u32 bell, ready;
    mapa.shared::cluster.u32 bell, bell, peer;
    @one cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [mine], {SENT}, [bell];
again:
    mbarrier.try_wait.parity.shared::cta.b64 p, [ready], 0;
    @!p bra again;
    mov.u32 to, theirs;
    add.u32 to, to, at;
    ld.shared.u32 v, [to];
    mov.u32 at, %ctaid.x;
    mad.lo.u32 at, at, {SENT // 4}, t;
    mul.wide.u32 off, at, 4;
    ld.param.u64 place, [out];
    add.u64 place, place, off;
    st.global.u32 [place], v;
    ret;
}}
"""

GROUPS = """\
// Two warps copy in three groups, wait for all but one, and then for the last; warp 0 first does more.
.version 8.7
.target sm_90a
.address_size 64
.visible .entry groups(.param .u64 from)
{
    .shared .align 16 .b8 tile[3072];
    .reg .pred p;
    .reg .b32 t, to, k;
    .reg .b64 from_, off;
    mov.u32 t, %tid.x;
    shl.b32 t, t, 4;
    mov.u32 to, tile;
    add.u32 to, to, t;
    ld.param.u64 from_, [from];
    cvt.u64.u32 off, t;
    add.u64 from_, from_, off;
    cp.async.ca.shared.global [to], [from_], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [to+1024], [from_+1024], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [to+2048], [from_+2048], 16;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.u32 k, [to];
    cp.async.wait_all;
    ld.shared.u32 k, [to+2048];
    setp.ge.u32 p, t, 512;
    @p bra meet;
    mov.u32 k, 5;
count:
    sub.u32 k, k, 1;
    setp.ne.u32 p, k, 0;
    @p bra count;
meet:
    bar.sync 3;
    ret;
}
"""

MEET = """\
// Warp 1 waits at a barrier for warp 0, which counts first, {count} steps of three instructions.
.version 8.7
.target sm_90a
.address_size 64
.visible .entry meet()
{{
    .reg .pred p;
    .reg .b32 t, k;
    mov.u32 t, %tid.x;
    setp.lt.u32 p, t, 32;
    @p bra work;
    bar.sync 2, 64;
    ret;
work:
    mov.u32 k, {count};
count:
    sub.u32 k, k, 1;
    setp.ne.u32 p, k, 0;
    @p bra count;
    bar.{kind} 2, 64;
    ret;
}}
"""

TURNS = """\
// A thread goes through {turns} phases of an mbarrier, and unmakes it.
.version 8.7
.target sm_90a
.address_size 64
.visible .entry turns()
{{
    .shared .align 8 .b64 bell[2];
    .reg .pred p;
    .reg .b32 k;
    .reg .b64 state;
    mbarrier.init.shared::cta.b64 [bell+8], 2;
    mov.u32 k, {turns};
turn:
    mbarrier.arrive.shared::cta.b64 state, [bell+8], 2;
    sub.u32 k, k, 1;
    setp.ne.u32 p, k, 0;
    @p bra turn;
    mbarrier.inval.shared::cta.b64 [bell+8];
    ret;
}}
"""
