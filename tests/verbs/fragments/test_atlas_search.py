"""Names of machine code that the atlas is searched by, held against what ptxas makes."""

from __future__ import annotations

import pytest

from ptxlab.fragments.support import opcodes
from ptxlab.matrix.catalog import find
from ptxlab.verbs.fragments.atlas_search import elsewhere, machine_name

FORMS = {
    "sm_80": [
        "mma.m16n8k16.f32.bf16",
        "mma.m16n8k8.f32.tf32",
        "mma.m16n8k32.s8.s8.s32",
        "mma.m16n8k256.b1.xor",
        "mma.sp.m16n8k32.f32.f16",
        "ldmatrix.x4",
        "movmatrix",
    ],
    "sm_90a": [
        "wgmma.m64n16k16.f32.bf16.ss",
        "wgmma.m64n16k32.s32.s8.s8.ss",
        "stmatrix.x2",
    ],
    "sm_100a": ["tcgen05.ld.16x256b.x2"],
    "sm_120a": [
        "mma.m16n8k32.f32.e4m3.e5m2.kind::f8f6f4",
        "mma.m16n8k64.kind::mxf4.block_scale",
    ],
}


@pytest.mark.parametrize("target", FORMS)
def test_opcodes_are_those_of_ptxas(target: str) -> None:
    forms = [find(name) for name in FORMS[target]]
    for form, made in zip(forms, opcodes(forms, target), strict=True):
        assert any(opcode.startswith(machine_name(form)) for opcode, _ in made), made
        assert machine_name(form)


def test_what_has_no_fragments_says_why() -> None:
    told = {instruction["name"]: instruction for instruction in elsewhere()}
    assert "no operand is a matrix in registers" in told["tcgen05.cp"]["why"]
    assert "D in Tensor Memory" in told["tcgen05.mma"]["why"]
    assert "utcqmma" in told["tcgen05.mma"]["words"]
