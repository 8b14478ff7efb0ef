"""Trials: programs generated for one instruction, whose results say where its elements are."""

from collections.abc import Iterator

from ptxlab.errors import Unsupported
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.trials.multiply import multiply_trials
from ptxlab.fragments.trials.rows import load_trial, move_trial, store_trial
from ptxlab.fragments.trials.trial import Trial
from ptxlab.fragments.trials.warpgroup import warpgroup_trials
from ptxlab.fragments.trials.wmma import wmma_trial
from ptxlab.matrix.form import Form
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma_move import WmmaMove

__all__ = ["Trial", "filled", "trials", "tried"]


def tried(form: Form) -> bool:
    return isinstance(form, MatrixInstruction | LdMatrix | StMatrix | MovMatrix | WmmaMove)


def trials(form: Form, fill: Fill | None = None) -> Iterator[Trial]:
    """Yield the trials of a form, or the one launch on what a ``fill`` means; none where it is not tried."""
    match form:
        case MatrixInstruction() if form.shared:
            yield from warpgroup_trials(form, fill)
        case MatrixInstruction() if form.family != "wmma":
            yield from multiply_trials(form, fill)
        case MatrixInstruction() | WmmaMove():
            yield wmma_trial(form, fill)
        case LdMatrix():
            yield load_trial(form, fill)
        case StMatrix():
            yield store_trial(form, fill)
        case MovMatrix():
            yield move_trial(form, fill)


def filled(form: Form, fill: Fill) -> Trial:
    for trial in trials(form, fill):
        return trial
    raise Unsupported(
        f"ptxlab has no program to verify {form.name} with",
        hint="--formula, --element, --register and --format csv show its layout and run nothing",
    )
