"""The instruction table, finding in it, and ldmatrix."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.matrix.catalog import MULTIPLICATIONS, UnknownInstruction, find, forms, multiplication
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix
from tests.together import in_one_test


def test_the_first_forms_of_m16n8k16() -> None:
    assert [i.name for i in MULTIPLICATIONS if i.shape == "m16n8k16"][:3] == [
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ]


def test_every_name_says_what_the_record_says() -> None:
    assert len({instruction.name for instruction in MULTIPLICATIONS}) == len(MULTIPLICATIONS)
    for i in MULTIPLICATIONS:
        assert f".{i.shape}." in i.name
        types = f"{i.d_type}.{i.a_type}.{i.b_type}.{i.c_type}"
        short = f"{i.shape}.{i.d_type}.{i.c_type}"
        assert types in i.name or (i.family == "wmma" and i.a_type == "f16" and short in i.name)
        assert i.name.startswith(i.family.removesuffix(".block_scale"))
        assert bool(i.scales) == (".block_scale" in i.name) == i.family.endswith("block_scale")
        assert (i.metadata is not None) == (".sp" in i.name)
        assert i.satfinite == ("satfinite" in i.name)


@in_one_test(
    ("arguments", "name"),
    [
        (("m16n8k32", "e4m3"), "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        (("m16n8k32", "e4m3", "f16"), "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16"),
        (("m16n8k32", "e4m3.e5m2"), "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"),
        (("m16n8k32", "s8"), "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        (("m16n8k32", "u4.s4"), "mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32"),
        (("m16n8k8",), "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"),
        (("m16n8k4", "f64"), "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64"),
        (("m8n8k4", "f16", "f32"), "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"),
        (("m16n8k256",), "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"),
        (("m16n16k16", "bf16"), "wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32"),
        (("m16n8k128", "s4"), "mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32"),
    ],
)
def test_multiplication(arguments: tuple[str, ...], name: str) -> None:
    assert multiplication(*arguments).name == name


def test_find_takes_every_form_and_a_multiplication_first() -> None:
    assert all(find(form.key) is form for form in forms()[::29])
    assert find("m16n8k16", "f16", "f32") is multiplication("m16n8k16", "f16", "f32")
    assert find("ldmatrix.x4.trans").operand("R").registers_per_lane == 4
    for dtype, acc in (("bf16", None), (None, "f32")):
        with pytest.raises(UnknownInstruction, match="no instruction is ldmatrix"):
            find("ldmatrix.x4.trans", dtype, acc)


def test_defaults_of_multiplication() -> None:
    assert multiplication("m16n8k16", "f16").d_type == "f16"
    assert multiplication("m16n8k16", "bf16").d_type == "f32"
    assert multiplication("m16n8k16", acc="f16").a_type == "f16"
    assert multiplication("m16n8k16", "f16", "f32").name.endswith(".f32.f16.f16.f32")


def test_every_instruction_is_found_by_its_full_name() -> None:
    for instruction in MULTIPLICATIONS:
        assert multiplication(instruction.name) is instruction
        both = f"{instruction.a_type}.{instruction.b_type}"
        assert multiplication(instruction.name, both, instruction.d_type) is instruction


@pytest.mark.parametrize(
    ("op", "dtype", "acc", "near"),
    [
        ("m16n8k16", "bf16", "f16", "bf16.bf16.f32"),
        ("m16n8k17", None, None, "m16n8k16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f16", None, None, "m16n8k16"),
        ("tensor", None, None, "m16n8k16"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    op: str, dtype: str | None, acc: str | None, near: str
) -> None:
    with pytest.raises(UnknownInstruction, match=op) as caught:
        multiplication(op, dtype, acc)
    assert any(near in suggestion for suggestion in caught.value.suggestions)
    assert len(caught.value.suggestions) <= 4


def test_operands_and_requirements() -> None:
    instruction = multiplication("m16n8k16", "f16", "f32")
    shapes = {layout.operand: (layout.rows, layout.cols) for layout in instruction.operands}
    assert shapes == {"A": (16, 16), "B": (16, 8), "C": (16, 8), "D": (16, 8)}
    assert [layout.registers_per_lane for layout in instruction.operands] == [4, 2, 4, 4]
    assert [layout.registers_per_lane for layout in multiplication("m16n8k16", "f16").operands] == [
        4,
        2,
        2,
        2,
    ]
    assert (instruction.minimum_target, instruction.minimum_ptx) == ("sm_80", (7, 0))
    assert "sm_75" not in instruction.targets
    assert {"sm_80", "sm_90a", "sm_120a"} <= set(instruction.targets)
    with pytest.raises(KeyError, match="no operand E"):
        instruction.operand("E")


def test_ldmatrix_names_and_addresses() -> None:
    assert (len(LDMATRIX), len(STMATRIX)) == (21, 9)
    x2 = LdMatrix.of(2, False)
    assert x2.name == "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
    assert LdMatrix.of(4, True).name == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    assert [x2.addressed_row(lane) for lane in range(8, 16)] == [(1, row) for row in range(8)]
    assert x2.addressed_row(9) == (1, 1)
    assert [x2.addressed_row(lane) for lane in range(16, 32)] == 16 * [None]


@pytest.mark.parametrize("ldmatrix", LDMATRIX[:6], ids=lambda ldmatrix: ldmatrix.name)
def test_a_lane_receives_two_neighbours(ldmatrix: LdMatrix) -> None:
    """PTX ISA: thread 4*i+j of the warp receives elements 2j and 2j+1 of row i, or of column i."""
    shared = np.arange(64).reshape(8, 8)
    seen = shared.T if ldmatrix.trans else shared
    fragment = ldmatrix.fragment
    for lane in range(32):
        held = [shared[fragment.element(lane, 0, i)] for i in (0, 1)]
        assert held == list(seen[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2])


def test_ldmatrix_of_bytes() -> None:
    """PTX ISA, ldmatrix: a thread holds 4 columns of a row; of 16x16, transposed, of two rows."""
    plain = LdMatrix.of(4, False, "m8n16", "b8x16.b4x16_p64")
    tall = LdMatrix.of(2, True, "m16n16", "b8")
    assert (plain.registers, plain.packed_bits, plain.rows, plain.cols) == (4, 4, 8, 16)
    assert (tall.registers, tall.packed_bits, tall.rows, tall.cols) == (4, 8, 16, 16)
    assert tall.addressed_row(31) == (1, 15)
    assert tall.addressed_row(17) == (1, 1)
    for lane in range(32):
        group, thread = lane // 4, lane % 4
        for i in range(4):
            assert plain.fragment.element(lane, 0, i) == (group, 4 * thread + i)
            for register in (0, 1):
                expected = (4 * thread + i, group + 8 * register)
                assert tall.fragment.element(lane, register, i) == expected


def test_stmatrix_of_bytes_stores_an_accumulator_by_columns() -> None:
    store = STMATRIX[-1]
    assert store.name == "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8"
    for lane in range(32):
        for i in range(4):
            row, col = store.fragment.element(lane, 0, i)
            assert (row, col) == (2 * (lane % 4) + (i & 1), lane // 4 + 8 * (i >> 1))


def test_movmatrix_is_a_transpose() -> None:
    for lane in range(32):
        for i in (0, 1):
            row, col = MOVMATRIX.source.element(lane, 0, i)
            assert MOVMATRIX.destination.element(lane, 0, i) == (col, row)


def test_ldmatrix_x4_of_a_row_major_tile_is_the_mma_fragment_of_a() -> None:
    """Matrices 0 to 3 as the quarters (top, bottom, right top, right bottom) give A's registers."""
    a = multiplication("m16n8k16", "f16").operand("A")
    fragment = LdMatrix.of(4, False).fragment
    for lane in range(32):
        for matrix, corner in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
            for i in (0, 1):
                row, col = fragment.element(lane, 0, i)
                assert a.element(lane, matrix, i) == (corner[0] + row, corner[1] + col)
