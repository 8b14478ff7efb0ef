"""wgmma as machine code has the bits of the array arithmetic, for any bits that go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix_native import MOST, native_product
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.native.compiler import available
from tests.emulator.matrix.warpgroups import Placed, execute
from tests.native.engines import multiply_by

pytestmark = pytest.mark.skipif(not available(), reason="needs llvmlite")


GROUPS = 3
# Each way to add up always runs, and each way that A and B and metadata lie; the others are both of what runs apart.
CHOSEN = [
    ("m64n24k16.f32.bf16.bf16.ss", "k", "mn", -1),
    ("m64n16k16.f16.f16.f16.rs", "", "mn", -1),
    pytest.param("m64n8k16.f32.f16.f16.ss", "mn", "k", 1, marks=pytest.mark.thorough),
    ("m64n40k8.f32.tf32.tf32.rs", "", "k", -1),
    ("m64n8k32.f32.e4m3.e5m2.ss", "k", "k", 1),
    ("m64n8k32.satfinite.s32.u8.s8.ss", "k", "k", 1),
    ("m64n16k256.s32.b1.b1.and.popc.rs", "", "k", 1),
    ("sp.m64n16k32.f32.bf16.bf16.ss", "k", "mn", -1),
    pytest.param("sp.m64n8k16.f32.tf32.tf32.ss", "k", "k", 1, marks=pytest.mark.thorough),
    ("sp.m64n8k64.f16.e4m3.e5m2.rs", "", "k", 1),
    pytest.param("sp.m64n8k64.s32.u8.s8.ss", "k", "k", 1, marks=pytest.mark.thorough),
]
"""Form, majors of A and B, and the sign of A."""


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Array]], list[Array]]:
    """Compute something by arrays, and by machine code."""

    def run(compute: Callable[[], Array]) -> list[Array]:
        outputs = []
        for engine in ("array", "native"):
            multiply_by(monkeypatch, engine)
            outputs.append(compute())
        return outputs

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
    bits, depth = form.held("A").bits, form.held("A").cols
    a_place = Placed.densely(0, 64, depth, "none", majors[0] or "k")
    b_place = Placed.densely(0x4000, form.n, form.k, "none", majors[1] or "k")
    metadata = None
    if form.metadata:
        shape = GROUPS, 64, form.metadata.chunks
        metadata = form.metadata.encode(random.choice(form.metadata.allowed, shape))
    left: Any = a_place
    if not isinstance(form.held("A"), SharedOperand):
        octets = memory[:, : 64 * depth * bits // 8].reshape(GROUPS, 64, -1)
        left = np.ascontiguousarray(octets).view(f"u{max(1, bits // 8)}")
    size = form.operand("D").bits // 8
    c = random.integers(0, 256, (GROUPS, 64, form.n * size), np.uint8).view(f"u{size}")
    tail = ""
    if form.d_type != "s32":
        tail = f", {sign}, 1"
        tails = [int(major == "mn") for major in majors if major]
        tail += "".join(f", {tail}" for tail in tails) if bits == 16 else ""
    adds: Any = np.array([[1], [0], [1]])
    first, second = both(
        lambda: execute(form, left, b_place, memory, c, adds=adds, metadata=metadata, tail=tail)
    )
    np.testing.assert_array_equal(second, first, form.key)


@pytest.mark.parametrize(("name", "a_major", "b_major", "sign"), CHOSEN)
def test_has_the_bits_of_arrays(
    both: Any, name: str, a_major: str, b_major: str, sign: int
) -> None:
    form = matching(f"wgmma.{name}")[0]
    assert isinstance(form, MatrixInstruction)
    compare(both, form, (a_major, b_major), sign)
    product = native_product("wgmma", form, TARGETS["sm_90a"], (a_major, b_major), MOST, 0)
    assert product is not None
    assert product.function is not None


SEVERAL = """, 1, 1, 0, 0;
.reg .f32 e<4>; .reg .b64 dc; .reg .pred no;
add.u64 dc, da, 128; setp.ne.b32 no, 0, 0; setp.eq.b32 p1, 0, 0; setp.eq.u32 p2, r1, 0;
OP {E}, dc, db, no, 1, 1, 0, 0;
OP {D}, dc, db, p1, 1, 1, 0, 0;
OP {E}, da, db, p1, -1, 1, 0, 0;
OP {D}, dc, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p2, 1, 1, 0, 0;
OP {D}, dc, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p1, 1, 1, 0, 0;
OP {D}, dc, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p1, 1, 1, 0, 0;
OP {E}, da, db, p1, 1, 1, 0, 0;
OP {D}, dc, db, p1, 1, 1, 0, 0;
OP {d0, e0, d2, d3}, da, db, no, 1, 1, 0, 0;
OP {E}, dc, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
OP {E}, dc, db, p1, 1, 1, 0, 0;
OP {D}, da, db, p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
@p2 wgmma.wait_group.sync.aligned 0;
wgmma.wait_group.sync.aligned 0;
xor.b32 r2, r2, r2;
add.f32 d0, d0, e0; add.f32 d1, d1, e1; add.f32 d2, d2, e2; add.f32 d3, d3, e3;
OP {D}, da, db, p1, 1, 1, 0, 0"""
"""Products behind each other with one D and another: with and without C, of one sign and the other, more of them
than are added up at once, waited for by some of the warpgroups first, and with a D that is in part another's."""


@pytest.mark.parametrize("name", ["m64n8k16", "sp.m64n8k32"])
def test_several_products_with_one_d(both: Any, name: str) -> None:
    form = matching(f"wgmma.{name}.f32.bf16.bf16.ss")[0]
    assert isinstance(form, MatrixInstruction)
    random = np.random.default_rng(5)
    memory = random.integers(0, 256, (GROUPS, 0x8000), np.uint8)
    memory[:, 1::2] = memory[:, 1::2] & 0x80 | 0x3F
    left, right = (Placed.densely(at, mn, 32, "none", "k") for at, mn in ((0, 64), (0x4000, 8)))
    c = random.standard_normal((GROUPS, 64, 8)).astype(np.float32).view(np.uint32)
    names = [("{" + ", ".join(f"{x}{i}" for i in range(4)) + "}") for x in "de"]
    tail = SEVERAL.replace("OP", form.name).replace("{D}", names[0]).replace("{E}", names[1])
    metadata = None
    if form.metadata:  # of the products with one A another than of those with the other
        tail = tail.replace("dc, db", "dc, db, r7, 0").replace("da, db", "da, db, e, 0")
        tail = tail.replace("add.u64 dc", "mov.b32 r7, 0x4E9DC84E; add.u64 dc")
        metadata = np.full((GROUPS, 128), 0x9E4CD8E9, np.uint32)
    first, second = both(
        lambda: execute(form, left, right, memory, c, metadata=metadata, tail=tail)
    )
    np.testing.assert_array_equal(second, first)
    one_by_one = execute(
        form, left, right, memory, c, metadata=metadata, tail=tail, schedule="early"
    )
    np.testing.assert_array_equal(first, one_by_one)
    assert np.isfinite(first.view(np.float32)).all()
    assert len(np.unique(first)) > first.size // 2


@pytest.mark.thorough
@pytest.mark.parametrize("form", [form for form in WGMMA if form.n in (8, 24, 256)])
def test_every_form_has_the_bits_of_arrays(both: Any, form: MatrixInstruction) -> None:
    held = isinstance(form.held("A"), SharedOperand)
    compare(both, form, ("k" if held else "", "k"))
