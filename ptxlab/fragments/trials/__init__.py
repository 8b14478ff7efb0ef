"""Trials: programs generated for one instruction, whose results say where its elements are."""

from collections.abc import Iterator

from ptxlab.errors import Unsupported
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.trials.multiply import filled_multiplication, multiply_trials
from ptxlab.fragments.trials.rows import load_trial, move_trial, store_trial
from ptxlab.fragments.trials.trial import Trial
from ptxlab.fragments.trials.wmma import wmma_trial
from ptxlab.matrix.form import Form
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WmmaMove

__all__ = ["Trial", "filled", "trials", "tried"]


def tried(form: Form) -> bool:
    if isinstance(form, MatrixInstruction):
        return not form.shared
    return isinstance(form, LdMatrix | StMatrix | MovMatrix | WmmaMove)


def trials(form: Form) -> Iterator[Trial]:
    """Yield the trials of a form; none for one of a family that has no way to be tried yet."""
    if tried(form):
        if isinstance(form, MatrixInstruction) and form.family != "wmma":
            yield from multiply_trials(form)
        else:
            yield _single(form, None)


def filled(form: Form, fill: Fill) -> Trial:
    if not tried(form):
        raise Unsupported(
            f"ptxlab has no program to verify {form.name} with",
            hint="--formula, --element, --register and --format csv show its layout and run nothing",
        )
    if isinstance(form, MatrixInstruction) and form.family != "wmma":
        return filled_multiplication(form, fill)
    return _single(form, fill)


def _single(form: Form, fill: Fill | None) -> Trial:
    match form:
        case LdMatrix():
            return load_trial(form, fill)
        case StMatrix():
            return store_trial(form, fill)
        case MovMatrix():
            return move_trial(form, fill)
        case MatrixInstruction() | WmmaMove():
            return wmma_trial(form, fill)
    raise AssertionError(form.name)
