"""tcgen05.alloc, .dealloc and .relinquish_alloc_permit: where columns are, who waits, what is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ptxlab.clients.driver.results import result_of
from ptxlab.device.opening import open_device
from ptxlab.emulator.run.background import Background
from ptxlab.emulator.run.tensor_memory import TensorMemory
from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError, Unsupported

GPU = open_device("emulator", arch="sm_100a")


def text(body: str, version: str = "9.1") -> str:
    return f"""
.version {version}
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .pred p0, p1;
    .reg .b32 warp, lane, t, s, rank, r<8>;
    .reg .b64 po, d<4>;
    .shared .align 16 .b32 slot[8];
    .shared .align 8 .b64 bar;
    ld.param.u64 po, [out];
    mov.u32 lane, %tid.x;
    shr.u32 warp, lane, 5;
    and.b32 lane, lane, 31;
    mov.u32 rank, %cluster_ctarank;
    mov.u32 s, slot;
    mad.lo.u32 s, warp, 4, s;
    {body}
    ret;
}}
"""


ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], {};"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, {};"
READ = "ld.shared.b32 t, [s];"
STORE = "mad.wide.u32 d0, rank, 256, po; mad.wide.u32 d0, warp, 32, d0; st.global.b32 [d0+{}], t;"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


def run(body: str, block: int = 32, grid: int = 1, version: str = "9.1") -> list[list[int]]:
    """Return what was stored by each warp of the first CTA, and of a second if there are two in a cluster."""
    out = GPU.zeros((grid, 8, 8), "u32")
    kernel = GPU.load(text(body, version)).kernel("k")
    kernel.launch(grid=grid, block=block, cluster=grid, args=[out])
    words: list[list[int]] = out.numpy().reshape(grid * 8, 8).tolist()
    return words


def test_columns_begin_at_multiples_of_their_number() -> None:
    sizes = [128, 64, 64, 32, 32]
    parts = []
    for number, size in enumerate(sizes):
        parts += [ALLOC.format(size), READ, STORE.format(4 * number), f"mov.u32 r{number}, t;"]
    parts += [DEALLOC.format(size).replace("t,", f"r{i},", 1) for i, size in enumerate(sizes)]
    assert run("\n".join(parts))[0][:5] == [0, 128, 192, 256, 288]


def test_a_hole_is_filled_first() -> None:
    body = [ALLOC.format(32), READ, "mov.u32 r0, t;", ALLOC.format(32), READ, "mov.u32 r1, t;"]
    body += ["mov.u32 t, r0;", DEALLOC.format(32), ALLOC.format(32), READ, STORE.format(0)]
    body += [DEALLOC.format(32), "mov.u32 t, r1;", DEALLOC.format(32)]
    assert run("\n".join(body))[0][0] == 0


@pytest.mark.parametrize("seed", range(10))
def test_many_requests_are_one_after_the_other(seed: int) -> None:
    """Against a list of granules that is gone through one by one."""
    dice = random.Random(seed)
    idle = Background(np.zeros(2, bool), 2, may_see=False)
    memory, taken = TensorMemory(2, idle), [[False] * 16, [False] * 16]
    held: list[tuple[int, int, int]] = []
    for _ in range(12):
        ctas = sorted(dice.choice((0, 1)) for _ in range(dice.randrange(1, 5)))
        sizes = [dice.choice((1, 1, 2, 4, 8)) for _ in ctas]
        expected = []
        for cta, size in zip(ctas, sizes, strict=True):
            starts = [at for at in range(0, 16, size) if not any(taken[cta][at : at + size])]
            expected.append(32 * starts[0] if starts else -1)
            if starts:
                taken[cta][starts[0] : starts[0] + size] = [True] * size
                held.append((cta, starts[0], size))
        columns = memory.find(np.array(ctas)[:, None], 32 * np.array(sizes))
        assert columns.tolist() == expected
        got = np.flatnonzero(columns >= 0)
        memory.take(np.array(ctas)[got, None], columns[got], 32 * np.array(sizes)[got], 1)
        for _ in range(dice.randrange(3) if held else 0):
            cta, start, size = held.pop(dice.randrange(len(held)))
            assert memory.allocated(cta, 32 * start) == 32 * size
            memory.free(cta, 32 * start)
            taken[cta][start : start + size] = [False] * size
            if not held:
                break
        free = [[bool(memory.outside(np.array([c]), np.array([32 * g]), 32)[0]) for g in range(16)]
                for c in (0, 1)]  # fmt: skip
        assert free == [[not taken for taken in row] for row in taken]


def test_who_finds_no_room_waits_for_it() -> None:
    body = f"""
    setp.ne.u32 p0, warp, 0;
    {ALLOC.format(512)}
    {READ} {STORE.format(0)}
    {DEALLOC.format(512)}
"""
    assert [warp[0] for warp in run(body, block=256)] == [0] * 8
    with pytest.raises(LaunchError, match="deadlock") as caught:
        run(body.replace(DEALLOC.format(512), ""), block=64)
    assert "asks for 512 columns, 0 of 512 are free" in str(caught.value)


def test_both_ctas_of_a_pair_get_the_same_columns() -> None:
    """The odd one asks for it after it had 64 columns of its own for a while."""
    body = f"""
    {ALLOC.format(64)} {READ} {STORE.format(0)} mov.u32 r0, t;
    setp.eq.u32 p0, rank, 1;
    @p0 nanosleep.u32 20;
    {ALLOC.format(64)} {READ} {STORE.format(4)}
    {DEALLOC.format(64)} mov.u32 t, r0; {DEALLOC.format(64)}
""".replace("cta_group::1", "cta_group::2")
    words = run(body, grid=2)
    assert [words[0][:2], words[8][:2]] == [[0, 64], [0, 64]]


def test_one_cta_of_a_pair_waits_for_the_other() -> None:
    body = f"setp.eq.u32 p0, rank, 1; @p0 {ALLOC.format(64)}".replace(
        "cta_group::1", "cta_group::2"
    )
    with pytest.raises(LaunchError, match=r"deadlock.*in both CTAs of the pair"):
        run(body, grid=2)


def test_exclusive_columns_are_any_number_of_granules() -> None:
    body = f"{ALLOC.format(96)} {READ} {STORE.format(0)} {DEALLOC.format(96)}"
    exclusive = body.replace("cta.b32 ", "cta.b32.exclusive ")
    assert run(exclusive, version="9.5")[0][0] == 0
    with pytest.raises(PtxSyntaxError, match="newer than the module's"):
        run(exclusive)
    with pytest.raises(LaunchError, match="nCols is 96"):
        run(body)


OBJECT = "mov.u32 r0, bar; setp.eq.u32 p0, lane, 0; @p0 mbarrier.init.shared.b64 [r0], 1;"
SHIFT = "@p0 tcgen05.shift.cta_group::1.down [t];"
DONE = """
    @p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r0];
W:  mbarrier.try_wait.parity.shared.b64 p1, [r0], 0;
    @!p1 bra W;
"""
GOOD = [ALLOC.format(64), RELINQUISH, READ, DEALLOC.format(64)]

FAULTS = [
    ([ALLOC.format(64), READ], "ended with 64 columns of Tensor Memory"),
    ([ALLOC.format(48), READ, DEALLOC.format(48)], "nCols is 48"),
    ([ALLOC.format(16), READ, DEALLOC.format(16)], "nCols is 16"),
    ([ALLOC.format("lane"), READ, DEALLOC.format(64)], "nCols differs between the threads: 0x0 in lane 0, 0x1 in lane 1"),
    ([RELINQUISH, *GOOD], "after tcgen05.relinquish_alloc_permit"),
    ([ALLOC.format(32), *GOOD], "64 columns after an allocation of 32"),
    ([*GOOD, DEALLOC.format(64)], "no allocation begins there"),
    ([ALLOC.format(64), READ, "add.u32 t, t, 32;", DEALLOC.format(32)], "no allocation begins there"),
    ([ALLOC.format(64), READ, DEALLOC.format(32)], "64 columns begin there"),
    ([*GOOD[:3], DEALLOC.format(64).replace("::1", "::2")], "after instructions of cta_group::1"),
    ([GOOD[0].replace("::1", "::2")], "in a cluster of 1 CTA"),
    ([OBJECT, *GOOD[:3], SHIFT, DONE, GOOD[3], SHIFT], "not all allocated"),
]  # fmt: skip


def test_an_allocation_that_is_right() -> None:
    run("\n".join(GOOD))


@pytest.mark.parametrize(("lines", "what"), FAULTS)
def test_what_is_wrong(lines: list[str], what: str) -> None:
    with pytest.raises(LaunchError, match=what) as caught:
        run("\n".join(lines))
    location = caught.value.location
    assert location is not None
    assert "tcgen05." in location.text


def test_the_driver_reports_a_leak_by_its_number() -> None:
    with pytest.raises(PtxlabError) as caught:
        run(ALLOC.format(32))
    assert result_of(caught.value) == 721


def test_half_a_warp_allocates_nothing() -> None:
    with pytest.raises(LaunchError, match="needs all 32 threads of the warp"):
        run("\n".join(GOOD), block=48)


def test_a_load_leaves_no_column_that_is_allocated() -> None:
    load = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {r0, r1}, [t+{}];"
    for column, wrong in (("62", False), ("63", True), ("510", True), ("1000", True)):
        body = "\n".join([*GOOD[:3], load.replace("{}", column), GOOD[3]])
        if wrong:
            with pytest.raises(LaunchError, match="not all allocated"):
                run(body)
        else:
            run(body)


def test_addresses_of_tensor_memory_have_32_bits() -> None:
    for line, what in (
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {r0}, [d0];", "d0 is a .b64 register"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {r0}, t;", "in brackets"),
        ("tcgen05.shift.cta_group::1.down [slot];", "not a declared register"),
    ):
        with pytest.raises(PtxSyntaxError, match=what):
            run(line)
    with pytest.raises(Unsupported, match=r"does not take \.collector::a::keep"):
        run("tcgen05.mma.cta_group::1.kind::f16.collector::a::keep [t], d0, d1, r0, p0;")
