"""Operations on whole warps against models that handle one lane at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.numbers.tensor_core import multiply_add
from tests.together import in_one_test


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Return (source lane, in range), written from the ISA's pseudocode for shfl.sync."""
    b, clamp, segment = b & 0x1F, c & 0x1F, (c >> 8) & 0x1F
    most = (lane & segment) | (clamp & ~segment & 0x1F)
    least = lane & segment
    if mode == "up":
        j = lane - b
        ok = j >= most
    elif mode == "down":
        j = lane + b
        ok = j <= most
    elif mode == "bfly":
        j = lane ^ b
        ok = j <= most
    else:
        j = least | (b & ~segment & 0x1F)
        ok = j <= most
    return (j if ok else lane), ok


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffle(run: Any, device: Device, mode: str) -> None:
    random = np.random.default_rng(7)
    warps = 24
    b = random.integers(0, 64, 32 * warps).astype(np.uint32)
    # Whole-warp shuffles, sub-warp segments of every size, and anything at all.
    widths = [1, 2, 4, 8, 16, 32]
    end = 0 if mode == "up" else 31
    regular = [((32 - widths[w % 6]) << 8) | end for w in range(warps)]
    c = np.repeat(np.array(regular, np.uint32), 32)
    c[32 * 18 :] = random.integers(0, 1 << 13, 32 * 6)
    body = f"""
    ld.param.u64 d2, [b];
    ld.param.u64 d3, [c];
    mad.wide.u32 d2, r1, 4, d2;
    mad.wide.u32 d3, r1, 4, d3;
    ld.global.u32 r4, [d2];
    ld.global.u32 r5, [d3];
    add.u32 r6, r1, 1000;
    shfl.sync.{mode}.b32 r7|p1, r6, r4, r5, 0xffffffff;
    selp.u32 r8, 1, 0, p1;
    st.global.v2.u32 [d1], {{r7, r8}};
"""
    with device.upload(b) as b_buffer, device.upload(c) as c_buffer:
        words = run(
            body, b_buffer, c_buffer, grid=3, block=256, words=2,
            parameters=", .param .u64 b, .param .u64 c",
        )  # fmt: skip
    for thread in range(32 * warps):
        warp, lane = divmod(thread, 32)
        source, ok = shuffled(mode, lane, int(b[thread]), int(c[thread]))
        if 0 <= source < 32:
            assert words[thread].tolist() == [1000 + 32 * warp + source, int(ok)]


def test_shuffle_waits_for_the_lanes_it_names(run: Any) -> None:
    # The odd lanes take a longer way to the same shuffle.
    body = """
    mov.u32 r4, r0;
    and.b32 r3, r0, 1;
    setp.eq.u32 p1, r3, 0;
    @p1 bra meet;
    add.u32 r4, r4, 100;
    bra late;
meet:
    shfl.sync.bfly.b32 r5, r4, 1, 31, 0xffffffff;
    st.global.u32 [d1], r5;
    ret;
late:
    add.u32 r4, r4, 100;
    bra meet;
"""
    words = run(body)[:, 0]
    assert words.tolist() == [(lane ^ 1) + (200 if lane % 2 == 0 else 0) for lane in range(32)]


def test_shuffle_among_some_lanes(run: Any) -> None:
    body = """
    setp.ge.u32 p1, r0, 8;
    @p1 bra done;
    shfl.sync.down.b32 r5, r0, 1, 31, 0xff;
    st.global.u32 [d1], r5;
done:
    ret;
"""
    assert run(body)[:7, 0].tolist() == [1, 2, 3, 4, 5, 6, 7]


SUM_32 = """
    mov.b32 r7, f1;
    shfl.sync.down.b32 r7, r7, {offset}, 31, r6;
    mov.b32 f2, r7;
    add.f32 f1, f1, f2;
"""
SUM_64 = """
    mov.b64 {{r7, r8}}, g1;
    shfl.sync.down.b32 r7, r7, {offset}, 31, r6;
    shfl.sync.down.b32 r8, r8, {offset}, 31, r6;
    mov.b64 g2, {{r7, r8}};
    add.f64 g1, g1, g2;
"""
SUMMED = """
    mad.lo.u32 r3, r0, 3, 1;
    cvt.rn.f32.u32 f1, r3;
    cvt.rn.f64.u32 g1, r3;
    setp.lt.u32 p1, r0, {summed};
    vote.sync.ballot.b32 r6, p1, {mask};
    @!p1 {others};
    {steps}
    cvt.rzi.u32.f64 r4, g1;
    cvt.rzi.u32.f32 r3, f1;
    st.global.v2.u32 [d1], {{r3, r4}};
done:
    ret;
"""


@pytest.mark.parametrize(
    ("others", "block", "mask"),
    [("bra done", 32, "0xffffffff"), ("exit", 32, "0xffffffff"), ("exit", 20, "0xfffff")],
)
@pytest.mark.parametrize("summed", [8, 16])
def test_lanes_that_take_no_part_add_nothing(
    run: Any, others: str, block: int, mask: str, summed: int
) -> None:
    """A sum of some lanes shuffles over all 32, as the kernel reduce7 of NVIDIA's sample ``reduction`` does."""
    steps = [step.format(offset=16 >> n) for step in (SUM_32, SUM_64) for n in range(5)]
    body = SUMMED.format(others=others, mask=mask, summed=summed, steps="".join(steps))
    total = sum(3 * lane + 1 for lane in range(summed))
    assert run(body, block=block, words=2)[0].tolist() == [total, total]


def test_a_lane_that_takes_no_part_never_was(run: Any) -> None:
    body = "    shfl.sync.idx.b32 r5, r1, 30, 31, -1;\n    st.global.u32 [d1], r5;"
    assert run(body, block=20)[:, 0].tolist() == [0] * 20


def test_a_lane_that_never_comes_is_a_deadlock(emulate: Any) -> None:
    body = """
    setp.eq.u32 p1, r0, 3;
    @p1 bra other;
    shfl.sync.bfly.b32 r5, r0, 1, 31, 0xffffffff;
    st.global.u32 [d1], r5;
other:
    bar.sync 0;
"""
    with pytest.raises(LaunchError, match="31 threads wait for the rest of their warp"):
        emulate(body)


LDMATRIX = """
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 d2, [in];
    mad.wide.u32 d3, r0, 32, d2;
    mov.u64 d4, tile;
    mad.wide.u32 d5, r0, 32, d4;
    ld.global.v4.u32 {{r4, r5, r6, r7}}, [d3];
    st.shared.v4.u32 [d5], {{r4, r5, r6, r7}};
    ld.global.v4.u32 {{r4, r5, r6, r7}}, [d3+16];
    st.shared.v4.u32 [d5+16], {{r4, r5, r6, r7}};
    bar.sync 0;
    ld.param.u64 d6, [rows];
    mad.wide.u32 d6, r0, 4, d6;
    ld.global.u32 r8, [d6];
    mov.u32 r9, tile;
    mad.lo.u32 r8, r8, 16, r9;
    {load}
    {store}
"""


@in_one_test("count", [1, 2, 4])
@in_one_test("trans", [False, True])
@in_one_test("mode", ["shared", "generic"])
def test_ldmatrix_from_rows_anywhere(
    run: Any, device: Device, count: int, trans: bool, mode: str
) -> None:
    random = np.random.default_rng(count)
    tile = random.integers(0, 1 << 16, (64, 8)).astype(np.uint16)
    rows = random.integers(0, 64, 32).astype(np.uint32)
    names = [f"r{10 + i}" for i in range(count)]
    group = "{" + ", ".join(names) + "}"
    suffix = ".trans" if trans else ""
    address, space = "r8", ".shared"
    extra = ""
    if mode == "generic":
        extra = "cvt.u64.u32 d8, r8; cvta.shared.u64 d8, d8;"
        address, space = "d8", ""
    body = LDMATRIX.format(
        load=f"{extra} ldmatrix.sync.aligned.m8n8.x{count}{suffix}{space}.b16 {group}, [{address}];",
        store="\n".join(f"st.global.u32 [d1+{4 * i}], {name};" for i, name in enumerate(names)),
    )
    with device.upload(tile) as source, device.upload(rows) as numbers:
        words = run(
            body, source, numbers, words=count, parameters=", .param .u64 in, .param .u64 rows"
        )
    for lane in range(32):
        for j in range(count):
            matrix = tile[rows[8 * j : 8 * j + 8]]
            if trans:
                matrix = matrix.T
            low, high = matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
            assert words[lane, j] == int(low) | int(high) << 16


def test_ldmatrix_of_a_partial_warp_is_an_error(emulate: Any) -> None:
    body = """
    .shared .align 16 .b8 tile[128];
    setp.lt.u32 p1, r0, 16;
    mov.u32 r3, tile;
    @p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r4}, [r3];
"""
    with pytest.raises(LaunchError, match="needs all 32 threads of the warp, 16 are active"):
        emulate(body)


def test_ldmatrix_rows_must_be_aligned_but_only_those_it_reads(emulate: Any) -> None:
    body = """
    .shared .align 16 .b8 tile[128];
    mov.u32 r3, tile;
    setp.{compare}.u32 p1, r0, 8;
    @p1 add.u32 r3, r3, 4;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{r4}}, [r3];
"""
    emulate(body.format(compare="ge"))
    with pytest.raises(LaunchError, match="misaligned"):
        emulate(body.format(compare="lt"))


MMA = """
    ld.param.u64 d2, [in];
    mad.wide.u32 d2, r1, 40, d2;
    ld.global.v2.u32 {{r4, r5}}, [d2];
    ld.global.v2.u32 {{r6, r7}}, [d2+8];
    ld.global.v2.u32 {{r8, r9}}, [d2+16];
    ld.global.v2.u32 {{r10, r11}}, [d2+24];
    ld.global.v2.u32 {{r12, r13}}, [d2+32];
    mma.sync.aligned.m16n8k16.row.col.{types} {d}, {{r4, r5, r6, r7}}, {{r8, r9}}, {c};
    {store}
"""


def lane_words(matrix: Any, kind: str) -> Any:
    """Return [32, registers] words of a fragment, by the formulas of the ISA's fragment section."""
    words = np.zeros((32, 4), np.uint32)
    for lane in range(32):
        group, member = lane >> 2, lane & 3
        for i in range({"a": 8, "b": 4, "c": 4}[kind]):
            if kind == "a":
                row = group if i < 2 or 4 <= i < 6 else group + 8
                col = member * 2 + (i & 1) + (8 if i >= 4 else 0)
            elif kind == "b":
                row, col = member * 2 + (i & 1) + (8 if i >= 2 else 0), group
            else:
                row, col = group + (8 if i >= 2 else 0), member * 2 + (i & 1)
            if matrix.dtype == np.uint32:
                words[lane, i] = matrix[row, col]
            else:
                words[lane, i // 2] |= int(matrix[row, col]) << 16 * (i % 2)
    return words


@in_one_test("arch", [None, "sm_80", "sm_90a"])
@in_one_test(("dtype", "acc"), [("bf16", "f32"), ("f16", "f32"), ("f16", "f16")])
def test_mma_of_many_warps(
    run_on: Any, device: Device, arch: str | None, dtype: str, acc: str
) -> None:
    # Random bits; on a GPU this compares the model of its tensor cores with the tensor cores.
    if arch is not None:
        device = open_device("emulator", arch=arch)
    random = np.random.default_rng(3)
    warps = 6
    a, b = (
        random.integers(0, 1 << 16, (rows, cols, warps)).astype(np.uint16)
        for rows, cols in ((16, 16), (16, 8))
    )
    bits, word = (32, np.uint32) if acc == "f32" else (16, np.uint16)
    c = random.integers(0, 1 << bits, (16, 8, warps), dtype=np.uint64).astype(word)
    inputs = np.zeros((32 * warps, 10), np.uint32)
    registers = 4 if acc == "f32" else 2
    for warp in range(warps):
        rows = slice(32 * warp, 32 * warp + 32)
        inputs[rows, :4] = lane_words(a[..., warp], "a")
        inputs[rows, 4:6] = lane_words(b[..., warp], "b")[:, :2]
        inputs[rows, 6:] = lane_words(c[..., warp], "c")
    c_registers = [f"r{10 + i}" for i in range(registers)]
    d_registers = [f"r{20 + i}" for i in range(registers)]
    body = MMA.format(
        types=f"{acc}.{dtype}.{dtype}.{acc}",
        c="{" + ", ".join(c_registers) + "}",
        d="{" + ", ".join(d_registers) + "}",
        store="\n".join(f"st.global.u32 [d1+{4 * i}], {r};" for i, r in enumerate(d_registers)),
    )
    with device.upload(inputs) as source:
        actual = run_on(device)(
            body, source, grid=2, block=96, words=registers, parameters=", .param .u64 in"
        )
    d = multiply_add(a, b, c, dtype=dtype, acc=acc, rules=device.target.dot16)
    expected = np.concatenate(
        [lane_words(d[..., warp], "c")[:, :registers] for warp in range(warps)]
    )
    assert np.array_equal(actual, expected)


def test_mma_needs_its_target() -> None:
    turing = open_device("emulator", arch="sm_75")
    text = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry k()
{ .reg .f32 f<4>; .reg .b32 r<6>;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, {r4,r5}, {f0,f1,f2,f3}; }
"""
    with pytest.raises(Unsupported, match="sm_75"):
        turing.load(text).kernel()


def test_mma_of_a_partial_warp_is_an_error(emulate: Any) -> None:
    body = """
    setp.lt.u32 p1, r0, 31;
    @p1 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, {r4,r5}, {f0,f1,f2,f3};
"""
    with pytest.raises(LaunchError, match="31 are active"):
        emulate(body)


def test_warps_may_go_different_ways_through_mma(run: Any) -> None:
    # Odd warps multiply twice; D is the number of multiplications, as A and B are ones.
    body = """
    mov.u32 r10, 0x3c003c00;
    mov.f32 f0, 0f00000000; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;
    shr.u32 r3, r0, 5;
    and.b32 r3, r3, 1;
again:
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r10,r10,r10,r10}, {r10,r10}, {f0,f1,f2,f3};
    setp.eq.u32 p1, r3, 0;
    mov.u32 r3, 0;
    @!p1 bra again;
    cvt.rzi.u32.f32 r4, f3;
    st.global.u32 [d1], r4;
"""
    words = run(body, block=128)[:, 0].reshape(4, 32)
    assert (words == np.array([16, 32, 16, 32])[:, None]).all()
