"""The forms the operations accept, the rules of legality and the assembler agree; the rest is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ptxlab.emulator.prepare.forms import find, forms, opcodes
from ptxlab.emulator.prepare.row import ROWS, UnknownForm
from ptxlab.isa.targets import TARGETS
from scripts import certify_operations as certify
from tests.together import in_one_test


@pytest.fixture(autouse=True)
def few_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """``python scripts/certify_operations.py`` asks about all."""
    monkeypatch.setattr(certify, "all_forms", partial(certify.all_forms, 32))


@in_one_test("opcode", opcodes())
def test_every_opcode_has_forms(opcode: str) -> None:
    assert forms(opcode)


# One always runs of those that no row tells apart.
ALIKE = ("sm_87", "sm_103", "sm_103a", "sm_107", "sm_110", "sm_121", "sm_121a")


@pytest.mark.parametrize(
    "target",
    [pytest.param(target, marks=[pytest.mark.thorough] * (target in ALIKE)) for target in TARGETS],
)
def test_ptxas_takes_on_each_target_what_the_rules_say(target: str) -> None:
    assert list(certify.differences(target)) == []


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("sm_75", (6, 4)),
        ("sm_75", (7, 5)),
        ("sm_80", (7, 0)),
        ("sm_90", (7, 8)),
        ("sm_90", (8, 0)),
        ("sm_90", (8, 2)),
        ("sm_100a", (8, 6)),
        ("sm_100a", (8, 7)),
        ("sm_100a", (9, 0)),
    ],
)
def test_ptxas_takes_in_each_version_what_the_rules_say(
    target: str, version: tuple[int, int]
) -> None:
    assert list(certify.differences(target, version)) == []


def test_every_need_of_other_instructions_is_asked_about() -> None:
    asked = certify.other_forms()
    needs = {
        (names, need)
        for rows in ROWS.values()
        for row in rows
        for names, need in row.needs.items()
        if not (row.compute or row.make)
    }
    assert len(needs) > 20
    for names, need in needs:
        assert any(
            form.row.needs.get(names) == need and set(names.split()) <= set(form.modifiers)
            for form in asked
        ), (names, need)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = find("add", ("bf16",)).needs
    monkeypatch.setattr(certify, "all_forms", lambda: forms("add"))
    monkeypatch.setattr(certify, "needed", lambda _: wrong)
    differences = list(certify.differences("sm_80"))
    assert "sm_80, .version 9.5: ptxas takes add.u32 %r0, %r4, %r5;" in differences
    monkeypatch.setattr(certify, "needed", lambda _: find("xor", ("b32",)).needs)
    assert "sm_80, .version 9.5: ptxas rejects add.bf16 %h0, %h4, %h5;" in list(
        certify.differences("sm_80")
    )


@in_one_test(
    "name",
    [
        "add.ftz.f64",
        "sub.sat.u32",
        "add.rz.f16",
        "add.sat.bf16",
        "add.foo.f32",
        "addc.u16",
        "fma.f32",
        "fma.rn.u32",
        "fma.rz.bf16",
        "fma.rn.oob.f16",
        "mul.u32",
        "mul.wide.u64",
        "mad.lo.sat.s32",
        "div.f32",
        "div.full.f64",
        "neg.u32",
        "min.NaN.f64",
        "min.xorsign.f32",
        "rcp.rn.ftz.f64",
        "setp.lo.s32",
        "setp.lt.b32",
        "setp.lt.ftz.f64",
        "selp.pred",
        "shr.f32",
        "cvt.s32.f32",
        "cvt.rn.f64.f32",
        "cvt.f16.f32",
        "cvt.bf16.f64",
        "cvt.rz.s32.f32",
        "cvt.rn.e4m3x2.f32",
        "cvt.rna.relu.tf32.f32",
        "sin.f32",
        "ex2.approx.bf16",
        "lop3.xor.b32",
        "prmt.b32.xyz",
    ],
)
def test_what_is_not_an_instruction_is_refused(reference: Any, name: str) -> None:
    with pytest.raises(UnknownForm):
        reference.build(name)
