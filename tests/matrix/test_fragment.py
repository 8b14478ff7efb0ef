"""Fragment layouts against the case distinctions of the PTX ISA's fragment sections.

The manual states each operand as cases over the element number i, with groupID = lane >> 2 and
threadID_in_group = lane % 4. They are typed here section by section and share nothing with the one
formula of ``ptxlab.matrix.fragment``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.mma import MMA
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.position import Arrangement
from tests.together import in_one_test

Case = Callable[[int, int, int], tuple[int, int]]

MXF4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
SPARSE = "mma.sp.sync.aligned.{}.row.col.{}"


def float_k16_a(group: int, thread: int, i: int) -> tuple[int, int]:
    row = group if i in (0, 1, 4, 5) else group + 8
    return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def float_k16_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


def accumulator_16x8(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def accumulator_8x8(group: int, thread: int, i: int) -> tuple[int, int]:
    return group, thread * 2 + (i & 1)


def float_k8_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def float_k8_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 2 + i, group


def tf32_k8_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i in (0, 2) else group + 8), (thread if i in (0, 1) else thread + 4)


def tf32_k8_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return (thread if i == 0 else thread + 4), group


def byte_k32_a(group: int, thread: int, i: int) -> tuple[int, int]:
    row = group if i in range(4) or i in range(8, 12) else group + 8
    return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def byte_k32_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


def nibble_k64_a(group: int, thread: int, i: int) -> tuple[int, int]:
    row = group if i in range(8) or i in range(16, 24) else group + 8
    return row, thread * 8 + (i & 7) + (32 if i >= 16 else 0)


def nibble_k64_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 8 + (i & 7) + (32 if i >= 8 else 0), group


def bit_k256_a(group: int, thread: int, i: int) -> tuple[int, int]:
    row = group if i in range(32) or i in range(64, 96) else group + 8
    return row, thread * 32 + (i & 31) + (128 if i >= 64 else 0)


def bit_k256_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 32 + (i & 31) + (128 if i >= 32 else 0), group


def double_k16_a(group: int, thread: int, i: int) -> tuple[int, int]:
    if i % 2 == 0:
        return group, i * 2 + thread
    return group + 8, i * 2 - 2 + thread


def double_k16_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread + i * 4, group


def double_k4_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return group, thread


def byte_8x8x16_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 4 + i, group


def byte_k16_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 4 else group + 8), thread * 4 + (i & 3)


def byte_k64_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 4 + (i & 3) + 16 * (i // 4), group


def nibble_k32_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 8 else group + 8), thread * 8 + (i & 7)


def nibble_k32_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 8 + (i & 7), group


def nibble_8x8x32_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return group, thread * 8 + i


def nibble_k128_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 8 + (i & 7) + 32 * (i // 8), group


def bit_k128_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 32 else group + 8), thread * 32 + (i & 31)


def bit_k128_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 32 + i, group


def bit_8x8x128_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return group, thread * 32 + i


def tf32_k4_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i == 0 else group + 8), thread


def one_k4_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread, group


def double_k8_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i in (0, 2) else group + 8), (thread if i in (0, 1) else thread + 4)


def double_k8_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return (thread if i == 0 else thread + 4), group


def tf32_k16_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread + 4 * i, group


def float_k32_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 2 + (i & 1) + 8 * (i // 2), group


MANUAL = [
    ("m16n8k16 f16 A", FragmentLayout("A", "a", 16, 16, "f16", 16), float_k16_a),
    ("m16n8k16 f16 B", FragmentLayout("B", "b", 16, 8, "f16", 16), float_k16_b),
    ("m16n8 f32 C", FragmentLayout("C", "accumulator", 16, 8, "f32", 32), accumulator_16x8),
    ("m16n8 f16 C", FragmentLayout("C", "accumulator", 16, 8, "f16", 16), accumulator_16x8),
    ("m16n8 f64 C", FragmentLayout("C", "accumulator", 16, 8, "f64", 64), accumulator_16x8),
    ("m8n8 s32 C", FragmentLayout("C", "accumulator", 8, 8, "s32", 32), accumulator_8x8),
    ("m8n8 f64 C", FragmentLayout("C", "accumulator", 8, 8, "f64", 64), accumulator_8x8),
    ("m16n8k8 f16 A", FragmentLayout("A", "a", 16, 8, "f16", 16), float_k8_a),
    ("m16n8k8 f16 B", FragmentLayout("B", "b", 8, 8, "f16", 16), float_k8_b),
    ("m16n8k8 tf32 A", FragmentLayout("A", "a", 16, 8, "tf32", 32), tf32_k8_a),
    ("m16n8k8 tf32 B", FragmentLayout("B", "b", 8, 8, "tf32", 32), tf32_k8_b),
    ("m16n8k32 s8 A", FragmentLayout("A", "a", 16, 32, "s8", 8), byte_k32_a),
    ("m16n8k32 s8 B", FragmentLayout("B", "b", 32, 8, "s8", 8), byte_k32_b),
    ("m8n8k16 s8 B", FragmentLayout("B", "b", 16, 8, "s8", 8), byte_8x8x16_b),
    ("m16n8k64 s4 A", FragmentLayout("A", "a", 16, 64, "s4", 4), nibble_k64_a),
    ("m16n8k64 s4 B", FragmentLayout("B", "b", 64, 8, "s4", 4), nibble_k64_b),
    ("m16n8k256 b1 A", FragmentLayout("A", "a", 16, 256, "b1", 1), bit_k256_a),
    ("m16n8k256 b1 B", FragmentLayout("B", "b", 256, 8, "b1", 1), bit_k256_b),
    ("m16n8k16 f64 A", FragmentLayout("A", "a", 16, 16, "f64", 64), double_k16_a),
    ("m16n8k16 f64 B", FragmentLayout("B", "b", 16, 8, "f64", 64), double_k16_b),
    ("m8n8k4 f64 A", FragmentLayout("A", "a", 8, 4, "f64", 64), double_k4_a),
    ("m8n8k4 f64 B", multiplication("m8n8k4", "f64").operand("B"), one_k4_b),
    ("m16n8k16 s8 A", multiplication("m16n8k16", "s8").operand("A"), byte_k16_a),
    ("m16n8k16 s8 B", multiplication("m16n8k16", "s8").operand("B"), byte_8x8x16_b),
    ("m16n8k32 s4 A", multiplication("m16n8k32", "s4").operand("A"), nibble_k32_a),
    ("m16n8k32 s4 B", multiplication("m16n8k32", "s4").operand("B"), nibble_k32_b),
    ("m8n8k32 s4 A", multiplication("m8n8k32", "s4").operand("A"), nibble_8x8x32_a),
    ("m16n8k128 b1 A", multiplication("m16n8k128", "b1").operand("A"), bit_k128_a),
    ("m16n8k128 b1 B", multiplication("m16n8k128", "b1").operand("B"), bit_k128_b),
    ("m8n8k128 b1 A", multiplication("m8n8k128", "b1").operand("A"), bit_8x8x128_a),
    ("m16n8k4 tf32 A", multiplication("m16n8k4", "tf32").operand("A"), tf32_k4_a),
    ("m16n8k4 tf32 B", multiplication("m16n8k4", "tf32").operand("B"), one_k4_b),
    ("m16n8k4 f64 A", multiplication("m16n8k4", "f64").operand("A"), tf32_k4_a),
    ("m16n8k8 f64 A", multiplication("m16n8k8", "f64").operand("A"), double_k8_a),
    ("m16n8k8 f64 B", multiplication("m16n8k8", "f64").operand("B"), double_k8_b),
    ("m16n8k32 e4m3 A", multiplication("m16n8k32", "e4m3").operand("A"), byte_k32_a),
    ("m16n8k32 e2m1 B", multiplication("m16n8k32", "e2m1").operand("B"), byte_k32_b),
    ("m16n8k64 e2m1 A", multiplication(MXF4).operand("A"), nibble_k64_a),
    ("m16n8k64 e2m1 B", multiplication(MXF4).operand("B"), nibble_k64_b),
    ("sparse m16n8k32 f16 B", multiplication(SPARSE.format("m16n8k32", "f32.f16.f16.f32")).operand("B"), float_k32_b),
    ("sparse m16n8k16 tf32 B", multiplication(SPARSE.format("m16n8k16", "f32.tf32.tf32.f32")).operand("B"), tf32_k16_b),
    ("sparse m16n8k64 s8 B", multiplication(SPARSE.format("m16n8k64", "s32.s8.s8.s32")).operand("B"), byte_k64_b),
    ("sparse m16n8k128 s4 B", multiplication(SPARSE.format("m16n8k128", "s32.s4.s4.s32")).operand("B"), nibble_k128_b),
]  # fmt: skip


def differences(layout: FragmentLayout, manual: Case) -> int:
    count = 0
    for lane in range(32):
        for register in range(layout.registers_per_lane):
            for element in range(layout.elements_per_register):
                i = register * layout.elements_per_register + element
                expected = manual(lane >> 2, lane % 4, i)
                count += layout.element(lane, register, element) != expected
    return count


@in_one_test(("layout", "manual"), [row[1:] for row in MANUAL])
def test_layout_is_the_manuals(layout: FragmentLayout, manual: Case) -> None:
    assert differences(layout, manual) == 0


def test_the_comparison_sees_a_wrong_map() -> None:
    def swapped(group: int, thread: int, i: int) -> tuple[int, int]:
        return float_k16_a(group, thread, {2: 4, 3: 5, 4: 2, 5: 3}.get(i, i))

    assert differences(FragmentLayout("A", "a", 16, 16, "f16", 16), swapped) == 32 * 4


def test_registers_is_the_inverse_of_element() -> None:
    for layout in multiplication("m16n8k16", "f16").operands:
        for row in range(layout.rows):
            for col in range(layout.cols):
                (place,) = layout.registers(row, col)
                assert layout.element(*place) == (row, col)


def test_known_places() -> None:
    a = multiplication("m16n8k16", dtype="bf16").operand("A")
    assert a.registers(0, 0) == (Place(0, 0, 0),)
    assert a.registers(15, 15) == (Place(31, 3, 1),)
    assert a.registers(3, 9) == (Place(12, 2, 1),)


def test_table_agrees_with_element_and_cannot_be_written() -> None:
    a = multiplication("m16n8k16", dtype="bf16").operand("a")
    table = a.table()
    assert table.shape == (32, 4, 2, 2)
    assert tuple(table[13, 2, 1]) == a.element(13, 2, 1)
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0, 0, 0] = 1


@in_one_test("layout", [row[1] for row in MANUAL])
def test_pack_places_each_element_and_unpack_brings_it_back(layout: FragmentLayout) -> None:
    generator = np.random.default_rng(7)
    limit = 1 << layout.bits
    matrix = generator.integers(0, limit, (3, layout.rows, layout.cols), dtype=np.uint64)
    words = layout.pack(matrix)
    assert words.shape == (3, 32, layout.registers_per_lane)
    for lane in (0, 5, 31):
        for register in range(layout.registers_per_lane):
            expected = 0
            for element in range(layout.elements_per_register):
                row, col = layout.element(lane, register, element)
                expected |= int(matrix[1, row, col]) << (element * layout.bits)
            assert int(words[1, lane, register]) == expected
    assert (layout.unpack(words) == matrix).all()


def test_out_of_range_is_an_index_error() -> None:
    a = multiplication("m16n8k16", dtype="bf16").operand("A")
    for lane, register, element in ((32, 0, 0), (-1, 0, 0), (0, 4, 0), (0, 0, 2)):
        with pytest.raises(IndexError, match="A has no"):
            a.element(lane, register, element)
    with pytest.raises(IndexError, match="16 x 16"):
        a.registers(16, 0)


def test_a_formula_that_loses_elements_cannot_become_a_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Arrangement.position

    def doubled(*arguments: object) -> object:
        outer, inner = right(*arguments)  # type: ignore[arg-type]
        return outer, inner & ~1

    monkeypatch.setattr(Arrangement, "position", doubled)
    with pytest.raises(ValueError, match="every element once"):
        FragmentLayout("A", "a", 16, 48, "lossy", 16)


def test_shapes_that_do_not_divide_are_refused() -> None:
    for rows, cols, bits in ((12, 16, 16), (16, 3, 16), (16, 16, 24)):
        with pytest.raises(ValueError, match="does not divide"):
            FragmentLayout("A", "a", rows, cols, "odd", bits)


# First column of A that register elements of a lane come from, in the ISA's sparse sections: a run of
# elements i, the column of the first lane, and how much further each lane is.
WINDOWS = [
    ("m16n8k16", "f32.f16.f16.f32", 4, lambda i: 0, 4),
    ("m16n8k32", "f32.bf16.bf16.f32", 8, lambda i: 0 if i < 4 else 16, 4),
    ("m16n8k8", "f32.tf32.tf32.f32", 2, lambda i: 0, 2),
    ("m16n8k16", "f32.tf32.tf32.f32", 4, lambda i: 0 if i < 2 else 8, 2),
    ("m16n8k32", "s32.s8.s8.s32", 8, lambda i: 0, 8),
    ("m16n8k64", "s32.u8.u8.s32", 16, lambda i: 0 if i < 8 else 32, 8),
    ("m16n8k64", "f32.e4m3.e4m3.f32", 16, lambda i: 0 if i < 8 else 32, 8),
    ("m16n8k64", "s32.s4.s4.s32", 16, lambda i: 0, 16),
    ("m16n8k128", "s32.u4.u4.s32", 32, lambda i: 0 if i < 16 else 64, 16),
]


@in_one_test(("shape", "types", "count", "first", "further"), WINDOWS)
def test_sparse_a_comes_from_the_manuals_windows(
    shape: str, types: str, count: int, first: Callable[[int], int], further: int
) -> None:
    a = multiplication(SPARSE.format(shape, types)).operand("A")
    per_register = a.elements_per_register
    assert a.registers_per_lane * per_register == count
    for lane in range(32):
        for i in range(count):
            row, compressed = a.element(lane, i // per_register, i % per_register)
            window = first(i) + further * (lane % 4)
            assert window <= 2 * compressed < window + further
            upper = i // per_register % 2 == 1
            assert row == lane // 4 + 8 * upper


def quad_pair(name: str, operand: str, lane: int, i: int) -> tuple[int, int]:
    """The cases of "Matrix Fragments for mma.m8n8k4 with .f16 floating point type"."""
    half = 0 if lane < 16 else 4
    match operand, name:
        case ("A", "row"):
            return lane % 4 + half, i
        case ("A", "col"):
            return i % 4 + half, lane % 4
        case ("B", "row"):
            return lane % 4, i + half
        case ("B", "col"):
            return i, lane % 4 + half
        case (_, "f16"):
            return lane % 4 + half, i
    x = (lane & 1) + (i & 2)
    return x + half, (i & 4) + (lane & 2) + (i & 1)


@in_one_test("form", [f for f in MMA if f.shape == "m8n8k4" and f.a_type == "f16"])
def test_m8n8k4_has_four_matrices(form: MatrixInstruction) -> None:
    a_order, b_order = form.name.split(".")[4:6]
    for operand, name in (("A", a_order), ("B", b_order), ("C", form.c_type), ("D", form.d_type)):
        layout = form.operand(operand)
        e = layout.elements_per_register
        assert layout.matrices == 4
        for lane in range(32):
            assert layout.matrix(lane) == (lane % 16) // 4
            for i in range(layout.registers_per_lane * e):
                assert layout.element(lane, i // e, i % e) == quad_pair(name, operand, lane, i)
        places = layout.registers(2, 3)
        assert sorted(layout.matrix(place.lane) for place in places) == [0, 1, 2, 3]
        matrices = np.arange(4 * layout.rows * layout.cols).reshape(4, layout.rows, layout.cols)
        assert (layout.unpack(layout.pack(matrices)) == matrices).all()


def test_copies_repeat_the_registers() -> None:
    a = multiplication("m16n16k16", "f16").operand("A")
    assert (a.copies, a.registers_per_lane) == (2, 8)
    matrix = np.random.default_rng(1).integers(0, 1 << 16, (16, 16))
    words = a.pack(matrix)
    assert (words[:, :4] == words[:, 4:]).all()
    assert (a.unpack(words) == matrix).all()
    assert len(a.registers(3, 9)) == 2


def test_every_layout_of_every_instruction_is_whole() -> None:
    """s4 m16n8k32 B: 256 different elements, where a published table has 160 (and b1 k256 likewise)."""
    for form in MULTIPLICATIONS:
        for layout in form.operands:
            places = np.unique(layout.numbers(), return_counts=True)
            assert len(places[0]) == layout.matrices * layout.rows * layout.cols
            assert (places[1] == layout.copies).all()
    assert multiplication("m16n8k32", "s4").operand("B").table().shape == (32, 1, 8, 2)
