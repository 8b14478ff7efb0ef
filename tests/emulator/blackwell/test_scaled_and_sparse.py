"""tcgen05.mma with scales, with a sparse A, with zero columns: where they lie, on numbers that are exact."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, Unsupported
from tests.emulator.blackwell.cells import COLUMNS, LANES, after
from tests.emulator.blackwell.operands import Problem, coded, in_units
from tests.emulator.blackwell.test_product import ISSUE, issued

SCALES = {
    "ue8m0": (np.array([126, 127, 128]), np.array([0.5, 1.0, 2.0])),
    "ue4m3": (np.array([0x30, 0x38, 0x3C]), np.array([0.5, 1.0, 1.5])),
}
"""Codes and what they stand for."""

A_AT, B_AT = 300, 320


def scaled(problem: Problem, block: int, kind: str) -> tuple[Array, Array, Array, Array]:
    """Return codes and values of the scales of A [m, blocks] and B [n, blocks]."""
    codes, values = SCALES[kind]
    blocks = problem.k // block
    a, b = (problem.rng.integers(0, 3, (count, blocks)) for count in (problem.m, problem.n))
    return codes[a], values[a], codes[b], values[b]


def put_scales(
    problem: Problem, cells: Array, a: Array, b: Array, ids: tuple[int, int] = (0, 0)
) -> None:
    """Write scales: PTX ISA, "Scale factor layout". All lanes m mod 32 hold those of row m.

    Four along k are the bytes of a cell, the next are behind those of 128 rows, or of 128 or 256 columns: CUTLASS,
    ``sm103_blockscaled_mma_warpspecialized.hpp``.
    """
    octets = cells.view(np.uint8).reshape(problem.group, LANES, COLUMNS, 4)
    rows = problem.m // problem.group
    for m, j in np.ndindex(a.shape):
        for quarter in range(4):
            cta, row = divmod(m, rows)
            word, byte = divmod(ids[0] + j, 4)
            octets[cta, row % 32 + 32 * quarter, A_AT + 4 * word + row // 32, byte] = a[m, j]
    for n, j in np.ndindex(b.shape):
        if problem.form == "B":
            half, column = divmod(n, problem.n // 2)
            lanes = [column % 32 + 64 * half + 32 * r for r in range(2)]
        else:
            column, lanes = n, [n % 32 + 32 * r for r in range(4)]
        word, byte = divmod(ids[1] + j, 4)
        apart = 4 if problem.n <= 128 else 8
        octets[:, lanes, B_AT + apart * word + column // 32, byte] = b[n, j]


def issued_scaled(problem: Problem, qualifier: str) -> str:
    body = ISSUE.format(
        opcode="tcgen05.mma",
        group=problem.group,
        kind=f"{problem.kind}.block_scale{qualifier}",
        tail="[r10], [r11], yes",
    )
    return f"add.u32 r10, t, {A_AT}; add.u32 r11, t, {B_AT};" + body


def run_scaled(
    problem: Problem, block: int, kind: str, qualifier: str, target: str = "sm_100a"
) -> None:
    a_codes, a, b_codes, b = scaled(problem, block, kind)
    before = problem.cells()
    ids = (int(problem.more.get("scale id of a", 0)), int(problem.more.get("scale id of b", 0)))
    put_scales(problem, before, a_codes, b_codes, ids)
    expected = before.copy()
    left, right = problem.a * a.repeat(block, axis=1), problem.b * b.repeat(block, axis=1)
    problem.put(expected, left @ right.T + problem.c)
    body = issued_scaled(problem, qualifier)
    cells = after(body, before, problem.shared(), problem.words(), target)
    np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize(
    ("kind", "types", "qualifier", "block", "scale", "m", "n", "group", "more"),
    [
        ("mxf8f6f4", ("e4m3", "e2m1"), "", 32, "ue8m0", 128, 40, 1, {"scale id of a": 3, "scale id of b": 1}),
        ("mxf8f6f4", ("e3m2", "e5m2"), ".block32", 32, "ue8m0", 256, 32, 2, {}),
        ("mxf8f6f4", ("e2m3", "e4m3"), ".scale_vec::1X", 32, "ue8m0", 128, 32, 2, {"scale id of a": 2}),
        ("mxf4", ("e2m1", "e2m1"), ".block32", 32, "ue8m0", 128, 16, 1, {"scale id of a": 2}),
        ("mxf4nvf4", ("e2m1", "e2m1"), ".block16", 16, "ue4m3", 128, 48, 1, {}),
        ("mxf4nvf4", ("e2m1", "e2m1"), ".scale_vec::2X", 32, "ue4m3", 128, 64, 2, {"scale id of b": 2}),
        ("mxf4nvf4", ("e2m1", "e2m1"), ".scale_vec::4X", 16, "ue8m0", 256, 16, 2, {}),
    ],
)  # fmt: skip
def test_each_kind_of_scales(
    kind: str, types: tuple[str, str], qualifier: str, block: int, scale: str, m: int, n: int, group: int,
    more: dict[str, object],
) -> None:  # fmt: skip
    fields = more | ({"scale type": scale} if kind == "mxf4nvf4" else {})
    problem = Problem(kind, m, n, *types, group=group, more=fields)
    run_scaled(problem, block, scale, qualifier)


@pytest.mark.parametrize(
    ("qualifier", "scale", "m", "n", "ids"),
    [
        (".block32", "ue8m0", 128, 16, (1, 0)), (".block32", "ue8m0", 256, 48, (3, 2)),
        (".block32", "ue8m0", 128, 32, (0, 1)), (".block16", "ue4m3", 128, 192, (0, 2)),
        (".block16", "ue8m0", 256, 128, (2, 0)),
    ],
)  # fmt: skip
def test_a_k_of_96_on_the_chip_that_has_it(
    qualifier: str, scale: str, m: int, n: int, ids: tuple[int, int]
) -> None:
    """Rows of 48 bytes, and three or six scales for each, of which some are in the next cells."""
    kind = "mxf4" if qualifier == ".block32" else "mxf4nvf4"
    more = {"k": "96", "scale id of a": ids[0], "scale id of b": ids[1]}
    if kind == "mxf4nvf4":
        more["scale type"] = scale
    problem = Problem(kind, m, n, "e2m1", "e2m1", group=m // 128, more=more)
    run_scaled(problem, int(qualifier[-2:]), scale, qualifier, target="sm_103a")


def test_a_k_of_96_elsewhere_is_refused() -> None:
    def run(target: str, m: int, n: int, group: int, qualifier: str, **ids: int) -> None:
        more = {"k": "96"} | {f"scale id of {name}": first for name, first in ids.items()}
        kind = "mxf4" if qualifier == ".block32" else "mxf4nvf4"
        problem = Problem(kind, m, n, "e2m1", "e2m1", group=group, more=more)
        body = issued_scaled(problem, qualifier)
        after(body, problem.cells(), problem.shared(), problem.words(), target)

    with pytest.raises(Unsupported, match="k of 96 is known of sm_103a alone, not of sm_100a"):
        run("sm_100a", 128, 16, 1, ".block32")
    with pytest.raises(LaunchError, match="scale id of a is 0 or 2 with 6 scales a row, not 1"):
        run("sm_103a", 128, 16, 1, ".block16", a=1)
    with pytest.raises(Unsupported, match="scales behind the fourth of a row lie with m of 128"):
        run("sm_103a", 128, 32, 2, ".block16")


def test_rows_of_96_go_on_at_an_absolute_address() -> None:
    """The third product of a row of 128 bytes begins at its byte 96: the rest is in the next tile."""
    problem = Problem("mxf4", 128, 16, "e2m1", "e2m1", more={"k": "96"}, swizzles=("128B", "none"))
    shared, words = problem.shared(), problem.words()
    codes = in_units(coded(problem.a, "e2m1"), "e2m1", packed=True)
    first, second = 0x4000, 0  # the tile that is begun in lies behind
    memory = np.zeros((1, 65536), np.uint8)
    memory[:, 0x8000 + 16384 :][:, :16384] = shared[:, 16384:]
    for row in range(128):
        for at in range(48):
            address = first + 128 * row + 96 + at if at < 32 else second + 128 * row + at - 32
            memory[0, address ^ (address >> 3 & 0x70)] = codes[row, at]
    start, base = first + 96 + 0x400, second + 0x400
    words[0] = start >> 4 | base >> 4 << 16 | 1024 >> 4 << 32 | 1 << 46 | 1 << 52 | 2 << 61
    words[1] += 0x8000 >> 4
    a_codes, a, b_codes, b = scaled(problem, 32, "ue8m0")
    before = problem.cells()
    put_scales(problem, before, a_codes, b_codes)
    expected = before.copy()
    left, right = problem.a * a.repeat(32, axis=1), problem.b * b.repeat(32, axis=1)
    problem.put(expected, left @ right.T + problem.c)
    cells = after(issued_scaled(problem, ""), before, memory, words, "sm_103a")
    np.testing.assert_array_equal(cells, expected)


def test_copies_of_scales_must_be_the_same() -> None:
    problem = Problem("mxf4", 128, 16, "e2m1", "e2m1")
    a_codes, _, b_codes, _ = scaled(problem, 32, "ue8m0")
    before = problem.cells()
    put_scales(problem, before, a_codes, b_codes)
    before[0, 70, A_AT + 1] ^= 1
    with pytest.raises(LaunchError, match="the scales of A differ between the quarters"):
        after(issued_scaled(problem, ""), before, problem.shared(), problem.words())
    third = np.repeat(before, 4, axis=0)
    third[[0, 1, 3], 70, A_AT + 1] ^= 1
    shared = problem.shared().repeat(4, axis=0)
    with pytest.raises(LaunchError, match=r"issued by thread \(0, 0, 0\) of CTA \(2, 0, 0\)"):
        after(issued_scaled(problem, ""), third, shared, problem.words(), group=1)


# ---- sparse ---------------------------------------------------------------------------------

META_AT = 340


def sparse(problem: Problem) -> tuple[Array, Array]:
    """Make A sparse: return what is stored of it [m, k], and the metadata nibbles [m, chunks].

    The problem's k is that of a dense product, as many numbers as are stored.
    """
    of = 2 if problem.kind == "tf32" else 8 if problem.packed else 4
    stored = problem.a
    problem.k *= 2
    problem.b = problem.rng.integers(-3, 4, (problem.n, problem.k)).astype(float)
    full = np.zeros((problem.m, problem.k))
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    nibbles = np.zeros((problem.m, problem.k // of), int)
    for m, chunk in np.ndindex(nibbles.shape):
        kept = stored[m, chunk * of // 2 : (chunk + 1) * of // 2]
        if of == 2:
            which = problem.rng.integers(2)
            nibbles[m, chunk] = (0b0100, 0b1110)[which]
            full[m, 2 * chunk + which] = kept[0]
            continue
        low, high = pairs[problem.rng.integers(6)]
        nibbles[m, chunk] = low | high << 2
        unit = of // 4
        full[m, of * chunk + unit * low :][:unit] = kept[:unit]
        full[m, of * chunk + unit * high :][:unit] = kept[unit:]
    problem.a = full
    return stored, nibbles


def put_metadata(problem: Problem, cells: Array, nibbles: Array, selector: int) -> None:
    """Write metadata bit by bit: k of the first element of a chunk says where its four bits are."""
    chunks = nibbles.shape[1]
    rows = problem.m // problem.group
    copies = {"E": 2, "G": 4}.get(problem.form, 1)
    for m, chunk in np.ndindex(nibbles.shape):
        cta, row = divmod(m, rows)
        if problem.kind in ("f16", "tf32"):
            lane = row % 8 + 8 * (chunk // (chunks // 2)) + 16 * (row // 16)
            column, bit = selector, 4 * (chunk % (chunks // 2)) + 16 * (row // 8 % 2)
        else:
            lane, (column, bit) = row, divmod(4 * chunk, 32)
        for copy in range(copies):
            at = cta, lane + rows * copy, META_AT + column
            cells[at] = int(cells[at]) & ~(15 << bit) | int(nibbles[m, chunk]) << bit


@pytest.mark.parametrize(
    ("kind", "dtype", "m", "n", "group", "stationary", "selector"),
    [
        ("f16", "f16", 128, 16, 1, False, 0), ("f16", "bf16", 256, 16, 2, False, 1),
        ("tf32", "tf32", 128, 16, 1, False, 1), ("f8f6f4", "e4m3", 128, 16, 1, False, 0),
        ("i8", "s8", 128, 32, 1, False, 0), ("f16", "f16", 64, 64, 1, True, 0),
        ("f8f6f4", "e2m1", 32, 64, 1, True, 0),
    ],
)  # fmt: skip
def test_each_place_of_metadata(
    kind: str, dtype: str, m: int, n: int, group: int, stationary: bool, selector: int
) -> None:
    d_type = "s32" if kind == "i8" else "f32"
    more = {"sparse": "yes", "sparsity selector": selector}
    problem = Problem(
        kind, m, n, dtype, dtype, d_type, group=group, stationary=stationary, more=more
    )
    stored, nibbles = sparse(problem)
    before = problem.cells()
    put_metadata(problem, before, nibbles, selector)
    expected = before.copy()
    problem.put(expected, problem.result())
    shared, words = sparse_operands(problem, stored)
    cells = after(of_sparse(issued(problem)), before, shared, words)
    np.testing.assert_array_equal(cells, expected)


def sparse_operands(problem: Problem, stored: Array) -> tuple[Array, list[int]]:
    """Return shared memory with what is stored of A and all of B, and what the instruction's registers hold."""
    half = replace(problem, more={})
    half.a, half.b = stored, np.zeros_like(half.b)
    shared, words = half.shared(), half.words()
    b_tile = problem.tiles()[1]
    lines = in_units(coded(problem.b, problem.b_type), problem.b_type, packed=problem.packed)
    for memory, of_cta in zip(shared, np.split(lines, problem.group), strict=True):
        b_tile.write(memory, of_cta)
    words[1:] = [b_tile.descriptor, problem.idesc]
    return shared, words


def of_sparse(body: str) -> str:
    """Return what issues a product with A as it is, with the metadata of a sparse A."""
    issue = re.sub(r"(mma(\.ws)?)\.cta", r"\1.sp.cta", body).replace("x1,", "x1, [r12],")
    return f"add.u32 r12, t, {META_AT};" + issue


@pytest.mark.parametrize(
    ("kind", "qualifier", "scale", "block", "m", "group", "ids"),
    [
        ("mxf8f6f4", ".block32", "ue8m0", 64, 128, 1, (3, 1)), ("mxf4", ".block32", "ue8m0", 64, 128, 1, (0, 2)),
        ("mxf4nvf4", ".scale_vec::2X", "ue8m0", 64, 256, 2, (2, 0)),
        ("mxf4nvf4", ".block16", "ue4m3", 32, 128, 1, (0, 0)), ("mxf4nvf4", ".scale_vec::4X", "ue8m0", 32, 256, 2, (0, 0)),
    ],
)  # fmt: skip
def test_a_scale_of_a_sparse_a_is_for_as_many_stored_numbers(
    kind: str, qualifier: str, scale: str, block: int, m: int, group: int, ids: tuple[int, int]
) -> None:
    """So a row has as many as a dense one, each for ``block`` numbers of B. CUTLASS: SFVecSize of .sp is doubled."""
    dtype = "e4m3" if kind == "mxf8f6f4" else "e2m1"
    more = {"sparse": "yes", "scale id of a": ids[0], "scale id of b": ids[1]}
    if kind == "mxf4nvf4":
        more["scale type"] = scale
    problem = Problem(kind, m, 32, dtype, dtype, group=group, more=more)
    stored, nibbles = sparse(problem)
    a_codes, a, b_codes, b = scaled(problem, block, scale)
    before = problem.cells()
    put_metadata(problem, before, nibbles, 0)
    put_scales(problem, before, a_codes, b_codes, ids)
    expected = before.copy()
    left, right = problem.a * a.repeat(block, axis=1), problem.b * b.repeat(block, axis=1)
    problem.put(expected, left @ right.T + problem.c)
    shared, words = sparse_operands(problem, stored)
    cells = after(of_sparse(issued_scaled(problem, qualifier)), before, shared, words)
    np.testing.assert_array_equal(cells, expected)


def test_metadata_that_is_undefined_is_refused() -> None:
    more = {"sparse": "yes"}
    problem = Problem("f16", 128, 8, "f16", "f16", more=more)
    before = problem.cells()
    before[0, :, META_AT] = 0x4444444F
    body = of_sparse(issued(problem))
    with pytest.raises(LaunchError, match=r"metadata 0b1111 of chunk 0 of row 0 is undefined"):
        after(body, before, problem.shared(), problem.words())
    problem = Problem("f16", 64, 8, "f16", "f16", more=more)
    with pytest.raises(Unsupported, match="metadata of a sparse A of m 64"):
        after(body, before, problem.shared(), problem.words())


# ---- zero columns ---------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "parts"), [(128, 1), (64, 2), (32, 4)])
def test_columns_of_b_that_count_as_zero(m: int, parts: int) -> None:
    problem = Problem("f16", m, 64, "f16", "f16", stationary=True)
    rng = np.random.default_rng(m)
    skip, use = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    mask = 1 << 39 | (skip - 1) << 40 | (use - 1) << 48
    zero = []
    for part in range(parts):
        first, dropped = int(rng.integers(2)), int(rng.integers(0, 9))
        mask |= dropped << 8 * part | first << 32 + part
        runs = [True] * skip + [False] * use if first else [False] * use + [True] * skip
        zero += (runs * 64)[dropped : dropped + 64 // parts]
    before = problem.cells()
    expected = before.copy()
    problem.put(expected, problem.a @ np.where(zero, 0, problem.b.T) + problem.c)
    cells = after(issued(problem, "yes, x3"), before, problem.shared(), [*problem.words(), mask])
    np.testing.assert_array_equal(cells, expected)
    with pytest.raises(Unsupported, match="shifts columns, by 8"):
        after(
            issued(problem, "yes, x3"), before, problem.shared(), [*problem.words(), mask | 8 << 56]
        )
