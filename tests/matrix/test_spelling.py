"""The modifiers of matrix instructions in other orders: the same instruction, another, or none, as ptxas says."""

from __future__ import annotations

import random
import re

import pytest

from ptxlab.fragments.probe_kernel import statement
from ptxlab.matrix.catalog import find, forms, matching, multiplication, warp_level
from ptxlab.matrix.form import Form
from ptxlab.matrix.naming import named
from ptxlab.toolchain.assembler import assemble


def assembled(form: Form, name: str) -> bytes | None:
    """Return what ptxas makes of the operands of ``form`` under another name, None where it refuses."""
    target = next(t for t in ("sm_90a", "sm_100a", "sm_120a") if t in form.targets)
    text = statement(form)
    operands = text[text.index(" ") :]
    kinds = {name: operand.type for operand in form.signature for name in operand.registers}
    declared = "".join(f".reg .{kind} {register};\n" for register, kind in kinds.items())
    kernel = f"""
.version 9.1
.target {target}
.address_size 64
.visible .entry k()
{{
.shared .align 128 .b8 p[1024];
{declared}
{name}{operands}
ret;
}}
"""
    made = assemble([kernel], [f"-arch={target}", "-O0"], name)
    return None if made is None else made.image


def shuffled(name: str, dice: random.Random) -> str:
    opcode, *modifiers = re.findall(r"wmma\.mma|wmma\.\w+\.\w|[\w:]+", name)
    return ".".join([opcode, *dice.sample(modifiers, len(modifiers))])


def neighbours_exchanged(name: str, dice: random.Random) -> str:
    parts = name.split(".")
    at = dice.randrange(len(parts) - 1)
    parts[at : at + 2] = parts[at + 1], parts[at]
    return ".".join(parts)


def test_ptxas_takes_a_name_for_the_same_instruction() -> None:
    dice = random.Random(5)
    same = other = none = 0
    for form in dice.sample(warp_level(), 60):
        for name in (shuffled(form.name, dice), neighbours_exchanged(form.name, dice)):
            respelled = named(name)
            assert assembled(form, name) == (respelled and assembled(form, respelled.name)), name
            same += respelled is form
            other += respelled not in (form, None)
            none += respelled is None
    assert same > 40
    assert other
    assert none > 20


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        (
            "ldmatrix.sync.aligned.x4.trans.m8n8.b16",
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        ),
        (
            "wmma.load.a.sync.aligned.global.m16n16k16.f16.row",
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16",
        ),
        (
            "stmatrix.x2.m8n8.shared::cta.b16.sync.aligned",
            "stmatrix.sync.aligned.m8n8.x2.shared.b16",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32.satfinite",
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32",
        ),
        ("mma.sync.aligned.m16n8k16.row.col.s32.u8.s32.s8.satfinite", None),
        ("wmma.sync.mma.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64", None),
    ],
)
def test_whoever_looks_one_up_finds_it(name: str, canonical: str | None) -> None:
    form = named(name)
    assert (form and form.name) == canonical
    if form is not None:
        assert matching(name)[0] is find(name) is form


def test_every_form_has_a_spelling_of_its_own() -> None:
    assert all(named(form.name) is form for form in warp_level())
    assert len({form.name for form in warp_level()}) == len(warp_level())


def test_types_in_another_order_are_another_instruction() -> None:
    name = "mma.s32.s8.u8.s32.row.col.satfinite.m16n8k32.aligned.sync"
    assert multiplication(name).name.endswith("satfinite.s32.s8.u8.s32")
    assert multiplication(name.replace("s8.u8", "u8.s8")).name.endswith("s32.u8.s8.s32")
    wgmma = next(form for form in forms() if form.family == "wgmma")
    assert find(f"{wgmma.name.replace('.sync', '')}.sync").name == wgmma.name
