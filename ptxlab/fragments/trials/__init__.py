"""Trials: programs generated for one instruction, whose results say where its elements are."""

from collections.abc import Iterator

from ptxlab.errors import Unsupported
from ptxlab.fragments.fill import Fill
from ptxlab.fragments.trials.multiply import filled_multiplication, multiply_trials
from ptxlab.fragments.trials.rows import load_trial, move_trial, store_trial
from ptxlab.fragments.trials.trial import Body, Step, Trial
from ptxlab.fragments.trials.wmma import wmma_trial
from ptxlab.matrix.entry import Entry, Form
from ptxlab.matrix.instruction import Fragmented, MatrixInstruction
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.wmma import WmmaMove

__all__ = ["Body", "Step", "Trial", "filled", "trials", "tried"]


def tried(form: Form | Fragmented) -> bool:
    """Say whether there are trials of a form."""
    if isinstance(form, MatrixInstruction):
        return not form.shared
    return isinstance(form, LdMatrix | StMatrix | MovMatrix | WmmaMove)


def trials(entry: Entry) -> Iterator[Trial]:
    """Yield the trials of an instruction; none for one of a family that has no way to be tried yet."""
    match entry.form:
        case MatrixInstruction(family="wmma") | WmmaMove():
            yield wmma_trial(entry)
        case MatrixInstruction() as form if not form.shared:
            yield from multiply_trials(entry, form)
        case LdMatrix() as form:
            yield load_trial(entry, form)
        case StMatrix() as form:
            yield store_trial(entry, form)
        case MovMatrix() as form:
            yield move_trial(entry, form)


def filled(entry: Entry, fill: Fill) -> Trial:
    """Return one launch of an instruction that has trials, on what ``fill`` means."""
    match entry.form:
        case MatrixInstruction(family="wmma") | WmmaMove():
            return wmma_trial(entry, fill)
        case MatrixInstruction() as form if not form.shared:
            return filled_multiplication(entry, form, fill)
        case LdMatrix() as form:
            return load_trial(entry, form, fill)
        case StMatrix() as form:
            return store_trial(entry, form, fill)
        case MovMatrix() as form:
            return move_trial(entry, form, fill)
    raise Unsupported(
        f"ptxlab has no program to verify {entry.name} with",
        hint="--formula, --element, --register and --format csv show its layout and run nothing",
    )
