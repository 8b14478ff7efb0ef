"""Targets that compute as a relative does: ptxas makes the same tensor core instructions for both."""

from __future__ import annotations

import pytest

from ptxlab.fragments.support import compiled
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import forms
from ptxlab.matrix.form import Form

RELATIVES = {
    "sm_103a": "sm_100a", "sm_107": "sm_100", "sm_107a": "sm_100a", "sm_110": "sm_100", "sm_110a": "sm_100a", "sm_121": "sm_120", "sm_121a": "sm_120a",
}  # fmt: skip


def multiplying(form: Form, target: str) -> list[str]:
    """Return the opcodes of the tensor cores and what is added in full, in any order.

    Four scales of 64 products are called blocks of 16 from sm_103a on.
    """
    (code,) = compiled(form, [target])
    adding = ("MMA", "F2FP", "ADD")
    return sorted(
        name.replace(".BLOCK16", ".4X")
        for name, count in code.opcodes
        if any(part in name for part in adding) and not name.startswith(("UIADD", "IADD", "VIADD"))
        for _ in range(count)
    )


@pytest.mark.parametrize(
    ("target", "relative", "most"),
    [
        *((*pair, 2) for pair in RELATIVES.items()),
        *(pytest.param(*pair, 12, marks=pytest.mark.thorough) for pair in RELATIVES.items()),
    ],
)
def test_both_have_the_same_instructions(target: str, relative: str, most: int) -> None:
    mine, known = TARGETS[target], TARGETS[relative]
    assert mine.arithmetic is known.arithmetic
    assert (mine.measured, known.measured) == (False, True)
    both = [form for form in forms() if form.rounds and form.runs_on(mine) and form.runs_on(known)]
    some = both[:: max(1, len(both) // most)]
    made = {form.key: multiplying(form, target) for form in some}
    assert made == {form.key: multiplying(form, relative) for form in some}
    assert any(made.values())


def test_other_generations_have_others() -> None:
    (form,) = (
        f for f in forms() if f.name == "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    )
    assert multiplying(form, "sm_110a") != multiplying(form, "sm_121a")
