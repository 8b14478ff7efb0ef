"""Refusing, before anything runs, what is not emulated and what the target or version does not have."""

from __future__ import annotations

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.refused import reason
from ptxlab.emulator.prepare.row import ROWS, Form, UnknownForm
from ptxlab.errors import PtxSyntaxError, Unsupported, did_you_mean
from ptxlab.isa.legality import Needs
from ptxlab.matrix.form import Form as MatrixForm


def legal_form(context: Context) -> Form:
    """Return the form of the instruction in hand, which the target and the version have.

    Raises Unsupported where the emulator does not have it or the target lacks it, PtxSyntaxError
    where the version is too old.
    """
    instruction = context.instruction
    why = reason(instruction.name)
    if why is not None:
        context.refuse(instruction.name, hint=why)
    if instruction.opcode not in ROWS:
        hint = did_you_mean(instruction.opcode, ROWS)
        context.refuse(f"instruction {instruction.name}", hint=hint)
    try:
        form = form_of(instruction)
    except UnknownForm as unknown:
        context.refuse_form(unknown)
    require(context, form.needs)
    return form


def require_form(context: Context, form: MatrixForm) -> None:
    """Check the matrix instruction in hand by its table: ``form`` is what the table calls it.

    Raises like ``require``.
    """
    require(context, Needs((form.minimum_targets,), form.minimum_ptx))


def require(context: Context, needed: Needs) -> None:
    """Check that the target and the version have what the instruction in hand needs.

    Raises Unsupported or PtxSyntaxError where they do not.
    """
    name, target = context.instruction.name, context.target
    missing = needed.missing(target)
    if missing:
        known = " or ".join(f"{other}{_reach(other)}" for other in missing)
        raise Unsupported(
            f"{name} does not exist on {target.name}",
            location=context.location(),
            hint=f"it needs {known}",
        )
    if context.module.version < needed.ptx:
        written = "{}.{}".format(*context.module.version)
        raise PtxSyntaxError(
            f"{name} is newer than the module's .version {written}",
            location=context.location(),
            hint="write .version {}.{} or newer".format(*needed.ptx),
        )


def _reach(name: str) -> str:
    """Say how far a target's instructions reach: one chip, its family, or all newer ones."""
    if name.endswith("a"):
        return ""
    return " (the a targets of its family)" if name.endswith("f") else " or newer"
