"""docs/instructions.md is what the code says, and what it lists can run."""

from __future__ import annotations

import re
from itertools import product

import pytest

from ptxlab.emulator.prepare.forms import forms, opcodes
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.row import ROWS
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax import parse
from scripts import certify_operations, instructions
from tests.together import in_one_test

PROGRAM = """\
.version 9.5
.target {}
.visible .entry k()
{{
    .reg .pred %p<9>; .reg .b8 %c<9>; .reg .b16 %h<9>;
    .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>;
    {}
    ret;
}}
"""


def test_the_page_is_current() -> None:
    assert instructions.PAGE.read_text(encoding="utf-8") == instructions.page(), (
        "run scripts/instructions.py"
    )


def test_every_opcode_is_on_the_page() -> None:
    page = instructions.page()
    for opcode, rows in ROWS.items():
        listed = f"`{opcode}." in page or f"`{opcode}[." in page or f"`{opcode}`" in page
        assert listed != all(row.lifted for row in rows), opcode


def expanded(text: str) -> list[str]:
    """Write out the alternatives of ``.{a,b}`` and ``[.a]``."""
    choice = re.search(r"\[([^]]*)\]|\{([^}]*)\}", text)
    if choice is None:
        return [text]
    parts = choice[2].split(",") if choice[1] is None else ["", choice[1]]
    before, after = text[: choice.start()], text[choice.end() :]
    return [form for part in parts for form in expanded(before + part + after)]


def listed() -> dict[tuple[str, int], tuple[str, str]]:
    """What the page's first table says of (form, sources): what it needs, and how exact it is."""
    table = instructions.PAGE.read_text(encoding="utf-8").split("## ")[1]
    rows: dict[tuple[str, int], tuple[str, str]] = {}
    for row in re.findall(r"^\| (`.*`) \| (\d) \| (.*?) ?\| (\w+) \|$", table, re.MULTILINE):
        for text in re.findall("`(.*?)`", row[0]):
            for form in expanded(text):
                assert (form, int(row[1])) not in rows, f"{form} is there twice"
                rows[form, int(row[1])] = row[2], row[3]
    return rows


def test_the_page_lists_each_form_of_the_grammar_once() -> None:
    known = {(form.name, form.sources) for opcode in opcodes() for form in forms(opcode)}
    assert listed().keys() == known


@in_one_test(
    ("form", "sources", "needs", "fidelity"),
    [
        # PTX ISA, "Target ISA Notes" and "PTX ISA Notes" of each; sm_75 and 6.3 are not written.
        ("add.rz.ftz.sat.f32", 2, "", "exact"),
        ("add.sat.s32", 2, "", "exact"),
        ("add.bf16", 2, "sm_90, PTX 7.8", "exact"),
        ("abs.bf16x2", 1, "sm_80, PTX 7.0", "exact"),
        ("fma.rn.relu.bf16", 3, "sm_80, PTX 7.0", "exact"),
        ("min.xorsign.abs.f32", 2, "sm_86, PTX 7.2", "exact"),
        ("min.NaN.f32", 2, "sm_80, PTX 7.0", "exact"),
        ("bmsk.clamp.b32", 2, "PTX 7.6", "exact"),
        ("sin.approx.ftz.f32", 1, "", "model"),
        ("tanh.approx.f32", 1, "PTX 7.0", "model"),
        ("tanh.approx.bf16", 1, "sm_90, PTX 7.8", "model"),
    ],
)
def test_what_the_isa_says_of_some(form: str, sources: int, needs: str, fidelity: str) -> None:
    assert listed()[form, sources] == (needs, fidelity)


@pytest.mark.parametrize(
    "form",
    ["sub.sat.u32", "add.ftz.f64", "and.s32", "shl.u32", "fma.f32", "sin.f32", "min.ftz.f64"],
)
def test_what_the_isa_has_not_is_neither_listed_nor_run(form: str) -> None:
    assert form not in {name for name, _ in listed()}
    letter = "d" if form.endswith("64") else "r"
    operands = ", ".join(f"%{letter}{i}" for i in range({"sin": 2, "fma": 4}.get(form[:3], 3)))
    with pytest.raises(PtxlabError):
        prepare(parse(PROGRAM.format("sm_100a", f"{form} {operands};")), TARGETS["sm_100a"], "k")


def test_boxes_cover_each_form_once() -> None:
    forms = [*product("ab", ("", "x"), "123"), *product("c", ("x",), "12"), ("c", "", "3"), ("z",)]
    covered = [form for box in instructions.boxes(forms) for form in product(*box)]
    assert sorted(covered) == sorted(forms)
    assert len(instructions.boxes(forms)) <= 4
    assert instructions.boxes(product("ab", "xy")) == [(frozenset("ab"), frozenset("xy"))]


def test_forms_are_written_in_the_order_of_the_grammar() -> None:
    box = (frozenset(("", "ftz")), frozenset(("f32", "f16")))
    assert instructions.written("neg", box, (("", "ftz"), ("f16", "f32"))) == "neg[.ftz].{f16,f32}"


def test_everything_listed_prepares() -> None:
    left = [*certify_operations.all_forms(32)]
    for target, most in (("sm_100a", 400), ("sm_120a", 360), ("sm_107a", 0)):
        having = [form for form in left if not form.needs.missing(TARGETS[target])]
        left = [form for form in left if form.needs.missing(TARGETS[target])]
        assert len(left) <= most
        lines = "\n".join(map(certify_operations.line, having))
        prepare(parse(PROGRAM.format(target, lines)), TARGETS[target], "k")
