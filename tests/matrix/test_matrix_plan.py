"""Plans of ldmatrix and stmatrix against the fragments of mma, and against programs that run."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.layouts.layout import Layout, Swizzle
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.matrix_plan import FORMS, plan

PROGRAM = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry load(.param .u64 tile, .param .u64 addresses, .param .u64 out)
{{
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    .reg .pred %p;
    .shared .align 128 .b8 memory[8192];
    ld.param.u64 %rd0, [tile];
    ld.param.u64 %rd1, [addresses];
    ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, memory;
    shl.b32 %r2, %r0, 2;
copy:
    cvt.u64.u32 %rd3, %r2;
    add.u64 %rd4, %rd0, %rd3;
    ld.global.b32 %r3, [%rd4];
    add.u32 %r4, %r1, %r2;
    st.shared.b32 [%r4], %r3;
    add.u32 %r2, %r2, 128;
    setp.lt.u32 %p, %r2, 8192;
    @%p bra copy;
    bar.sync 0;
    mul.wide.u32 %rd5, %r0, 4;
    add.u64 %rd6, %rd1, %rd5;
    ld.global.b32 %r5, [%rd6];
    add.u32 %r5, %r5, %r1;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r6, %r7, %r8, %r9}}, [%r5];
    mul.wide.u32 %rd5, %r0, 16;
    add.u64 %rd7, %rd2, %rd5;
    st.global.v4.b32 [%rd7], {{%r6, %r7, %r8, %r9}};
    ret;
}}
"""
SWIZZLED = Swizzle(3, 3, 3).compose(Layout.row_major((64, 64)))


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_a_plan_says_what_ldmatrix_does(device: Device, trans: str, across: bool) -> None:
    planned = plan(FORMS[f"ldmatrix.x4{trans}"], SWIZZLED, 16, (16, 40), across)
    memory = np.empty(4096, np.uint16)
    rows, cols = np.indices((64, 64))
    memory[SWIZZLED(rows, cols)] = 64 * rows + cols
    addresses = np.array([named.address for named in planned.addresses], np.uint32)
    out = device.zeros((32, 4), "u32")
    kernel = device.load(PROGRAM.format(trans=trans)).kernel("load")
    kernel.launch(1, 32, [device.upload(memory), device.upload(addresses), out])
    expected = [
        [sum((64 * row + col) << 16 * i for i, (row, col) in enumerate(word)) for word in lane]
        for lane in planned.held
    ]
    assert out.numpy().tolist() == expected


def test_the_operands_of_an_mma() -> None:
    mma = multiplication("m16n8k16", dtype="bf16")
    square = plan(FORMS["ldmatrix.x4"], Layout.row_major((64, 64)), 16, (16, 32))
    a = mma.operand("A").table() + np.array((16, 32))
    assert np.array_equal(np.array(square.held), a)
    # B stored k x n takes .trans, B stored n x k does not; both give the fragment of B.
    b = mma.operand("B").table()
    stored_kn = plan(FORMS["ldmatrix.x2.trans"], Layout.row_major((16, 8)), 16)
    assert np.array_equal(np.array(stored_kn.held), b)
    stored_nk = plan(FORMS["ldmatrix.x2"], Layout.col_major((16, 8)), 16, (0, 0), True)
    assert np.array_equal(np.array(stored_nk.held), b)


def test_addresses_banks_and_conflicts() -> None:
    plain = plan(FORMS["stmatrix.x2"], Layout.row_major((64, 64)), 16, (8, 16))
    assert [named.lane for named in plain.addresses] == list(range(16))
    assert [named.address for named in plain.addresses] == [128 * (8 + i) + 32 for i in range(16)]
    assert {named.bank for named in plain.addresses} == {8}
    assert plain.wavefronts == (8, 8)
    swizzled = plan(FORMS["stmatrix.x2"], SWIZZLED, 16, (8, 16))
    assert sorted(named.bank for named in swizzled.addresses[:8]) == list(range(0, 32, 4))
    assert swizzled.wavefronts == (1, 1)


def test_other_widths() -> None:
    # Bytes travel in pairs; a tf32 element fills both halves of its register.
    pairs = plan(FORMS["ldmatrix.x1"], Layout.row_major((8, 16)), 8)
    assert pairs.held[6] == (((1, 8), (1, 9), (1, 10), (1, 11)),)
    words = plan(FORMS["ldmatrix.x2"], Layout.row_major((8, 8)), 32, (0, 0), True)
    assert words.held[6] == (((1, 2),), ((1, 6),))
    tall = plan(FORMS["ldmatrix.m16n16.x1.trans"], Layout.row_major((16, 16)), 8)
    assert len(tall.addresses) == 16
    assert len(tall.held[0]) == 2
    assert len(tall.wavefronts) == 2


@pytest.mark.parametrize(
    ("form", "shape", "bits", "corner", "words"),
    [
        ("ldmatrix.x4", (16, 16), 16, (8, 0), "over the edge"),
        ("ldmatrix.x4", (16, 16), 16, (0, 8), "over the edge"),
        ("ldmatrix.x1", (16, 16), 16, (-8, 0), "over the edge"),
        ("ldmatrix.x1", (16, 16), 16, (0, 4), "multiples of 8"),
        ("ldmatrix.x1.trans", (16, 16), 32, (0, 0), "tear"),
    ],
)
def test_plans_that_cannot_be(
    form: str, shape: tuple[int, int], bits: int, corner: tuple[int, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan(FORMS[form], Layout.row_major(shape), bits, corner)
