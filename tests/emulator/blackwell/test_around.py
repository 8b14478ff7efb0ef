"""What came with sm_100 beside tcgen05: clusters that take over work, rows gathered and scattered, and more."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported

GPU = open_device("emulator", arch="sm_100a")


def text(body: str, more: str = "") -> str:
    return f"""
.version 9.5
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in{more})
{{
    .reg .pred p<8>;
    .reg .b16 h<4>;
    .reg .b32 r<32>;
    .reg .b64 d<16>;
    .reg .b128 q<2>;
    .reg .f32 f<8>;
    .shared .align 1024 .b8 buffer[4096];
    .shared .align 16 .b8 answer[16];
    .shared .align 8 .b64 bar[2];
    ld.param.u64 d0, [out];
    ld.param.u64 d1, [in];
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, %cluster_ctarank;
    setp.eq.u32 p0, r0, 0;
{body}
    ret;
}}
"""


# ---- clusterlaunchcontrol -------------------------------------------------------------------

WORK = """
    mov.u32 r10, %ctaid.x;
    mov.u32 r11, %ctaid.y;
    mov.u32 r12, 0;
    @p0 mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
next:
    mad.lo.u32 r13, r11, 8, r10;
    mad.wide.u32 d2, r13, 4, d0;
    @p0 atom.global.add.u32 r14, [d2], 1;
    mov.u32 r15, bar;
    {expect}
    {ask}
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p1, [bar], r12;
    @!p1 bra wait;
    xor.b32 r12, r12, 1;
    ld.shared.b128 q0, [answer];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p2, q0;
    {meet}
    @!p2 bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{r10, r11, r20, r21}}, q0;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 r10, q0;
    add.u32 r10, r10, r2;
    bra next;
done:
"""

TRY = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{}.b128 [answer], [bar];"
EXPECT = "@p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;"


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("wave", [64, 128, 100000])
def test_each_cta_is_worked_on_once(
    cluster: int, wave: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that run take over all of those that do not run yet, however many run together."""
    monkeypatch.setattr("ptxlab.emulator.run.grid.WAVE_THREADS", wave)
    if cluster == 1:
        ask, meet = f"@p0 {TRY.format('')}", "bar.sync 0;"
    else:
        ask = f"setp.eq.and.u32 p3, r2, 0, p0; @p3 {TRY.format('.multicast::cluster::all')}"
        meet = "barrier.cluster.arrive; barrier.cluster.wait;"
    body = WORK.format(expect=EXPECT, ask=ask, meet=meet)
    out, given = GPU.zeros((3, 8), "u32"), GPU.zeros(1, "u32")
    result = (
        GPU.load(text(body))
        .kernel("k")
        .launch(grid=(8, 3), block=32, cluster=cluster, args=[out, given])
    )
    assert result is not None
    np.testing.assert_array_equal(out.numpy(), np.ones((3, 8)))


def test_who_was_refused_does_not_ask_again() -> None:
    twice = f"@p0 {TRY.format('')}\n@p0 {TRY.format('')}"
    expect = EXPECT.replace("16", "32")
    body = WORK.format(expect=expect, ask=twice, meet="bar.sync 0;")
    out, given = GPU.zeros((3, 8), "u32"), GPU.zeros(1, "u32")
    with pytest.raises(LaunchError, match="has been told that there is no more"):
        GPU.load(text(body)).kernel("k").launch(grid=1, block=32, args=[out, given])


# ---- four rows ------------------------------------------------------------------------------

LOAD = """
    @p0 mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.b64 d2, map;
    cvta.param.u64 d2, d2;
    ld.global.v4.b32 {{r10, r11, r12, r13}}, [d1];
    ld.global.b32 r14, [d1+16];
    @!p0 bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
    {copy}
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p1, [bar], 0;
    @!p1 bra wait;
    mad.lo.u32 r3, r2, 1024, 0;
    mov.u32 r4, buffer;
    mad.lo.u32 r5, r0, 16, r4;
    mad.lo.u32 r6, r0, 16, r3;
    cvt.u64.u32 d3, r6;
    add.u64 d3, d0, d3;
    ld.shared.v4.b32 {{r16, r17, r18, r19}}, [r5];
    st.global.v4.b32 [d3], {{r16, r17, r18, r19}};
    barrier.cluster.arrive; barrier.cluster.wait;
"""
MAP = ", .param .align 64 .b8 map[128]"
GATHER = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes "
    "[buffer], [d2, {r10, r11, r12, r13, r14}], [bar];"
)


@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize("column", [0, -5, 100])
def test_four_rows_are_gathered(swizzle: str, column: int) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(1, 1 << 16, (20, 128), dtype=np.uint16)
    source = GPU.upload(data)
    rows = [3, 19, -1, 3]
    out = GPU.zeros((64, 8), "u16")
    tensor = GPU.tensor_map(source, box=(1, 64), swizzle=swizzle)
    at = GPU.upload(np.array([column, *rows, 0, 0, 0], np.int32))
    kernel = GPU.load(text(LOAD.format(nbytes=512, copy=GATHER), MAP)).kernel("k")
    kernel.launch(grid=1, block=64, args=[out, at, tensor])
    wide = np.zeros((22, 64 + 128 + 64), np.uint16)
    wide[1:21, 64:192] = data
    expected = np.zeros((64, 8), np.uint16)
    for number, row in enumerate(rows):
        line = wide[row + 1, 64 + column :][:64].reshape(8, 8)
        for unit in range(8):
            expected[8 * number + (unit ^ number if swizzle == "128B" else unit)] = line[unit]
    np.testing.assert_array_equal(out.numpy()[:32], expected[:32])


def test_four_rows_are_scattered() -> None:
    data = np.zeros((20, 128), np.uint16)
    target = GPU.upload(data)
    body = """
    mov.b64 d2, map;
    cvta.param.u64 d2, d2;
    ld.global.v4.b32 {r10, r11, r12, r13}, [d1];
    ld.global.b32 r14, [d1+16];
    mov.u32 r4, buffer;
    mad.lo.u32 r5, r0, 16, r4;
    add.u32 r6, r0, 1;
    st.shared.v4.b32 [r5], {r6, r6, r6, r6};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!p0 bra over;
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [d2, {r10, r11, r12, r13, r14}], [buffer];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
over:
"""
    tensor = GPU.tensor_map(target, box=(1, 64))
    rows = [7, 0, 20, 9]
    at = GPU.upload(np.array([96, *rows, 0, 0, 0], np.int32))
    GPU.load(text(body, MAP)).kernel("k").launch(
        grid=1, block=64, args=[GPU.zeros(1, "u32"), at, tensor]
    )
    expected = data.copy()
    for number, row in enumerate(rows):
        if row < 20:
            units = np.arange(8 * number + 1, 8 * number + 9, dtype=np.uint32).repeat(4)
            expected[row, 96:] = units.view(np.uint16)[:32]
    np.testing.assert_array_equal(target.numpy(), expected)


def test_boxes_of_several_rows_gather_nothing() -> None:
    tensor = GPU.tensor_map(GPU.zeros((20, 128), "u16"), box=(2, 64))
    at = GPU.zeros(8, "u32")
    kernel = GPU.load(text(LOAD.format(nbytes=512, copy=GATHER), MAP)).kernel("k")
    with pytest.raises(LaunchError, match="boxes of one row"):
        kernel.launch(grid=1, block=64, args=[GPU.zeros((64, 8), "u16"), at, tensor])


# ---- pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("odd", "early"), [(False, False), (True, False), (False, True)])
def test_a_pair_waits_at_one_mbarrier(odd: bool, early: bool) -> None:
    """One copy for all four CTAs of a cluster: the CTAs of a pair share the mbarrier of one of them."""
    side = 1 if odd else 0
    copy = (
        f"mapa.shared::cluster.u32 r7, r8, {side}; setp.eq.u32 p4, r2, 0; @p4 "
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [buffer], [d2, {r10, r11}], [r7], h0;"
    )
    if early:
        copy = copy.replace("tensor.2d", "tensor.2d.cta_group::2").replace(
            "cluster.cta_group::2 [", "cluster ["
        )
    body = LOAD.format(nbytes=2 * 512, copy=copy)
    body = body.replace("mbarrier.arrive.expect_tx", "@p5 mbarrier.arrive.expect_tx")
    body = body.replace(
        "mov.b64 d2",
        f"and.b32 r9, r2, 1; setp.eq.u32 p5, r9, {side}; mov.u32 r8, bar; mov.b16 h0, 15; mov.b64 d2",
    )
    body = body.replace("wait:", "wait: @!p5 bra met;", 1).replace(
        "    @!p1 bra wait;",
        "    @!p1 bra wait;\nmet: barrier.cluster.arrive; barrier.cluster.wait;",
        1,
    )
    data = np.arange(8 * 32, dtype=np.uint32).reshape(8, 32) + 1
    tensor = GPU.tensor_map(GPU.upload(data), box=(4, 32))
    out = GPU.zeros((4, 8, 32), "u32")
    kernel = GPU.load(text(body, MAP)).kernel("k")
    kernel.launch(
        grid=4,
        block=64,
        cluster=4,
        args=[out, GPU.upload(np.array([0, 2, 0, 0, 0, 0, 0, 0], np.int32)), tensor],
    )
    for cta in range(4):
        np.testing.assert_array_equal(out.numpy()[cta, :4], data[2:6])


# ---- redux, st.bulk -------------------------------------------------------------------------


@pytest.mark.parametrize("modifiers", ["", ".abs", ".NaN", ".abs.NaN", ".NaN.abs"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_numbers_are_reduced(operation: str, modifiers: str) -> None:
    rng = np.random.default_rng(1)
    given = rng.integers(0, 1 << 32, (8, 32), dtype=np.uint32)
    given[1] = rng.choice(np.array([0, 1 << 31], np.uint32), 32)
    given[2, ::2] = 0x7FC01234
    given[3] = 0xFFFFFFFF
    given[4] = rng.standard_normal(32).astype(np.float32).view(np.uint32)
    given[5] = rng.choice(np.array([0x7F800000, 0xFF800000, 0x3F800000], np.uint32), 32)
    member = 0x0FF0FFF1
    body = f"""
    mad.lo.u32 r3, r1, 32, r0;
    mad.wide.u32 d2, r3, 4, d1;
    mad.wide.u32 d3, r3, 4, d0;
    ld.global.f32 f0, [d2];
    mov.f32 f1, f0;
    mov.u32 r4, {member};
    shr.u32 r5, r4, r0;
    and.b32 r5, r5, 1;
    setp.eq.u32 p1, r5, 1;
    @p1 redux.sync.{operation}{modifiers}.f32 f1, f0, r4;
    st.global.f32 [d3], f1;
"""
    out = GPU.zeros((8, 32), "u32")
    GPU.load(text(body)).kernel("k").launch(grid=8, block=32, args=[out, GPU.upload(given)])
    for cta in range(8):
        lanes = [lane for lane in range(32) if member >> lane & 1]
        words = [int(given[cta, lane]) for lane in lanes]
        if "abs" in modifiers:
            words = [word & 0x7FFFFFFF for word in words]
        numbers = [word for word in words if word & 0x7FFFFFFF <= 0x7F800000]
        numbers.sort(key=lambda w: -(w & 0x7FFFFFFF) - 1 if w >> 31 else w)
        expected = 0x7FFFFFFF
        if numbers and not ("NaN" in modifiers and len(numbers) < len(words)):
            expected = numbers[0 if operation == "min" else -1]
        wanted = given[cta].copy()
        wanted[lanes] = expected
        np.testing.assert_array_equal(out.numpy()[cta], wanted)


def test_redux_of_numbers_is_of_sm_100a() -> None:
    line = "redux.sync.min.f32 f0, f1, r0;"
    with pytest.raises((Unsupported, PtxSyntaxError)):
        open_device("emulator", arch="sm_90a").load(
            text(line).replace("sm_100a", "sm_90a").replace("9.1", "8.6")
        ).kernel("k")


def cleared(size: str) -> Array:
    body = f"""
    mov.u32 r4, buffer;
    mad.lo.u32 r5, r0, 4, r4;
    mov.u32 r6, -1;
    st.shared.b32 [r5], r6;
    bar.sync 0;
    mad.wide.u32 d5, r0, 8, 0;
    cvt.u32.u64 r8, d5;
    cvt.u64.u32 d6, r4;
    mad.wide.u32 d7, r0, 64, d6;
    cvt.u32.u64 r7, d7;
    setp.lt.u32 p1, r0, 3;
    @p1 st.bulk.weak.shared::cta [r7+8], {size}, 0;
    bar.sync 0;
    ld.shared.b32 r6, [r5];
    mad.wide.u32 d2, r0, 4, d0;
    st.global.b32 [d2], r6;
"""
    out = GPU.zeros(64, "u32")
    GPU.load(text(body)).kernel("k").launch(grid=1, block=64, args=[out, GPU.zeros(1, "u32")])
    return out.numpy()


def test_shared_memory_is_cleared() -> None:
    expected = np.full(64, 0xFFFFFFFF, np.uint32)
    for thread in range(3):
        expected[16 * thread + 2 :][: 2 * thread] = 0
    for size in ("d5", "r8"):
        np.testing.assert_array_equal(cleared(size), expected)
    with pytest.raises(LaunchError, match=r"st\.bulk of 12 bytes"):
        cleared("12")


def test_a_size_of_32_bits_came_later() -> None:
    body = "mov.u32 r4, buffer; st.bulk.weak.shared::cta [r4], r0, 0;"
    with pytest.raises(
        PtxSyntaxError, match=r"with a size of 32 bits is newer than the module's \.version 8\.8"
    ):
        GPU.load(text(body).replace(".version 9.5", ".version 8.8")).kernel("k")


# ---- bulk copies of some bytes, stores and reductions that nobody waits for -----------------


@pytest.mark.parametrize("mask", [0x0001, 0x8000, 0xF00F, 0xA5C3, 0])
def test_of_each_16_bytes_those_of_the_mask_are_copied(mask: int) -> None:
    body = f"""
    mov.u32 r4, buffer;
    mad.lo.u32 r5, r0, 4, r4;
    st.shared.u32 [r5], 0x{0x01020304:x};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.u16 h0, {mask};
    @p0 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [d0], [r4], 96, h0;
    @p0 cp.async.bulk.commit_group;
    @p0 cp.async.bulk.wait_group 0;
    """
    with GPU.upload(np.full(128, 255, np.uint8)) as out:
        GPU.load(text(body)).kernel("k").launch(1, 32, [out, out])
        kept = np.array([mask >> byte % 16 & 1 for byte in range(96)], bool)
        filled = np.tile(np.array([4, 3, 2, 1], np.uint8), 24)
        assert (out.numpy()[:96] == np.where(kept, filled, 255)).all()
        assert (out.numpy()[96:] == 255).all()


def test_stores_and_reductions_are_made_that_nobody_waits_for() -> None:
    body = """
    mad.wide.u32 d2, r0, 4, d0;
    st.async.release.gpu.global.b32 [d2], r0;
    red.async.mmio.release.sys.global.add.u32 [d0+128], r0;
    red.async.release.gpu.global.max.s32 [d0+132], r0;
    ld.global.proxy::readonly.v2.u32 {r4, r5}, [d1];
    ld.global.L2::evict_last.v8.u32 {r6, r7, r8, r9, r10, r11, r12, r13}, [d1];
    add.u32 r4, r4, r13;
    mov.u32 r14, %locality_domain_id;
    add.u32 r4, r4, r14;
    prefetch.global.L1::32B.valid_addr [d1];
    @p0 st.global.L1::evict_first.L2::evict_first.v8.u32 [d0+160], {r4, r5, r6, r7, r8, r9, r10, r4};
    """
    data = np.arange(100, 108, dtype=np.uint32)
    with GPU.zeros(48, "u32") as out, GPU.upload(data) as given:
        GPU.load(text(body)).kernel("k").launch(1, 32, [out, given])
        words = out.numpy().tolist()
    assert words[:32] == list(range(32))
    assert words[32:34] == [sum(range(32)), 31]
    assert words[40:] == [207, 101, 100, 101, 102, 103, 104, 207]
