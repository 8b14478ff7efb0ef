"""What the copy engine and the tensor cores move on their own, as a profile counts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.emulator.operations import unit_lines
from ptxlab.launch_config import LaunchConfig
from ptxlab.matrix import shared_matrix
from ptxlab.matrix.canonical import MODES
from ptxlab.matrix.descriptor import WGMMA_DESCRIPTOR
from ptxlab.observe.profile import Profile, count
from ptxlab.verbs.profile import text as view
from tests.emulator.hopper.conftest import hopper_text
from tests.emulator.matrix.warpgroups import SPANS


def profile(body: str, *, grid: int = 1, block: int = 32, cluster: int | None = None) -> Profile:
    device = open_device("emulator", arch="sm_90a")
    kernel = device.load(hopper_text(body)).kernel("k")
    data = device.upload(np.arange(4096, dtype=np.uint32))
    config = LaunchConfig.of(grid, block, 0, cluster)
    return count(kernel, config, [device.zeros(4096, "u32"), data])


START = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 r4, %cluster_ctarank;
    mov.u16 h0, 7;
"""
WAIT = "W: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0; @!p1 bra W; barrier.cluster.arrive; barrier.cluster.wait;"


def test_a_multicast_reads_once_and_writes_in_each_cta() -> None:
    profiled = profile(
        START
        + """
        @!p0 bra W;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
        setp.ne.u32 p2, r4, 0;
        @p2 bra W;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [r3], [d1], 512, [r2], h0;
        """
        + WAIT.replace("@!p1 bra W;", "setp.eq.u32 p3, r4, 3; or.pred p1, p1, p3; @!p1 bra W;"),
        grid=8,
        cluster=4,
    ).totals
    assert (profiled.engine_copies, profiled.engine_global, profiled.engine_shared) == (
        2,
        1024,
        3 * 1024,
    )
    assert (profiled.global_read, profiled.requests) == (0, 0)


def test_a_store_reads_shared_memory_and_writes_global_memory() -> None:
    profiled = profile(
        """
        st.shared.u32 [r3], r0;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        @p0 cp.async.bulk.global.shared::cta.bulk_group [d0], [r3], 128;
        @p0 cp.async.bulk.commit_group;
        @p0 cp.async.bulk.wait_group 0;
        """,
        grid=3,
    ).totals
    assert (profiled.engine_copies, profiled.engine_global, profiled.engine_shared) == (3, 384, 384)
    assert profiled.tensor_shared == 0


def product(swizzle: str = "none", first: int = 0) -> Profile:
    """Profile a product of each of two warpgroups, atoms 256 bytes apart."""
    offsets = {"start address": first, "leading byte offset": 128, "stride byte offset": 256}
    word = WGMMA_DESCRIPTOR.encode({**offsets, "swizzle": swizzle})
    return profile(
        f"""
        mov.b64 d4, {word:#x}; cvt.u64.u32 d5, r3; shr.u64 d5, d5, 4; add.s64 d4, d4, d5;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{f0,f1,f2,f3}}, d4, d4, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        """,
        block=256,
    )


def test_tensor_cores_read_both_factors() -> None:
    """64 x 16 of A and 16 x 8 of B, two bytes each, for each of two warpgroups."""
    totals = product().totals
    assert totals.tensor_shared == 2 * 2 * (64 * 16 + 16 * 8)
    assert totals.flops == 2 * 2 * 64 * 8 * 16


CORE_MATRICES = 2 * (8 * 2 + 1 * 2)
"""Of both warpgroups: 8 of the 64 rows of A by 16 bytes of its 32, and as many columns of B by as much."""


@pytest.mark.parametrize("first", [0, 16, 0x250])
@pytest.mark.parametrize("swizzle", SPANS)
def test_a_core_matrix_is_one_wavefront(swizzle: str, first: int) -> None:
    profiled = product(swizzle, first)
    assert (profiled.totals.tensor_wavefronts, profiled.totals.tensor_ideal) == (CORE_MATRICES,) * 2
    [line] = [
        instruction for instruction in profiled.instructions if instruction.counts.tensor_shared
    ]
    assert "mma_async" in line.instruction.modifiers
    assert f"{CORE_MATRICES} wavefronts, as few as can be" in view.text(
        profiled, {}, by="ptx", full=True
    )


def uncached(swizzle: str) -> Profile:
    """Count with nothing kept of where units lie, nor keep that."""
    kept = shared_matrix._pattern, unit_lines._patterns
    for function in kept:
        function.cache_clear()
    counted = product(swizzle)
    for function in kept:
        function.cache_clear()
    return counted


@pytest.mark.parametrize(("swizzle", "ways"), [("none", 1), ("32B", 2), ("64B", 4), ("128B", 8)])
def test_without_its_swizzle_a_pitch_costs_wavefronts(
    swizzle: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 lines at a pitch of 32, 64 or 128 bytes begin in 4, 2 or 1 of the 8 places that 16 bytes have."""
    plain = replace(MODES[swizzle], swizzle=MODES["none"].swizzle)
    monkeypatch.setitem(MODES, swizzle, plain)
    profiled = uncached(swizzle)
    totals = profiled.totals
    wanted = ways * CORE_MATRICES, CORE_MATRICES, (ways - 1) * CORE_MATRICES
    assert (totals.tensor_wavefronts, totals.tensor_ideal, totals.excess) == wanted
    told = view.text(profiled, {}, by="ptx")
    assert (f"{ways} times the ideal {CORE_MATRICES}" in told) == (ways > 1)
    table = [line.split() for line in told.splitlines() if "wgmma.mma_async" in line]
    assert [f"{count:,}" for count in (128 * CORE_MATRICES, *wanted[:2])] == table[0][3:6]
    data = view.as_json(profiled, {})["totals"]
    assert (data["tensor_wavefronts"], data["tensor_ideal"]) == wanted[:2]
