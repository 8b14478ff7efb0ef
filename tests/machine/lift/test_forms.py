"""Instructions of PTX give the same bits as what ptxas makes of them, lifted: random bits, edges, constants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxlab.errors import Unsupported
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import Writer
from tests.machine.lift.programs import FormsProgram, differences, forms_of, programs

ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")


def check(arch: str, first: int, count: int) -> Iterator[str]:
    for program in programs(arch, first, count):
        try:
            lifted = program.lifted()
        except Unsupported as error:
            yield f"refused: {error.message}"
        else:
            yield from differences(program, lifted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_both_engines_agree(arch: str) -> None:
    told = list(check(arch, 0, 2))
    assert [line for line in told if not line.startswith("refused")] == []


@pytest.mark.parametrize("name", ["div.u64", "rem.s64", "div.rn.f64", "sqrt.rn.f64"])
def test_what_functions_compute_agrees(name: str) -> None:
    """Carries of products, and ways back from where a function is called."""
    [form] = [form for form in forms_of("sm_80") if form.name == name]
    program = FormsProgram(70, [form] * 4, "sm_80")
    assert differences(program, program.lifted()) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tenth", range(30))
@pytest.mark.parametrize("arch", ARCHS)
def test_both_engines_agree_on_every_form(arch: str, tenth: int) -> None:
    told = list(check(arch, 10 * tenth, 10))
    assert [line for line in told if not line.startswith("refused")] == []


def test_a_rule_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logic that is always a shift differs, and nothing does that is right."""

    def wrong(w: Writer) -> None:
        w.modifiers.ignore(*w.modifiers.names)
        w.emit(f"shl.b32 {w.dest()}, {w.word(w.i.sources[0])}, 1")

    [program] = programs("sm_80", 0, 1)
    assert isinstance(program, FormsProgram)
    right = differences(program, program.lifted())
    monkeypatch.setitem(table.RULES, "LOP3", wrong)
    assert right == []
    assert differences(program, program.lifted()) != []


def test_a_modifier_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(w: Writer) -> None:
        w.emit(f"mov.b32 {w.dest()}, 0")

    [program] = programs("sm_80", 0, 1)
    monkeypatch.setitem(table.RULES, "LOP3", forgetful)
    with pytest.raises(Unsupported, match=r"k\.sass:\d+.*what \.\w+ does here is not modelled"):
        program.lifted()
