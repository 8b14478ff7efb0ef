"""Layouts and swizzles against enumeration, and against the examples of the CuTe documentation."""

from __future__ import annotations

import doctest
import itertools
from types import ModuleType

import numpy as np
import pytest
from hypothesis import strategies as st

import ptxlab.layouts.layout
import ptxlab.matrix.thread_value
from ptxlab.layouts.layout import IDENTITY, ComposedLayout, Layout, Swizzle, table
from tests.fuzzed import fuzzed
from tests.together import in_one_test

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


@pytest.mark.parametrize("module", [ptxlab.layouts.layout, ptxlab.matrix.thread_value])
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@fuzzed(flat_shapes, st.data())
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


@fuzzed(flat_shapes)
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
    ("shape", "stride"),
    [((2, 3), (1,)), ((2, 3), 1), (2, (1, 2)), ((0, 2), (1, 1)), (2, -1), ((), ())],
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


@in_one_test("shift", [3, 4, -3, -4])
@in_one_test(("bits", "base"), [(0, 4), (1, 4), (2, 4), (3, 4), (3, 3)])
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


def test_composition() -> None:
    swizzled = Swizzle(2, 1, 2).compose(Layout.row_major((4, 8)))
    assert swizzled(2, 3) == Swizzle(2, 1, 2)(19) == 23
    assert (swizzled.size, swizzled.cosize, swizzled.shape) == (32, 32, (4, 8))
    assert str(swizzled).splitlines()[0] == "Sw<2,1,2> o 0 o (4,8):(8,1)"
    assert ComposedLayout(IDENTITY, 0, Layout(4, 2)).notation == "4:2"


def test_a_layout_and_its_tile_print_as_cute_and_max_print_them() -> None:
    layout = Layout.row_major((2, 6))
    assert str(layout).splitlines() == [
        "(2,6):(6,1)",
        "       0    1    2    3    4    5",
        "    +----+----+----+----+----+----+",
        " 0  |  0 |  1 |  2 |  3 |  4 |  5 |",
        "    +----+----+----+----+----+----+",
        " 1  |  6 |  7 |  8 |  9 | 10 | 11 |",
        "    +----+----+----+----+----+----+",
    ]
    assert str(layout.tile((2, 2))(0, 1)).splitlines() == [
        "2 o (2,2):(6,1)",
        "       0    1",
        "    +----+----+",
        " 0  |  2 |  3 |",
        "    +----+----+",
        " 1  |  8 |  9 |",
        "    +----+----+",
    ]


def test_a_table_of_any_size_stays_aligned() -> None:
    for drawn in (Layout((120, 3), (1, 1000)), Layout((1, 120), (1, 1)), Layout(3, 2)):
        header, *rules_and_rows = table(drawn).splitlines()
        rows = rules_and_rows[1::2]
        assert len({len(line) for line in rules_and_rows}) == 1
        assert len(header) <= len(rows[0])
        # A number in the header ends in the column in which the numbers below it end.
        ends = [i for i in range(len(header)) if header[i : i + 2].strip() == header[i]]
        assert all(row[end].isdecimal() for row in rows for end in ends)
        assert [int(row.split("|")[0]) for row in rows] == list(range(len(rows)))


@fuzzed(st.sampled_from([(4, 8), (8, (2, 4)), ((2, 2), (4, 2)), (6, 4), ((2, 2), 8, 2)]), st.data())
def test_tiles_are_the_blocks_of_the_table(shape: tuple[object, ...], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([Layout.row_major, Layout.col_major]))(shape)  # type: ignore[arg-type]
    sizes = tuple(part.size for part in whole.parts)
    tile = tuple(data.draw(st.sampled_from([n for n in (1, 2, 4) if s % n == 0])) for s in sizes)
    swizzled = Swizzle(2, 0, 3).compose(whole)
    offsets = whole(np.arange(whole.size)).reshape(sizes, order="F")
    for layout, expected in ((whole, offsets), (swizzled, Swizzle(2, 0, 3)(offsets))):
        tiling = layout.tile(tile)
        for origin in itertools.product(*(range(s // t) for s, t in zip(sizes, tile, strict=True))):
            block = expected[
                tuple(slice(p * t, (p + 1) * t) for p, t in zip(origin, tile, strict=True))
            ]
            offsets_of_tile = tiling(*origin)(np.arange(block.size)).reshape(tile, order="F")
            assert (offsets_of_tile == block).all()
            assert tiling.origins(origin) == block.ravel()[0]


def test_wrong_tiles_are_refused() -> None:
    layout = Layout.row_major((2, 6))
    for shape in ((2, 4), (2,), (2, 0), (3, 2)):
        with pytest.raises(ValueError, match="tile"):
            layout.tile(shape)
    for coordinates in ((0, 3), (-1, 0), (0,)):
        with pytest.raises(IndexError, match="no tile"):
            layout.tile((2, 2))(*coordinates)


def test_vectors_lie_along_the_contiguous_mode() -> None:
    rows, columns = Layout.row_major((4, 16)), Layout.col_major((16, 4))
    assert [rows.vectorize(8).origins(i, j) for i in (0, 1) for j in (0, 1)] == [0, 8, 16, 24]
    assert columns.vectorize(8).element.notation == "(8,1):(1,0)"
    swizzled = Swizzle(1, 3, 1).compose(rows)
    for row, vector in itertools.product(range(4), range(2)):
        vectors = swizzled.vectorize(8)(row, vector)
        assert [vectors(i) - vectors(0) for i in range(8)] == list(range(8))


def test_vectors_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="side by side"):
        Layout((4, 8), (16, 2)).vectorize(2)
    with pytest.raises(ValueError, match="multiples of 8"):
        Layout((4, 8), (9, 1)).vectorize(8)
    with pytest.raises(ValueError, match="1 element or more"):
        Layout.row_major((4, 8)).vectorize(0)
    for swizzle in (Swizzle(1, 2, 2), Swizzle(1, 2, -2), Swizzle(1, 0, 5)):
        with pytest.raises(ValueError, match="within vectors"):
            swizzle.compose(Layout.row_major((4, 8))).vectorize(8)
    with pytest.raises(ValueError, match="multiples of 8"):
        ComposedLayout(Swizzle(1, 3, 1), 4, Layout.row_major((4, 8))).vectorize(8)


@pytest.mark.parametrize("swizzle", [Swizzle(1, 3, 1), Swizzle(2, 3, -2), Swizzle(3, 4, 3)])
def test_vectors_stay_whole_behind_a_swizzle(swizzle: Swizzle) -> None:
    whole = swizzle.compose(Layout.row_major((16, 16)))
    vectors = whole.vectorize(8)
    runs = [[vectors(row, part)(i) for i in range(8)] for row in range(16) for part in range(2)]
    assert all(run == list(range(run[0], run[0] + 8)) for run in runs)
    assert sorted(itertools.chain(*runs)) == list(range(256))
