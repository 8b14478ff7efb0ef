"""Copies with tensor maps of 4 and 6 bits, and in swizzles of larger units: from global memory and back."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxlabError, ToolchainError, Unsupported
from ptxlab.tensormap.box import Box
from ptxlab.tensormap.tensor_map import TensorMap
from ptxlab.toolchain.nvjitlink import link_ptx
from tests.emulator.blackwell.cells import START, after
from tests.emulator.blackwell.operands import Problem, coded, whole_numbers
from tests.emulator.blackwell.test_product import issued

TEXT = """
.version 9.1
.target TARGET
.address_size 64
.visible .entry k(.param .u64 out, .param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{
    .reg .pred p, q;
    .reg .b32 r0, r1, r2;
    .reg .b64 d0, d1, d2;
    .shared .align 1024 .b8 buffer[2048];
    .shared .align 8 .b64 bar;
    ld.param.u64 d0, [out];
    mov.u64 d1, from;
    mov.u64 d2, to;
    cvta.param.u64 d1, d1;
    cvta.param.u64 d2, d2;
    mov.u32 r0, %tid.x;
    setp.eq.u32 p, r0, 0;
    @!p bra W;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], BYTES;
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [buffer], [d1, {0, 0}], [bar];
W:  bar.sync 0;
L:  mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0;
    @!q bra L;
    mov.u32 r1, buffer;
    mad.lo.u32 r1, r0, 4, r1;
    mad.wide.u32 d0, r0, 4, d0;
    ld.shared.b32 r2, [r1];
    st.global.b32 [d0], r2;
    @!p bra E;
    STORE
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
E:  ret;
}
"""
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [d2, {0, 0}], [buffer];"
ROWS = 4


def moved(
    dtype: str,
    counted: int,
    *,
    expected: int | None = None,
    swizzle: str = "none",
    target: str = "sm_100a",
    to: str = "shared::cta",
    store: str = STORE,
) -> tuple[Array, Array, Array]:
    """Return rows of global memory, what a load makes of them in shared memory, what a store makes of that."""
    gpu = open_device("emulator", arch=target)
    row = counted // ROWS
    given = np.frombuffer(random.Random(3).randbytes(counted), np.uint8).reshape(ROWS, row)
    source, back = gpu.upload(given), gpu.zeros((ROWS, row), "u8")
    out = gpu.zeros(512, "u32")
    box = (ROWS, 128 if dtype != "u8" else row)
    maps = [gpu.tensor_map(at, box, dtype=dtype, swizzle=swizzle) for at in (source, back)]
    text = TEXT.replace("TARGET", target).replace("BYTES", str(expected or counted))
    text = text.replace("STORE", store).replace("shared::cta.global", f"{to}.global")
    gpu.load(text).kernel("k").launch(grid=1, block=512, args=[out, *maps])
    return given, out.numpy().view(np.uint8), back.numpy()


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_four_bits_come_and_go_as_they_are(target: str) -> None:
    given, shared, back = moved("b4x16", ROWS * 64, target=target)
    assert np.array_equal(shared[: ROWS * 64].reshape(ROWS, 64), given)
    assert np.array_equal(back, given)


@pytest.mark.parametrize(("dtype", "row"), [("b4x16_p64", 64), ("b6x16_p32", 96)])
def test_an_mbarrier_hears_of_bytes_without_padding(dtype: str, row: int) -> None:
    """As CUTLASS and DeepGEMM wait for them; one byte more is never there."""
    given, shared, _ = moved(dtype, ROWS * row, store="")
    units = shared[: ROWS * 128].reshape(ROWS, 8, 16)
    assert np.array_equal(units[..., : row // 8].reshape(ROWS, row), given)
    with pytest.raises(LaunchError, match="wait for a phase of an mbarrier"):
        moved(dtype, ROWS * row, expected=ROWS * 128, store="")


def test_six_bits_are_packed_again() -> None:
    """What was loaded is made bytes of six bits by hand: stores take those."""
    gpu = open_device("emulator", arch="sm_100a")
    numbers = np.random.default_rng(4).integers(0, 256, (ROWS, 128), np.uint8)
    source, back, out = gpu.upload(numbers), gpu.zeros((ROWS, 96), "u8"), gpu.zeros(512, "u32")
    maps = [
        gpu.tensor_map(source, (ROWS, 128)),
        gpu.tensor_map(back, (ROWS, 128), dtype="b6x16_p32"),
    ]
    text = TEXT.replace("TARGET", "sm_100a").replace("BYTES", "512").replace("STORE", STORE)
    gpu.load(text).kernel("k").launch(grid=1, block=512, args=[out, *maps])
    bits = np.unpackbits(numbers[..., np.newaxis], axis=-1, bitorder="little")[..., :6]
    packed = np.packbits(bits.reshape(ROWS, -1), axis=-1, bitorder="little")
    assert np.array_equal(back.numpy(), packed)


@pytest.mark.parametrize("swizzle", ["128B.atom32B", "128B.atom64B"])
def test_larger_units_come_and_go(swizzle: str) -> None:
    given, shared, back = moved("u8", ROWS * 128, swizzle=swizzle)
    apart = {"128B.atom32B": 2, "128B.atom64B": 4}[swizzle]
    lines = shared[: ROWS * 128].reshape(ROWS, 8, 16)
    for line in range(ROWS):
        mask = apart * (line % (8 // apart))
        for unit in range(8):
            assert np.array_equal(lines[line, unit ^ mask], given[line, 16 * unit :][:16])
    assert np.array_equal(back, given)


def test_a_flip_is_for_loads_alone() -> None:
    given, shared, _ = moved("u8", ROWS * 128, swizzle="128B.atom32B.flip8B", store="")
    lines = shared[: ROWS * 128].reshape(ROWS, 8, 2, 8)
    for line in range(ROWS):
        cells = given[line].reshape(8, 2, 8)[np.arange(8) ^ 2 * line]
        assert np.array_equal(lines[line], cells[:, ::-1] if line % 2 else cells)
    with pytest.raises(LaunchError, match=r"swizzle 128B.atom32B.flip8B has no stores"):
        moved("u8", ROWS * 128, swizzle="128B.atom32B.flip8B")


# ---- what products make of it ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "map_type", "bits"), [("e2m1", "b4x16_p64", 4), ("e3m2", "b6x16_p32", 6)]
)
@pytest.mark.parametrize("step", [0, 3])
def test_a_product_reads_what_a_map_with_padding_brings(
    dtype: str, map_type: str, bits: int, step: int
) -> None:
    """A of 128 x 128 numbers packed in global memory: four products of k 32, 32 bytes apart in each row."""
    problem = Problem("f8f6f4", 128, 16, dtype, "e4m3")
    whole = whole_numbers(problem.rng, dtype, (128, 128))
    problem.a = whole[:, 32 * step :][:, :32]
    raw = coded(whole, dtype)[..., np.newaxis]
    binary = np.unpackbits(raw, axis=-1, bitorder="little")[..., :bits]
    packed = np.packbits(binary.reshape(128, -1), axis=-1, bitorder="little")
    base = 1 << 40
    box = Box(TensorMap(map_type, base, (128, 128), (16 * bits,), (128, 128), (1, 1), "128B"))
    moved = box.rows((0, 0)).gather(packed.reshape(-1), base)
    memory = np.full((1, 40960), 0x7F, np.uint8)
    memory[0, :32768] = problem.shared()
    memory[0, 20480:36864].view(np.complex128)[box.units(START + 20480) - (START + 20480) // 16] = (
        moved
    )
    words = problem.words()
    words[0] = (START + 20480 + 32 * step) >> 4 | 1024 >> 4 << 32 | 1 << 46 | 2 << 61
    expected = problem.cells()
    before = expected.copy()
    problem.put(expected, problem.a @ problem.b.T + problem.c)
    np.testing.assert_array_equal(after(issued(problem), before, memory, words), expected)


@pytest.mark.parametrize("number", [12, 13, 15])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_only_blackwell_makes_maps_of_packed_types(target: str, number: int) -> None:
    """Of the numbers that elemtype can be ptxas takes those up to 12 for sm_90a, and all for the others."""
    store = f"tensormap.replace.tile.elemtype.global.b1024.b32 [d0], {number};"
    text = TEXT.replace("TARGET", target).replace("BYTES", "0").replace("STORE", store)
    gpu = open_device("emulator", arch=target)
    takers: list[Callable[[], object]] = [
        lambda: gpu.load(text).kernel("k"),
        lambda: link_ptx(text, arch=target),
    ]
    for take in takers:
        if target == "sm_90a" and number > 12:
            with pytest.raises((Unsupported, ToolchainError), match="elemtype"):
                take()
        else:
            take()


REDUCE = (
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [d2, {0, 0}], [buffer];"
)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: moved("b4x16_p64", ROWS * 64), "b4x16_p64 has no stores"),
        (lambda: moved("b6x16_p32", ROWS * 96, swizzle="128B.atom64B"), "has no loads"),
        (
            lambda: moved("b4x16", ROWS * 64, target="sm_120a", to="shared::cluster"),
            "b4x16 has no loads to shared::cluster on sm_120a, but to shared::cta",
        ),
        (lambda: moved("b4x16", ROWS * 64, target="sm_90a"), "b4x16 .* is for sm_100 and newer"),
        (lambda: moved("b4x16", ROWS * 64, store=REDUCE), "of a tensor of b4x16 does not exist"),
    ],
)
def test_what_packed_copies_cannot(run: Callable[[], object], message: str) -> None:
    """PTX ISA, "Restriction on Tensor Copy instructions"."""
    with pytest.raises(PtxlabError, match=message) as caught:
        run()
    assert isinstance(caught.value, LaunchError | Unsupported) or "sm_90a" in str(caught.value)
