"""The warpgroup instructions: fragments of the PTX ISA's figures, CuTe's accumulator, products in full."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tensor_layouts import atoms_nv

from ptxlab.matrix.canonical import MODES, SharedTile
from ptxlab.matrix.catalog import MULTIPLICATIONS, UnknownInstruction, matching, multiplication
from ptxlab.matrix.fragment import Place
from ptxlab.matrix.multiplication import EVERY_N, INTEGER_N, MatrixInstruction
from ptxlab.matrix.trace import SharedPlace, shared_place, trace
from ptxlab.matrix.wgmma import WGMMA
from tests.together import in_one_test


def form(name: str) -> MatrixInstruction:
    instruction = matching(name)[0]
    assert isinstance(instruction, MatrixInstruction)
    return instruction


@in_one_test("n", EVERY_N)
def test_d_is_that_of_the_isa(n: int) -> None:
    """Row 16 warp + g, 8 further down for every other pair of elements; pairs of columns, 8 apart."""
    single, half = (
        form(f"wgmma.m64n{n}k16.{acc}.f16.f16.ss").operand("D") for acc in ("f32", "f16")
    )
    assert (single.registers_per_lane, half.registers_per_lane) == (n // 2, n // 4)
    thread, i = np.arange(128)[:, np.newaxis], np.arange(n // 2)
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i >> 1 & 1)
    col = 8 * (i >> 2) + 2 * (thread % 4) + (i & 1)
    for layout in (single, half):
        assert np.array_equal(layout.table().reshape(128, n // 2, 2), np.stack((row, col), -1))


@pytest.mark.parametrize("n", [8, 24, 256])
def test_d_is_that_of_cute(n: int) -> None:
    layout, d = atoms_nv.gmma_c_layout(n), form(f"wgmma.m64n{n}k16.f32.bf16.ss").operand("D")
    for thread, i in product(range(0, 128, 3), range(n // 2)):
        row, col = d.element(thread, i)
        assert layout(thread, i) == row + 64 * col


def by_k8(quad: int, i: int) -> tuple[int, int]:
    return i % 2, quad + 4 * (i // 2)


def by_k16(quad: int, i: int) -> tuple[int, int]:
    return i // 2 % 2, 2 * quad + i % 2 + 8 * (i // 4)


def by_k32(quad: int, i: int) -> tuple[int, int]:
    return i // 4 % 2, 4 * quad + i % 4 + 16 * (i // 8)


def by_k256(quad: int, i: int) -> tuple[int, int]:
    return i // 32 % 2, 32 * quad + i % 32 + 128 * (i // 64)


@pytest.mark.parametrize(
    ("name", "elements", "formula"),
    [
        ("wgmma.m64n8k8.f32.tf32.tf32.rs", 4, by_k8),
        ("wgmma.m64n8k16.f32.bf16.bf16.rs", 8, by_k16),
        ("wgmma.m64n8k32.f32.e4m3.e5m2.rs", 16, by_k32),
        ("wgmma.m64n8k256.b1.b1.rs", 128, by_k256),
        ("wgmma.sp.m64n8k16.f32.tf32.tf32.rs", 4, by_k8),
        ("wgmma.sp.m64n8k32.f32.f16.f16.rs", 8, by_k16),
        ("wgmma.sp.m64n8k64.s32.u8.s8.rs", 16, by_k32),
    ],
)
def test_a_in_registers_is_that_of_the_isa(name: str, elements: int, formula: Any) -> None:
    a = form(name).operand("A")
    table = a.table().reshape(128, elements, 2)
    for thread, i in product(range(128), range(elements)):
        below, col = formula(thread % 4, i)
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * below
        assert tuple(table[thread, i]) == (row, col)


@pytest.mark.parametrize(
    ("name", "chunk", "both_rows", "per_lane"),
    [
        ("wgmma.sp.m64n8k16.tf32.ss", 2, True, 8),
        ("wgmma.sp.m64n8k32.f32.bf16.ss", 4, True, 16),
        ("wgmma.sp.m64n8k64.f16.e4m3.e4m3.ss", 4, False, 32),
    ],
)
def test_metadata_is_where_cute_has_it(
    name: str, chunk: int, both_rows: bool, per_lane: int
) -> None:
    """CuTe's E of a warpgroup: of 8-bit types odd lanes have the rows 8 below, and pairs half of k."""
    metadata = form(name).metadata
    assert metadata is not None
    expected = {}
    for thread, bit in product(range(128), range(0, 32, 4)):
        warp, group, quad = thread // 32, thread % 32 // 4, thread % 4
        k = bit * per_lane // (16 if both_rows else 32)
        if both_rows and quad < 2:
            element = (16 * warp + group + 8 * (k // per_lane), per_lane * quad + k % per_lane)
        elif not both_rows:
            element = (16 * warp + group + 8 * (quad % 2), 32 * (quad // 2) + k)
        else:
            continue
        expected[element[0], element[1] // chunk] = (thread, bit)
    assert len(expected) == 64 * metadata.chunks
    assert expected == {key: metadata.place(*key) for key in expected}


def test_both_variants_of_all_shapes() -> None:
    """PTX ISA, "Shape": n in steps of 8; of integers in steps of 16 from 32 on."""
    assert INTEGER_N == (
        8,
        16,
        24,
        32,
        48,
        64,
        80,
        96,
        112,
        128,
        144,
        160,
        176,
        192,
        208,
        224,
        240,
        256,
    )
    assert len({instruction.key for instruction in WGMMA}) == len(WGMMA) == 1092 + 1056
    for instruction in WGMMA:
        assert instruction.threads == 128
        assert [o.operand for o in instruction.operands] == ["A", "D"][
            instruction.variant == "ss" :
        ]
        assert [o.operand for o in instruction.shared] == ["A", "B"][instruction.variant == "rs" :]
        b = instruction.shared[-1]
        assert (b.rows, b.cols, b.rows * b.bits) == (
            instruction.k,
            instruction.n,
            256 << bool(instruction.metadata),
        )
        assert b.majors == (("k", "mn") if b.bits == 16 else ("k",))
        assert instruction.flops == 2 * 64 * instruction.n * instruction.k


def test_they_are_found_by_their_words() -> None:
    assert multiplication("wgmma.m64n256k16", "bf16").key.endswith(".m64n256k16.f32.bf16.bf16.rs")
    assert multiplication("wgmma.m64n256k16.ss", "bf16").variant == "ss"
    assert multiplication("wgmma.m64n8k32", "s8").satfinite is False
    assert not {instruction.family for instruction in MULTIPLICATIONS} & {"wgmma", "wgmma.sp"}
    with pytest.raises(UnknownInstruction, match="m64n40k32"):
        multiplication("wgmma.m64n40k32", "s8")


def test_a_place_in_shared_memory_is_a_unit_of_a_line() -> None:
    a, b = multiplication("wgmma.m64n32k16.ss", "bf16").shared
    assert shared_place(b, 13, 21) == SharedPlace(21, 1, 16 * 5)
    assert SharedPlace(21, 1, 80).formula == "start + 2 SBO + LBO + 90"
    assert shared_place(a, 21, 13) == shared_place(b, 13, 21)
    assert SharedPlace(0, 0, 0).formula == "start"
    assert SharedPlace(8, 2, 3).formula == "start + SBO + 2 LBO bit 3"
    with pytest.raises(IndexError, match="B has no element 16,0: it is 16 x 32"):
        shared_place(b, 16, 0)


@pytest.mark.parametrize(
    "name", ["wgmma.m64n24k16.bf16.rs", "wgmma.m64n16k8.tf32.ss", "wgmma.m64n8k32.s8.rs"]
)
def test_a_trace_is_a_row_of_the_product(name: str) -> None:
    """With A in registers or both in shared memory, where the descriptor's offsets place them."""
    instruction = form(name)
    rng = np.random.default_rng(7)
    a, b = (
        rng.integers(-9, 9, (64, instruction.k)),
        rng.integers(-9, 9, (instruction.k, instruction.n)),
    )
    registers = (
        a[tuple(np.moveaxis(instruction.operand("A").table(), -1, 0))]
        if instruction.variant == "rs"
        else None
    )
    tiles = {}
    for matrix, shared in zip(
        (a, b.T)[-len(instruction.shared) :], instruction.shared, strict=True
    ):
        tile = SharedTile(len(matrix), instruction.k, shared.bits, "k", MODES["none"])
        memory = np.zeros(matrix.size, int)
        for line, k in np.ndindex(*matrix.shape):
            memory[tile.layout(line, k)] = matrix[line, k]
        tiles[shared.operand] = (tile, memory)

    def value(operand: str, place: Place | SharedPlace) -> int:
        if isinstance(place, Place):
            assert registers is not None
            return int(registers[place])
        tile, memory = tiles[operand]
        lines, line = divmod(place.line, 8)
        byte = lines * tile.stride + place.unit * tile.leading + 16 * line + place.bit // 8
        return int(memory[8 * byte // tile.bits])

    for row, col in rng.integers(0, (64, instruction.n), (40, 2)).tolist():
        (element,) = trace(instruction, row, col)
        assert element.c == element.d
        total = sum(value("A", t.a[0]) * value("B", t.b[0][0]) for t in element.terms)
        assert total == (a @ b)[row, col]
