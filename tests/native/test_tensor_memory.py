"""tcgen05.mma as machine code has the bits of the array arithmetic, for any bits that go in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.emulator.operations import tensor_core_native, tensor_core_product
from ptxlab.native.compiler import available
from tests.emulator.blackwell.cells import after
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import ISSUE, TYPES

pytestmark = pytest.mark.skipif(not available(), reason="needs llvmlite")

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


def body_of(problem: Problem, *, a_in_memory: bool) -> str:
    opcode = "tcgen05.mma.ws" if problem.stationary else "tcgen05.mma"
    text = A_IN_TENSOR_MEMORY if a_in_memory else ISSUE
    filled: str = text.format(opcode=opcode, group=problem.group, kind=problem.kind, tail="p")
    return ".reg .pred p; setp.ne.b64 p, x3, 0;" + filled


def compare(monkeypatch: pytest.MonkeyPatch, problem: Problem, *, a_in_memory: bool) -> None:
    """Compute with two CTAs, or pairs, by arrays and by machine code, with and without C."""
    ctas = 2 * problem.group
    shared, cells = problem.rng.bytes(ctas << 15), problem.rng.bytes(ctas << 18)
    memory = np.frombuffer(shared, np.uint8).reshape(ctas, -1).copy()
    before = np.frombuffer(cells, np.uint32).reshape(ctas, 128, 512).copy()
    # Numbers near one in a part of it, so that not all sums are special.
    memory[problem.group :] = memory[problem.group :] & 0x8F | 0x30
    before[problem.group :] = before[problem.group :] & 0x8F8F8F8F | 0x30303030
    calls = []

    def counting(*given: Any) -> None:
        calls.append(given)
        tensor_core_native.multiply_lines(*given)

    monkeypatch.setattr(tensor_core_product, "multiply_lines", counting)
    for adds in (0, 1):
        found = []
        for engine in ("array", "native"):
            monkeypatch.setenv("PTXLAB_ENGINE", engine)
            words = [*problem.words(), adds]
            body = body_of(problem, a_in_memory=a_in_memory)
            found.append(after(body, before, memory, words, group=problem.group))
        np.testing.assert_array_equal(found[1], found[0])
        assert (found[1] != before).any()
    assert len(calls) == 2


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"{one.kind}-{one.m}-{one.n}")
def test_has_the_bits_of_arrays(monkeypatch: pytest.MonkeyPatch, problem: Problem) -> None:
    compare(monkeypatch, problem, a_in_memory=False)


@pytest.mark.parametrize("number", [1, 2, 3, -3])
def test_of_an_a_in_tensor_memory_too(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    compare(monkeypatch, PROBLEMS[number], a_in_memory=True)
