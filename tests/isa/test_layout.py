"""Layouts and swizzles against enumeration, and against the examples of the CuTe documentation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxlab.isa import Layout, Swizzle

sizes = st.integers(1, 5)
flat_shapes = st.lists(sizes, min_size=1, max_size=4).map(tuple)


def test_documented_examples() -> None:
    """CuTe Layouts: s2xs4 = (2,4):(12,1), s2xh4 = (2,(2,2)):(4,(2,1)), and both majors of (2,4)."""
    assert [Layout((2, 4), (12, 1))(0, j) for j in range(4)] == [0, 1, 2, 3]
    nested = Layout((2, (2, 2)), (4, (2, 1)))
    assert [[nested(i, j) for j in range(4)] for i in range(2)] == [[0, 2, 1, 3], [4, 6, 5, 7]]
    assert Layout.col_major((2, 4)).stride == (1, 2)
    assert Layout.row_major((2, 4)).stride == (4, 1)
    assert Layout.row_major((2, (2, 2))).stride == (4, (2, 1))
    assert Layout.col_major((2, (2, 2))).stride == (1, (2, 4))


@given(flat_shapes, st.data())
def test_every_coordinate_in_both_spellings(shape: tuple[int, ...], data: st.DataObject) -> None:
    stride = tuple(data.draw(st.integers(0, 20)) for _ in shape)
    layout = Layout(shape, stride)
    offsets = []
    # Colexicographic: the first mode runs fastest, so count the reversed shape in C order.
    for linear, reversed_ in enumerate(itertools.product(*map(range, shape[::-1]))):
        coordinate = reversed_[::-1]
        expected = sum(c * s for c, s in zip(coordinate, stride, strict=True))
        assert layout(coordinate) == layout(linear) == expected
        offsets.append(expected)
    assert layout.size == len(offsets)
    assert layout.cosize == max(offsets) + 1


@given(flat_shapes)
def test_majors_are_numpys_orders(shape: tuple[int, ...]) -> None:
    grid = np.indices(shape)
    for layout, order in ((Layout.row_major(shape), "C"), (Layout.col_major(shape), "F")):
        offsets = layout(tuple(grid))
        memory = np.empty(layout.cosize, np.int64)
        memory[offsets.ravel(order)] = np.arange(layout.size)
        assert (memory == np.arange(layout.size)).all()
        assert offsets.shape == shape


def test_a_nested_mode_takes_an_int_or_a_tuple() -> None:
    layout = Layout(((2, 4), 3), ((3, 100), 1))
    assert layout((1, 2), 2) == 3 + 200 + 2
    assert layout(5, 2) == layout((1, 2), 2)
    assert layout(5 + 8 * 2) == layout((1, 2), 2)


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 3), (1,)), ((2, 3), 1), (2, (1, 2)), ((0, 2), (1, 1)), (2, -1)]
)
def test_wrong_layouts_are_refused(shape: object, stride: object) -> None:
    with pytest.raises(ValueError, match=r"shape|sizes"):
        Layout(shape, stride)  # type: ignore[arg-type]


def test_wrong_coordinates_are_refused() -> None:
    layout = Layout((2, 6), (6, 1))
    with pytest.raises(ValueError, match="modes"):
        layout(1, 2, 3)
    with pytest.raises(ValueError, match="nested deeper"):
        layout((1, 1), 2)


@pytest.mark.parametrize("shift", [3, 4, -3, -4])
@pytest.mark.parametrize(("bits", "base"), [(0, 4), (1, 4), (2, 4), (3, 4), (3, 3)])
def test_swizzle_moves_bits_and_is_its_own_inverse(bits: int, base: int, shift: int) -> None:
    swizzle = Swizzle(bits, base, shift)
    source, target = (base + shift, base) if shift >= 0 else (base, base - shift)
    offsets = np.arange(1 << 12)
    swizzled = swizzle(offsets)
    for offset in range(1 << 12):
        expected = offset
        for bit in range(bits):
            if offset >> (source + bit) & 1:
                expected ^= 1 << (target + bit)
        assert int(swizzled[offset]) == swizzle(offset) == expected
    assert (swizzle(swizzled) == offsets).all()


def test_the_128_byte_swizzle_of_16_byte_chunks() -> None:
    """Swizzle<3,4,3> on byte offsets: chunk c of 128-byte row r lies in chunk c ^ (r % 8)."""
    swizzle = Swizzle(3, 4, 3)
    for row in range(16):
        for chunk in range(8):
            assert swizzle(128 * row + 16 * chunk) == 128 * row + 16 * (chunk ^ (row % 8))


def test_swizzle_limits() -> None:
    for arguments in ((3, 3, 2), (-1, 0, 3), (1, -1, 3)):
        with pytest.raises(ValueError, match="bits"):
            Swizzle(*arguments)


def test_composition_and_tables() -> None:
    layout = Layout.row_major((4, 8))
    swizzled = Swizzle(2, 1, 2).compose(layout)
    assert swizzled(2, 3) == Swizzle(2, 1, 2)(19) == 23
    assert (swizzled.size, swizzled.cosize, swizzled.shape) == (32, 32, (4, 8))
    assert str(Layout((2, 6), (6, 1))).splitlines() == [
        "(2,6):(6,1)",
        "  |  0  1  2  3  4  5",
        "--+------------------",
        "0 |  0  1  2  3  4  5",
        "1 |  6  7  8  9 10 11",
    ]
    assert str(swizzled).splitlines()[0] == "S<2,1,2> o (4,8):(8,1)"
    assert str(swizzled).splitlines()[4] == "1 | 10 11  8  9 14 15 12 13"
    assert str(Layout(3, 2)).splitlines()[-1] == "2 | 4"
