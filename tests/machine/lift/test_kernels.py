"""Kernels that come with ptxlab leave the same bytes as machine code as they do as PTX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.machine.launch import reciprocal
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import TRUE, Writer
from ptxlab.main import main

LOOP = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at; .reg .b32 n, i, sum, thread; .reg .pred more, odd;
    ld.param.u64 at, [data]; mov.u32 thread, %tid.x;
    mad.wide.u32 at, thread, 4, at; ld.global.u32 n, [at];
    mov.u32 sum, 0; mov.u32 i, 0;
AGAIN:
    and.b32 thread, i, 1; setp.ne.u32 odd, thread, 0;
    @odd bra PAST;
    add.u32 sum, sum, i;
PAST:
    add.u32 i, i, 1; setp.lt.u32 more, i, n; @more bra AGAIN;
    activemask.b32 thread; shfl.sync.idx.b32 thread, sum, 0, 31, -1;
    add.u32 sum, sum, thread; st.global.u32 [at], sum;
}
"""
"""Lanes leave a loop at different times, and meet behind it."""

QUOTIENT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at; .reg .b32 thread, next; .reg .f32 x; .reg .pred odd;
    ld.param.u64 at, [data]; mov.u32 thread, %tid.x;
    mad.wide.u32 at, thread, 4, at; ld.global.f32 x, [at];
    and.b32 next, thread, 1; setp.ne.u32 odd, next, 0;
    @odd bra PAST;
    div.rn.f32 x, x, 0f40E00000; st.global.f32 [at], x;
PAST:
    activemask.b32 next; st.global.u32 [at], next;
}
"""

CLUSTERS = """
.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at; .reg .b32 x;
    ld.param.u64 at, [data];
    mov.u32 x, %cluster_nctaid.x; st.global.u32 [at], x;
    mov.u32 x, %cluster_nctaid.y; st.global.u32 [at+4], x;
    mov.u32 x, %cluster_nctaid.z; st.global.u32 [at+8], x;
    mov.u32 x, %nclusterid.x; st.global.u32 [at+12], x;
    mov.u32 x, %nclusterid.y; st.global.u32 [at+16], x;
    mov.u32 x, %nclusterid.z; st.global.u32 [at+20], x;
    mov.u32 x, %cluster_nctarank; st.global.u32 [at+24], x;
    mov.u32 x, %clusterid.y; red.global.max.u32 [at+28], x;
    mov.u32 x, %clusterid.z; red.global.max.u32 [at+32], x;
    mov.u32 x, %cluster_ctaid.y; red.global.add.u32 [at+36], x;
    mov.u32 x, %cluster_ctaid.z; red.global.add.u32 [at+40], x;
    mov.u32 x, %dynamic_smem_size; st.global.u32 [at+44], x;
}
"""
"""What constant memory has of the clusters of a launch, which Blackwell finds through a register."""

VOTE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 masks, .param .u64 given, .param .u64 out)
{
    .reg .b64 at, from; .reg .b32 thread, mask, word; .reg .pred holds;
    mov.u32 thread, %tid.x; mul.wide.u32 at, thread, 4;
    ld.param.u64 from, [masks]; add.u64 from, from, at; ld.global.u32 mask, [from];
    ld.param.u64 from, [given]; add.u64 from, from, at; ld.global.u32 word, [from];
    setp.ne.u32 holds, word, 0;
    vote.sync.ballot.b32 word, holds, mask;
    ld.param.u64 from, [out]; add.u64 from, from, at; st.global.u32 [from], word;
}
"""
"""For a mask of which nothing is known ptxas asks whether all lanes have the same (R2UR), and are it (BRA.DIV)."""

COPIES = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 rows)
{
    .reg .b64 to; .reg .b32 thread, from;
    .shared .align 16 .b8 slabs[512];
    ld.param.u64 to, [rows]; mov.u32 thread, %tid.x;
    mov.u32 from, slabs; mad.lo.u32 from, thread, 16, from;
    st.shared.u32 [from], thread; fence.proxy.async.shared::cta;
    mad.wide.u32 to, thread, 16, to;
    cp.async.bulk.global.shared::cta.bulk_group [to], [from], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
}
"""
"""Of three words that say what is copied, ptxas has lanes compare one after the other with the first lane's (R2UR.OR)."""


@pytest.mark.parametrize(
    ("file", "arch"),
    [
        ("kernels/tensor_core.cu", "sm_80"),
        ("kernels/naive.cu", "sm_75"),
        ("kernels/naive.cu", "sm_120a"),
        ("ptx/ldmatrix.ptx", "sm_90a"),
        ("ptx/mbarrier.ptx", "sm_90a"),
        ("ptx/tma_load_swizzle.ptx", "sm_90a"),
        ("ptx/wgmma_m64n8k16_ss.ptx", "sm_90a"),
        ("ptx/wgmma_m64n8k16_rs.ptx", "sm_90a"),
        ("ptx/cluster_exchange.ptx", "sm_90a"),
        ("ptx/cluster_exchange.ptx", "sm_120a"),
        ("ptx/tcgen05_alloc_ld_st.ptx", "sm_100a"),
        ("ptx/tcgen05_mma_nvfp4.ptx", "sm_100a"),
        ("ptx/tcgen05_mma_pair_f16.ptx", "sm_100a"),
        ("ptx/cluster_launch_control.ptx", "sm_100a"),
        *(
            pytest.param(f"kernels/{name}.cu", "sm_100a", marks=pytest.mark.thorough)
            for name in ("tcgen05_specialised", "tcgen05_persistent", "block_scaled")
        ),
        pytest.param("kernels/wgmma_persistent.cu", "sm_90a", marks=pytest.mark.thorough),
        pytest.param("kernels/wgmma_cluster.cu", "sm_90a", marks=pytest.mark.thorough),
        pytest.param("kernels/wgmma_specialised.cu", "sm_90a", marks=pytest.mark.thorough),
        pytest.param("kernels/warp_tiled.cu", "sm_89", marks=pytest.mark.thorough),
        pytest.param("kernels/tiled_register.cu", "sm_86", marks=pytest.mark.thorough),
    ],
)
def test_a_kernel_leaves_the_same(file: str, arch: str, tmp_path: Path) -> None:
    kernel = ["--kernel", "ldmatrix_x4"] if "ldmatrix" in file else []
    left = []
    for engine in ("auto", "sass"):
        save = tmp_path / f"{engine}.npz"
        command = ["run", file, *kernel, "--device", "emulator", "--arch", arch]
        assert main([*command, "--engine", engine, "--save", str(save)]) == 0
        left.append({name: array.tobytes() for name, array in np.load(save).items()})
    assert left[0] == left[1]


def test_lanes_that_part_meet_again() -> None:
    counts = np.arange(1, 33, dtype=np.uint32)
    device = open_device("emulator", arch="sm_80", engine="sass")
    data = device.upload(counts)
    device.load(LOOP).kernel("k").launch(1, 32, [data])
    sums = [sum(range(0, int(n), 2)) for n in counts]
    assert data.numpy().tolist() == [value + sums[0] for value in sums]


def test_lanes_that_went_a_way_further_down_are_waited_for() -> None:
    """A quotient of numbers far apart is found by a function behind the kernel: half of the lanes go there."""
    device = open_device("emulator", arch="sm_80", engine="sass")
    data = device.upload(np.full(32, 1e-39, np.float32))
    device.load(QUOTIENT).kernel("k").launch(1, 32, [data])
    assert data.numpy().view(np.uint32).tolist() == [0xFFFFFFFF] * 32


def test_lanes_that_differ_in_one_word_of_several_ask_for_their_own() -> None:
    device = open_device("emulator", arch="sm_90a", engine="sass")
    rows = device.upload(np.zeros((32, 4), np.uint32))
    device.load(COPIES).kernel("k").launch(1, 32, [rows])
    assert rows.numpy()[:, 0].tolist() == [*range(32)]


@pytest.mark.parametrize("parts", [1, 2, 8, 32])
def test_lanes_vote_with_those_of_their_mask(parts: int) -> None:
    lanes = np.arange(32)
    together = lanes[:, None] * parts // 32 == lanes * parts // 32
    masks = (together << lanes).sum(1).astype(np.uint32)
    given = np.random.default_rng(parts).integers(0, 2, 32, np.uint32)
    device = open_device("emulator", arch="sm_80", engine="sass")
    out = device.zeros(32, np.uint32)
    arguments = [device.upload(masks), device.upload(given), out]
    device.load(VOTE).kernel("k").launch(1, 32, arguments)
    assert out.numpy().tolist() == (masks & (given << lanes).sum()).tolist()


def test_a_guard_that_is_not_known_to_be_about_the_mask_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(w: Writer) -> None:
        w.tell(w.i.outs[0], TRUE)

    monkeypatch.setitem(table.RULES, "R2UR", forgetful)
    device = open_device("emulator", arch="sm_80", engine="sass")
    with pytest.raises(Unsupported, match=r"@!P\d BRA.DIV UR.* what the guard means here is not"):
        device.load(VOTE).kernel("k").launch(1, 32, [device.zeros(32, np.uint32)] * 3)


def test_a_fault_names_the_line_of_machine_code() -> None:
    device = open_device("emulator", arch="sm_80", engine="sass")
    data = device.upload(np.ones(16, np.uint32))
    with pytest.raises(LaunchError, match=r"\(SASS\):\d+:.*\n.*LDG") as told:
        device.load(LOOP).kernel("k").launch(1, 32, [data])
    assert told.value.location is not None


def test_a_gpu_has_no_engine() -> None:
    with pytest.raises(PtxlabError, match="engine sass is the emulator's"):
        open_device("cuda", engine="sass")
    with pytest.raises(PtxlabError, match="there is no engine 'ptxas'"):
        open_device("emulator", engine="ptxas")


def test_no_text_waits_as_machine_code_does() -> None:
    device = open_device("emulator", arch="sm_80")
    text = LOOP.replace("activemask.b32 thread;", "converge.sync 1;")
    with pytest.raises(PtxlabError, match=r"converge\.sync is not modelled") as raised:
        device.load(text).kernel("k")
    assert raised.value.hint == "only machine code waits like that"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_sizes_of_clusters(arch: str) -> None:
    device = open_device("emulator", arch=arch, engine="sass")
    data = device.upload(np.zeros(12, np.uint32))
    device.load(CLUSTERS).kernel("k").launch((4, 6, 3), 1, [data], cluster=(2, 3, 1), shared=48)
    assert data.numpy().tolist() == [2, 3, 1, 2, 2, 3, 6, 1, 2, 72, 0, 48]


def test_one_over_the_size_of_a_cluster_tells_of_each_cta_its_cluster() -> None:
    """Multiplied and cut off, as machine code does it: of all CTAs that a grid may have along y."""
    numbers = np.arange(1 << 16)
    for size in range(1, 17):
        product = numbers.astype(np.float32) * reciprocal(size)
        assert (product.astype(np.int64) == numbers // size).all()
