"""What copies with tensor maps move, against loops over every element in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.errors import Unsupported
from ptxlab.layouts.layout import Swizzle
from ptxlab.numbers.types import TYPES
from ptxlab.tensormap.box import Box, box_of
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import Im2col, TensorMap
from tests.tensormap.maps import BASE, pixels, tiled
from tests.together import in_one_test, thorough

Bytes = npt.NDArray[np.uint8]
MASKS = {"none": 0, "32B": 0x10, "64B": 0x30, "128B": 0x70}
SHARED = 1 << 16

Element = tuple[int, int | None]
"""The offset of an element in shared memory, before the swizzle, and its address if it is inside."""


def tile(
    tensor_map: TensorMap, at: tuple[int, ...], offsets: tuple[int, ...] = ()
) -> Iterator[Element]:
    """PTX ISA, "Tiled mode": dimension 0 runs fastest, and takes every element."""
    assert isinstance(tensor_map.box, tuple)
    steps = (1, *tensor_map.element_strides[1:])
    counts = [(box + step - 1) // step for box, step in zip(tensor_map.box, steps, strict=True)]
    strides = (tensor_map.size, *tensor_map.strides)
    for number, reversed_ in enumerate(product(*map(range, reversed(counts)))):
        index = reversed_[::-1]
        x = [c + i * step for c, i, step in zip(at, index, steps, strict=True)]
        inside = all(
            0 <= coordinate < size for coordinate, size in zip(x, tensor_map.dims, strict=True)
        )
        address = tensor_map.address + sum(a * b for a, b in zip(x, strides, strict=True))
        yield number * tensor_map.size, address if inside else None


def column(
    tensor_map: TensorMap, at: tuple[int, ...], offsets: tuple[int, ...] = ()
) -> Iterator[Element]:
    """PTX ISA, "im2col mode": from pixel to pixel of the window, then to the next line, image."""
    assert isinstance(tensor_map.box, Im2col)
    spatial = tensor_map.rank - 2
    offsets = offsets or (0,) * spatial
    low = [a + b for a, b in zip(tensor_map.box.lower, offsets, strict=True)]
    sizes = tensor_map.dims[1:-1]
    high = [a + b + c for a, b, c in zip(sizes, tensor_map.box.upper, offsets, strict=True)]
    x = [a + b for a, b in zip(at[1:-1], offsets, strict=True)]
    image, number = at[-1], 0
    for _ in range(tensor_map.box.pixels):
        here = all(0 <= coordinate < size for coordinate, size in zip(x, sizes, strict=True))
        here = here and 0 <= image < tensor_map.dims[-1]
        for c in range(at[0], at[0] + tensor_map.box.channels):
            steps = zip((*x, image), tensor_map.strides, strict=True)
            address = tensor_map.address + c * tensor_map.size + sum(a * b for a, b in steps)
            yield (
                number * tensor_map.size,
                address if here and 0 <= c < tensor_map.dims[0] else None,
            )
            number += 1
        for d in range(spatial):
            x[d] += tensor_map.element_strides[d + 1]
            if x[d] < high[d]:
                break
            x[d] = low[d]
        else:
            image += 1


def swizzled(tensor_map: TensorMap, address: int) -> int:
    return address ^ (address >> 3 & MASKS[tensor_map.swizzle])


Place = tuple[tuple[int, ...], tuple[int, ...]]


def place_of_tile(draw: random.Random, tensor_map: TensorMap) -> Place:
    assert isinstance(tensor_map.box, tuple)
    far = draw.random() < 0.1
    return tuple(
        draw.choice([-(1 << 31), (1 << 31) - 1]) if far else draw.randint(-box, size + 1)
        for box, size in zip(tensor_map.box, tensor_map.dims, strict=True)
    ), ()


def place_of_column(draw: random.Random, tensor_map: TensorMap) -> Place:
    assert isinstance(tensor_map.box, Im2col)
    offsets = (
        tuple(draw.randint(0, 3) for _ in range(tensor_map.rank - 2)) if draw.random() < 0.8 else ()
    )
    x = tuple(
        draw.randint(low, size + high - 1)
        for size, low, high in zip(
            tensor_map.dims[1:-1], tensor_map.box.lower, tensor_map.box.upper, strict=True
        )
    )
    return (draw.randint(-20, 20), *x, draw.randint(-1, tensor_map.dims[-1])), offsets


KINDS: list[tuple[Any, Any, Any]] = [
    (tiled, tile, place_of_tile),
    (pixels, column, place_of_column),
]


def cases(count: int, seed: int) -> Iterator[tuple[random.Random, TensorMap, Any, Place]]:
    for number in range(count):
        draw = random.Random(seed * 1000 + number)
        make, follow, corner = KINDS[number % 2]
        tensor_map = make(draw)
        yield draw, tensor_map, follow, corner(draw, tensor_map)


def memory_of(tensor_map: TensorMap, seed: int) -> Bytes:
    return np.frombuffer(random.Random(seed).randbytes(tensor_map.nbytes), np.uint8).copy()


def test_copies_that_are_inside_are_taken_at_once() -> None:
    """There are rows of all if each is inside, and then the bytes of one copy after the other."""
    together = apart = 0
    for draw, tensor_map, follow, _ in cases(600, 2):
        if isinstance(tensor_map.box, Im2col):
            assert Box(tensor_map).inside(np.zeros((1, tensor_map.rank), np.int64)) is None
            continue
        box, memory = Box(tensor_map), memory_of(tensor_map, 2)
        reach = list(zip(tensor_map.dims, tensor_map.box, strict=True))
        lines = [
            tuple(draw.randint(-1, max(0, size - length + 1)) for size, length in reach)
            for _ in range(2)
        ]
        whole = all(
            address is not None for at in lines for _, address in follow(tensor_map, at, ())
        )
        rows = box.inside(np.array(lines, np.int64))
        assert (rows is not None) == whole, (tensor_map, lines)
        together, apart = together + whole, apart + (not whole)
        if rows is not None:
            moved = rows.gather(memory, BASE)
            for number, at in enumerate(lines):
                alone = box.rows(at).gather(memory, BASE)
                assert moved[number].tobytes() == alone.tobytes(), (tensor_map, at)
    assert min(together, apart) > 20


@pytest.mark.parametrize("count", [100, *thorough([400])])
def test_loads_element_by_element(count: int) -> None:
    partly = 0
    for draw, tensor_map, follow, (at, offsets) in cases(count, 1):
        memory = memory_of(tensor_map, 1)
        expected = np.full(SHARED, 0xA5, np.uint8)
        start = 128 * draw.randrange(100)
        elements = list(follow(tensor_map, at, offsets))
        for offset, address in elements:
            for byte in range(tensor_map.size):
                value = 0 if address is None else memory[address - BASE + byte]
                expected[swizzled(tensor_map, start + offset + byte)] = value
        shared = np.full(SHARED, 0xA5, np.uint8)
        box = box_of(encode(tensor_map))
        assert box.nbytes == len(elements) * tensor_map.size
        rows = box.rows(at, offsets)
        shared.view(np.complex128)[box.units(start)] = rows.gather(memory, BASE)
        assert shared.tobytes() == expected.tobytes(), (tensor_map, at, offsets)
        inside = [address for _, address in elements if address is not None]
        reach = (min(inside), max(inside) + tensor_map.size) if inside else None
        assert rows.extent == reach, (tensor_map, at, offsets)
        partly += 0 < len(inside) < len(elements)
    assert partly > count // 5


@pytest.mark.parametrize("start", [0, -4])
def test_loads_of_tf32_round_to_nearest_even(start: int) -> None:
    draw = random.Random(5)
    words = [draw.getrandbits(32) for _ in range(4096)]
    words[::4] = [word & 0xFFFFE000 | 0x1000 for word in words[::4]]  # ties
    words[1:9] = [0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x7FC00001, 0x80000FFF, 0x1001, 0x3FFFF000, 0]
    memory = np.array(words, np.uint32)
    box = Box(TensorMap("tf32", BASE, (64, 64), (256,), (64, 64), (1, 1)))
    with np.errstate(over="ignore", invalid="ignore"):
        moved = box.rows((start, 0)).gather(memory.view(np.uint8), BASE).view(np.float32)
    rounded = moved.reshape(64, 64)[:, -start:]
    given = memory.view(np.float32).reshape(64, 64)[:, : 64 + start]
    for x, actual in zip(given.ravel().tolist(), rounded.ravel().tolist(), strict=True):
        if math.isfinite(x):
            ulp = Fraction(2) ** (max(math.frexp(x)[1] - 1, -126) - 10)
            nearest = float(round(Fraction(x) / ulp) * ulp)
            assert actual == (nearest if abs(nearest) < 2.0**128 else math.copysign(math.inf, x)), x
        else:
            assert actual == x or (math.isnan(actual) and math.isnan(x))


def test_stores_element_by_element() -> None:
    for draw, tensor_map, follow, (at, _) in cases(200, 2):
        moved = np.frombuffer(draw.randbytes(SHARED), np.uint8)
        start = 128 * draw.randrange(100)
        expected, memory = memory_of(tensor_map, 2), memory_of(tensor_map, 2)
        for offset, address in follow(tensor_map, at):
            if address is not None:
                for byte in range(tensor_map.size):
                    source = swizzled(tensor_map, start + offset + byte)
                    expected[address - BASE + byte] = moved[source]
        box = Box(tensor_map)
        units = moved.view(np.complex128)[box.units(start)]
        box.rows(at).scatter(memory, BASE, units)
        assert memory.tobytes() == expected.tobytes(), (tensor_map, at)


def test_elements_for_reductions() -> None:
    for _, tensor_map, follow, (at, _) in cases(200, 3):
        expected = {n: a for n, (_, a) in enumerate(follow(tensor_map, at)) if a is not None}
        addresses, numbers = Box(tensor_map).rows(at).elements()
        assert dict(zip(numbers.tolist(), addresses.tolist(), strict=True)) == expected


def images(
    lower: int, upper: int, pixels: int, start: tuple[int, ...], offsets: Any = ()
) -> list[int]:
    """Load pixels of two images of 4x4, numbered from 1 on: one channel of four counts."""
    memory = np.zeros((2, 4, 4, 4), np.uint32)
    memory[..., 0] = np.arange(1, 33).reshape(2, 4, 4)
    what = Im2col((lower, lower), (upper, upper), 4, pixels)
    tensor_map = TensorMap("u32", BASE, (4, 4, 4, 2), (16, 64, 256), what, (1, 1, 1, 1))
    box = Box(tensor_map)
    moved = box.rows((0, *start), offsets).gather(memory.view(np.uint8).reshape(-1), BASE)
    return [int(word) for word in moved.view(np.uint32)[::4]]


def test_the_published_example_of_im2col() -> None:
    """Triton's tutorial on im2col, which ran on a Hopper GPU. Coordinates are w, h, n."""
    zeros = [0] * 5
    assert images(-1, -1, 16, (2, 1, 0)) == [7, 0, 9, 10, 11, *zeros, 17, 18, 19, 0, 21, 22]
    whole = images(-1, -1, 16, (-1, -1, 0), (1, 1))
    assert whole == list(range(1, 17))


def test_wider_filters_of_im2col_step_through_the_window() -> None:
    """A window wider than the image: PTX ISA's figures with lower corner 0, upper corner -2."""
    inside = images(0, -2, 8, (0, 0, 0))
    assert inside == [1, 2, 5, 6, 17, 18, 21, 22]
    assert images(0, -2, 8, (0, 0, 0), (2, 1)) == [7, 8, 11, 12, 23, 24, 27, 28]
    assert images(0, -2, 3, (1, 1, 1)) == [22, 0, 0]


@pytest.mark.parametrize("name", ["32B", "64B", "128B"])
def test_swizzles_are_those_of_cute_on_absolute_addresses(name: str) -> None:
    bits = {"32B": 1, "64B": 2, "128B": 3}[name]
    span = 16 << bits
    box = Box(TensorMap("u8", BASE, (span, 256), (span,), (span, 96), (1, 1), name))
    for start in range(0, 2048, 128):
        addresses = start + np.arange(0, box.nbytes, 16)
        expected = addresses ^ (addresses >> 3 & MASKS[name])
        assert np.array_equal(Swizzle(bits, 4, 3)(addresses), expected)
        units = box.units(start)
        assert np.array_equal(16 * units, expected)
        assert sorted(units) == list(range(start // 16, (start + box.nbytes) // 16))
    assert not np.array_equal(box.units(128) - 8, box.units(0)), "the pattern is not the copy's own"


OFFSETS = (144, 288, 432, 576, 720, 864, 1008, 1024, 1168, 1312, 1456, 1600, 1744, 1888, 2032)
"""Where a row of 32 bytes begins in a swizzle of 128 bytes, the first one 128 bytes behind a multiple of 1024."""
RECORDED: dict[str, tuple[int, tuple[int, ...], bool, tuple[int, ...]]] = {
    "im2col, 3d": (3, (1,), False, (33, 65, 81, 113, 145, 161, 193, 225, 241, 273, 305, 321, 353)),
    "im2col, 4d": (
        4,
        (1, 1),
        False,
        (113, 145, 161, 193, 225, 241, 273, 305, 321, 353, 385, 401, 433),
    ),
    "im2col, 5d": (
        5,
        (1, 1, 1),
        False,
        (753, 785, 801, 833, 865, 881, 913, 945, 961, 993, 1025, 1041, 1073),
    ),
    "im2col::w, 4d": (
        4,
        (2, 1),
        True,
        (33, 65, 641, 673, 705, 1281, 1313, 1345, 1921, 1953, 1985, 2561, 2593, 2625, 3201),
    ),
    "im2col::w, 5d": (
        5,
        (2, 1),
        True,
        (
            33,
            65,
            5121,
            5153,
            5185,
            10241,
            10273,
            10305,
            15361,
            15393,
            15425,
            20481,
            20513,
            20545,
            25601,
        ),
    ),
}
"""What a GeForce RTX 5080 copied (roundandr/Allegro, ``nvidia_tma_sm120a.json``): 13 pixels of 8 numbers from W 1 on, by
steps of 2 in a window whose corners are -1: dimensions, offsets, or wHalo and wOffset, and the first number of each row."""


def recorded(dims: tuple[int, ...], box: Any, steps: tuple[int, ...]) -> tuple[Box, Bytes]:
    """Return the box of a tensor whose numbers of 32 bits count from 1 on, and that."""
    sizes = np.cumprod((4, *dims))[1:-1].tolist()
    memory = np.arange(1, 1 + (1 << 18), dtype=np.uint32).view(np.uint8)
    return Box(TensorMap("u32", BASE, dims, tuple(sizes), box, steps, "128B")), memory


def test_rows_shorter_than_their_swizzle_are_its_span_apart() -> None:
    """As the same GPU copied 3 rows of 32 bytes: every second one of 5."""
    box, memory = recorded((32, 8), (8, 5), (1, 2))
    assert (box.counted, box.nbytes) == (96, 384)
    shared = np.full(1024, 0xCD, np.uint8)
    shared.view(np.complex128)[box.units(0)] = box.rows((0, 0)).gather(memory, BASE)
    expected = np.full(256, 0xCDCDCDCD, np.uint32)
    for first, offset in ((1, 0), (65, 144), (129, 288)):
        for half in range(2):
            at = (offset ^ 16 * half) // 4
            expected[at : at + 4] = np.arange(4) + first + 4 * half
    assert np.array_equal(shared.view(np.uint32), expected)


@pytest.mark.parametrize("name", RECORDED)
def test_pixels_are_those_that_a_GPU_copied(name: str) -> None:
    rank, offsets, wide, values = RECORDED[name]
    corner = (-1, *(0,) * (0 if wide else rank - 3))
    dims, steps = (16, 5, 8, 8, 8)[:rank], (1, 2, 1, 1, 1)[:rank]
    box, memory = recorded(dims, Im2col(corner, corner, 8, 13, wide), steps)
    at = (0, 1, *(0,) * (rank - 2))
    rows = box.wide(at, *offsets) if wide else box.rows(at, offsets)
    assert rows.box.counted == 32 * len(values)
    shared = np.full(4096, 0xCD, np.uint8)
    shared.view(np.complex128)[rows.box.units(128)] = rows.gather(memory, BASE)
    expected = np.full(1024, 0xCDCDCDCD, np.uint32)
    for first, offset in zip(values, OFFSETS, strict=False):
        for half in range(2):
            number = (offset ^ 16 * half) // 4
            expected[number : number + 4] = np.arange(4) + first + 4 * half
    assert np.array_equal(shared.view(np.uint32), expected)


def walked(
    tensor_map: TensorMap, at: tuple[int, ...], halo: int, offset: int, groups: int
) -> list[int | None]:
    """PTX ISA, "im2col::w and im2col::w::128 modes": the address of each pixel, None outside, main ones first."""
    assert isinstance(tensor_map.box, Im2col)
    [low], [high] = tensor_map.box.lower, tensor_map.box.upper
    low, high, step = (
        low + offset,
        tensor_map.dims[1] + high + offset,
        tensor_map.element_strides[1],
    )
    count = 32 * groups if groups > 1 else tensor_map.box.pixels
    w, *fixed, image = at[1:]
    w += offset
    walk = []
    for _ in range(count + halo):
        x = (w, *fixed, image)
        inside = all(0 <= a < size for a, size in zip(x, tensor_map.dims[1:], strict=True))
        address = BASE + sum(a * stride for a, stride in zip(x, tensor_map.strides, strict=True))
        walk.append(address if inside else None)
        w += step
        if w >= high:
            w, image = low, image + 1
    halos = [walk[count // groups * (g + 1) + h] for h in range(halo) for g in range(groups)]
    return walk[:count] + halos


def test_pixels_of_a_line_follow_the_walk_of_the_ISA() -> None:
    draw, outside = random.Random(4), 0
    for number in range(120):
        groups = 4 if number % 3 == 0 else 1
        rank, size = draw.randint(3, 5), draw.randint(1, 9)
        low = draw.randint(-3, 2)
        high = draw.randint(max(-3, low - size + 1), 3)
        dims = (16, size, *(draw.randint(1, 4) for _ in range(rank - 3)), draw.randint(1, 60))
        what = Im2col((low,), (high,), 16, draw.randint(1, 40), wide=True)
        steps = (1, draw.choice([1, 2, 3]), *(1,) * (rank - 2))
        sizes = tuple(np.cumprod((4, *dims))[1:-1].tolist())
        tensor_map = TensorMap("u32", BASE, dims, sizes, what, steps, draw.choice(["64B", "128B"]))
        memory = np.frombuffer(draw.randbytes(tensor_map.nbytes), np.uint8)
        at = (
            0,
            draw.randint(low - 4, size + high - 1),
            *(draw.randint(-1, d) for d in dims[2:-1]),
            draw.randint(-2, dims[-1]),
        )
        halo, offset = draw.choice([0, 1, 2, 5]), draw.choice([0, 1, 3])
        rows = Box(tensor_map).wide(at, halo, offset, groups=groups)
        expected = walked(tensor_map, at, halo, offset, groups)
        moved = rows.gather(memory, BASE).view(np.uint8).reshape(-1, 64)
        assert len(moved) == len(expected) == rows.box.counted // 64
        for pixel, address in zip(moved, expected, strict=True):
            given = np.zeros(64, np.uint8) if address is None else memory[address - BASE :][:64]
            assert np.array_equal(pixel, given), (tensor_map, at, halo, offset, groups)
            outside += address is None
    assert outside > 100


def test_the_first_pixel_of_a_line_is_before_its_end() -> None:
    what = Im2col((0,), (-1,), 16, 4, wide=True)
    box = Box(TensorMap("u32", BASE, (16, 4, 8), (64, 256), what, (1, 1, 1), "64B"))
    box.wide((0, -7, 0), 0, 0)
    with pytest.raises(
        ValueError, match=r"coordinate 3 \+ 1 of dimension 1 is behind the window, .* at 3"
    ):
        box.wide((0, 3, 0), 0, 1)
    with pytest.raises(ValueError, match="wHalo is 512, not below 512"):
        box.wide((0, 0, 0), 512, 0)
    with pytest.raises(ValueError, match="wHalo is 32, not below 32"):
        box.wide((0, 0, 0), 32, 0, groups=4)
    with pytest.raises(ValueError, match="wOffset is 32, not below 32"):
        box.wide((0, 0, 0), 0, 32)


@pytest.mark.parametrize("units", [6, 4])
def test_a_swizzle_of_96_bytes_is_that_of_the_table(units: int) -> None:
    """PTX ISA, "Swizzling Modes": on every second 128 bytes the halves of each 32 change places. Rows are 96 apart."""
    rows, row = 9, 16 * units
    memory = np.frombuffer(random.Random(10).randbytes(row * rows), np.uint8)
    box = Box(TensorMap("u8", BASE, (row, rows), (row,), (row, rows), (1, 1), "96B"))
    for start in (0, 128, 384):
        shared = np.zeros(4096, np.uint8)
        shared.view(np.complex128)[box.units(start)] = box.rows((0, 0)).gather(memory, BASE)
        for number in range(rows * units):
            straight = start + 96 * (number // units) + 16 * (number % units)
            line, cell = divmod(straight // 16, 8)
            there = 16 * (8 * line + (int("10325476"[cell]) if line % 2 else cell))
            assert np.array_equal(shared[there : there + 16], memory[16 * number :][:16]), number


PATTERNS = {
    "128B.atom32B": ("01234567", "23016745", "45670123", "67452301"),
    "128B.atom32B.flip8B": ("01234567", "23016745", "45670123", "67452301"),
    "128B.atom64B": ("01234567", "45670123"),
}
"""PTX ISA, "Swizzling Modes": the units of 16 bytes on each line of 128, in the order of the destination."""


@pytest.mark.parametrize("name", PATTERNS)
def test_swizzles_of_larger_units_are_those_of_the_tables(name: str) -> None:
    rows, pattern = 12, PATTERNS[name]
    memory = np.frombuffer(random.Random(6).randbytes(128 * rows), np.uint8)
    box = Box(TensorMap("u8", BASE, (128, rows), (128,), (128, rows), (1, 1), name))
    for start in (0, 128, 384, 1152):
        units = box.units(start)
        moved = box.rows((0, 0)).gather(memory, BASE)
        if box.flips:
            moved = box.flipped(units, moved)
        shared = np.zeros(start + box.nbytes, np.uint8)
        shared.view(np.complex128)[units] = moved
        for row in range(rows):
            line = row + start // 128
            given, at = memory[128 * row :][:128], shared[128 * line :][:128]
            for where, unit in enumerate(map(int, pattern[line % len(pattern)])):
                cell = given[16 * unit :][:16]
                if name.endswith("flip8B") and line % 2:
                    cell = np.concatenate([cell[8:], cell[:8]])
                assert np.array_equal(at[16 * where :][:16], cell), (start, row, where)


def packed(values: list[int], bits: int) -> Bytes:
    """Pack numbers one behind the other, the first in the lowest bits."""
    word = sum(value << bits * i for i, value in enumerate(values))
    return np.frombuffer(word.to_bytes(len(values) * bits // 8, "little"), np.uint8).copy()


@in_one_test(
    ("dtype", "bits", "pitch"), [("b4x16", 4, 8), ("b4x16_p64", 4, 16), ("b6x16_p32", 6, 16)]
)
@in_one_test("x", [0, 128, 256, -128])
def test_loads_of_packed_numbers(dtype: str, bits: int, pitch: int, x: int) -> None:
    """Sixteen together, from a unit of shared memory on; what is outside is zero."""
    draw = random.Random(7)
    values = [[draw.getrandbits(bits) for _ in range(256)] for _ in range(5)]
    memory = np.concatenate([packed(row, bits) for row in values])
    stride = 256 * bits // 8
    box = Box(TensorMap(dtype, BASE, (256, 5), (stride,), (128, 4), (1, 1)))
    assert (box.nbytes, box.counted) == (4 * 8 * pitch, 4 * 128 * bits // 8)
    rows = box.rows((x, 2))
    moved = (rows.gather(memory, BASE) if rows.extent else box.outside()).view(np.uint8)
    moved = moved.reshape(4, 8, pitch)
    for row, group in product(range(4), range(8)):
        inside = row + 2 < 5 and 0 <= x < 256
        first = x + 16 * group
        expected = packed(values[row + 2][first : first + 16] if inside else [0] * 16, bits)
        assert np.array_equal(moved[row, group, : expected.size], expected), (row, group)
    assert (moved[..., 2 * bits :] == 0xFF).all()


def test_copies_of_packed_numbers_that_are_inside_are_taken_at_once() -> None:
    memory = np.frombuffer(random.Random(8).randbytes(192 * 8), np.uint8)
    box = Box(TensorMap("b6x16_p32", BASE, (256, 8), (192,), (128, 2), (1, 1)))
    lines = [(0, 0), (128, 3), (128, 6)]
    together = box.inside(np.array(lines))
    assert together is not None
    moved = together.gather(memory, BASE)
    for number, at in enumerate(lines):
        assert moved[number].tobytes() == box.rows(at).gather(memory, BASE).tobytes()
    assert box.inside(np.array([(64, 0)])) is None


def test_stores_of_six_bits_drop_the_upper_two_of_each_byte() -> None:
    """PTX ISA, "Sub-byte Types": b6p2x16."""
    draw = random.Random(9)
    given = np.frombuffer(draw.randbytes(4 * 128), np.uint8)
    memory = np.full(5 * 96, 0xA5, np.uint8)
    box = Box(TensorMap("b6x16_p32", BASE, (128, 5), (96,), (128, 4), (1, 1)))
    box.rows((0, 3)).scatter(memory, BASE, given.view(np.complex128))
    expected = np.full((5, 96), 0xA5, np.uint8)
    for row in range(2):
        expected[3 + row] = packed([int(byte) & 63 for byte in given[128 * row :][:128]], 6)
    assert np.array_equal(memory.reshape(5, 96), expected)


def test_coordinates_of_packed_numbers() -> None:
    padded = Box(TensorMap("b4x16_p64", BASE, (256, 8), (128,), (128, 8), (1, 1)))
    with pytest.raises(ValueError, match="coordinate 64 is no multiple of 128, as b4x16_p64 needs"):
        padded.rows((64, 0))
    close = Box(TensorMap("b4x16", BASE, (256, 8), (128,), (64, 8), (1, 1)))
    assert close.rows((2, 0)).extent == (BASE + 1, BASE + 7 * 128 + 33)
    with pytest.raises(Unsupported, match="coordinate 3 of b4x16, in the middle of a byte"):
        close.rows((3, 0))


def test_shared_addresses_are_multiples_of_128() -> None:
    box = Box(TensorMap("u8", BASE, (16,), (), (16,), (1,)))
    with pytest.raises(ValueError, match="shared address 0x40 is no multiple of 128"):
        box.units(64)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_filling_with_nan(dtype: str) -> None:
    size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[dtype]
    tensor_map = TensorMap(dtype, BASE, (16,), (), (16,), (1,), fill="nan")
    memory = np.arange(16 * size, dtype=np.uint8)
    moved = Box(tensor_map).rows((9,)).gather(memory, BASE).view(f"u{size}")
    assert np.array_equal(moved[:7], memory.view(f"u{size}")[9:])
    kind = TYPES[dtype].dtype
    assert np.isnan(moved[7:].view(kind).astype(np.float64)).all()
    zeros = Box(replace(tensor_map, fill="zeros")).rows((9,)).gather(memory, BASE)
    assert not zeros.view(f"u{size}")[7:].any()


def test_of_rows_at_one_address_the_last_store_stays() -> None:
    tensor_map = TensorMap("u8", BASE, (16, 8), (0,), (16, 8), (1, 1))
    memory = np.zeros(16, np.uint8)
    moved = np.repeat(np.arange(1, 9, dtype=np.uint8), 16).view(np.complex128)
    Box(tensor_map).rows((0, 0)).scatter(memory, BASE, moved)
    assert memory.tolist() == [8] * 16


def test_coordinates_are_as_many_as_dimensions() -> None:
    tile_box = Box(TensorMap("u8", BASE, (16, 8), (16,), (16, 8), (1, 1)))
    with pytest.raises(ValueError, match="3 coordinates for 2 dimensions"):
        tile_box.rows((0, 0, 0))


def test_the_first_pixel_is_in_the_window() -> None:
    with pytest.raises(ValueError, match=r"coordinate 3 \+ 0 of dimension 1 .* -1 to 2"):
        images(-1, -1, 4, (3, 0, 0))
    with pytest.raises(ValueError, match=r"coordinate -2 \+ 1 of dimension 2 .* 0 to 3"):
        images(-1, -1, 4, (0, -2, 0), (1, 1))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"interleave": "16B"}, "interleave 16B"),
        ({"dtype": "tf32.ftz"}, "elements of tf32.ftz"),
        ({"dtype": "f32.ftz"}, "elements of f32.ftz"),
    ],
)
def test_what_nobody_documents_is_refused(changes: dict[str, Any], what: str) -> None:
    given = TensorMap("f32", BASE, (16, 8, 8), (64, 512), (16, 8, 8), (1, 1, 1))
    Box(given)
    with pytest.raises(Unsupported, match=f"a tensor map with {what} is not modelled"):
        Box(replace(given, **changes))
    with pytest.raises(Unsupported, match=what):
        box_of(encode(replace(given, **changes)))


def test_im2col_takes_every_image() -> None:
    pixels = Im2col((0,), (0,), 16, 4)
    given = TensorMap("u8", BASE, (16, 4, 4), (16, 64), pixels, (1, 1, 1))
    Box(given)
    with pytest.raises(Unsupported, match="im2col that takes every 2th image is not modelled"):
        Box(replace(given, element_strides=(1, 1, 2)))


def test_a_tensor_may_lie_in_the_upper_half_of_all_addresses() -> None:
    for address in (1 << 63, (1 << 64) - 256):
        box = Box(TensorMap("u8", address, (16, 4), (64,), (16, 4), (1, 1)))
        rows = box.rows((0, 1))
        assert [int(address) % (1 << 64) for address in rows.addresses] == [
            address + 64 * row for row in (1, 2, 3)
        ]


def test_boxes_are_kept() -> None:
    data = encode(TensorMap("u8", BASE, (16,), (), (16,), (1,)))
    assert box_of(data) is box_of(bytes(bytearray(data)))
