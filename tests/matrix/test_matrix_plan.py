"""Plans of ldmatrix and stmatrix against the fragments of mma, and against programs that run."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.layouts.layout import Layout, Swizzle
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.ldmatrix import LDMATRIX
from ptxlab.matrix.matrix_plan import FORMS, moved, plan

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


def test_registers_of_a_row_move_are_operands_of_mma() -> None:
    """Memory is written by the ISA's picture of ldmatrix: lane l has two elements of row l / 4, from 2 * (l % 4) on."""
    generator = np.random.default_rng(7)
    lane, half = np.meshgrid(np.arange(32), np.arange(2), indexing="ij")
    seen = set()
    for name, form in FORMS.items():
        if form.bits != 16:
            continue
        for shape, operand, times, corners, turned in moved(form):
            seen.add((name, shape, operand.operand, operand.dtype, times))
            matrix = generator.integers(0, 2**operand.bits, (operand.rows, operand.cols), np.uint32)
            lying = matrix.T if turned else matrix  # its rows are rows of memory
            bits = lying[..., None] >> np.arange(operand.bits) & 1
            memory = bits.reshape(len(lying), -1, 16) @ (1 << np.arange(16))
            registers = operand.pack(matrix)
            assert len(corners) == form.matrices // times == registers.shape[1]
            for register, (first, byte) in enumerate(corners):
                row, col = lane // 4, 2 * (lane % 4) + half
                row, col = (col, row) if form.trans else (row, col)
                halves = memory[first + row, byte // 2 + col]
                assert (halves[:, 0] + (halves[:, 1] << 16) == registers[:, register]).all()
    assert {
        ("ldmatrix.x4", "m16n8k16", "A", "bf16", 1),
        ("ldmatrix.x4", "m16n8k16", "B", "f16", 2),
        ("ldmatrix.x4", "m16n8k8", "A", "tf32", 1),
        ("ldmatrix.x2", "m16n8k32", "B", "s8", 1),
        ("ldmatrix.x2.trans", "m16n8k16", "B", "bf16", 1),
        ("stmatrix.x2", "m16n8k16", "D", "f16", 1),
    } <= seen
    torn = [each for each in seen if "trans" in each[0] and each[3] not in ("f16", "bf16")]
    assert not torn  # .trans takes elements of other widths apart


def test_corners_of_rows_that_are_packed() -> None:
    """Rows of ``.s8.s4`` are 8 bytes; numbers of 4 bits lie elsewhere in a byte of an mma than ldmatrix puts them."""
    forms = {form.name.removeprefix("ldmatrix.sync.aligned."): form for form in LDMATRIX}
    signed = list(moved(forms["m8n16.x4.shared.s8.s4"]))
    assert {m.operand.dtype for m in signed} == {"s8"}
    assert next(m.corners for m in signed if m.operand.operand == "A") == (
        (0, 0), (8, 0), (0, 8), (8, 8),
    )  # fmt: skip
    assert not list(moved(forms["m8n16.x4.shared.b8x16.b4x16_p64"]))
    six = moved(forms["m8n16.x4.shared.b8x16.b6x16_p32"])
    assert {m.operand.dtype for m in six} == {"e3m2", "e2m3"}
