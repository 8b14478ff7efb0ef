"""Copies of boxes of tensors against NumPy, one element at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ptxlab import Im2col
from ptxlab.arrays import Array
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.protocol import Device
from ptxlab.emulator import Watcher
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import TensorMap

RNG = np.random.default_rng(5)
SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


def program(body: str, more: str = "") -> str:
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.global .align 128 .b8 spare[128];
.visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .u64 at{more})
{{
    .reg .pred p<8>;
    .reg .b16 h<16>;
    .reg .b32 r<32>;
    .reg .b64 d<32>;
    .shared .align 16 .b64 bar[2];
    .shared .align 1024 .b8 buffer[16384];
    ld.param.u64 d0, [out];
    mov.b64 d1, map;
    cvta.param.u64 d1, d1;
    ld.param.u64 d2, [at];
    ld.global.v4.b32 {{r10, r11, r12, r13}}, [d2];
    ld.global.b32 r14, [d2+16];
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, bar;
    mov.u32 r3, buffer;
    setp.eq.u32 p0, r0, 0;
    @p0 mbarrier.init.shared.b64 [bar], 1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
{body}
    ret;
}}
"""


COORDINATES = ["{r10}", "{r10, r11}", "{r10, r11, r12}", "{r10, r11, r12, r13}"]
COORDINATES.append("{r10, r11, r12, r13, r14}")
WAIT = "W: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0; @!p1 bra W;"
DUMP = """
    mov.u32 r4, r0;
D:  setp.ge.u32 p2, r4, r5;
    @p2 bra E;
    mad.lo.u32 r6, r4, 4, r3;
    ld.shared.u32 r7, [r6];
    mad.wide.u32 d3, r4, 4, d0;
    st.global.u32 [d3], r7;
    add.u32 r4, r4, 64;
    bra D;
E:
"""


def loading(rank: int, nbytes: int, mode: str = "", offsets: str = "", shift: int = 0) -> str:
    return program(f"""
    add.u32 r3, r3, {shift};
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], {nbytes};
    cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes
        [r3], [d1, {COORDINATES[rank - 1]}], [r2]{offsets};
    {WAIT}
    mov.u32 r5, {nbytes // 4};
    {DUMP}
    """)


def at(*coordinates: int) -> Array:
    return np.array([*coordinates, 0, 0, 0, 0, 0][:5], np.int32)


def swizzled(data: bytes, span: int, shift: int) -> bytes:
    """Return what lies from a shared address of ``shift`` (within 1024) on where data is swizzled."""
    mask = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[span]
    swizzled = bytearray(len(data))
    for offset, byte in enumerate(data):
        address = offset + shift
        swizzled[(address ^ (address >> 3 & mask)) - shift] = byte
    return bytes(swizzled)


def boxed(
    tensor: Array, box: tuple[int, ...], first: tuple[int, ...], steps: tuple[int, ...]
) -> Array:
    """Return a box of a tensor in NumPy's order, zeros outside."""
    counts = [-(-size // step) for size, step in zip(box, steps, strict=True)]
    tile = np.zeros(counts, tensor.dtype)
    for index in product(*map(range, counts)):
        coordinates = tuple(x + i * step for x, i, step in zip(first, index, steps, strict=True))
        if all(0 <= x < size for x, size in zip(coordinates, tensor.shape, strict=True)):
            tile[index] = tensor[coordinates]
    return tile


CASES = [
    ((40, 64), (8, 64), (3, 0), "128B", "u2", 0),
    ((40, 64), (8, 64), (-3, 32), "128B", "u2", 1024),
    ((40, 64), (8, 64), (36, -10), "128B", "u2", 384),
    ((40, 33 * 8), (16, 32), (1, 250), "64B", "u2", 512),
    ((7, 9, 16), (3, 5, 8), (5, -2, 11), "32B", "u4", 128),
    ((5, 4, 3, 8), (2, 3, 2, 4), (4, 2, -1, 5), "none", "u4", 0),
    ((3, 3, 3, 3, 16), (2, 2, 2, 2, 16), (1, 2, 0, -1, 8), "none", "u1", 0),
    ((100,), (64,), (60,), "none", "u4", 0),
]


@pytest.mark.parametrize(("shape", "box", "first", "swizzle", "kind", "shift"), CASES)
def test_loads(
    hopper: Device,
    shape: tuple[int, ...],
    box: tuple[int, ...],
    first: tuple[int, ...],
    swizzle: str,
    kind: str,
    shift: int,
) -> None:
    data = RNG.integers(1, 2**8, shape).astype(kind)
    wanted = boxed(data, box, first, (1,) * len(box))
    buffer = hopper.upload(data)
    tensor_map = hopper.tensor_map(buffer, box, swizzle=swizzle)
    kernel = hopper.load(loading(len(shape), wanted.nbytes, shift=shift)).kernel("k")
    out = hopper.zeros(wanted.nbytes // 4, "u32")
    kernel.launch(grid=1, block=64, args=[out, tensor_map, hopper.upload(at(*first[::-1]))])
    assert out.numpy().tobytes() == swizzled(wanted.tobytes(), SPANS[swizzle], shift)


def test_im2col_as_it_ran_on_a_gpu(hopper: Device) -> None:
    images = np.zeros((2, 4, 2, 16), np.uint8)  # n, h, w, c
    images[..., 0] = np.arange(1, 17).reshape(2, 4, 2)
    buffer = hopper.upload(images)
    window = Im2col((-1, -1), (-1, -1), 16, 16)
    tensor_map = hopper.tensor_map(buffer, im2col=window)
    wanted = [7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22]
    body = loading(4, 256, ".im2col", ", {h0, h1}").replace(
        "@!p0 bra W;", "mov.u16 h0, 0; mov.u16 h1, 0; @!p0 bra W;"
    )
    kernel = hopper.load(body).kernel("k")
    out = hopper.zeros(64, "u32")
    del wanted
    kernel.launch(grid=1, block=64, args=[out, tensor_map, hopper.upload(at(0, 0, 1, 0))])
    pixels = out.numpy().view(np.uint8).reshape(16, 16)[:, 0]
    # The window is two wide and four high, moved by one: w -1..0, h -1..2.
    flat = np.zeros((2, 6, 4), np.uint8)
    flat[:, 1:5, 1:3] = images[..., 0]
    walk = [(n, h, w) for n in range(2) for h in range(-1, 3) for w in range(-1, 1)]
    start = walk.index((0, 1, 0))
    expected = [
        int(flat[n, h + 1, w + 1])
        for n, h, w in (walk + [(9, 0, 0)] * 16)[start : start + 16]
        if n < 2
    ]
    assert pixels[: len(expected)].tolist() == expected


STORE = """
    mov.u32 r4, r0;
F:  setp.ge.u32 p2, r4, NBYTES;
    @p2 bra G;
    mad.lo.u32 r6, r4, 4, r3;
    st.shared.u32 [r6], r4;
    add.u32 r4, r4, 64;
    setp.lt.u32 p2, r4, NWORDS;
    @p2 bra F;
G:  fence.proxy.async.shared::cta;
    bar.sync 0;
    @!p0 bra E;
    OPERATION [d1, {r10, r11}], [r3];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
E:
"""


@pytest.mark.parametrize("operation", ["", "add", "max"])
def test_stores_and_reductions(hopper: Device, operation: str) -> None:
    before = RNG.integers(0, 200, (10, 24)).astype(np.uint32)
    buffer = hopper.upload(before)
    tensor_map = hopper.tensor_map(buffer, (4, 8), swizzle="32B")
    name = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.bulk_group"
    plain = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    body = STORE.replace("OPERATION", name if operation else plain)
    body = body.replace("NBYTES", "32").replace("NWORDS", "32")
    out = hopper.zeros(4, "u32")
    hopper.load(program(body)).kernel("k").launch(
        grid=1, block=64, args=[out, tensor_map, hopper.upload(at(20, 8))]
    )
    moved = np.frombuffer(swizzled(np.arange(32, dtype=np.uint32).tobytes(), 32, 0), np.uint32)
    wanted = before.copy()
    part = moved.reshape(4, 8)[:2, :4]
    old = before[8:10, 20:24]
    wanted[8:10, 20:24] = {"": part, "add": old + part, "max": np.maximum(old, part)}[operation]
    assert (buffer.numpy() == wanted).all()


def test_maps_of_tf32_round_what_is_loaded_and_take_no_stores(hopper: Device) -> None:
    data = RNG.standard_normal((16, 32)).astype(np.float32)
    tensor_map = hopper.tensor_map(hopper.upload(data), (8, 32), dtype="tf32")
    out = hopper.zeros((8, 32), "f32")
    arguments = [out, tensor_map, hopper.upload(at(0, 3))]
    hopper.load(loading(2, 1024)).kernel("k").launch(grid=1, block=64, args=arguments)
    fraction, exponent = np.frexp(data[3:11].astype(np.float64))
    assert (out.numpy() == np.ldexp(np.rint(fraction * 2048), exponent - 11)).all()
    body = STORE.replace("OPERATION", "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group")
    kernel = hopper.load(program(body.replace("NBYTES", "256").replace("NWORDS", "256"))).kernel(
        "k"
    )
    with pytest.raises(Unsupported, match="a store with a tensor map of tf32") as caught:
        kernel.launch(grid=1, block=64, args=arguments)
    assert caught.value.location is not None


def test_multicast(hopper: Device) -> None:
    data = RNG.integers(0, 2**16, (8, 64)).astype(np.uint16)
    tensor_map = hopper.tensor_map(hopper.upload(data), (8, 64), swizzle="128B")
    body = program(f"""
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    mov.u32 r8, %cluster_ctarank;
    setp.ne.u32 p3, r8, 3;
    @p3 bra W;
    mov.u16 h0, 15;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [r3], [d1, {{r10, r11}}], [r2], h0;
    {WAIT}
    mad.wide.u32 d0, r1, 1024, d0;
    mov.u32 r5, 256;
    {DUMP}
    barrier.cluster.arrive;
    barrier.cluster.wait;
    """)
    out = hopper.zeros((4, 256), "u32")
    arguments = [out, tensor_map, hopper.upload(at())]
    hopper.load(body).kernel("k").launch(grid=4, block=64, cluster=4, args=arguments)
    wanted = swizzled(data.tobytes(), 128, 0)
    assert [row.tobytes() for row in out.numpy()] == [wanted] * 4


def test_maps_are_told_apart_by_an_offset(hopper: Device) -> None:
    data = RNG.integers(0, 2**16, (2, 8, 64)).astype(np.uint16)
    maps = [hopper.tensor_map(hopper.upload(each), (8, 64)) for each in data]
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    body = program(
        f"""
    @!p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 2048;
    {load} [r3], [d1, {{r10, r11}}], [r2];
    {load} [r3+1024], [d1+192, {{r10, r11}}], [r2];
    {WAIT}
    mov.u32 r5, 512;
    {DUMP}""",
        ", .param .align 64 .b8 other[128]",
    )
    out = hopper.zeros(512, "u32")
    arguments = [out, maps[0], hopper.upload(at()), maps[1]]
    hopper.load(body).kernel("k").launch(grid=1, block=64, args=arguments)
    assert out.numpy().tobytes() == data.tobytes()


REPLACED = """
    mov.b64 d4, spare;
    cvta.global.u64 d1, d4;
    @!p0 bra X;
    tensormap.replace.tile.global_address.global.b1024.b64 [d4], d5;
    tensormap.replace.tile.rank.global.b1024.b32 [d4], 1;
    tensormap.replace.tile.box_dim.global.b1024.b32 [d4], 0, 64;
    tensormap.replace.tile.box_dim.global.b1024.b32 [d4], 1, 8;
    tensormap.replace.tile.global_dim.global.b1024.b32 [d4], 0, 64;
    tensormap.replace.tile.global_dim.global.b1024.b32 [d4], 1, 40;
    tensormap.replace.tile.global_stride.global.b1024.b64 [d4], 0, 128;
    tensormap.replace.tile.element_stride.global.b1024.b32 [d4], 0, 1;
    tensormap.replace.tile.element_stride.global.b1024.b32 [d4], 1, 1;
    tensormap.replace.tile.elemtype.global.b1024.b32 [d4], 1;
    tensormap.replace.tile.interleave_layout.global.b1024.b32 [d4], 0;
    tensormap.replace.tile.swizzle_mode.global.b1024.b32 [d4], 3;
    tensormap.replace.tile.fill_mode.global.b1024.b32 [d4], 0;
    fence.proxy.tensormap::generic.release.gpu;
    fence.proxy.tensormap::generic.acquire.gpu [d1], 128;
X:
"""


def test_a_map_made_by_the_program_from_zeros(hopper: Device) -> None:
    data = RNG.integers(0, 2**16, (40, 64)).astype(np.uint16)
    buffer = hopper.upload(data)
    text = loading(2, 1024).replace("add.u32 r3, r3, 0;", "ld.param.u64 d5, [tensor];" + REPLACED)
    text = text.replace(".param .u64 at)", ".param .u64 at, .param .u64 tensor)")
    out = hopper.zeros(256, "u32")
    given = hopper.tensor_map(buffer, (8, 64))  # not used
    kernel = hopper.load(text).kernel("k")
    kernel.launch(grid=1, block=64, args=[out, given, hopper.upload(at(0, 5)), buffer])
    assert out.numpy().tobytes() == swizzled(data[5:13].tobytes(), 128, 0)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("[d1, {r10, r11}]", "[d1+4, {r10, r11}]"), "misaligned"),
        (("[r3], [d1", "[r3+64], [d1"), "no multiple of 128"),
        (("[r3], [d1", "[r3+16256], [d1"), "of which a CTA has"),
        ((".2d.shared::cluster.global", ".3d.shared::cluster.global"), "3 coordinates for 2"),
        ((".2d.shared", ".2d.tile.shared"), None),
    ],
)
def test_what_is_wrong_is_told(hopper: Device, change: tuple[str, str], what: str | None) -> None:
    tensor_map = hopper.tensor_map(hopper.zeros((40, 64), "u16"), (8, 64), swizzle="128B")
    text = loading(2, 1024)
    if ".3d." in change[1]:
        text = text.replace("{r10, r11}", "{r10, r11, r12}")
    text = text.replace(*change)
    arguments = [hopper.zeros(256, "u32"), tensor_map, hopper.upload(at())]
    if what is None:
        hopper.load(text).kernel("k").launch(grid=1, block=64, args=arguments)
        return
    with pytest.raises(LaunchError, match=what):
        hopper.load(text).kernel("k").launch(grid=1, block=64, args=arguments)


def test_a_map_that_is_none_is_refused_by_line(hopper: Device) -> None:
    text = loading(2, 1024).replace("cvta.param.u64 d1, d1;", "mov.b64 d1, spare;")
    tensor_map = hopper.tensor_map(hopper.zeros((40, 64), "u16"), (8, 64))
    arguments = [hopper.zeros(256, "u32"), tensor_map, hopper.upload(at())]
    with pytest.raises((LaunchError, Unsupported)) as caught:
        hopper.load(text).kernel("k").launch(grid=1, block=64, args=arguments)
    assert isinstance(caught.value, PtxlabError)
    assert caught.value.location is not None


def test_a_box_of_a_store_begins_inside(hopper: Device) -> None:
    buffer = hopper.zeros((10, 24), "u32")
    plain = STORE.replace("OPERATION", "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group")
    kernel = hopper.load(program(plain.replace("NBYTES", "32").replace("NWORDS", "32"))).kernel("k")
    tensor_map = hopper.tensor_map(buffer, (4, 8), swizzle="32B")
    for coordinates in ((-1, 0), (0, -4)):
        given = [hopper.zeros(4, "u32"), tensor_map, hopper.upload(at(*coordinates))]
        with pytest.raises(LaunchError, match=r"of a store, which are not negative"):
            kernel.launch(grid=1, block=64, args=given)
    assert not buffer.numpy().any()


def test_a_box_lies_in_one_allocation(hopper: Device) -> None:
    """A map may say that a tensor is larger than its memory; what is then copied is looked at."""
    buffer = hopper.upload(np.arange(40 * 64, dtype=np.uint16).reshape(40, 64))
    made = TensorMap("u16", buffer.address, (64, 48), (128,), (64, 8), (1, 1))
    kernel = hopper.load(loading(2, 1024)).kernel("k")
    out = hopper.zeros(256, "u32")
    kernel.launch(grid=1, block=64, args=[out, encode(made), hopper.upload(at(0, 32))])
    assert out.numpy().tobytes() == np.arange(32 * 64, 40 * 64, dtype=np.uint16).tobytes()
    for row in (33, 40, 47):
        with pytest.raises(LaunchError, match="which no allocation holds"):
            kernel.launch(grid=1, block=64, args=[out, encode(made), hopper.upload(at(0, row))])


def test_a_map_is_used_in_its_mode(hopper: Device) -> None:
    buffer, out = hopper.zeros((4, 8, 8, 16), "u16"), hopper.zeros(256, "u32")
    window = Im2col((0, 0), (0, 0), 16, 8)
    strides = (32, 256, 2048)
    made = TensorMap("u16", buffer.address, (16, 8, 8, 4), strides, window, (1, 1, 1, 1))
    tile = TensorMap("u16", buffer.address, (16, 8, 8, 4), strides, (16, 8, 1, 1), (1, 1, 1, 1))
    for mode, offsets, right, wrong in (
        ("", "", tile, made), (".im2col", ", {h1, h2}", made, tile),
    ):  # fmt: skip
        kernel = hopper.load(
            loading(4, 256, mode, offsets).replace(
                "mov.u32 r1,", "mov.u16 h1, 0; mov.u16 h2, 0; mov.u32 r1,"
            )
        ).kernel("k")
        arguments = [hopper.upload(at())]
        kernel.launch(grid=1, block=64, args=[out, encode(right), *arguments])
        kind = "tile" if mode else "im2col"
        with pytest.raises(LaunchError, match=f"the tensor map is one of {kind} mode"):
            kernel.launch(grid=1, block=64, args=[out, encode(wrong), *arguments])


@pytest.mark.parametrize(("wait", "later"), [(".read 0", False), (".read 1", True)])
def test_a_store_of_a_box_reads_its_source_once(hopper: Device, wait: str, later: bool) -> None:
    """What the program writes there when it has waited for the reading is not stored."""
    buffer = hopper.zeros((4, 8), "u32")
    tensor_map = hopper.tensor_map(buffer, (4, 8))
    name = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    body = STORE.replace("OPERATION", name).replace("NBYTES", "32").replace("NWORDS", "32")
    again = f"commit_group; cp.async.bulk.wait_group{wait}; st.shared.u32 [r3+8], 77;"
    text = program(body.replace("commit_group;", again))
    arguments = [hopper.zeros(4, "u32"), tensor_map, hopper.upload(at())]
    hopper.load(text).kernel("k").launch(grid=1, block=64, args=arguments)
    wanted = np.arange(32)
    wanted[2] = 77 if later else 2
    assert buffer.numpy().reshape(-1).tolist() == wanted.tolist()


def test_who_watches_hears_whose_box_it_is(hopper: Device) -> None:
    heard = []

    class Boxes(Watcher):
        def box(self, thread: int, tensor_map: Any, coordinates: Any, *, outside: bool) -> None:
            heard.append((thread, list(coordinates), outside))

    tensor_map = hopper.tensor_map(hopper.zeros((40, 64), "u16"), (8, 64))
    text = loading(2, 1024).replace("@!p0 bra W;", "setp.ne.u32 p3, r0, 37; @p3 bra W;")
    kernel = hopper.load(text).kernel("k")
    assert isinstance(kernel, EmulatorKernel)
    for origin, outside in (((0, 3), False), ((0, 40), True)):
        arguments = [hopper.zeros(256, "u32"), tensor_map, hopper.upload(at(*origin))]
        kernel.watch(Boxes()).launch(grid=2, block=64, args=arguments)
        assert heard == [(37, list(origin), outside), (64 + 37, list(origin), outside)]
        heard.clear()


def test_all_bytes_of_a_map_are_copied(hopper: Device) -> None:
    body = """
        mad.lo.u32 r4, r0, 4, r3; setp.lt.u32 p1, r0, 32; @p1 st.shared.u32 [r4], r0; bar.sync 0;
        @!p1 bra E;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d0], [r3], 128;
    E:"""
    out = hopper.zeros(64, "u32")
    arguments = [out, bytes(128), hopper.upload(at())]
    hopper.load(program(body)).kernel("k").launch(1, 64, arguments)
    assert out.numpy().tolist() == [*range(32), *[0] * 32]


def test_a_map_is_copied_when_all_of_its_warp_have_come(hopper: Device) -> None:
    """Those that wait for the others elsewhere wait for ever."""
    body = """
        setp.lt.u32 p2, r0, 7; @!p2 bra AWAY;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d0], [r3], 128;
        bra.uni E;
    AWAY: bar.warp.sync -1;
    E:"""
    arguments = [hopper.zeros(64, "u32"), bytes(128), hopper.upload(at())]
    with pytest.raises(LaunchError, match="deadlock"):
        hopper.load(program(body)).kernel("k").launch(1, 32, arguments)


SEVERAL = """
    mad.lo.u32 r6, r0, 4, r3;
    mov.u32 r5, 0;
F:  mad.lo.u32 r7, r5, 64, r0;
    st.shared.u32 [r6], r7;
    add.u32 r6, r6, 256;
    add.u32 r5, r5, 1;
    setp.lt.u32 p2, r5, 4;
    @p2 bra F;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ge.u32 p3, r0, 8;
    @p3 bra E;
    mad.lo.u32 r6, r0, 128, r3;
    mul.lo.u32 r7, r0, 4;
    min.u32 r7, r7, 26;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [d1, {r10, r7}], [r6];
    cp.async.bulk.commit_group;
    setp.ge.u32 p4, r0, HASTY;
    @!p4 cp.async.bulk.wait_group.read 0;
    st.shared.u32 [r6], 99;
    setp.ge.u32 p4, r0, FIRST;
    @!p4 cp.async.bulk.wait_group 0;
    cp.async.bulk.wait_group 0;
E:
"""


@pytest.mark.parametrize(("hasty", "first_to_wait"), [(0, 0), (3, 0), (8, 0), (8, 3)])
def test_boxes_that_threads_store_together_are_waited_for_apart(
    hopper: Device, hasty: int, first_to_wait: int
) -> None:
    """Eight threads store a box each; of rows that two of them write those of the second stay."""
    buffer = hopper.zeros((32, 8), "u32")
    tensor_map = hopper.tensor_map(buffer, (4, 8))
    text = program(SEVERAL.replace("HASTY", str(hasty)).replace("FIRST", str(first_to_wait)))
    arguments = [hopper.zeros(4, "u32"), tensor_map, hopper.upload(at())]
    hopper.load(text).kernel("k").launch(grid=1, block=64, args=arguments)
    wanted = np.zeros((32, 8), np.uint32)
    for thread in range(8):
        box = 32 * thread + np.arange(32)
        if thread >= hasty:  # it has not waited until its source was read
            box[0] = 99
        first = min(4 * thread, 26)
        wanted[first : first + 4] = box.reshape(4, 8)
    np.testing.assert_array_equal(buffer.numpy(), wanted)
