"""Everything known of one matrix instruction, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.errors import ToolchainError
from ptxlab.fragments import receipts
from ptxlab.fragments.specimen import statement
from ptxlab.fragments.support import Compiled, compiled, emulated
from ptxlab.isa.targets import TARGETS, Arithmetic
from ptxlab.matrix.entry import Entry
from ptxlab.matrix.instruction import MatrixInstruction
from ptxlab.matrix.operand import Operand
from ptxlab.matrix.rules import arithmetic
from ptxlab.matrix.signature import signature


@dataclass(frozen=True, slots=True)
class Explanation:
    """One instruction. ``others`` are further ones that the same words describe.

    ``flops`` counts a multiplication and an addition each, zeros that a sparse A leaves out included;
    None of what multiplies nothing. ``arithmetic`` pairs targets with what they do. ``not_compiled``
    says why ``compiled`` is empty.
    """

    entry: Entry
    others: tuple[Entry, ...]
    operands: tuple[Operand, ...]
    statement: str
    flops: int | None
    arithmetic: tuple[tuple[tuple[str, ...], str], ...]
    emulated: bool
    hardware: str | None
    compiled: tuple[Compiled, ...]
    not_compiled: str | None


def explain(found: Sequence[Entry], targets: Sequence[str] = ()) -> Explanation:
    """Explain the first of ``found``; compile it for ``targets``, or one of each generation."""
    entry = found[0]
    form = entry.form
    sass: tuple[Compiled, ...] = ()
    reason = None
    try:
        sass = compiled(entry, targets or _generations(entry))
    except ToolchainError as error:  # absent, or older than the instruction
        reason = error.message.splitlines()[0]
    return Explanation(
        entry,
        tuple(found[1:]),
        signature(form),
        statement(entry),
        form.flops if isinstance(form, MatrixInstruction) else None,
        _arithmetic(form, entry, targets) if isinstance(form, MatrixInstruction) else (),
        entry.name in emulated([entry]),
        receipts.hardware(entry),
        sass,
        reason,
    )


def _generations(entry: Entry) -> tuple[str, ...]:
    """Return the first known target of every generation of tensor cores that has the instruction."""
    first: dict[Arithmetic, str] = {}
    for name in entry.targets:
        first.setdefault(TARGETS[name].arithmetic, name)
    return tuple(first.values())


def _arithmetic(
    form: MatrixInstruction, entry: Entry, targets: Sequence[str]
) -> tuple[tuple[tuple[str, ...], str], ...]:
    groups: dict[str, list[str]] = {}
    for name in targets or entry.targets:
        groups.setdefault(arithmetic(form, TARGETS[name]), []).append(name)
    return tuple((tuple(names), note) for note, names in groups.items())
