"""Clusters: which CTAs make one, and their shared memory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.emulator.run import grid
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from tests.emulator.hopper.conftest import Run, hopper_text

NAMES = (
    "%cluster_ctarank",
    "%cluster_nctarank",
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid") for axis in "xyz"),
    *(f"%{name}.{axis}" for name in ("cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
)


def test_special_registers(hopper: Device) -> None:
    grid, cluster = (4, 6, 3), (2, 3, 1)
    body = [
        "mov.u32 r4, %ctaid.y; mov.u32 r5, %ctaid.z;",
        "mad.lo.u32 r4, r5, 6, r4; mad.lo.u32 r4, r4, 4, r1;",
        f"mad.wide.u32 d2, r4, {4 * len(NAMES)}, d0;",
        *(f"mov.u32 r6, {n}; st.global.u32 [d2+{4 * i}], r6;" for i, n in enumerate(NAMES)),
    ]
    kernel = hopper.load(hopper_text("\n".join(body))).kernel("k")
    out = hopper.zeros((3, 6, 4, len(NAMES)), "u32")
    kernel.launch(grid=grid, block=1, cluster=cluster, args=[out, out])
    words = out.numpy()
    for z, y, x in product(range(3), range(6), range(4)):
        wanted = [
            (x % 2) + 2 * (y % 3), 6,
            x // 2, y // 3, z, 2, 2, 3,
            x % 2, y % 3, 0, 2, 3, 1,
        ]  # fmt: skip
        assert words[z, y, x].tolist() == wanted, (x, y, z)


EXCHANGE = """
    mov.u32 r4, %cluster_ctarank;
    mov.u32 r5, %cluster_nctarank;
    add.u32 r6, r4, 1;
    rem.u32 r6, r6, r5;
    mapa.shared::cluster.u32 r7, r3, r6;
    mad.lo.u32 r7, r0, 4, r7;
    mad.lo.u32 r8, r1, 1000, r0;
    st.shared::cluster.u32 [r7], r8;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mad.lo.u32 r9, r0, 4, r3;
    LOAD
    mad.lo.u32 r11, r1, 32, r0;
    mad.wide.u32 d2, r11, 4, d0;
    st.global.u32 [d2], r10;
"""
LOADS = {
    "own": "ld.shared.u32 r10, [r9];",
    "own in the cluster": "ld.shared::cluster.u32 r10, [r9];",
    "generic": "cvt.u64.u32 d3, r9; cvta.shared.u64 d3, d3; ld.u32 r10, [d3];",
    "generic by mapa": """
        cvt.u64.u32 d3, r9; cvta.shared.u64 d3, d3; mapa.u64 d3, d3, r4; ld.u32 r10, [d3];
    """,
    "atomic": "atom.shared::cluster.add.u32 r10, [r9], 0;",
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_a_store_reaches_the_next_cta(run: Run, load: str, size: int) -> None:
    body = EXCHANGE.replace("LOAD", LOADS[load])
    out = run(body, words=48 * 32, grid=48, cluster=size).reshape(48, 32)
    cta = np.arange(48)
    before = cta // size * size + (cta % size - 1) % size
    assert (out == before[:, None] * 1000 + np.arange(32)).all()


GENERIC = """
    mapa.shared::cluster.u32 r7, r3, r6;
    cvt.u64.u32 d3, r7;
    cvta.shared::cluster.u64 d3, d3;
"""


def test_a_generic_address_reaches_the_shared_memory_of_every_cta(run: Run) -> None:
    """Each CTA stores into the next one's, loads from it what it has stored, and adds 1 to all of the last."""
    body = f"""
        mov.u32 r4, %cluster_ctarank;
        mov.u32 r5, %cluster_nctarank;
        add.u32 r6, r4, 1;
        rem.u32 r6, r6, r5;
        {GENERIC}
        mad.lo.u32 r8, r1, 1000, 7;
        st.u32 [d3], r8;
        st.shared.u32 [r3+4], 0;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        ld.u32 r10, [d3];
        ld.shared.u32 r11, [r3];
        sub.u32 r6, r5, 1;
        {GENERIC}
        atom.add.u32 r12, [d3+4], 1;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        ld.u32 r12, [d3+4];
        mad.wide.u32 d2, r1, 16, d0;
        st.global.v4.u32 [d2], {{r10, r11, r12, r4}};
        barrier.cluster.arrive;
        barrier.cluster.wait;
    """
    out = run(body, words=4 * 12, grid=12, block=1, cluster=4).reshape(12, 4)
    for cta, words in enumerate(out):
        before = cta // 4 * 4 + (cta % 4 - 1) % 4
        assert words.tolist() == [1000 * cta + 7, 1000 * before + 7, 4, cta % 4]


def test_addresses_carry_the_rank(run: Run) -> None:
    body = """
        getctarank.shared::cluster.u32 r4, r3;
        shr.u32 r5, r3, 24;
        mad.wide.u32 d2, r1, 8, d0;
        st.global.v2.u32 [d2], {r4, r5};
    """
    out = run(body, words=16, grid=8, block=1, cluster=4).reshape(8, 2)
    assert (out == (np.arange(8) % 4)[:, None]).all()


def test_isspacep_knows_whose_memory_it_is(run: Run) -> None:
    body = """
        mapa.shared::cluster.u32 r4, r3, 1;
        cvt.u64.u32 d2, r4;
        cvta.shared::cluster.u64 d2, d2;
        isspacep.shared::cta p1, d2;
        isspacep.shared::cluster p2, d2;
        selp.u32 r5, 1, 0, p1;
        selp.u32 r6, 2, 0, p2;
        add.u32 r5, r5, r6;
        mad.wide.u32 d3, r1, 4, d0;
        st.global.u32 [d3], r5;
    """
    assert run(body, words=4, grid=4, block=1, cluster=2).tolist() == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("access", "what"),
    [
        ("ld.shared.u32 r5, [r4];", r"names the shared memory of CTA 1"),
        ("mapa.shared::cluster.u32 r4, r3, 2; ld.shared::cluster.u32 r5, [r4];", "of CTA 2"),
        ("ld.shared::cluster.u32 r5, [r4+5000];", "outside shared memory"),
        ("ld.shared::cluster.u32 r5, [r4+2];", "misaligned"),
    ],
)
def test_the_wrong_cta_is_an_error(run: Run, access: str, what: str) -> None:
    with pytest.raises(LaunchError, match=what):
        run(
            f"@!p0 bra E; mapa.shared::cluster.u32 r4, r3, 1; {access} E:",
            words=1,
            grid=2,
            cluster=2,
        )


def test_a_barrier_is_arrived_at_once_and_waited_for_after(run: Run) -> None:
    with pytest.raises(LaunchError, match="before the wait for the one before"):
        run("barrier.cluster.arrive; barrier.cluster.arrive;", words=1, grid=2, cluster=2)
    with pytest.raises(LaunchError, match="without an arrival before it"):
        run("barrier.cluster.wait;", words=1, grid=2, cluster=2)


def test_who_does_not_come_is_missed_and_who_has_ended_is_not(run: Run) -> None:
    body = "setp.eq.u32 p1, r1, 1; @p1 bra E; barrier.cluster.arrive; barrier.cluster.wait; E:"
    run(body, words=1, grid=2, cluster=2)
    stays = body + "@p1 bar.sync 1, 64;"
    with pytest.raises(LaunchError, match=r"the cluster of CTA .* 32 of 64 threads have arrived"):
        run(stays, words=1, grid=2, cluster=2)
    in_both = stays.replace("p1, r1, 1;", "p1, r4, 1;").replace(
        "setp", "and.b32 r4, r1, 1; setp", 1
    )
    with pytest.raises(LaunchError, match=r"the cluster of CTA .* 32 of 64 threads have arrived"):
        run(in_both, words=1, grid=4, cluster=2)


def test_clusters_do_not_wait_for_each_other(run: Run) -> None:
    """The second one comes to its barrier when the first has passed its own."""
    body = """
        setp.lt.u32 p1, r1, 2; @p1 bra MEET;
    AGAIN: ld.global.relaxed.gpu.u32 r4, [d0]; setp.eq.u32 p2, r4, 0; @p2 bra AGAIN;
    MEET: barrier.cluster.arrive; barrier.cluster.wait;
        st.global.relaxed.gpu.u32 [d0], 7;"""
    assert run(body, words=1, grid=4, cluster=2).tolist() == [7]


def test_clusters_are_never_cut_and_run_in_the_order_of_their_numbers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each CTA notes when it came and what its neighbour in the cluster has in shared memory."""
    body = """
        mov.u32 r4, %ctaid.y; mov.u32 r5, %nctaid.x; mad.lo.u32 r4, r4, r5, r1;
        st.shared.u32 [r3], r4; barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 r6, %cluster_ctarank; xor.b32 r6, r6, 1; mapa.shared::cluster.u32 r7, r3, r6;
        ld.shared::cluster.u32 r8, [r7]; barrier.cluster.arrive; barrier.cluster.wait;
        atom.global.add.u32 r9, [d0], 1; mad.wide.u32 d2, r4, 8, d0;
        st.global.u32 [d2+8], r9; st.global.u32 [d2+12], r8;"""
    beside = [[0, 1], [4, 5], [2, 3], [6, 7], [8, 9], [12, 13], [10, 11], [14, 15]]
    for threads in (32, 192, 16384):
        monkeypatch.setattr(grid, "WAVE_THREADS", threads)
        words = run(body, words=34, grid=(4, 4), block=1, cluster=(2, 2))[2:].reshape(16, 2)
        order = np.argsort(words[:, 0])
        assert order.reshape(4, 4).tolist() == [[x, x + 1, x + 4, x + 5] for x in (0, 2, 8, 10)]
        assert sorted(map(sorted, zip(range(16), words[:, 1].tolist(), strict=True))) == sorted(
            beside + beside
        )


@pytest.mark.parametrize("size", ["0", "0, 2"])
def test_clusters_of_nothing_are_none(run: Run, size: str) -> None:
    body = "mov.u32 r4, %nclusterid.x; mad.wide.u32 d2, r1, 4, d0; st.global.u32 [d2], r4;"
    out = run(body, words=4, grid=4, block=1, directives=f".reqnctapercluster {size}")
    assert out.tolist() == [4] * 4


def test_a_grid_may_count_clusters(run: Run) -> None:
    body = "mov.u32 r4, %nctaid.x; mad.wide.u32 d2, r1, 4, d0; st.global.u32 [d2], r4;"
    directives = ".reqntid 1 .reqnctapercluster 4 .blocksareclusters"
    out = run(body, words=12, grid=3, block=1, directives=directives)
    assert out.tolist() == [12] * 12


def test_directives_hold_a_launch_to_what_they_say(run: Run) -> None:
    with pytest.raises(PtxlabError, match="explicitcluster"):
        run("", words=1, grid=4, directives=".explicitcluster")
    run("", words=1, grid=4, cluster=2, directives=".explicitcluster")
    with pytest.raises(PtxlabError, match="at most 2 CTAs"):
        run("", words=1, grid=4, cluster=4, directives=".maxclusterrank 2")
    run("", words=1, grid=4, cluster=2, directives=".maxclusterrank 2")


def test_what_no_launch_can_be(hopper: Device, run: Run) -> None:
    with pytest.raises(PtxlabError, match="the most is 16"):
        run("", words=1, grid=32, cluster=32)
    with pytest.raises(PtxlabError, match="not a multiple"):
        run("", words=1, grid=3, cluster=2)
    old = open_device("emulator", arch="sm_80")
    text = hopper_text("").replace("sm_90a", "sm_80")
    out = old.zeros(1, "u32")
    with pytest.raises(Unsupported, match="sm_80 has none"):
        old.load(text).kernel("k").launch(grid=2, block=1, cluster=2, args=[out, out])
