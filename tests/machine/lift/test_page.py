"""The page on machine code says of each opcode what is so."""

from __future__ import annotations

import pytest

from ptxlab.machine.lift.table import RULES
from scripts import machine_code


def test_the_page_is_what_the_rules_make() -> None:
    text = machine_code.PAGE.read_text(encoding="utf-8")
    assert machine_code.page(text) == text, "run python scripts/machine_code.py"


def test_an_opcode_without_a_rule_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| `IADD3` | yes | yes | yes |" in machine_code.table()
    monkeypatch.delitem(RULES, "IADD3")
    assert "| `IADD3` |  | yes | yes |" in machine_code.table()
