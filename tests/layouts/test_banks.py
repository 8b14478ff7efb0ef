"""Bank conflicts against a count in plain Python, textbook cases, and the tiles of tensor_core.cu."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.layouts.layout import IDENTITY, Layout, Mapping, Swizzle
from ptxlab.layouts.shared_memory import (
    ACCESSES,
    conflicts,
    passes,
    smallest_padding,
    smallest_swizzle,
    wavefronts,
)

LDMATRIX, ST128, LD32 = (ACCESSES[name] for name in ("ldmatrix", "st128", "ld32"))
ACROSS = ACCESSES["ld32.across"]


def counted(addresses: Sequence[int], size: int) -> int:
    """Count one pass anew: the most distinct words wanted of one bank, byte by byte."""
    words = defaultdict(set)
    for address in addresses:
        for byte in range(address, address + size):
            words[byte // 4 % 32].add(byte // 4)
    return max(map(len, words.values()))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_random_passes(size: int) -> None:
    draw = random.Random(size)
    for _ in range(60):
        room = draw.choice([4, 64, 4096])
        lanes = [size * draw.randrange(room) for _ in range(min(32, 128 // size))]
        assert wavefronts(np.array(lanes), size) == counted(lanes, size)


def test_textbook_cases() -> None:
    lanes = np.arange(32)
    assert wavefronts(4 * lanes, 4) == 1
    assert wavefronts(4 * lanes[::-1], 4) == 1
    assert wavefronts(8 * lanes, 4) == 2
    assert wavefronts(12 * lanes, 4) == 1
    assert wavefronts(128 * lanes, 4) == 32
    assert wavefronts(132 * lanes, 4) == 1
    assert wavefronts(0 * lanes, 4) == 1
    assert wavefronts(lanes, 1) == 1
    assert wavefronts(128 * (lanes % 2), 4) == 2


@pytest.mark.parametrize(
    ("name", "ideal"), [("ld8", 1), ("ld32", 1), ("st32", 1), ("ld64", 2), ("st128", 4)]
)
def test_a_full_warp_takes_as_many_passes_as_it_moves_lines_of_128_bytes(
    name: str, ideal: int
) -> None:
    access = ACCESSES[name]
    row = Layout.row_major((1, 32 * access.bytes))
    banks = conflicts(access, row, 8)
    assert (banks.ideal, banks.wavefronts, banks.excess, banks.worst) == (ideal, ideal, 0, 1)


def tile_counted(name: str, layout: Mapping, bits: int, rows: int, cols: int) -> int:
    """Count a whole row-major tile anew, from the rules of each access."""
    size = ACCESSES[name].bytes
    vector = 8 * size // bits

    def address(row: int, part: int) -> int:
        return int(layout(row, part * vector)) * bits // 8

    parts = range(cols // vector)
    if "matrix" in name:
        lanes = [[address(r + i, p) for i in range(8)] for r in range(0, rows, 8) for p in parts]
    else:
        line = [address(r, p) for r in range(rows) for p in parts]
        if name.endswith("across"):
            line = [address(r, p) for p in parts for r in range(rows)]
        count = min(32, 128 // size)
        lanes = [line[i : i + count] for i in range(0, len(line), count)]
    return sum(counted(lane, size) for lane in lanes)


@pytest.mark.parametrize("name", ACCESSES)
def test_whole_tiles(name: str) -> None:
    draw = random.Random(name)
    for _ in range(4):
        bits = draw.choice([8, 16, 32] if ACCESSES[name].bytes >= 4 else [8])
        pitch = draw.choice([128, 144, 160, 256])
        layout = Layout((16, 128), (pitch, 1))
        swizzle = draw.choice([IDENTITY, Swizzle(2, 4, 3), Swizzle(3, 4, 3)])
        tile = swizzle.compose(layout)
        banks = conflicts(ACCESSES[name], tile, bits)
        assert banks.wavefronts == tile_counted(name, tile, bits, 16, 128)
        assert counted(banks.example, ACCESSES[name].bytes) == banks.worst


def test_a_column_major_tile_is_read_along_its_columns() -> None:
    rows, columns = Layout.row_major((64, 32)), Layout.col_major((32, 64))
    for name in ("ldmatrix", "st128", "ld32.across"):
        by_row, other = (passes(ACCESSES[name], layout, 16) for layout in (rows, columns))
        assert (by_row == other).all()


@pytest.mark.parametrize(
    ("layout", "bits", "name", "words"),
    [
        (Layout.row_major((4, 64)), 16, "ldmatrix", "8 lines at a time, and there are 4"),
        (Layout((8, 64), (68, 1)), 16, "ldmatrix", "multiples of 8"),
        (Layout((8, 64), (128, 2)), 16, "st128", "side by side"),
        (Layout.row_major((8, 8)), 64, "ld32", "no whole number"),
        (Layout.row_major((1, 8)), 16, "st128", "8 vectors of 16 bytes at a time"),
        (Layout(64, 1), 16, "st128", "rows and columns"),
        (Swizzle(2, 1, 4).compose(Layout.row_major((8, 64))), 16, "st128", "within vectors"),
    ],
)
def test_tiles_an_access_cannot_have(layout: Mapping, bits: int, name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        conflicts(ACCESSES[name], layout, bits)


@pytest.mark.parametrize(
    ("rows", "cols", "bits", "expected"),
    [
        (64, 64, 16, Swizzle(3, 3, 3)),
        (128, 32, 16, Swizzle(2, 3, 3)),
        (32, 128, 16, Swizzle(3, 3, 4)),
        (128, 16, 16, Swizzle(1, 3, 3)),
        (64, 128, 8, Swizzle(3, 4, 3)),
        (64, 8, 16, IDENTITY),
    ],
)
def test_the_smallest_swizzle(rows: int, cols: int, bits: int, expected: Swizzle) -> None:
    layout = Layout.row_major((rows, cols))
    swizzle = smallest_swizzle(layout, bits, (LDMATRIX, ST128))
    assert swizzle == expected
    ideal = rows * cols * bits // 8 // 128
    for name in ("ldmatrix", "st128"):
        assert tile_counted(name, swizzle.compose(layout), bits, rows, cols) == ideal
    # A bijection of the tile, so nothing is overwritten and nothing lies outside.
    assert sorted(swizzle(np.arange(rows * cols))) == list(range(rows * cols))
    # No swizzle of fewer bits, and none of as many and a smaller shift, does it.
    for bits_of_it in range(swizzle.bits + 1):
        last = swizzle.shift if bits_of_it == swizzle.bits else 8
        for shift in range(bits_of_it, last):
            smaller = Swizzle(bits_of_it, expected.base, shift).compose(layout)
            assert tile_counted("ldmatrix", smaller, bits, rows, cols) > ideal


def test_the_smallest_padding() -> None:
    for layout, bits, access, expected in (
        (Layout.row_major((64, 64)), 16, LDMATRIX, 72),
        (Layout.row_major((128, 32)), 16, LDMATRIX, 40),
        (Layout.row_major((32, 32)), 32, ACROSS, 33),
        (Layout.row_major((64, 8)), 16, LDMATRIX, 8),
    ):
        padded = smallest_padding(layout, bits, (access,))
        assert padded == Layout(layout.shape, (expected, 1))
        rows, cols = (part.size for part in layout.parts)
        for pitch in range(cols, expected, 8 * access.bytes // bits):
            smaller = Layout(layout.shape, (pitch, 1))
            ideal = rows * cols * bits // 8 // 128
            assert tile_counted(access.name, smaller, bits, rows, cols) > ideal
    assert smallest_padding(Layout.col_major((64, 64)), 16, (LDMATRIX,)) == Layout(
        (64, 64), (1, 72)
    )


def test_where_nothing_helps_nothing_is_offered() -> None:
    # Rows of 4 chunks: padded for ldmatrix, two of them no longer fill the banks of one store.
    assert smallest_padding(Layout.row_major((128, 32)), 16, (LDMATRIX, ST128)) is None
    assert smallest_padding(Layout((64, (8, 8)), (64, (1, 8))), 16, (LDMATRIX,)) is None
    # Rows that end early: a swizzle would move their chunks out of the tile.
    assert smallest_swizzle(Layout((8, 24), (64, 1)), 16, (LDMATRIX,)) is None


def place_in_the_kernel(
    row: Array, byte: Array, pitch: int, unit: int, swizzled: bool = True
) -> Array:
    """Evaluate the kernels' own ``swizzled``, its C as Python."""
    source = resources.path("kernels/swizzle.cuh").read_text()
    (result,) = re.findall(r"return (row \* PITCH.*);", source)
    names: dict[str, Any] = {"row": row, "byte": byte, "PITCH": pitch, "UNIT": unit}
    for name, text in re.findall(r"constexpr u32 (\w+) = (.*);", source):
        chosen = re.sub(r"(PITCH < 128) \? (.*) : (\w+)", r"(\2 if \1 else \3)", text)
        names[name] = eval(chosen.replace("/", "//"), {}, names)
    if not swizzled:
        result = re.sub(r"\(byte \^ .*\)", "byte", result)
    address: Array = eval(result.replace("/", "//"), {}, names)
    return address


@pytest.mark.parametrize(
    ("cols", "bits", "unit", "swizzle"),
    [
        (16, 16, 16, Swizzle(1, 3, 3)),
        (32, 16, 16, Swizzle(2, 3, 3)),  # A, BM x BK
        (64, 16, 16, Swizzle(3, 3, 3)),  # B, BK x 64 of BN
        (128, 16, 16, Swizzle(3, 3, 4)),
        (32, 32, 32, Swizzle(2, 3, 2)),
        (64, 32, 32, Swizzle(2, 3, 3)),  # D on its way out, 16 x WN
    ],
)
def test_the_tiles_of_the_tensor_core_kernel(
    cols: int, bits: int, unit: int, swizzle: Swizzle
) -> None:
    rows, size = 64, bits // 8
    layout = Layout.row_major((rows, cols))
    row, col = np.indices((rows, cols))
    swizzled = place_in_the_kernel(row, size * col, size * cols, unit)
    plain = place_in_the_kernel(row, size * col, size * cols, unit, swizzled=False)
    for each in np.ndindex(rows, cols):
        assert swizzled[each] == size * swizzle(layout(*each))
        assert plain[each] == size * layout(*each)
    if unit == 16:
        ideal = rows * cols * size // 128
        tile = swizzle.compose(layout)
        for access in (LDMATRIX, ACCESSES["ldmatrix.trans"], ST128):
            met = conflicts(access, tile, bits)
            assert (met.wavefronts, met.ideal) == (ideal, ideal)
        assert conflicts(LDMATRIX, layout, bits).worst == min(8, cols // 8)
