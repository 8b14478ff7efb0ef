"""Bulk copies in every direction against NumPy, what they signal, and when they land."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.errors import LaunchError
from tests.emulator.hopper.conftest import Run

RNG = np.random.default_rng(11)

START = """
    @p0 mbarrier.init.shared.b64 [bar], 1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 r4, %cluster_ctarank;
    mad.wide.u32 d1, r1, 1024, d1;
    mad.wide.u32 d0, r1, 1024, d0;
    @!p0 bra W;
"""
FETCH = """
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 1024, [r2];
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
"""
OUT = """
    mad.lo.u32 r5, r0, 4, r3;
    ld.shared.u32 r6, [r5];
    mad.wide.u32 d2, r0, 4, d0;
    st.global.u32 [d2], r6;
    barrier.cluster.arrive;
    barrier.cluster.wait;
"""


def words(ctas: int) -> npt.NDArray[np.uint32]:
    return RNG.integers(0, 2**32, (ctas, 256), dtype=np.uint32)


def test_global_to_shared(run: Run) -> None:
    data = words(7)
    out = run(START + FETCH + OUT, words=7 * 256, data=data, grid=7, block=256)
    assert (out.reshape(7, 256) == data).all()


def test_who_does_not_wait_sees_what_was_there(run: Run) -> None:
    early = (START + FETCH + OUT).replace("@!p1 bra W;", "")
    early = early.replace("mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;", "")
    out = run(early, words=256, data=words(1), block=256)
    assert (out == 0).all()


@pytest.mark.parametrize("size", [4, 16])
def test_multicast_reaches_the_ctas_of_the_mask(run: Run, size: int) -> None:
    data = words(2 * size)
    body = (
        START.replace("1024, d1", "0, d1")
        + f"""
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
        setp.ne.u32 p2, r4, 1;
        @p2 bra W;
        mov.u16 h0, {(1 << size) - 1 & ~4};
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [r3], [d1], 1024, [r2], h0;
    W:  setp.eq.u32 p3, r4, 2;
        @p3 bra X;
        mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
        @!p1 bra W;
    X:
    """
        + OUT
    )
    ctas = 2 * size
    out = run(body, words=ctas * 256, data=data, grid=ctas, block=256, cluster=size)
    for cta, copied in enumerate(out.reshape(ctas, 256)):
        wanted = np.zeros(256) if cta % size == 2 else data[0]
        assert (copied == wanted).all(), cta


def test_multicast_to_nobody_copies_nothing(run: Run) -> None:
    body = """
        mov.u16 h0, 0;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [r3], [d1], 1024, [r2], h0;
    W:
    """
    out = run(START + body + OUT, words=512, data=words(2), grid=2, block=256, cluster=2)
    assert (out == 0).all()


def test_shared_to_the_shared_memory_of_a_neighbour(run: Run) -> None:
    data = words(4)
    body = (
        START
        + FETCH
        + """
        @!p0 bra V;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
        xor.b32 r7, r4, 1;
        mapa.shared::cluster.u32 r8, r3, r7;
        mapa.shared::cluster.u32 r9, r2, r7;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
            [r8+1024], [r3], 1024, [r9];
    V:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 1;
        @!p1 bra V;
        add.u32 r3, r3, 1024;
    """
        + OUT
    )
    out = run(body, words=4 * 256, data=data, grid=4, block=256, cluster=2).reshape(4, 256)
    assert (out == data[[1, 0, 3, 2]]).all()


STORE = """
    @!p0 bra E;
    cp.async.bulk.global.shared::cta.bulk_group [d0], [r3], 1024;
    cp.async.bulk.commit_group;
    WAIT
    st.shared.u32 [r3], 7;
E:
"""


@pytest.mark.parametrize(
    ("wait", "first"),
    [
        ("cp.async.bulk.wait_group 0;", None),
        ("cp.async.bulk.wait_group.read 0;", None),
        ("cp.async.bulk.wait_group.read 1;", 7),
        ("", 7),
    ],
)
def test_a_store_reads_its_source_until_it_is_waited_for(
    run: Run, wait: str, first: int | None
) -> None:
    data = words(3)
    body = START + FETCH + STORE.replace("WAIT", wait)
    out = run(body, words=3 * 256, data=data, grid=3, block=256).reshape(3, 256)
    wanted = data.copy()
    if first is not None:
        wanted[:, 0] = first
    assert (out == wanted).all()


def test_copies_say_how_they_are_ordered(run: Run) -> None:
    data = words(7)
    ordered = FETCH.replace(".bulk.shared", ".bulk.relaxed.gpu.shared").replace(
        "bytes [", "bytes.b128 ["
    )
    out = run(START + ordered + OUT, words=7 * 256, data=data, grid=7, block=256)
    assert (out.reshape(7, 256) == data).all()


def test_bytes_at_the_ends_of_a_copy_may_lie_outside_of_memory(run: Run) -> None:
    """The last 12 bytes are no byte of the tensor: what is there stays as it was."""
    ends = (
        FETCH.replace("shared::cluster", "shared::cta")
        .replace("bytes [r3], [d1], 1024,", "bytes.ignore_oob [r3], [d1], 1024, 4, r6,")
        .replace("1024;", "1024; mov.u32 r6, 12;", 1)
    )
    data = words(1)[0][:253]
    whole = "st.shared.u32 [buffer+1020], 7; st.shared.u32 [buffer], 8;"
    out = run(START + whole + ends + OUT, words=256, data=data, block=256)
    assert (out == [8, *data[1:], 0, 0, 7]).all()
    with pytest.raises(LaunchError, match="is out of bounds"):
        run(START + FETCH + OUT, words=256, data=data, block=256)


REDUCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "u32"): lambda a, b: a + b,
    ("min", "u32"): np.minimum,
    ("max", "s32"): lambda a, b: np.maximum(a.view("i4"), b.view("i4")).view("u4"),
    ("xor", "b32"): np.bitwise_xor,
    ("or", "b64"): np.bitwise_or,
    ("add", "u64"): lambda a, b: (a.view("u8") + b.view("u8")).view("u4"),
    ("min", "s64"): lambda a, b: np.minimum(a.view("i8"), b.view("i8")).view("u4"),
    ("inc", "u32"): lambda a, b: np.where(a >= b, 0, a + 1),
    ("add.noftz", "f16"): lambda a, b: (a.view("f2") + b.view("f2")).view("u4"),
    ("add.noftz", "f32"): lambda a, b: (a.view("f4") + b.view("f4")).view("u4"),
}


@pytest.mark.parametrize(("operation", "kind"), REDUCTIONS)
def test_reductions_into_global_memory(run: Run, operation: str, kind: str) -> None:
    data = words(2)
    if kind == "f16":
        data = RNG.normal(size=(2, 512)).astype("f2").view("u4")
    if kind == "f32":
        data = (RNG.normal(size=(2, 256)) * 1e-38).astype("f4").view("u4")
    body = (
        START
        + FETCH
        + f"""
        @!p0 bra E;
        cp.async.bulk.global.shared::cta.bulk_group [d0], [r3+512], 512;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [d0], [r3], 512;
        cp.async.bulk.commit_group;
    E:
    """
    )
    out = run(body, words=512, data=data, grid=2, block=256).reshape(2, 256)
    lower, upper = data[:, :128].copy(), data[:, 128:].copy()
    assert (out[:, :128] == REDUCTIONS[operation, kind](upper, lower)).all()


def test_reductions_of_many_ctas_into_one_place_add_up(run: Run) -> None:
    data = np.ones((50, 256), np.uint32)
    body = (
        START.replace("1024, d0", "0, d0")
        + FETCH
        + """
        @p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d0], [r3], 1024;
        @p0 cp.async.bulk.commit_group;
        @p0 cp.async.bulk.wait_group 0;
    """
    )
    assert (run(body, words=256, data=data, grid=50, block=256) == 50).all()


def test_stores_and_reductions_by_threads(run: Run) -> None:
    body = """
        @p0 mbarrier.init.shared.b64 [bar], 1;
        mad.lo.u32 r5, r0, 16, r3;
        mov.u32 r6, 100;
        st.shared.v4.u32 [r5], {r6, r6, r6, r6};
        barrier.cluster.arrive;
        barrier.cluster.wait;
        @p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 640;
        mov.u32 r4, %cluster_ctarank;
        xor.b32 r7, r4, 1;
        mapa.shared::cluster.u32 r8, r5, r7;
        mapa.shared::cluster.u32 r9, r2, r7;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [r8], {r0, r1, r0, r1}, [r9];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
            [r8+4], r6, [r9];
    W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
        @!p1 bra W;
        ld.shared.v4.u32 {r10, r11, r12, r13}, [r5];
        mad.lo.u32 r14, r1, 32, r0;
        mad.wide.u32 d2, r14, 16, d0;
        st.global.v4.u32 [d2], {r10, r11, r12, r13};
        barrier.cluster.arrive;
        barrier.cluster.wait;
    """
    out = run(body, words=4 * 32 * 4, grid=4, cluster=2).reshape(4, 32, 4)
    for cta, lane in np.ndindex(4, 32):
        assert out[cta, lane].tolist() == [lane, (cta ^ 1) + 100, lane, cta ^ 1]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("[d1], 1024", "[d1+4], 1024"), "address .read. .*4 by thread"),
        (("[r3], [d1]", "[r3+8], [d1]"), "address .write. 0x"),
        (("[r3], [d1], 1024", "[r3+3584], [d1], 1024"), "outside shared memory"),
        (("[d1], 1024", "[d1+16], 1024"), "16 bytes .* is out of bounds"),
        (("[d1], 1024, [r2]", "[d1], 1024, [r2+8]"), "no mbarrier"),
        (("[d1], 1024, [r2]", "[d1], 1024, [r2+4]"), "misaligned"),
    ],
)
def test_what_is_wrong_is_told(run: Run, change: tuple[str, str], what: str) -> None:
    with pytest.raises(LaunchError, match=what):
        run((START + FETCH + OUT).replace(*change), words=256, data=words(1), block=256)


def test_sizes_that_registers_say_are_held_to_the_rule(run: Run) -> None:
    body = (START + FETCH + OUT).replace("[d1], 1024, [r2]", "[d1], r6, [r2]")
    with pytest.raises(LaunchError, match="size 0x3f8"):
        run("mov.u32 r6, 1016;" + body, words=256, data=words(1), block=256)


def test_the_largest_size_leaves_memory_and_is_told_at_once(run: Run) -> None:
    body = (START + FETCH + OUT).replace("[d1], 1024, [r2]", "[d1], r6, [r2]")
    with pytest.raises(LaunchError, match=r"cp\.async\.bulk read"):
        run("mov.u32 r6, 0xfffffff0;" + body, words=256, data=words(1), block=256)


def test_what_one_thread_has_read_another_has_not(run: Run) -> None:
    """Two threads store in one instruction; one of them waits until it is read, then all is overwritten."""
    body = """
        shl.b32 r5, r0, 4; add.u32 r5, r5, r3; mad.wide.u32 d2, r0, 16, d0;
        mov.u32 r6, 5; st.shared.v4.u32 [r5], {r6, r0, r6, r0};
        cp.async.bulk.global.shared::cta.bulk_group [d2], [r5], 16;
        cp.async.bulk.commit_group;
        @p0 cp.async.bulk.wait_group.read 0;
        mov.u32 r6, 9; st.shared.v4.u32 [r5], {r6, r0, r6, r0};
        cp.async.bulk.wait_group 0;
    """
    assert run(body, words=8, block=2).tolist() == [5, 0, 5, 0, 9, 1, 9, 1]
