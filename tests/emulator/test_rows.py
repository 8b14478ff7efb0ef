"""Rows of operations: what fits a syntax line, what does not and why, and what their columns say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptxlab.emulator.prepare.forms import find, forms
from ptxlab.emulator.prepare.row import ROWS, OperandClass, UnknownForm, row
from ptxlab.isa.targets import TARGETS
from ptxlab.numbers.types import TYPES
from tests.together import in_one_test


@pytest.fixture
def opcode() -> Iterator[str]:
    """An opcode that no instruction has, without its rows again after the test."""
    yield "probe"
    ROWS.pop("probe", None)
    find.cache_clear()


def made(**filled: str) -> Any:
    return lambda: filled


def test_a_syntax_line_says_what_fits(opcode: str) -> None:
    row(
        opcode + ".fixed{.<rnd>}{.ftz}.<D>.<A>",
        "A D cc -> D cc",
        make=made,
        mix="integer",
        rnd="rn rz",
        D="u32 s32",
        A="u16 u32",
    )
    assert len(forms(opcode)) == 3 * 2 * 2 * 2
    form = find(opcode, ("fixed", "rz", "s32", "u16"))
    assert form.slots == ("fixed", "rz", "", "s32", "u16")
    assert form.name == "probe.fixed.rz.s32.u16"
    assert (form["rnd"], form["ftz"], form["D"], form["nothing"]) == ("rz", "", "s32", "")
    assert (form.operands, form.results, form.sources) == (("u16", "s32", "cc"), ("s32", "cc"), 2)
    assert form.compute() == {"rnd": "rz", "ftz": "", "D": "s32", "A": "u16"}


def test_modifiers_come_in_any_order_but_types_in_their_own(opcode: str) -> None:
    row(opcode + "{.a}{.b}.<D>.<A>", "A -> D", np.negative, mix="integer", D="u32 s32", A="u32 u16")
    wanted = ("a", "b", "s32", "u16")
    assert find(opcode, ("b", "s32", "a", "u16")).modifiers == wanted
    assert find(opcode, ("s32", "u16", "b", "a")).modifiers == wanted
    with pytest.raises(UnknownForm, match="another order"):
        find(opcode, ("u16", "s32"))


def test_the_number_of_sources_decides_between_alike_forms() -> None:
    assert find("min", ("f32",)).sources == 2
    assert find("min", ("f32",), 2).sources == 2
    assert find("min", ("f32",), 3).sources == 3
    assert find("min", ("f32",), 4).sources == 2


@in_one_test(
    ("name", "why"),
    [
        ("add.foo.f32", "modifier .foo is not modelled"),
        ("neg.u32", "does not take type .u32"),
        ("mul.wide.u64", "does not take .wide with .u64"),
        ("add.ftz.f64", "does not take .ftz with .f64"),
        ("mul.u32", "needs one of .lo, .hi, .wide"),
        ("ex2.approx.bf16", "needs .ftz"),
        ("fma.f32", "needs one of .rn, .rz, .rm, .rp"),
        ("ld.relaxed.global.u32", "needs one of .cta, .cluster, .gpu, .sys"),
        ("ld.gpu.global.u32", "needs one of .relaxed, .acquire"),
        ("ld.shared.nc.u32", "does not take .nc with .shared.u32"),
        ("atom.add.f16", "needs .noftz"),
    ],
)
def test_a_refusal_says_why(name: str, why: str) -> None:
    first, *modifiers = name.split(".")
    with pytest.raises(UnknownForm) as caught:
        find(first, tuple(modifiers))
    assert str(caught.value) == why


def test_operands_are_told_place_by_place() -> None:
    assert find("lop3", ("b32",)).row.sources[3] == OperandClass("u32", "constant")
    load = find("ld", ("global", "v4", "f32"))
    assert load.row.sources[0] == OperandClass("T", "address")
    assert load.row.results == (OperandClass("T", vector="vec"),)
    first, second = find("setp", ("lt", "f32")).row.results
    assert (first.optional, second.optional) == (True, True)
    assert find("bra", ()).row.sources == (OperandClass("label", "name"),)


def test_what_is_needed_goes_by_the_modifiers() -> None:
    assert find("min", ("f32",)).needs.missing(TARGETS["sm_75"]) == ()
    assert find("min", ("NaN", "f32")).needs.missing(TARGETS["sm_75"]) == ("sm_80",)
    assert find("ld", ("relaxed", "sys", "b128")).needs.ptx == (8, 4)
    assert find("ld", ("relaxed", "sys", "u32")).needs.ptx == (0, 0)
    assert find("ld", ("b128",)).needs.ptx == (8, 3)


@pytest.mark.parametrize(
    ("syntax", "operands", "sets", "what"),
    [
        ("probe.<T>", "T T -> U", {"T": "u32"}, "U is neither a type nor a slot"),
        ("probe.u32", "u32 -> u32", {"T": "u32"}, "nothing is called T"),
        ("probe.u32", "u32+ -> u32", {}, "what is u32"),
    ],
)
def test_a_row_that_makes_no_sense_is_not_taken(
    syntax: str, operands: str, sets: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what.replace("+", ".")):
        row(syntax, operands, np.negative, mix="integer", **sets)
    with pytest.raises(ValueError, match="nothing says what"):
        row("probe.u32", "u32 -> u32", mix="integer")
    assert "probe" not in ROWS


def test_every_operand_has_a_type() -> None:
    for rows in ROWS.values():
        for operation in rows:
            slots = {slot.name: slot.choices for slot in operation.slots}
            for operand in (*operation.sources, *operation.results):
                for name in slots.get(operand.type, (operand.type,)):
                    assert name in TYPES or name == "cc" or operand.kind == "name", (
                        operation,
                        name,
                    )
                assert operand.vector in ("", *slots)
