"""tcgen05.mma as machine code has the bits of the array arithmetic, for any bits that go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.operations import tensor_core_native, tensor_core_product
from ptxlab.native.compiler import available
from tests.emulator.blackwell.cells import after
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import ISSUE, TYPES
from tests.emulator.blackwell.test_scaled_and_sparse import (
    issued_scaled,
    of_sparse,
    put_metadata,
    put_scales,
    sparse,
)
from tests.native.engines import multiply_by

pytestmark = pytest.mark.skipif(not available(), reason="needs llvmlite")

ADDS = ".reg .pred p; mov.u32 r0, %clusterid.x; and.b32 r0, r0, 1; setp.ne.u32 p, r0, 0;"
"""C counts in every other CTA or pair."""

A_IN_TENSOR_MEMORY = "add.u32 r0, t, 320;" + ISSUE.replace("x0", "[r0]")
PROBLEMS = [
    Problem("f16", 128, 24, "bf16", "bf16", majors=("mn", "k")),
    Problem("f16", 64, 72, "f16", "f16", majors=("mn", "mn"), swizzles=("128B", "none")),
    Problem("f16", 32, 64, "f16", "f16", stationary=True),
    Problem("f16", 128, 80, "f16", "f16", "f16", group=2),
    Problem("f16", 256, 32, "f16", "f16", group=2, majors=("k", "mn"), more={"negate a": "yes"}),
    Problem("i8", 128, 32, "u8", "s8", "s32", more={"saturate": "yes"}),
    *(Problem(kind, 128, 16, a, b, d) for kind, a, b, d in TYPES),
]
THOROUGH = pytest.mark.thorough


def spared(problem: Problem) -> bool:
    """Say whether problems that always run have its layout and its steps: those of 16 bits, integers, two of bytes."""
    return problem.n in (16, 24) and problem.a_type not in ("tf32", "e5m2", "e3m2")


def everything_by(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("PTXLAB_ENGINE", engine)


def body_of(problem: Problem, *, a_in_memory: bool) -> str:
    opcode = "tcgen05.mma.ws" if problem.stationary else "tcgen05.mma"
    text = A_IN_TENSOR_MEMORY if a_in_memory else ISSUE
    filled: str = text.format(opcode=opcode, group=problem.group, kind=problem.kind, tail="p")
    return ADDS + filled


def compare(
    monkeypatch: pytest.MonkeyPatch,
    problem: Problem,
    body: str,
    words: list[int],
    put: Callable[[Array], None] = lambda cells: None,
    choose: Callable[[pytest.MonkeyPatch, str], None] = multiply_by,
) -> None:
    """Compute with four CTAs, or pairs, by arrays and by machine code, half of them without C.

    What is ``put`` into the cells of each is right, all else is random. How to ``choose`` an engine
    says whether it is the product's or that of the whole program.
    """
    ctas = 4 * problem.group
    shared, cells = problem.rng.bytes(ctas << 15), problem.rng.bytes(ctas << 18)
    memory = np.frombuffer(shared, np.uint8).reshape(ctas, -1).copy()
    before = np.frombuffer(cells, np.uint32).reshape(ctas, 128, 512).copy()
    # Numbers near one in a part of it, so that not all sums are special.
    memory[ctas // 2 :] = memory[ctas // 2 :] & 0x8F | 0x30
    before[ctas // 2 :] = before[ctas // 2 :] & 0x8F8F8F8F | 0x30303030
    for cta in range(0, ctas, problem.group):
        put(before[cta : cta + problem.group])
    calls = []

    def counting(*given: Any) -> tensor_core_native.ProductTask:
        calls.append(given)
        return tensor_core_native.product_task(*given)

    monkeypatch.setattr(tensor_core_product, "product_task", counting)
    outputs = []
    for engine in ("array", "native"):
        choose(monkeypatch, engine)
        outputs.append(after(body, before, memory, words, group=problem.group))
    np.testing.assert_array_equal(outputs[1], outputs[0])
    for cta in range(0, ctas, problem.group):
        assert (outputs[1][cta] != before[cta]).any()
    assert len(calls) == 1


@pytest.mark.parametrize(
    "problem",
    [pytest.param(problem, marks=[THOROUGH] * spared(problem)) for problem in PROBLEMS],
    ids=lambda problem: f"{problem.kind}-{problem.m}-{problem.n}",
)
def test_has_the_bits_of_arrays(monkeypatch: pytest.MonkeyPatch, problem: Problem) -> None:
    compare(monkeypatch, problem, body_of(problem, a_in_memory=False), problem.words())


# Those with m of 64 and of 32 always run; of 128, of a pair and of narrow types test_sparse has them always.
@pytest.mark.parametrize(
    "number", [1, 2, pytest.param(3, marks=THOROUGH), pytest.param(-3, marks=THOROUGH)]
)
def test_of_an_a_in_tensor_memory_too(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    problem = PROBLEMS[number]
    compare(monkeypatch, problem, body_of(problem, a_in_memory=True), problem.words())


@pytest.mark.parametrize(
    ("m", "n", "group"),
    [
        (128, 16, 1),
        pytest.param(64, 24, 1, marks=THOROUGH),
        (256, 32, 2),
    ],  # of a CTA, and of a pair
)
def test_lanes_that_are_disabled(
    monkeypatch: pytest.MonkeyPatch, m: int, n: int, group: int
) -> None:
    problem = Problem("f16", m, n, "bf16", "bf16", group=group)
    words = [0x5AFF00F012345678, 0xFFFFFFFF0F0F0F0F, 0, 1 << 63][: 2 * group]
    names = ", ".join(f"m{i}" for i in range(4 * group))
    body = body_of(problem, a_in_memory=False).replace(", p;", f", {{{names}}}, p;")
    moved = "".join(f"mov.b64 {{m{2 * i}, m{2 * i + 1}}}, x{3 + i};" for i in range(2 * group))
    body = f".reg .b32 {names}; {moved} {body}"
    compare(monkeypatch, problem, body, [*problem.words(), *words], choose=everything_by)


def random_scales(problem: Problem, block: int) -> Callable[[Array], None]:
    """Return what puts random scales into cells: all of them, and by halves those near one, few of them NaN."""

    def put(cells: Array) -> None:
        codes = [
            problem.rng.integers(0, 256, (count, problem.k // block))
            for count in (problem.m, problem.n)
        ]
        code_of_one = 0x38 if problem.more.get("scale type") == "ue4m3" else 127
        a, b = (np.where(code % 64 == 0, code, code_of_one - 10 + code % 20) for code in codes)
        put_scales(problem, cells, a, b)

    return put


MXF8, MXF4, NVF4 = "mxf8f6f4", "mxf4", "mxf4nvf4"
# One of each kind always runs, dense and sparse, of one CTA and of two; the others are a kind that does with
# another group or block.
SCALED = [
    (Problem(MXF8, 128, 24, "e4m3", "e2m1"), "", 32, False),
    pytest.param(Problem(MXF8, 256, 32, "e3m2", "e5m2", group=2), "", 32, False, marks=THOROUGH),
    (Problem(MXF4, 128, 16, "e2m1", "e2m1", more={"negate a": "yes"}), ".block32", 32, False),
    pytest.param(
        Problem(NVF4, 128, 40, "e2m1", "e2m1", more={"scale type": "ue4m3"}),
        ".block16",
        16,
        False,
        marks=THOROUGH,
    ),
    (
        Problem(NVF4, 128, 64, "e2m1", "e2m1", group=2, more={"scale type": "ue4m3"}),
        ".scale_vec::2X",
        32,
        False,
    ),
    (Problem(MXF8, 128, 24, "e5m2", "e2m3", more={"sparse": "yes"}), "", 64, True),
    pytest.param(
        Problem(MXF8, 256, 32, "e4m3", "e4m3", group=2, more={"sparse": "yes"}),
        "",
        64,
        True,
        marks=THOROUGH,
    ),
    pytest.param(
        Problem(MXF4, 128, 16, "e2m1", "e2m1", more={"sparse": "yes"}),
        ".block32",
        64,
        True,
        marks=THOROUGH,
    ),
    (
        Problem(NVF4, 128, 16, "e2m1", "e2m1", more={"sparse": "yes", "scale type": "ue4m3"}),
        ".block16",
        32,
        True,
    ),
]


@pytest.mark.parametrize(
    ("problem", "qualifier", "block", "is_sparse"), SCALED, ids=lambda x: getattr(x, "kind", str(x))
)
def test_block_scaled(
    monkeypatch: pytest.MonkeyPatch, problem: Problem, qualifier: str, block: int, is_sparse: bool
) -> None:
    body = ADDS + issued_scaled(problem, qualifier).replace("yes", "p")
    if not is_sparse:
        compare(monkeypatch, problem, body, problem.words(), random_scales(problem, block))
        return
    words, nibbles = sparse_words(problem)
    scales = random_scales(problem, block)

    def put(cells: Array) -> None:
        scales(cells)
        put_metadata(problem, cells, nibbles, 0)

    compare(monkeypatch, problem, of_sparse(body), words, put)


def sparse_words(problem: Problem) -> tuple[list[int], Array]:
    """Make a problem one of twice the k; return its words, with an A of half of it, and random metadata."""
    words = problem.words()
    _, nibbles = sparse(problem)
    return [words[0], problem.tiles()[1].descriptor, problem.idesc], nibbles


@pytest.mark.parametrize(
    ("kind", "types", "m", "n", "group", "stationary", "selector", "a_in_memory"),
    [
        # Each kind always runs, with A in either memory, on one CTA, on two, and with a stationary B.
        pytest.param("f16", ("f16", "f16", "f16"), 128, 24, 1, False, 0, False, marks=THOROUGH),
        ("f16", ("bf16", "bf16", "f32"), 256, 16, 2, False, 1, True),
        ("tf32", ("tf32", "tf32", "f32"), 128, 16, 1, False, 1, False),
        pytest.param("f8f6f4", ("e4m3", "e3m2", "f32"), 128, 16, 1, False, 0, True, marks=THOROUGH),
        ("i8", ("s8", "u8", "s32"), 128, 32, 1, False, 0, True),
        pytest.param("f16", ("f16", "f16", "f32"), 64, 64, 1, True, 0, False, marks=THOROUGH),
        ("f8f6f4", ("e2m1", "e5m2", "f32"), 32, 64, 1, True, 0, True),
    ],
)
def test_sparse(
    monkeypatch: pytest.MonkeyPatch, kind: str, types: tuple[str, str, str], m: int, n: int, group: int,
    stationary: bool, selector: int, a_in_memory: bool,
) -> None:  # fmt: skip
    more = {"sparse": "yes", "sparsity selector": selector}
    problem = Problem(kind, m, n, *types, group=group, stationary=stationary, more=more)
    words, nibbles = sparse_words(problem)
    body = of_sparse(body_of(problem, a_in_memory=a_in_memory))

    def put(cells: Array) -> None:
        put_metadata(problem, cells, nibbles, selector)

    compare(monkeypatch, problem, body, words, put)
