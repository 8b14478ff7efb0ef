"""The instruction table, finding in it, and ldmatrix."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.isa import INSTRUCTIONS, LDMATRIX, LdMatrix, UnknownInstruction, find


def test_the_table_holds_these_names() -> None:
    assert [instruction.name for instruction in INSTRUCTIONS] == [
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ]


def test_defaults_of_find() -> None:
    assert find("m16n8k16", "f16").d_type == "f16"
    assert find("m16n8k16", "bf16").d_type == "f32"
    assert find("m16n8k16", acc="f16").a_type == "f16"
    assert find("m16n8k16", "f16", "f32").name.endswith(".f32.f16.f16.f32")


def test_every_instruction_is_found_by_its_full_name() -> None:
    for instruction in INSTRUCTIONS:
        assert find(instruction.name) is instruction
        assert find(instruction.name, instruction.a_type, instruction.d_type) is instruction


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
        find(op, dtype, acc)
    assert any(near in suggestion for suggestion in caught.value.suggestions)


def test_operands_and_requirements() -> None:
    instruction = find("m16n8k16", "f16", "f32")
    shapes = {layout.operand: (layout.rows, layout.cols) for layout in instruction.operands}
    assert shapes == {"A": (16, 16), "B": (16, 8), "C": (16, 8), "D": (16, 8)}
    assert [layout.registers_per_lane for layout in instruction.operands] == [4, 2, 4, 4]
    assert [layout.registers_per_lane for layout in find("m16n8k16", "f16").operands] == [
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
    assert len(LDMATRIX) == 6
    x2 = LdMatrix(2, False)
    assert x2.name == "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
    assert LdMatrix(4, True).name == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    assert [x2.address_lane(1, row) for row in range(8)] == list(range(8, 16))
    assert x2.addressed_row(9) == (1, 1)
    assert x2.addressed_row(16) is None
    with pytest.raises(IndexError, match="no row 0 of matrix 2"):
        x2.address_lane(2, 0)


@pytest.mark.parametrize("ldmatrix", LDMATRIX, ids=[ldmatrix.name for ldmatrix in LDMATRIX])
def test_a_lane_receives_two_neighbours(ldmatrix: LdMatrix) -> None:
    """PTX ISA: thread 4*i+j of the warp receives elements 2j and 2j+1 of row i, or of column i."""
    shared = np.arange(64).reshape(8, 8)
    seen = shared.T if ldmatrix.trans else shared
    fragment = ldmatrix.fragment
    for lane in range(32):
        held = [shared[fragment.element(lane, 0, i)] for i in (0, 1)]
        assert held == list(seen[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2])


def test_ldmatrix_x4_of_a_row_major_tile_is_the_mma_fragment_of_a() -> None:
    """Matrices 0 to 3 as the quarters (top, bottom, right top, right bottom) give A's registers."""
    a = find("m16n8k16", "f16").operand("A")
    fragment = LdMatrix(4, False).fragment
    for lane in range(32):
        for matrix, corner in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
            for i in (0, 1):
                row, col = fragment.element(lane, 0, i)
                assert a.element(lane, matrix, i) == (corner[0] + row, corner[1] + col)
