"""Programs with wgmma: several warpgroups and warps beside them, chains, and what is wrong or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.opening import open_device
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError, ToolchainError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.work import work
from ptxlab.syntax import parse
from ptxlab.toolchain import link_ptx
from tests.emulator.matrix.warpgroups import Placed, unpack_groups

CTAS, TILE = 3, 24576

# Two warpgroups add up k = 64 in four steps, and one warp more has nothing to do with it.
PROGRAM = f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 out)
{{
.shared .align 1024 .b8 tile[{TILE}];
.reg .b32 r<9>; .reg .b64 d<9>; .reg .pred p<4>; .reg .f32 f<16>;
mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x;
ld.param.u64 d0, [image]; ld.param.u64 d1, [out];
mad.wide.u32 d0, r1, {TILE}, d0;
shl.b32 r2, r0, 2;
cvt.u64.u32 d3, r2; add.u64 d0, d0, d3;
mov.u32 r3, tile; add.u32 r3, r3, r2;
copy:
setp.ge.u32 p1, r2, {TILE};
@p1 bra copied;
ld.global.b32 r4, [d0]; st.shared.b32 [r3], r4;
add.u32 r2, r2, 1152; add.u32 r3, r3, 1152; add.u64 d0, d0, 1152;
bra copy;
copied:
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ge.u32 p2, r0, 256;
@p2 bra done;
shr.u32 r5, r0, 7;
mul.lo.u32 r5, r5, 8192; mov.u32 r6, tile; add.u32 r5, r5, r6; shr.u32 r5, r5, 4;
cvt.u64.u32 d4, r5; or.b64 d4, d4, 0x4000004000010000;
add.u32 r6, r6, 16384; shr.u32 r6, r6, 4;
cvt.u64.u32 d5, r6; or.b64 d5, d5, 0x8000002000200000;
mov.u32 r7, 0;
loop:
setp.ne.u32 p3, r7, 0;
// here
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{f0,f1,f2,f3,f4,f5,f6,f7,f8,f9,f10,f11,f12,f13,f14,f15}},
    d4, d5, p3, 1, 1, 0, 1;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
add.u64 d4, d4, 2; add.u64 d5, d5, 64;
add.u32 r7, r7, 1;
setp.lt.u32 p1, r7, 4;
@p1 bra loop;
mad.lo.u32 r8, r1, 256, r0;
mad.wide.u32 d1, r8, 64, d1;
st.global.v4.f32 [d1], {{f0,f1,f2,f3}}; st.global.v4.f32 [d1+16], {{f4,f5,f6,f7}};
st.global.v4.f32 [d1+32], {{f8,f9,f10,f11}}; st.global.v4.f32 [d1+48], {{f12,f13,f14,f15}};
done:
ret;
}}
"""


def launch(here: str, image: Array) -> Array:
    """Run the program with a line in its loop, and return D [CTAs, warpgroups, 64, 32]."""
    with open_device("emulator", arch="sm_90a") as device:
        there = device.upload(image), device.zeros((2 * CTAS, 128, 16), "u32")
        device.load(PROGRAM.replace("// here", here)).kernel("k").launch(CTAS, 288, there)
        return unpack_groups(there[1].numpy(), 32, 4).reshape(CTAS, 2, 64, 32)


def bf16(random: Any, *shape: int) -> Array:
    numbers: Array = random.standard_normal(shape).astype(np.float32)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def single(words: Array) -> Array:
    return (words.astype(np.uint32) << 16).view(np.float32)


@pytest.fixture(scope="module")
def tiles() -> tuple[Array, Array, Array]:
    """A [CTAs, warpgroups, 64, 64] with swizzle 128B, B [CTAs, 32, 64] along n with 64B, and memory."""
    random = np.random.default_rng(0)
    a, b = bf16(random, CTAS, 2, 64, 64), bf16(random, CTAS, 32, 64)
    memory = np.zeros((CTAS, TILE), np.uint8)
    for image, left, right in zip(memory, a, b, strict=True):
        for at, part in enumerate(left):
            Placed(8192 * at, 16, 1024, "128B").write(image, part)
        Placed(16384, 512, 512, "64B", "mn").write(image, right)
    return a, b, memory


@pytest.mark.parametrize(
    "here",
    [
        "",
        "setp.lt.u32 p0, r0, 96; @p0 bra on; nanosleep.u32 40; on:",
        "setp.lt.u32 p0, r0, 128; @p0 bra on; bar.sync 1, 128; on:",
    ],
)
def test_products_within_the_bound_of_their_sums(here: str, tiles: Any) -> None:
    """Warps that arrive one after the other, and warpgroups apart, give what all together give."""
    a, b, memory = tiles
    d = launch(here, memory).view(np.float32)
    left, right = single(a), single(b)[:, None].swapaxes(2, 3)
    error = np.abs(d - left.astype(float) @ right.astype(float))
    assert (error <= 2.0**-21 * (np.abs(left) @ np.abs(right))).all()
    assert error.max() > 0
    assert np.array_equal(d, launch("", memory).view(np.float32))


@pytest.mark.parametrize(
    ("here", "error", "message"),
    [
        (
            "setp.lt.u32 p0, r0, 32; @p0 bra done;",
            LaunchError,
            "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 needs all 128 threads of the "
            "warpgroup, 96 are active in the warpgroup of thread (0, 0, 0) of CTA (0, 0, 0)",
        ),
        ("add.u64 d4, d4, d3;", LaunchError, "the descriptor of A differs between the threads of"),
        ("setp.eq.u32 p3, r0, 255;", LaunchError, "scale-d differs between the threads of"),
        ("add.u64 d5, d5, 512;", LaunchError, "the descriptor of B reaches from byte 0x6400 of"),
        ("or.b64 d4, d4, 0x2000000000000;", Unsupported, "base offset 1 in a matrix descriptor"),
        ("or.b64 d5, d5, 0x4000;", Unsupported, "reserved bits set: 14"),
    ],
)
def test_what_is_wrong_in_a_launch(
    here: str, error: type[PtxlabError], message: str, tiles: Any
) -> None:
    with pytest.raises(error) as caught:
        launch(here, tiles[2])
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.text.startswith("wgmma.mma_async")


def test_a_warpgroup_waits_for_all_its_warps(tiles: Any) -> None:
    """A warp of the second warpgroup of the second CTA waits for others at a barrier."""
    first = "setp.ne.u32 p0, r1, 1; @p0 bra on; shr.u32 r8, r0, 5; setp.ne.u32 p0, r8, 4;"
    for of_warps in ("", "movmatrix.sync.aligned.m8n8.trans.b16 r8, r8;"):
        with pytest.raises(LaunchError, match=r"CTA \(1, 0, 0\): 96 of 128 threads are here"):
            launch(f"{first} @p0 bra on; bar.sync 2, 64; on: {of_warps}", tiles[2])


@pytest.mark.parametrize(("adds", "verdict"), [("setp.ne", "clean"), ("setp.ge", "findings")])
def test_accumulators_hold_nothing_before_the_first_product(
    adds: str, verdict: str, tiles: Any
) -> None:
    """Where scale-d does not hold, D is not read and need not be written."""
    device = EmulatorDevice(TARGETS["sm_90a"])
    there = [device.upload(tiles[2]), device.zeros((2 * CTAS, 128, 16), "u32")]
    kernel = device.load(PROGRAM.replace("setp.ne.u32 p3", f"{adds}.u32 p3")).kernel("k")
    assert check(kernel, LaunchConfig.of(CTAS, 288), there).verdict == verdict


def module(statement: str, target: str = "sm_90a", version: str = "8.7") -> str:
    return f"""
.version {version}
.target {target}
.address_size 64
.visible .entry k()
{{
.reg .f32 d<4>; .reg .s32 s<4>; .reg .b32 a<4>; .reg .b64 x<2>; .reg .pred p; .reg .v4 .b32 v;
{statement}
}}
"""


D, S, A = "{d0, d1, d2, d3}", "{s0, s1, s2, s3}", "{a0, a1, a2, a3}"
BF16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16"
STATEMENTS = f"""
{BF16} {D}, x0, x1, p, 1, 1, 0, 0;
{BF16} {D}, x0, x1, !p, 1, -1, 0, 1;
{BF16} {D}, x0, x1, 1, 1, 1, 0, 0;
{BF16} {A}, x0, x1, p, 1, 1, 0, 0;
{BF16} {D}, x0, x1+16, p, 1, 1, 0, 0;
{BF16} {D}, {A}, x1, p, 1, 1, 0;
{BF16} {D}, v, x1, p, 1, 1, 0;
{BF16} {D}, {A}, x1, p, 1, 1, 0, 0;
{BF16} {D}, x0, x1, p, 2, 1, 0, 0;
{BF16} {D}, x0, x1, p, 1, 1, 2, 0;
{BF16} {D}, x0, x1, p, 1, 1, a0, 0;
{BF16} {D}, x0, x1, p, 1, 1;
{BF16} {D}, x0, x1, p;
{BF16} {D}, x0, a0, p, 1, 1, 0, 0;
{BF16} {D}, x0, x1, a0, 1, 1, 0, 0;
{BF16} {{d0, d1}}, x0, x1, p, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {D}, x0, x1, p, 1, 1, 0, 0;
wgmma.mma_async.m64n8k16.sync.aligned.f32.bf16.bf16 {D}, x0, x1, p, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.f32.bf16.bf16.m64n8k16 {D}, x0, x1, p, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {D}, x0, x1, p, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {D}, x0, x1, p, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.u8 {S}, x0, x1, p;
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite {S}, x0, x1, p;
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {S}, x0, x1, p, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k256.and.popc.s32.b1.b1 {S}, x0, x1, p;
wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {S}, x0, x1, p;
{SPARSE} {D}, x0, x1, a0, 0, p, 1, 1, 0, 0;
{SPARSE} {D}, x0, x1, a0, 2, p, 1, 1, 0, 0;
{SPARSE} {D}, {A}, x1, a0, 1, p, 1, 1, 0;
wgmma.mma_async.sync.aligned.sp.m64n8k32.f32.bf16.bf16 {D}, x0, x1, a0, 0, p, 1, 1, 0, 0;
wgmma.fence.sync.aligned;
wgmma.fence.aligned.sync;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
wgmma.wait_group.sync.aligned 8;
wgmma.wait_group.sync.aligned -1;
wgmma.wait_group.sync.aligned a0;
wgmma.wait_group.sync.aligned;
""".strip().splitlines()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_ptxas_takes_the_same_statements(statement: str) -> None:
    taken = []
    for take in (
        lambda text: prepare(parse(text), TARGETS["sm_90a"], "k"),
        lambda text: link_ptx(text, arch="sm_90a"),
    ):
        try:
            take(module(statement))
            taken.append(True)
        except (PtxSyntaxError, Unsupported, ToolchainError):
            taken.append(False)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("statement", [STATEMENTS[0], "wgmma.fence.sync.aligned;"])
def test_targets_and_versions(statement: str) -> None:
    with pytest.raises(Unsupported, match="does not exist on sm_100a"):
        prepare(parse(module(statement)), TARGETS["sm_100a"], "k")
    with pytest.raises(PtxSyntaxError, match=r"PTX 7\.8 has no target sm_90a"):
        prepare(parse(module(statement, version="7.8")), TARGETS["sm_90a"], "k")


def test_each_warp_does_a_quarter_of_the_work() -> None:
    [function] = parse(module(STATEMENTS[0])).entries
    counted = work(function.body[-1])  # type: ignore[index, arg-type]
    assert (counted.kind, counted.flops, counted.by_warp) == (
        "matrix multiply",
        2 * 16 * 8 * 16,
        True,
    )
