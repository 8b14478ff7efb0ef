"""Assertions for tests of one's own: each holds where it should, and names what is wrong elsewhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Device, Dump, Dumped
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.testing import assert_bits_equal, assert_clean, assert_fragment, assert_kernel

BF16 = np.dtype(ml_dtypes.bfloat16)


def launched(device: Device, asked: Dump) -> tuple[dict[str, np.ndarray], Dumped]:
    """Run one mma on random numbers; return the matrices and what the dump found."""
    random = np.random.default_rng(3)
    a = random.standard_normal((16, 16), np.float32).astype(BF16)
    b = random.standard_normal((16, 8), np.float32).astype(BF16)
    c = random.standard_normal((16, 8), np.float32)
    buffers = [device.upload(matrix) for matrix in (a, b, c)]
    kernel = device.load("ptx/mma_m16n8k16_bf16_f32.ptx").kernel()
    dumped = kernel.launch(1, 32, [*buffers, 16], dump=asked).dump
    assert dumped is not None
    return {"A": a, "B": b, "C": c, "D": buffers[2].numpy()}, dumped


@pytest.mark.parametrize("operand", "ABCD")
def test_a_dump_is_the_fragment(device: Device, operand: str) -> None:
    matrices, dumped = launched(device, Dump("mma", (operand,), before=operand != "D"))
    assert_fragment(dumped, matrices[operand], "m16n8k16", dtype="bf16", operand=operand)
    assert_fragment(dumped.words, matrices[operand], "m16n8k16", dtype="bf16", operand=operand)


def test_a_wrong_fragment_is_named(device: Device) -> None:
    matrices, dumped = launched(device, Dump("mma", ("A",), before=True))
    swapped = matrices["A"][[1, 0, *range(2, 16)]]
    with pytest.raises(AssertionError, match="operand A of mma") as caught:
        assert_fragment(dumped, swapped, "m16n8k16", dtype="bf16", operand="A")
    text = str(caught.value)
    # PTX ISA, m16n8k16: a0 and a1 of lane 0 are A[0, 0] and A[0, 1].
    assert "(0, 0), held by lane 0 in register 0, element 0" in text
    assert "and 27 more" in text
    assert "lane 0: a0, element 0, holds A[1,0] and should hold A[0,0]" in text


def test_what_is_no_such_fragment(device: Device) -> None:
    matrices, dumped = launched(device, Dump("mma", ("A",), before=True))
    with pytest.raises(PtxlabError, match=r"16 x 8 of 32 bits, the matrix is bfloat16\[16, 16\]"):
        assert_fragment(dumped, matrices["A"], "m16n8k16", dtype="bf16", operand="C")
    with pytest.raises(PtxlabError, match=r"operand B is in 2 registers of 32 threads"):
        assert_fragment(dumped, matrices["B"], "m16n8k16", dtype="bf16", operand="B")
    with pytest.raises(PtxlabError, match="asked for no dump"):
        assert_fragment(None, matrices["B"], "m16n8k16", dtype="bf16", operand="B")
    _, never = launched(device, Dump("mma", ("A",), nth=2))
    with pytest.raises(AssertionError, match="not all threads of warp 0 were at mma"):
        assert_fragment(never, matrices["A"], "m16n8k16", dtype="bf16", operand="A")


def test_bits(device: Device) -> None:
    odd = np.array([[0.0, -0.0], [np.nan, 1.0]], np.float32)
    assert_bits_equal(device.upload(odd), odd)
    assert_bits_equal(odd, odd.copy())
    with pytest.raises(AssertionError, match=r"1 of 4 .*\n  \[0, 1\]  actual -0.0 \(0x80000000\)"):
        assert_bits_equal(odd, np.abs(odd) * np.array([[1, 1], [1, 1]], np.float32))
    with pytest.raises(AssertionError, match=r"float32\[2, 2\], expected float64\[2, 2\]"):
        assert_bits_equal(odd, odd.astype(np.float64))
    many = np.arange(10, dtype=np.uint8)
    with pytest.raises(AssertionError, match="and 5 more"):
        assert_bits_equal(many, many + np.uint8(1))


NEIGHBOUR = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry neighbour(.param .u64 out)
{
    .reg .b32 i, j, x;
    .reg .b64 o;
    .shared .b32 tile[64];
    ld.param.u64 o, [out];
    mov.u32 i, %tid.x;
    mad.wide.u32 o, i, 4, o;
    mov.u32 j, tile;
    mad.lo.u32 j, i, 4, j;
    st.shared.u32 [j], i;
    bar.sync 0;
    xor.b32 j, j, 128;
    ld.shared.u32 x, [j];
    st.global.u32 [o], x;
    ret;
}
"""


def test_clean_and_its_faulty_twin() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    out = device.zeros(64, "u32")
    assert_clean(device.load(NEIGHBOUR).kernel(), 1, 64, [out])
    assert_bits_equal(out, (np.arange(64) ^ 32).astype(np.uint32))
    twin = device.load(NEIGHBOUR.replace("bar.sync 0;", "")).kernel()
    with pytest.raises(AssertionError, match="race"):
        assert_clean(twin, 1, 64, [out])


TWICE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y)
{
    .reg .b64 p, q, i; .reg .f32 v; .reg .b32 t;
    ld.param.u64 p, [x]; ld.param.u64 q, [y];
    mov.u32 t, %tid.x; mul.wide.u32 i, t, 4; add.u64 p, p, i; add.u64 q, q, i;
    ld.global.f32 v, [p];
    add.f32 v, v, v;
    st.global.f32 [q], v;
    ret;
}
"""


def test_a_kernel_is_judged() -> None:
    launch = {"arguments": {"x": np.arange(32, dtype="f4"), "y": np.zeros(32, "f4")}, "block": 32}
    judgement = assert_kernel(TWICE, lambda x: {"y": 2 * x}, arch="sm_80", **launch)
    assert judgement.passed
    assert judgement.speeds == ()
    with pytest.raises(
        AssertionError, match=r"31 of 32 elements of y are wrong(.|\n)*written by thread"
    ):
        assert_kernel(TWICE, lambda x: {"y": 3 * x}, arch="sm_80", **launch)
