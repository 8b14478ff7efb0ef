"""A program that is right has one result, whenever asynchronous work lands; one that is wrong has not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError
from tests.emulator.hopper.conftest import hopper_text

SCHEDULES = ["late", "early", "random:1", "random:2", "random:77"]

# Four stages, filled by thread 0 and summed by all: eight tiles of 256 bytes go through two buffers.
RING = """
    setp.ne.u32 p0, r0, 0;
    @p0 bra Ready;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.init.shared.b64 [bar+8], 1;
    mbarrier.init.shared.b64 [bar+16], 64;
    mbarrier.init.shared.b64 [bar+24], 64;
Ready:
    bar.sync 0;
    mov.u32 r4, 0;
    mov.u32 r5, 0;
Next:
    and.b32 r6, r4, 1;
    mad.lo.u32 r7, r6, 8, r2;
    shr.u32 r8, r4, 1;
    and.b32 r8, r8, 1;
    xor.b32 r9, r8, 1;
    mad.lo.u32 r10, r6, 256, r3;
    @p0 bra Full;
Empty:
    mbarrier.try_wait.parity.shared.b64 p1, [r7+16], r9;
    @!p1 bra Empty;
    mbarrier.arrive.expect_tx.shared.b64 _, [r7], 256;
    mad.wide.u32 d2, r4, 256, d1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r10], [d2], 256, [r7];
Full:
    mbarrier.try_wait.parity.shared.b64 p1, [r7], r8;
    @!p1 bra Full;
    mad.lo.u32 r11, r0, 4, r10;
    ld.shared.u32 r12, [r11];
    mad.lo.u32 r5, r5, 3, r12;
    mbarrier.arrive.shared.b64 d3, [r7+16];
    add.u32 r4, r4, 1;
    setp.lt.u32 p2, r4, 8;
    @p2 bra Next;
    mad.wide.u32 d4, r0, 4, d0;
    st.global.u32 [d4], r5;
"""


HASTY = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @!p0 bra Ready;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 256, [r2];
Ready:
    bar.sync 0;
    mad.lo.u32 r4, r0, 4, r3;
    ld.shared.u32 r5, [r4];
    mad.wide.u32 d4, r0, 4, d0;
    st.global.u32 [d4], r5;
"""
DATA = np.random.default_rng(1).integers(0, 2**32, (8, 64), dtype=np.uint32)


# 16 is added to f0 to f3, which are the thread's number; before the wait they are touched.
TOUCHING = """
    mov.b32 r4, 0x3c003c00;
    mad.lo.u32 r5, r0, 16, r3;
    st.shared.v4.b32 [r5], {{r4, r4, r4, r4}};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    cvt.u64.u32 d3, r3;
    and.b64 d3, d3, 0x3ffff;
    shr.u64 d3, d3, 4;
    or.b64 d3, d3, 0x800400000;
    mad.wide.u32 d4, r0, 8, d0;
    setp.lt.u32 p1, r0, 40;
    cvt.rn.f32.u32 f0, r0;
    mov.f32 f1, f0;
    mov.f32 f2, f0;
    mov.f32 f3, f0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{f0, f1, f2, f3}}, d3, d3, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    {touch};
    wgmma.wait_group.sync.aligned 0;
    st.global.v2.f32 [d4], {{f1, f4}};
"""


# The same again: 16 more, in a group of its own.
AGAIN = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, d3, d3, 1, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned"
)


def results(body: str, words: int = 64, block: int = 64) -> list[Array]:
    outputs = []
    for schedule in SCHEDULES:
        device = open_device("emulator", arch="sm_90a", schedule=schedule)
        out = device.zeros(words, "u32")
        kernel = device.load(hopper_text(body)).kernel("k")
        kernel.launch(grid=1, block=block, args=[out, device.upload(DATA)])
        outputs.append(out.numpy())
    return outputs


def test_a_right_program_has_one_result() -> None:
    wanted = np.zeros(64, np.uint32)
    for row in DATA:
        wanted = wanted * np.uint32(3) + row
    for schedule, result in zip(SCHEDULES, results(RING), strict=True):
        assert (result == wanted).all(), schedule


def test_a_wrong_one_shows_it_when_work_lands_late() -> None:
    late, early, *_ = results(HASTY)
    assert (late == 0).all()
    assert (early == DATA[0]).all()


@pytest.mark.parametrize(
    ("touch", "f1", "f4"),
    [
        ("add.f32 f4, f0, f1", lambda t: t + 16, lambda t: 2 * (t + 16)),
        ("mov.f32 f4, f3", lambda t: t + 16, lambda t: t + 16),
        ("mov.f32 f1, 0f40E00000", lambda t: 0 * t + 7, lambda t: 0 * t),
        ("@p1 mov.f32 f1, 0f40E00000", lambda t: np.where(t < 40, 7, t + 16), lambda t: 0 * t),
        (
            "@!p1 bra E; mov.f32 f4, f2; E: bar.warp.sync -1",
            lambda t: t + 16,
            lambda t: (t < 40) * (t + 16),
        ),
        (
            f"wgmma.wait_group.sync.aligned 0; mov.f32 f8, f0; {AGAIN}; mov.f32 f4, f2",
            lambda t: t + 32,
            lambda t: t + 32,
        ),
        (
            "wgmma.wait_group.sync.aligned 0; mov.f32 f8, f2; setp.ne.u32 p2, r1, 0; "
            f"@p2 bra PAST; {AGAIN}; PAST: mov.f32 f4, f3",
            lambda t: t + 32,
            lambda t: t + 32,
        ),
    ],
)
def test_what_touches_the_result_of_a_product_waits_for_it(touch: str, f1: Any, f4: Any) -> None:
    """As ptxas has it, which puts a wait before the first use of D."""
    thread = np.arange(256)
    wanted = np.stack([f1(thread), f4(thread)], axis=1).astype(np.float32)
    for result in results(TOUCHING.format(touch=touch), words=512, block=256):
        assert (result.view(np.float32).reshape(256, 2) == wanted).all()


@pytest.mark.parametrize(
    "wait",
    [
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1",
        "wgmma.wait_group.sync.aligned 0",
    ],
)
def test_what_is_not_waited_for_lands_late(wait: str) -> None:
    """Neither the latest group nor a product in none: before it is done its factors are others."""
    other = AGAIN.partition(";")[0].replace("f0, f1, f2, f3", "f4, f5, f6, f7")
    touch = (
        f"{other}; {wait}; mov.f32 f8, f0; mov.b32 r4, 0; st.shared.v4.b32 [r5], {{r4, r4, r4, r4}}; "
        "bar.sync 0; wgmma.commit_group.sync.aligned"
    )
    late, early, *_ = results(TOUCHING.format(touch=touch), words=512, block=256)
    assert (late.view(np.float32)[1::2] == 0).all()
    assert (early.view(np.float32)[1::2] == 16).all()


def test_products_that_share_a_part_of_their_results_land_in_turn() -> None:
    """The second one puts 16 in place of what the first made of f2; f7 is the second one's alone."""
    second = (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f2, f5, f6, f7}, d3, d3, 0, 1, 1, 0, 0"
    )
    touch = f"{second}; wgmma.commit_group.sync.aligned; mov.f32 f4, f7; mov.f32 f1, f2"
    for result in results(TOUCHING.format(touch=touch), words=512, block=256):
        assert (result.view(np.float32) == 16).all()


@pytest.mark.parametrize("text", ["", "later", "random", "random:", "random:x", "early:1"])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(PtxlabError, match="no schedule"):
        open_device("emulator", schedule=text)
