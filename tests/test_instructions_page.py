"""docs/instructions.md is what the code says, and what it lists can run."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ptxlab.emulator.prepare.operation import STEPS
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.isa.grammar import GRAMMAR
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax import parse

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> Any:
    return load("instructions")


def test_the_page_is_current(script: Any) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/instructions.py"


def test_every_opcode_is_on_the_page(script: Any) -> None:
    page = script.page()
    for opcode in {*GRAMMAR, *STEPS}:
        assert f"`{opcode}." in page or f"`{opcode}[." in page or f"`{opcode}`" in page, opcode


def test_boxes_cover_each_form_once(script: Any) -> None:
    forms = [*product("ab", ("", "x"), "123"), *product("c", ("x",), "12"), ("c", "", "3"), ("z",)]
    covered = [form for box in script.boxes(forms) for form in product(*box)]
    assert sorted(covered) == sorted(forms)
    assert len(script.boxes(forms)) <= 4
    assert script.boxes(product("ab", "xy")) == [(frozenset("ab"), frozenset("xy"))]


def test_forms_are_written_in_the_order_of_the_grammar(script: Any) -> None:
    box = (frozenset(("", "ftz")), frozenset(("f32", "f16")))
    assert script.written("neg", box, (("", "ftz"), ("f16", "f32"))) == "neg[.ftz].{f16,f32}"


def test_everything_listed_prepares() -> None:
    certify = load("certify_operations")
    lines = "\n".join(certify.line(form) for form in certify.all_forms())
    text = (
        ".version 9.1\n.target sm_100a\n.visible .entry k()\n{\n.reg .pred %p<9>; .reg .b8 %c<9>; "
        ".reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>;\n"
        f"{lines}\nret;\n}}\n"
    )
    prepare(parse(text), TARGETS["sm_100a"])
