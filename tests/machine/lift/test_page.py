"""The page on machine code says of each opcode what is so."""

from __future__ import annotations

import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import target_named
from ptxlab.machine.image import read_image
from ptxlab.machine.lift.table import RULES
from scripts import machine_code
from tests.machine.lift.test_atomics import HOPPER, JOINED, PROGRAM, ROW

TEXT = machine_code.PAGE.read_text(encoding="utf-8")
ROW_OF_IADD3 = "| `IADD3` | {} | yes | yes |"


def test_the_page_is_what_the_rules_make() -> None:
    assert machine_code.page(TEXT) == TEXT, "run python scripts/machine_code.py"


def test_an_opcode_without_a_rule_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROW_OF_IADD3.format("yes") in machine_code.table({})
    monkeypatch.delitem(RULES, "IADD3")
    assert ROW_OF_IADD3.format("") in machine_code.table({})


def test_the_page_says_for_which_targets_an_opcode_was_met() -> None:
    """All that ptxas makes of a program for sm_90a; what Hopper alone has is for no other target."""
    text = PROGRAM.format(arch="sm_90a", row=ROW, body=JOINED + HOPPER)
    module, cubin = load_assembled(text, target_named("sm_90a"))
    code = read_image(cubin.image, cubin.arch).kernels[module.entries[0].name].code
    told = machine_code.told(TEXT)
    assert [i.sass.text for i in code if 90 not in told[i.sass.opcode]] == []
    assert told["HGMMA"] == {90}
    assert min(told["UTCHMMA"]) == 100


def test_opcodes_are_counted_by_the_target_of_their_code() -> None:
    code = "\t.target\tsm_{}\n\n        /*0000*/                   {} ;\n"
    texts = [
        code.format("90a", "@!P0 FADD.FTZ R1, R2, R3"),
        code.format("80", "FADD R1, R2, R3"),
        "",
    ]
    met = machine_code.met_in(texts)
    assert met == {"FADD": {80, 90}}
    assert machine_code.told(machine_code.page(TEXT, {"FADD": {3}}))["FADD"] == {
        3, *machine_code.told(TEXT)["FADD"],
    }  # fmt: skip
