"""wgmma as machine code has the bits of the array arithmetic, for any bits that go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.operations import wgmma
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.native.compiler import available
from tests.emulator.matrix.warpgroups import Placed, execute

pytestmark = pytest.mark.skipif(not available(), reason="needs llvmlite")


GROUPS = 3
CHOSEN = [
    ("m64n24k16.f32.bf16.bf16.ss", "k", "mn", -1),
    ("m64n16k16.f16.f16.f16.rs", "", "mn", -1),
    ("m64n8k16.f32.f16.f16.ss", "mn", "k", 1),
    ("m64n40k8.f32.tf32.tf32.rs", "", "k", -1),
    ("m64n8k32.f32.e4m3.e5m2.ss", "k", "k", 1),
    ("m64n8k32.satfinite.s32.u8.s8.ss", "k", "k", 1),
    ("m64n16k256.s32.b1.b1.and.popc.rs", "", "k", 1),
]
"""Form, majors of A and B, and the sign of A."""


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Array]], list[Array]]:
    """Compute something by arrays, and by machine code."""

    def run(compute: Callable[[], Array]) -> list[Array]:
        found = []
        for engine in ("array", "native"):
            monkeypatch.setenv("PTXLAB_ENGINE", engine)
            found.append(compute())
        return found

    return run


def compare(
    both: Callable[[Callable[[], Array]], list[Array]],
    form: MatrixInstruction,
    majors: tuple[str, str],
    sign: int = 1,
) -> None:
    random = np.random.default_rng(form.n)
    memory = random.integers(0, 256, (GROUPS, 0x8000), np.uint8)
    # Numbers near one in a part of it, so that not all sums are special.
    memory[1:, ::2] = memory[1:, ::2] & 0x8F | 0x30
    memory[1:, 1::2] = memory[1:, 1::2] & 0x8F | 0x30
    bits = form.held("A").bits
    a_place, b_place = (
        Placed.densely(at, mn, form.k, "none", major or "k")
        for at, mn, major in ((0, 64, majors[0]), (0x4000, form.n, majors[1]))
    )
    left: Any = a_place
    if not isinstance(form.held("A"), SharedOperand):
        octets = memory[:, : 64 * form.k * bits // 8].reshape(GROUPS, 64, -1)
        left = np.ascontiguousarray(octets).view(f"u{max(1, bits // 8)}")
    size = form.operand("D").bits // 8
    c = random.integers(0, 256, (GROUPS, 64, form.n * size), np.uint8).view(f"u{size}")
    tail = ""
    if form.d_type != "s32":
        tail = f", {sign}, 1"
        tails = [int(major == "mn") for major in majors if major]
        tail += "".join(f", {one}" for one in tails) if bits == 16 else ""
    adds: Any = np.array([[1], [0], [1]])
    first, second = both(lambda: execute(form, left, b_place, memory, c, adds=adds, tail=tail))
    np.testing.assert_array_equal(second, first, form.key)


@pytest.mark.parametrize(("name", "a_major", "b_major", "sign"), CHOSEN)
def test_has_the_bits_of_arrays(
    both: Any, name: str, a_major: str, b_major: str, sign: int
) -> None:
    form = matching(f"wgmma.{name}")[0]
    assert isinstance(form, MatrixInstruction)
    compare(both, form, (a_major, b_major), sign)
    product = wgmma.native_product(form, TARGETS["sm_90a"], (a_major, b_major))
    assert product is not None
    assert product.function is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "form", [form for form in WGMMA if form.n in (8, 24, 256) and not form.metadata]
)
def test_every_form_has_the_bits_of_arrays(both: Any, form: MatrixInstruction) -> None:
    held = isinstance(form.held("A"), SharedOperand)
    compare(both, form, ("k" if held else "", "k"))
