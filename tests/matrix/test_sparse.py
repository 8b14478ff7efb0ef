"""Metadata of sparse A: its places, against the order CUTLASS stores it in; encoding; compression."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxlab.matrix.mma import MMA_SPARSE
from ptxlab.matrix.sparse import InvalidMetadata, Metadata
from tests.together import in_one_test

F16_K16, F16_K32 = Metadata(16, 16, ordered=False), Metadata(32, 16, ordered=False)
TF32_K8, TF32_K16 = Metadata(8, 32, ordered=False), Metadata(16, 32, ordered=True)
S8_K32, S8_K64 = Metadata(32, 8, ordered=False), Metadata(64, 8, ordered=True)
S4_K64, S4_K128 = Metadata(64, 4, ordered=False), Metadata(128, 4, ordered=True)
ALL = [F16_K16, F16_K32, TF32_K8, TF32_K16, S8_K32, S8_K64, S4_K64, S4_K128]


def test_sizes_and_selectors_are_those_of_the_isa() -> None:
    """PTX ISA, "Sparse matrix storage": granularity, and threads that contribute metadata."""
    assert [m.granularity for m in ALL] == [(2, 4)] * 2 + [(1, 2)] * 2 + [(2, 4)] * 2 + [(4, 8)] * 2
    assert [tuple(m.selectors) for m in ALL] == [
        (0, 1, 2, 3), (0, 1), (0, 1, 2, 3), (0, 1), (0, 1), (0,), (0, 1), (0,),
    ]  # fmt: skip
    assert {form.metadata for form in MMA_SPARSE} >= set(ALL)


def test_known_places() -> None:
    """Lane and low bit, of row and chunk."""
    assert F16_K16.place(0, 0) == (0, 0)
    assert F16_K16.place(8, 3) == (0, 28)
    assert F16_K16.place(3, 1, selector=2) == (14, 4)
    assert F16_K32.place(0, 4) == (1, 0)
    assert F16_K32.place(15, 7, selector=1) == (31, 28)
    assert TF32_K8.place(8, 0, selector=3) == (3, 16)
    assert S8_K32.place(8, 0) == (1, 0)
    assert S8_K32.place(7, 7, selector=1) == (30, 28)
    assert S8_K64.place(0, 8) == (2, 0)
    assert S4_K128.place(15, 15) == (31, 28)


def stored(row: int, col: int, group: int, interleave: int) -> tuple[int, int]:
    """Return where CUTLASS puts an element of the metadata matrix, so that lanes can load words.

    Rows 8 apart become neighbours, then every 2 x 2 block is transposed (its ``reorder_meta``).
    """
    row = row // group * group + row % 8 * interleave + row % group // 8
    block_row, block_col = row // 2 * 2, col // 2 * 2
    return block_row + col % 2, block_col + row % 2


def test_lanes_are_those_cutlass_loads_for() -> None:
    for row, col in itertools.product(range(32), range(2)):  # 16-bit elements of two tiles of f16
        lane, half = stored(row, col, 32, 4)
        assert F16_K32.place(row % 16, 4 * col, selector=row // 16) == (lane, 16 * half)
    for row, col in itertools.product(range(16), range(2)):  # 32-bit elements of one tile of s8
        line, word = stored(row, col, 16, 2)
        assert S8_K64.place(row, 8 * col) == (2 * line + word, 0)


@in_one_test("metadata", ALL)
def test_a_lane_of_a_selector_holds_32_bits_that_count(metadata: Metadata) -> None:
    seen: set[int] = set()
    for selector in metadata.selectors:
        places = {
            metadata.place(row, chunk, selector)
            for row, chunk in itertools.product(range(16), range(metadata.chunks))
        }
        assert len(places) == 16 * metadata.chunks
        lanes = {lane for lane, _ in places}
        assert all(
            {bit for lane, bit in places if lane == x} == set(range(0, 32, 4)) for x in lanes
        )
        assert not lanes & seen
        seen |= lanes
    assert seen == set(range(32))
    with pytest.raises(ValueError, match="no sparsity selector"):
        metadata.place(0, 0, len(metadata.selectors))


@in_one_test("metadata", ALL)
def test_decode_undoes_encode(metadata: Metadata) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 16, (3, 16, metadata.chunks))
    for selector in metadata.selectors:
        assert (metadata.decode(metadata.encode(values, selector), selector) == values).all()


def test_columns_one_chunk_at_a_time() -> None:
    """0b1001: the unit of index 1, then that of index 2. For tf32 0b1110 is the odd element."""
    nine = np.full((16, 4), 0b1001)
    assert F16_K16.columns(nine)[0].tolist() == [1, 2, 5, 6, 9, 10, 13, 14]
    assert F16_K16.columns(np.full((16, 4), 0b0110))[5].tolist() == [2, 1, 6, 5, 10, 9, 14, 13]
    assert TF32_K8.columns(np.tile([0b0100, 0b1110], (16, 2)))[0].tolist() == [0, 3, 4, 7]
    assert S4_K64.columns(np.full((16, 8), 0b1101))[0, :8].tolist() == [2, 3, 6, 7, 10, 11, 14, 15]


@in_one_test("metadata", ALL)
def test_columns_are_the_bits_that_the_units_cover(metadata: Metadata) -> None:
    """A chunk is four units of as many bits; its metadata places two of them, one bit after another."""
    _, of = metadata.granularity
    unit = of * metadata.bits // 4
    values = np.random.default_rng(4).choice(metadata.allowed, (3, 16, metadata.chunks))
    columns = metadata.columns(values)
    for matrix, row in np.ndindex(3, 16):
        expected = []
        for chunk, value in enumerate(values[matrix, row].tolist()):
            for bit in range(0, 2 * unit, metadata.bits):
                index = value >> 2 * (bit // unit) & 3
                expected.append(((4 * chunk + index) * unit + bit % unit) // metadata.bits)
        assert columns[matrix, row].tolist() == expected


@pytest.mark.parametrize(
    ("metadata", "value"), [(F16_K16, 0), (S8_K64, 0b1010), (TF32_K8, 0b1001), (S4_K64, 15)]
)
def test_metadata_without_a_meaning_is_refused(metadata: Metadata, value: int) -> None:
    values = np.full((1, 16, metadata.chunks), 0b1110)
    metadata.validate(values)
    values[0, 2, 1] = value
    with pytest.raises(InvalidMetadata, match=f"0b{value:04b} of chunk 1 of row 2"):
        metadata.validate(values)


def test_allowed_values() -> None:
    """Section 5.3 of the ISA's values: ordered ones rise; equal indices are never defined."""
    assert sorted(S8_K64.allowed) == [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    assert set(range(16)) - set(F16_K16.allowed) == {0b0000, 0b0101, 0b1010, 0b1111}
    assert sorted(TF32_K16.allowed) == sorted(TF32_K8.allowed) == [0b0100, 0b1110]
    values = np.full((2, 16, 16), 0b0100)
    S8_K64.validate(values)
    values[1, 4, 9] = 0b0001
    with pytest.raises(InvalidMetadata, match="0b0001 of chunk 9 of row 4") as caught:
        S8_K64.validate(values)
    assert (caught.value.matrix, caught.value.row, caught.value.chunk) == (1, 4, 9)


@in_one_test("metadata", ALL)
def test_compress_and_expand(metadata: Metadata) -> None:
    random = np.random.default_rng(2)
    kept, of = metadata.granularity
    unit = 2 if metadata.bits == 4 else 1
    matrix = np.zeros((16, metadata.k), np.uint32)
    for row, chunk in itertools.product(range(16), range(metadata.chunks)):
        units = random.permutation(of // unit)[: random.integers(0, kept // unit + 1)]
        for u in units:
            matrix[row, of * chunk + unit * u :][:unit] = random.integers(0, 9, unit)
    compressed, values = metadata.compress(matrix)
    assert compressed.shape == (16, metadata.k // 2)
    metadata.validate(values[np.newaxis])
    assert (metadata.expand(compressed, values) == matrix).all()


def test_a_dense_row_cannot_be_compressed() -> None:
    matrix = np.zeros((16, 16), int)
    matrix[7, 4:7] = 1
    with pytest.raises(ValueError, match="chunk 1 of row 7 is not 2:4 sparse"):
        F16_K16.compress(matrix)
    across_pairs = np.zeros((16, 64), int)
    across_pairs[0, [1, 2, 4]] = 1  # three pairs of eight elements
    with pytest.raises(ValueError, match="not 4:8 sparse"):
        S4_K64.compress(across_pairs)
