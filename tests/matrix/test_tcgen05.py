"""The ``tcgen05`` instructions: shapes of the ISA's table, operands in PTX's order."""

from __future__ import annotations

import pytest

from ptxlab.fragments.probe_kernel import statement
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.form import AsyncInstruction, in_steps
from ptxlab.matrix.tcgen05 import TCGEN05
from tests.together import in_one_test


def shapes(name: str) -> list[tuple[tuple[int, ...], str, int]]:
    form = matching(name)[0]
    assert isinstance(form, AsyncInstruction)
    return [(shape.m, in_steps(shape.n), shape.k) for shape in form.shapes]


EVERY_8, EVERY_16 = "8 to 256 in steps of 8", "16 to 256 in steps of 16"


@in_one_test(
    ("name", "m", "n", "k"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16.ss", (64, 128), EVERY_8, 16),
        ("tcgen05.mma.cta_group::2.kind::tf32.ts", (128, 256), EVERY_16, 8),
        (
            "tcgen05.mma.cta_group::1.kind::i8.ss",
            (64, 128),
            "8, 16, 24, 32 to 256 in steps of 16",
            32,
        ),
        ("tcgen05.mma.cta_group::2.kind::i8.ss", (128, 256), "32 to 256 in steps of 32", 32),
        ("tcgen05.mma.sp.cta_group::1.kind::f8f6f4.ss", (64, 128), EVERY_8, 64),
        ("tcgen05.mma.ws.cta_group::1.kind::f16.ss", (32, 64, 128), "64, 128, 256", 16),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16.ss", (32, 64, 128), "64, 128", 32),
        ("tcgen05.mma.cta_group::1.mxf4nvf4.block16.ss", (128,), EVERY_8, 64),
        ("tcgen05.mma.cta_group::2.mxf8f6f4.block32.ss", (128, 256), EVERY_16, 32),
        ("tcgen05.mma.sp.cta_group::2.mxf4.block32.ss", (256,), EVERY_16, 128),
    ],
)
def test_shapes_are_those_of_the_isa(name: str, m: tuple[int, ...], n: str, k: int) -> None:
    """PTX ISA, "Matrix Shape"."""
    assert shapes(name) == [(m, n, k)]


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        (
            "tcgen05.mma.sp.cta_group::1.mxf4.block32.ts",
            "[d_tmem0], [a_tmem0], b_desc0, [sp_meta_tmem0], idesc0, [scale_A_tmem0], "
            "[scale_B_tmem0], enable_input_d0;",
        ),
        ("tcgen05.st.16x32bx2.x2.b32", "[taddr0], 16, {r0, r1};"),
        ("tcgen05.ld.red.32x32b.x2.min.f32", "{r0, r1}, redval0, [taddr0];"),
        ("tcgen05.cp.cta_group::1.4x256b", "[taddr0], s_desc0;"),
        ("tcgen05.alloc.cta_group::2", "[p], 32;"),
        ("tcgen05.wait::ld", ""),
    ],
)
def test_operands_are_in_the_order_of_ptx(name: str, operands: str) -> None:
    entry = matching(name)[0]
    assert statement(entry) == f"{entry.name} {operands}".rstrip("; ") + ";"


def test_what_has_a_shape_multiplies_and_weights_stay_in_one_cta() -> None:
    for form in TCGEN05:
        assert bool(form.shapes) == form.family.startswith("tcgen05.mma")
        assert not (".ws" in form.family and "cta_group::2" in form.name)
