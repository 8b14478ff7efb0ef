"""Fragment layouts against the case distinctions of the PTX ISA's fragment sections.

The manual states each operand as cases over the element number i, with groupID = lane >> 2 and
threadID_in_group = lane % 4. They are typed here section by section and share nothing with the one
formula of ``ptxlab.isa.fragment``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ptxlab.isa.fragment as fragment
from ptxlab.isa import FragmentLayout, Place, find

Case = Callable[[int, int, int], tuple[int, int]]


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
]


def differences(layout: FragmentLayout, manual: Case) -> int:
    count = 0
    for lane in range(32):
        for register in range(layout.registers_per_lane):
            for element in range(layout.elements_per_register):
                i = register * layout.elements_per_register + element
                expected = manual(lane >> 2, lane % 4, i)
                count += layout.element(lane, register, element) != expected
    return count


@pytest.mark.parametrize(
    ("layout", "manual"), [row[1:] for row in MANUAL], ids=[row[0] for row in MANUAL]
)
def test_layout_is_the_manuals(layout: FragmentLayout, manual: Case) -> None:
    assert differences(layout, manual) == 0


def test_the_comparison_sees_a_wrong_map() -> None:
    def swapped(group: int, thread: int, i: int) -> tuple[int, int]:
        return float_k16_a(group, thread, {2: 4, 3: 5, 4: 2, 5: 3}.get(i, i))

    assert differences(FragmentLayout("A", "a", 16, 16, "f16", 16), swapped) == 32 * 4


def test_registers_is_the_inverse_of_element() -> None:
    for layout in find("m16n8k16", "f16").operands:
        for row in range(layout.rows):
            for col in range(layout.cols):
                (place,) = layout.registers(row, col)
                assert layout.element(*place) == (row, col)


def test_known_places() -> None:
    a = find("m16n8k16", dtype="bf16").operand("A")
    assert a.registers(0, 0) == (Place(0, 0, 0),)
    assert a.registers(15, 15) == (Place(31, 3, 1),)
    assert a.registers(3, 9) == (Place(12, 2, 1),)


def test_table_agrees_with_element_and_cannot_be_written() -> None:
    a = find("m16n8k16", dtype="bf16").operand("a")
    table = a.table()
    assert table.shape == (32, 4, 2, 2)
    assert tuple(table[13, 2, 1]) == a.element(13, 2, 1)
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0, 0, 0] = 1


@pytest.mark.parametrize("layout", [row[1] for row in MANUAL], ids=[row[0] for row in MANUAL])
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
    a = find("m16n8k16", dtype="bf16").operand("A")
    for lane, register, element in ((32, 0, 0), (-1, 0, 0), (0, 4, 0), (0, 0, 2)):
        with pytest.raises(IndexError, match="A has no"):
            a.element(lane, register, element)
    with pytest.raises(IndexError, match="16 x 16"):
        a.registers(16, 0)


def test_a_formula_that_loses_elements_cannot_become_a_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = fragment.position

    def doubled(*arguments: object) -> object:
        outer, inner = right(*arguments)  # type: ignore[arg-type]
        return outer, inner & ~1

    monkeypatch.setattr(fragment, "position", doubled)
    with pytest.raises(ValueError, match="every element once"):
        FragmentLayout("A", "a", 16, 32, "lossy", 16)


def test_shapes_that_do_not_divide_are_refused() -> None:
    for rows, cols, bits in ((12, 16, 16), (16, 3, 16), (16, 16, 24)):
        with pytest.raises(ValueError, match="does not divide"):
            FragmentLayout("A", "a", rows, cols, "odd", bits)
