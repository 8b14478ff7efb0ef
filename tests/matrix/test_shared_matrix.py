"""What a wgmma descriptor reads: tiles that CuTe's layouts place, the ISA's formula for any offsets."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ptxlab.matrix.canonical import MODES, SharedTile
from ptxlab.matrix.descriptor import READERS, of_tile
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.shared_matrix import addresses, core_matrices, elements
from tests.emulator.matrix.warpgroups import SPANS, Placed
from tests.together import in_one_test

READER = READERS["wgmma"]
SIZES = {"bf16": 2, "tf32": 4, "e4m3": 1}


def operand(name: str, mn: int, k: int, size: int) -> SharedOperand:
    shape = (mn, k) if name == "A" else (k, mn)
    return SharedOperand(name, *shape, "none", 8 * size, ("k", "mn"))


def read(
    wanted: SharedOperand, major: str, descriptors: list[int], memory: np.ndarray
) -> np.ndarray:
    """Return [descriptors, mn, k] out of one memory of bytes."""
    units = memory.view(np.complex128)[
        addresses(wanted, major, np.array(descriptors, np.uint64)) // 16
    ]
    words = elements(wanted, major, units)
    return words.transpose(2, 0, 1) if wanted.operand == "A" else words.transpose(2, 1, 0)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize(("size", "major"), [(2, "k"), (2, "mn"), (1, "k"), (4, "k")])
def test_every_step_along_k_of_a_tile(name: str, swizzle: str, size: int, major: str) -> None:
    """Tiles as ``tests/matrix/test_descriptor.py`` proves them by CuTe, at two places at once."""
    step = 32 // size
    tile = SharedTile(64, 4 * step, 8 * size, major, MODES[swizzle])
    places = np.asarray(tile.layout(*np.indices((64, 4 * step))))
    word = np.dtype(f"u{size}")
    matrices = np.random.default_rng(size).integers(0, 1 << 8 * size, (2, 64, 4 * step), word)
    memory = np.zeros(1 << 15, np.uint8)
    starts = (0x800, 0x800 + tile.bytes)
    for start, matrix in zip(starts, matrices, strict=True):
        memory.view(word)[start // size + places] = matrix
    for number in range(tile.steps):
        descriptors = [of_tile(READER, tile, start, number) for start in starts]
        actual = read(operand(name, 64, step, size), major, descriptors, memory)
        assert np.array_equal(actual, matrices[:, :, number * step : (number + 1) * step])


@in_one_test("swizzle", SPANS)
@in_one_test("name", ["A", "B"])
@in_one_test("major", ["k", "mn"])
def test_any_offsets_at_any_start(swizzle: str, name: str, major: str) -> None:
    """Starts inside a pattern, atoms anywhere, many descriptors of different patterns at once."""
    random = np.random.default_rng(len(swizzle))
    for mn, k, size in ((64, 16, 2), (8, 16, 2), (40, 16, 2), (64, 32, 2), (24, 8, 4), (48, 32, 1)):
        if k * size > SPANS[swizzle] > 16 and major == "k":
            continue
        if size != 2 and major == "mn":
            continue
        placed = [
            Placed(start, leading, stride, swizzle, major)
            for start, leading, stride in (16 * random.integers(0, 1 << 14, (9, 3))).tolist()
        ]
        descriptors = np.array([tile.descriptor for tile in placed], np.uint64)
        wanted = operand(name, mn, k, size)
        units = addresses(wanted, major, descriptors)
        bytes_ = units[..., None] + np.arange(16)
        rows, cols = np.indices((mn, k))
        for tile, expected in zip(placed, bytes_, strict=True):
            lines = expected.reshape(len(expected), -1)[:, ::size]
            by_mn = lines if major == "k" else lines.T
            assert np.array_equal(by_mn, tile.address(rows, cols, size))


@in_one_test("swizzle", SPANS)
@in_one_test("major", ["k", "mn"])
def test_a_core_matrix_has_each_bank_once(swizzle: str, major: str) -> None:
    """From any start, whatever the offsets: 8 lines of 16 bytes are 4 bytes of each of the 32 banks."""
    random = np.random.default_rng(len(swizzle))
    for mn, start in product((64, 24), range(0, 1024, 16)):
        leading, stride = (16 * random.integers(0, 1 << 14, 2)).tolist()
        descriptor = Placed(start, leading, stride, swizzle, major).descriptor
        units = addresses(operand("B", mn, 16, 2), major, np.array([descriptor], np.uint64))
        matrices = core_matrices(units)
        assert matrices.shape == (1, mn * 2 // 8, 8)
        banks = (matrices[..., None] + 4 * np.arange(4)) // 4 % 32
        assert (np.sort(banks.reshape(-1, 32)) == np.arange(32)).all()


def test_bits_come_one_a_byte() -> None:
    wanted = SharedOperand("B", 256, 16, "b1", 1)
    matrix = np.random.default_rng(3).integers(0, 2, (16, 256), np.uint8)
    memory = np.zeros(4096, np.uint8)
    placed = Placed(0, 16, 1024, "128B")
    placed.write(memory, np.packbits(matrix, axis=1, bitorder="little"))
    assert np.array_equal(read(wanted, "k", [placed.descriptor], memory)[0], matrix)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (1 << 49, "base offset 1 in a matrix descriptor is not modelled"),
        (1 << 46, "reserved bits set: 46"),
        (1 << 14, "reserved bits set: 14"),
        (3 << 62, "swizzle 32B of rows of 64 bytes is not modelled"),
    ],
)
def test_what_is_not_modelled(word: int, message: str) -> None:
    sparse = SharedOperand("B", 32, 8, "bf16", 16, ("k", "mn"))
    with pytest.raises(ValueError, match=message):
        addresses(sparse, "k", np.array([0, word], np.uint64))


def test_the_swizzle_is_of_addresses_and_not_of_offsets() -> None:
    """A start inside a span goes on with the units of the next instruction along k, as they lie."""
    wanted = operand("A", 64, 16, 2)
    words = [Placed(at, 16, 1024, "128B").descriptor for at in (1024, 1056)]
    first, second = addresses(wanted, "k", np.array(words, np.uint64))
    assert first[3].tolist() == [1024 + 3 * 128 + 16 * u for u in (0 ^ 3, 1 ^ 3)]
    assert second[3].tolist() == [1024 + 3 * 128 + 16 * u for u in (2 ^ 3, 3 ^ 3)]
