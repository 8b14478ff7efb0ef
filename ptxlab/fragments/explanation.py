"""Everything known of one matrix instruction, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.errors import ToolchainError
from ptxlab.fragments import receipts
from ptxlab.fragments.support import Compiled, compiled, emulated
from ptxlab.isa.targets import TARGETS, Arithmetic
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import arithmetic


@dataclass(frozen=True, slots=True)
class Explanation:
    """One instruction. ``others`` are further ones that the same words describe.

    ``arithmetic`` pairs targets with what they do. ``not_compiled`` says why ``compiled`` is empty.
    """

    form: Form
    others: tuple[Form, ...]
    arithmetic: tuple[tuple[tuple[str, ...], str], ...]
    emulated: bool
    hardware: str | None
    compiled: tuple[Compiled, ...]
    not_compiled: str | None


def explain(found: Sequence[Form], targets: Sequence[str] = ()) -> Explanation:
    """Explain the first of ``found``; compile it for ``targets``, or one of each generation."""
    form = found[0]
    sass: tuple[Compiled, ...] = ()
    reason = None
    try:
        sass = compiled(form, targets or _generations(form))
    except ToolchainError as error:  # absent, or older than the instruction
        reason = error.message.splitlines()[0]
    return Explanation(
        form,
        tuple(found[1:]),
        _arithmetic(form, targets) if isinstance(form, MatrixInstruction) else (),
        form.name in emulated([form]),
        receipts.hardware(form),
        sass,
        reason,
    )


def _generations(form: Form) -> tuple[str, ...]:
    """Return the first known target of every generation of tensor cores that has the instruction."""
    first: dict[Arithmetic, str] = {}
    for name in form.targets:
        first.setdefault(TARGETS[name].arithmetic, name)
    return tuple(first.values())


def _arithmetic(
    form: MatrixInstruction, targets: Sequence[str]
) -> tuple[tuple[tuple[str, ...], str], ...]:
    groups: dict[str, list[str]] = {}
    for name in targets or form.targets:
        groups.setdefault(arithmetic(form, TARGETS[name]), []).append(name)
    return tuple((tuple(names), note) for note, names in groups.items())
