"""tcgen05.mma: every layout and type, on numbers whose products and sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.isa.targets import DotProduct
from ptxlab.numbers.tensor_core import multiply_add
from tests.emulator.blackwell.cells import after
from tests.emulator.blackwell.operands import BITS, Problem, coded, in_containers, lane_column

ISSUE = """
    .reg .b32 idesc, d;
    cvt.u32.u64 idesc, x2;
    add.u32 d, t, 32;
    {opcode}.cta_group::{group}.kind::{kind} [d], x0, x1, idesc, {tail};
"""


def issued(problem: Problem, tail: str = "yes") -> str:
    opcode = "tcgen05.mma.ws" if problem.stationary else "tcgen05.mma"
    return ISSUE.format(opcode=opcode, group=problem.group, kind=problem.kind, tail=tail)


def check(problem: Problem, body: str, **more: Any) -> None:
    """Run it, and hold all of Tensor Memory against what it should be."""
    before = problem.cells()
    expected = before.copy()
    problem.put(expected, problem.result())
    cells = after(body, before, problem.shared(), problem.words(), **more)
    np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize(
    ("m", "n", "group", "stationary"),
    [
        (128, 8, 1, False), (128, 24, 1, False), (128, 256, 1, False), (64, 8, 1, False), (64, 72, 1, False),
        (128, 64, 1, True), (64, 128, 1, True), (32, 64, 1, True), (32, 256, 1, True),
        (256, 32, 2, False), (256, 16, 2, False), (128, 32, 2, False), (128, 80, 2, False),
    ],
)  # fmt: skip
def test_each_layout_of_d(m: int, n: int, group: int, stationary: bool) -> None:
    problem = Problem("f16", m, n, "f16", "f16", group=group, stationary=stationary)
    check(problem, issued(problem))


@pytest.mark.parametrize(("m", "group"), [(128, 1), (256, 2)])
def test_many_ctas_multiply_at_once(m: int, group: int) -> None:
    """Each has other numbers."""
    problems = [Problem("f16", m, 32, "f16", "f16", group=group, seed=seed) for seed in range(3)]
    before = np.concatenate([problem.cells() for problem in problems])
    expected = before.copy()
    for number, problem in enumerate(problems):
        problem.put(expected[group * number : group * (number + 1)], problem.result())
    shared = np.concatenate([problem.shared() for problem in problems])
    cells = after(issued(problems[0]), before, shared, problems[0].words(), group=group)
    np.testing.assert_array_equal(cells, expected)


def test_one_cta_multiplies_after_the_other() -> None:
    """Each has its D at the same columns, of its own Tensor Memory."""
    problems = [Problem("f16", 128, 32, "f16", "f16", seed=seed) for seed in range(2)]
    before = np.concatenate([problem.cells() for problem in problems])
    expected = before.copy()
    for number, problem in enumerate(problems):
        problem.put(expected[number : number + 1], problem.result())
    declared, _, product = issued(problems[0]).partition(";")
    first, second = (
        product.replace("tcgen05", f"{guard} tcgen05") for guard in ("@more", "@!more")
    )
    body = f"{declared}; setp.eq.u32 more, cta, 0; {first} {second}"
    shared = np.concatenate([problem.shared() for problem in problems])
    cells = after(body, before, shared, problems[0].words(), group=1)
    np.testing.assert_array_equal(cells, expected)


TYPES = [
    ("f16", "bf16", "bf16", "f32"), ("f16", "f16", "f16", "f16"), ("tf32", "tf32", "tf32", "f32"),
    ("f8f6f4", "e4m3", "e5m2", "f32"), ("f8f6f4", "e5m2", "e2m3", "f16"), ("f8f6f4", "e3m2", "e2m1", "f32"),
    ("f8f6f4", "e2m1", "e4m3", "f32"), ("i8", "s8", "u8", "s32"), ("i8", "u8", "u8", "s32"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "a", "b", "d"), TYPES)
def test_each_type(kind: str, a: str, b: str, d: str) -> None:
    problem = Problem(kind, 128, 16, a, b, d)
    check(problem, issued(problem))


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")])
def test_each_swizzle_and_direction(swizzle: str, majors: tuple[str, str]) -> None:
    problem = Problem("f16", 128, 64, "f16", "f16", majors=majors, swizzles=(swizzle, swizzle))
    if swizzle != "none" and "k" in majors:  # a row is as long as the span
        swizzles = tuple("32B" if major == "k" else swizzle for major in majors)
        problem = Problem("f16", 128, 64, "f16", "f16", majors=majors, swizzles=swizzles)  # type: ignore[arg-type]
    check(problem, issued(problem))


@pytest.mark.parametrize(("a", "b"), [("e4m3", "e5m2"), ("e2m3", "e2m1"), ("e2m1", "e3m2")])
def test_bytes_lie_along_n_too(a: str, b: str) -> None:
    """PTX ISA, "Transpose and Negate operations": kind::f8f6f4 has both, and so do CUTLASS's tests of f6 and f4."""
    problem = Problem("f8f6f4", 128, 32, a, b, majors=("mn", "mn"), swizzles=("128B", "32B"))
    check(problem, issued(problem))


def test_without_an_addend_tensor_memory_is_not_read() -> None:
    problem = Problem("f16", 128, 8, "f16", "f16")
    before = problem.cells()
    before[:, :, 32:40] = 0x7FC00000
    expected = before.copy()
    problem.put(expected, problem.a @ problem.b.T)
    cells = after(issued(problem, "no"), before, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, expected)


def test_the_product_can_be_subtracted() -> None:
    for sign in ("negate a", "negate b"):
        problem = Problem("f8f6f4", 128, 8, "e2m1", "e2m3", more={sign: "yes"})
        problem.a = np.negative(problem.a)
        right = problem.shared()
        problem.a = np.negative(problem.a)
        before = problem.cells()
        expected = before.copy()
        problem.put(expected, problem.result())
        np.testing.assert_array_equal(
            after(issued(problem), before, right, problem.words()), expected
        )


@pytest.mark.parametrize(
    ("m", "n", "group"), [(128, 16, 1), (64, 16, 1), (256, 16, 2), (128, 32, 2)]
)
def test_lanes_that_are_disabled_keep_what_they_have(m: int, n: int, group: int) -> None:
    problem = Problem("f16", m, n, "f16", "f16", group=group)
    masks = problem.rng.integers(0, 1 << 32, 4 * group, dtype=np.uint32)
    words = [int(a) | int(b) << 32 for a, b in zip(masks[::2], masks[1::2], strict=True)]
    unpack = "\n".join(
        f"mov.b64 {{r{10 + 2 * i}, r{11 + 2 * i}}}, x{3 + i};" for i in range(2 * group)
    )
    registers = ", ".join(f"r{10 + i}" for i in range(4 * group))
    before = problem.cells()
    expected = before.copy()
    problem.put(expected, problem.result())
    for cta, lane in np.ndindex(group, 128):
        if int(masks[4 * cta + lane // 32]) >> lane % 32 & 1:
            expected[cta, lane] = before[cta, lane]
    body = unpack + issued(problem, f"{{{registers}}}, yes")
    cells = after(body, before, problem.shared(), [*problem.words(), *words])
    np.testing.assert_array_equal(cells, expected)


def test_the_addend_can_be_scaled_down() -> None:
    problem = Problem("f16", 128, 8, "f16", "f16")
    before = problem.cells()
    expected = before.copy()
    problem.put(expected, problem.a @ problem.b.T + problem.c / 8)
    cells = after(issued(problem, "yes, 3"), before, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, expected)


def a_in_cells(problem: Problem, cells: Array, column: int, part: int, a: Array) -> None:
    """Write A where D's rows are, for one of the parts of the columns of D."""
    codes = in_containers(coded(a, problem.a_type), problem.a_type).astype(np.uint64)
    bits = max(8, BITS.get(problem.a_type, 8))
    parts = {"E": 2, "B": 2, "G": 4}.get(problem.form, 1)
    each = 32 // bits
    for m in range(problem.m):
        n = part * (problem.n // parts)
        cta, lane, _ = lane_column(m, n, problem.m, problem.n, problem.form)
        for word in range(problem.k // each):
            value = sum(int(codes[m, word * each + i]) << bits * i for i in range(each))
            cells[cta, lane, column + word] = value


@pytest.mark.parametrize(
    ("kind", "dtype", "m", "group", "stationary"),
    [
        ("f16", "f16", 128, 1, False), ("f16", "bf16", 64, 1, False), ("tf32", "tf32", 64, 1, True),
        ("f8f6f4", "e2m1", 32, 1, True), ("f8f6f4", "e3m2", 256, 2, False), ("i8", "s8", 128, 2, False),
    ],
)  # fmt: skip
def test_a_lies_in_tensor_memory(
    kind: str, dtype: str, m: int, group: int, stationary: bool
) -> None:
    """Each part of D's columns has an A of its own."""
    d_type = "s32" if kind == "i8" else "f32"
    problem = Problem(kind, m, 64, dtype, dtype, d_type, group=group, stationary=stationary)
    parts = {"E": 2, "B": 2, "G": 4}.get(problem.form, 1)
    before = problem.cells()
    several = [np.roll(problem.a, part, axis=0) for part in range(parts)]
    for part, a in enumerate(several):
        a_in_cells(problem, before, 200, part, a)
    width = problem.n // parts
    expected = before.copy()
    columns = [a @ problem.b[p * width : (p + 1) * width].T for p, a in enumerate(several)]
    problem.put(expected, np.concatenate(columns, axis=1) + problem.c)
    body = "add.u32 r10, t, 200;" + issued(problem).replace("x0", "[r10]")
    cells = after(body, before, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize(("dtype", "packing"), [("e2m1", "b4x16_p64"), ("e2m3", "b6x16_p32")])
def test_a_is_unpacked_to_tensor_memory(dtype: str, packing: str) -> None:
    problem = Problem("f8f6f4", 128, 16, dtype, "e4m3")
    before = problem.cells()
    expected = before.copy()
    a_in_cells(problem, expected, 200, 0, problem.a)
    problem.put(expected, problem.result())
    copy = f"tcgen05.cp.cta_group::1.128x256b.b8x16.{packing} [r10], x0;"
    product = issued(problem).replace("x0", "[r10]")
    body = f"add.u32 r10, t, 200; {copy} {{ {product} }}"
    cells = after(body, before, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, expected)


def test_d_and_a_may_lie_in_the_upper_halves() -> None:
    problem = Problem("f16", 64, 16, "f16", "f16")
    before = problem.cells()
    expected = before.copy()
    a_in_cells(problem, before, 200, 0, problem.a)
    up = np.roll(before, 16, axis=1)
    problem.put(expected, problem.result())
    a_in_cells(problem, expected, 200, 0, problem.a)
    body = "add.u32 r10, t, 200+(16<<16); add.u32 t, t, (16<<16);" + issued(problem).replace(
        "x0", "[r10]"
    )
    cells = after(body + "sub.u32 t, t, (16<<16);", up, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, np.roll(expected, 16, axis=1))


@pytest.mark.parametrize(("kind", "group"), [("f16", 1), ("i8", 2)])
def test_a_is_shifted_in_each_quarter_behind_the_product(kind: str, group: int) -> None:
    """As CUTLASS's ``1cta_mma_a_from_tmem.py`` has it of a B200: what is multiplied next is the shifted A."""
    dtype, d_type = {"f16": ("f16", "f32"), "i8": ("s8", "s32")}[kind]
    problem = Problem(kind, 128 * group, 32, dtype, dtype, d_type, group=group)
    before = problem.cells()
    a_in_cells(problem, before, 200, 0, problem.a)
    expected = before.copy()
    moved = [row + (row % 32 < 31) for row in range(128)]
    expected[:, :, 200:208] = before[:, moved, 200:208]
    both = problem.a + problem.a.reshape(group, 128, -1)[:, moved].reshape(problem.a.shape)
    problem.put(expected, both @ problem.b.T + problem.c)
    product = issued(problem).replace("x0", "[r10]")
    shifts = product.replace(f"kind::{kind}", f"kind::{kind}.ashift")
    body = f"add.u32 r10, t, 200; {{ {shifts} }} {{ {product} }}"
    cells = after(body, before, problem.shared(), problem.words())
    np.testing.assert_array_equal(cells, expected)


RULES = DotProduct(25, 16, -21, -133)
"""Those of sm_100: 25 bits below the largest exponent, a step of all products (MMA-Sim)."""

RANDOM = [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("f16", "bf16", "f32"), ("tf32", "tf32", "f32"),
          ("f8f6f4", "e4m3", "f32"), ("f8f6f4", "e5m2", "f16")]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype", "d_type"), RANDOM)
def test_random_bits_are_added_in_one_step(kind: str, dtype: str, d_type: str) -> None:
    """The step itself is held against MMA-Sim's record elsewhere: tests/numbers."""
    problem = Problem(kind, 128, 16, dtype, dtype, d_type)
    rng = problem.rng
    bits = {"f16": 16, "bf16": 16, "tf32": 32}.get(dtype, 8)
    word = np.dtype(f"u{bits // 8}")
    a = rng.integers(0, 1 << bits, (128, problem.k), dtype=np.uint64).astype(word)
    b = rng.integers(0, 1 << bits, (16, problem.k), dtype=np.uint64).astype(word)
    shared = np.zeros((1, 32768), np.uint8)
    for words, tile in zip((a, b), problem.tiles(), strict=True):
        tile.write(shared[0], words)
    before = rng.integers(0, 1 << 32, (1, 128, 512), dtype=np.uint32)
    c = before[0, :, 32:48]
    if d_type == "f16":
        c = (c & 0xFFFF).astype(np.uint16)
    d = multiply_add(
        a[..., None],
        b.T[..., None],
        np.ascontiguousarray(c)[..., None],
        dtype=dtype,
        acc=d_type,
        rules=RULES,
    )
    cells = after(issued(problem), before, shared, problem.words())
    np.testing.assert_array_equal(cells[0, :, 32:48], d[..., 0])
