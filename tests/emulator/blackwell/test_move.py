"""tcgen05.ld, .st, .cp and .shift against the formulas of the PTX ISA, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from operator import itemgetter

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from tests.emulator.blackwell.cells import COLUMNS, LANES, Tile, after, random_cells
from tests.together import one_of_each

Place = Callable[[int, int], tuple[int, int]]

SHAPES: dict[str, tuple[int, Place]] = {
    "32x32b": (1, lambda t, r: (t, r)),
    "16x64b": (1, lambda t, r: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2))),
    "16x256b": (4, lambda t, r: (t // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (t % 4) + 8 * (r // 4))),
    "16x32bx2": (1, lambda t, r: (t % 16, r + 1000 * (t // 16))),
}
"""Registers a thread at x1, and (lane, column) of a thread and register; 1000 stands for the second half."""

AT_ONCE = 32
"""Columns that are filled, and read back, by an instruction."""


def moved(move: str, registers: int, addresses: str, extra: str = "") -> str:
    """Return a kernel that fills Tensor Memory, moves, and writes registers and cells to memory."""
    names = ", ".join(f"r{i}" for i in range(registers))
    many = "{" + ", ".join(f"w{i}" for i in range(AT_ONCE)) + "}"
    quads = [f"{{w{i}, w{i + 1}, w{i + 2}, w{i + 3}}}" for i in range(0, AT_ONCE, 4)]
    take = "\n".join(f"ld.global.v4.b32 {quad}, [at+{16 * i}];" for i, quad in enumerate(quads))
    give = "\n".join(f"st.global.v4.b32 [at+{16 * i}], {quad};" for i, quad in enumerate(quads))
    load = "\n".join(f"ld.global.b32 r{i}, [po+{4 * i}];" for i in range(registers))
    store = "\n".join(f"st.global.b32 [po+{4 * i}], r{i};" for i in range(registers))
    return f"""
.version 9.1
.target sm_103a
.address_size 64
.visible .entry k(.param .u64 cells, .param .u64 out)
{{
    .reg .pred first, more;
    .reg .b32 thread, t, a, c, red, w<{AT_ONCE}>, r<{registers}>;
    .reg .b64 pc, po, at;
    .shared .align 16 .b32 slot;
    ld.param.u64 pc, [cells];
    ld.param.u64 po, [out];
    mov.u32 thread, %tid.x;
    setp.lt.u32 first, thread, 32;
    mov.u32 a, slot;
    @first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [a], 512;
    bar.sync 0;
    ld.shared.b32 t, [slot];
    mad.wide.u32 pc, thread, {4 * COLUMNS}, pc;
    mad.wide.u32 po, thread, {4 * registers + 4}, po;
    mov.u32 c, 0;
put:
    mad.wide.u32 at, c, 4, pc;
    {take}
    add.u32 a, t, c;
    tcgen05.st.sync.aligned.32x32b.x{AT_ONCE}.b32 [a], {many};
    add.u32 c, c, {AT_ONCE};
    setp.lt.u32 more, c, {COLUMNS};
    @more bra put;
    tcgen05.wait::st.sync.aligned;
    {load}
    mov.u32 red, 0;
    {addresses}
    {move.format(names)}
    {extra}
    tcgen05.wait::ld.sync.aligned;
    tcgen05.wait::st.sync.aligned;
    {store}
    st.global.b32 [po+{4 * registers}], red;
    mov.u32 c, 0;
get:
    mad.wide.u32 at, c, 4, pc;
    add.u32 a, t, c;
    tcgen05.ld.sync.aligned.32x32b.x{AT_ONCE}.b32 {many}, [a];
    {give}
    add.u32 c, c, {AT_ONCE};
    setp.lt.u32 more, c, {COLUMNS};
    @more bra get;
    bar.sync 0;
    @first tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, 512;
    ret;
}}
"""


@cache
def gpu() -> Device:
    return open_device("emulator", arch="sm_103a")


def run(text: str, cells: Array, registers: Array) -> tuple[Array, Array]:
    """Return Tensor Memory [128, 512] and the registers [128, registers + 1] after, with redval."""
    given = gpu().upload(cells.astype(np.uint32))
    out = gpu().upload(np.concatenate([registers, np.zeros((128, 1), np.uint32)], axis=1))
    gpu().load(text).kernel("k").launch(grid=1, block=128, args=[given, out])
    return given.numpy(), out.numpy()


CASES = [
    ("32x32b", 1, False), ("32x32b", 4, False), ("32x32b", 128, False), ("32x32b", 2, True),
    ("16x64b", 1, False), ("16x64b", 8, True), ("16x128b", 1, False), ("16x128b", 4, True),
    ("16x256b", 2, False), ("16x256b", 1, True), ("16x32bx2", 2, False), ("16x32bx2", 4, True),
]  # fmt: skip


def cells_of(shape: str, count: int, packed: bool, base: int, lower: int) -> Array:
    """Return [128, registers, 1 or 2] cells as lane * 512 + column."""
    each, lane_and_column = SHAPES[shape]
    cells = np.zeros((128, each * count, 1 + packed), int)
    for thread, r, half in np.ndindex(*cells.shape):
        lane, column = lane_and_column(thread % 32, r)
        second, column = divmod(column, 1000)
        column = (2 * column + half if packed else column) + 100 * second
        lane += 32 * (thread // 32) + lower
        cells[thread, r, half] = lane * COLUMNS + base + column
    return cells


@pytest.mark.parametrize(("shape", "count", "packed"), CASES)
@pytest.mark.parametrize("verb", ["ld", "st"])
def test_each_shape(verb: str, shape: str, count: int, packed: bool) -> None:
    """From column 7 on, in the upper 16 lanes where a shape has so few; a warp names any quarter."""
    rng = np.random.default_rng(count)
    lower = 0 if shape == "32x32b" else 16
    cell_of = cells_of(shape, count, packed, 7, lower)
    cells = rng.integers(0, 1 << 32, (LANES, COLUMNS), dtype=np.uint32)
    registers = rng.integers(0, 1 << 32, cell_of.shape[:2], dtype=np.uint32)
    half = ", 100" if shape == "16x32bx2" else ""
    qualifier = "" if not packed else ".pack::16b" if verb == "ld" else ".unpack::16b"
    name = f"tcgen05.{verb}.sync.aligned.{shape}.x{count}{qualifier}.b32"
    address = f"[a+{7 + (lower << 16)}]{half}"
    move = (
        f"{name} {{{{{{}}}}}}, {address};" if verb == "ld" else f"{name} {address}, {{{{{{}}}}}};"
    )
    after_cells, after_registers = run(
        moved(move, cell_of.shape[1], "add.u32 a, t, 0x200000;"), cells, registers
    )
    flat = cells.reshape(-1).astype(np.uint64)
    if verb == "ld":
        expected: Array = flat[cell_of[..., 0]]
        if packed:
            expected = (expected & 0xFFFF) | (flat[cell_of[..., 1]] & 0xFFFF) << np.uint64(16)
        np.testing.assert_array_equal(after_registers[:, :-1], expected)
        np.testing.assert_array_equal(after_cells, cells)
        return
    written = cells.reshape(-1).copy()
    if packed:
        written[cell_of[..., 0]] = registers & 0xFFFF
        written[cell_of[..., 1]] = registers >> 16
    else:
        written[cell_of[..., 0]] = registers
    np.testing.assert_array_equal(after_cells.reshape(-1), written)


@pytest.mark.parametrize("kind", ["u32", "s32", "f32", "abs.f32", "NaN.f32", "abs.NaN.f32"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_what_is_loaded_is_reduced(operation: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 1 << 32, (LANES, COLUMNS), dtype=np.uint32)
    special = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF], np.uint32)
    cells[:64, :4] = rng.choice(special, (64, 4))
    cells[60:64, :4] = 0xFFC00000
    move = f"tcgen05.ld.red.sync.aligned.32x32b.x4.{operation}.{kind} {{{{{{}}}}}}, red, [t];"
    _, out = run(moved(move, 4, ""), cells, np.zeros((128, 4), np.uint32))
    np.testing.assert_array_equal(out[:, :4], cells[:, :4])
    choose = min if operation == "min" else max
    for lane in range(LANES):
        words = [int(word) for word in cells[lane, :4]]
        if kind in ("u32", "s32"):
            sign = (1 << 31) if kind == "s32" else 0
            expected = choose(words, key=lambda word: word ^ sign)
        else:
            if "abs" in kind:
                words = [word & 0x7FFFFFFF for word in words]
            numbers = [word for word in words if word & 0x7FFFFFFF <= 0x7F800000]
            if not numbers or ("NaN" in kind and len(numbers) < 4):
                expected = 0x7FFFFFFF
            else:  # +0 is greater than -0
                order = sorted(numbers, key=lambda w: -(w & 0x7FFFFFFF) - 1 if w >> 31 else w)
                expected = order[0 if operation == "min" else -1]
        assert out[lane, 4] == expected, (lane, [hex(word) for word in words])


# ---- cp and shift ---------------------------------------------------------------------------

COPIED: dict[str, tuple[int, int, Callable[[int], list[int]]]] = {
    "128x256b": (128, 8, lambda i: [i]),
    "4x256b": (4, 8, lambda i: [32 * i]),
    "128x128b": (128, 4, lambda i: [i]),
    "64x128b.warpx2::02_13": (64, 4, lambda i: [i, i + 64]),
    "64x128b.warpx2::01_23": (
        64,
        4,
        lambda i: [i % 32 + 64 * (i // 32), i % 32 + 64 * (i // 32) + 32],
    ),
    "32x128b.warpx4": (32, 4, lambda i: [i, i + 32, i + 64, i + 96]),
}
"""Rows, columns, and the lanes of row i."""


# Each shape always runs, and each packing, of one CTA and of two.
@pytest.mark.parametrize(
    ("group", "bits", "shape"),
    one_of_each(product((1, 2), (0, 4, 6), COPIED), itemgetter(0, 2), itemgetter(0, 1)),
)
def test_each_copy(shape: str, bits: int, group: int) -> None:
    rows, columns, lanes = COPIED[shape]
    rng = np.random.default_rng(rows)
    before = random_cells(rng, group)
    shared = rng.integers(0, 256, (group, 8192), dtype=np.uint8)
    tile = Tile(
        256, 128 * 17, 144
    )  # 8 rows of 16 bytes, then the next 8; the second 16 bytes apart
    packed = {0: "", 4: ".b8x16.b4x16_p64", 6: ".b8x16.b6x16_p32"}[bits]
    body = f"""
    .reg .b32 to;
    add.u32 to, t, {40 + (3 << 16 if shape == "4x256b" else 0)};
    tcgen05.cp.cta_group::{group}.{shape}{packed} [to], x0;
"""
    expected = before.copy()
    for cta, row, unit in np.ndindex(group, rows, columns // 4):
        first = tile.start + 16 * (row % 8) + tile.stride * (row // 8) + tile.leading * unit
        octets = shared[cta, first : first + 16].tolist()
        if bits:
            number = int.from_bytes(bytes(octets[: 2 * bits]), "little")
            octets = [(number >> bits * i & (1 << bits) - 1) << (8 - bits) // 2 for i in range(16)]
        words = np.array(octets, np.uint8).view(np.uint32)
        for lane in lanes(row):
            lane += 3 * (shape == "4x256b")
            expected[cta, lane, 40 + 4 * unit : 44 + 4 * unit] = words
    cells = after(body, before, shared, [tile.descriptor])
    np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize(("group", "first"), [(1, 0), (2, 32)])
def test_the_lanes_of_a_quarter_are_shifted(group: int, first: int) -> None:
    """The others, and the last of its 32, stay: 31x256b."""
    before = random_cells(np.random.default_rng(1), group)
    expected = before.copy()
    for lane in range(first, first + 31):
        expected[:, lane, 64:72] = before[:, lane + 1, 64:72]
    body = f"add.u32 r9, t, {64 + (first << 16)}; tcgen05.shift.cta_group::{group}.down [r9];"
    cells = after(body, before, np.zeros((group, 2048), np.uint8))
    np.testing.assert_array_equal(cells, expected)
