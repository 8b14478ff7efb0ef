"""Trials: programs generated for one instruction, whose results say where its elements are."""

from collections.abc import Iterator

from ptxlab.errors import Unsupported
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.trials import tensor_moves
from ptxlab.fragments.trials.multiply import multiply_trials
from ptxlab.fragments.trials.rows import load_trial, move_trial, store_trial
from ptxlab.fragments.trials.tensor_products import product_trials
from ptxlab.fragments.trials.trial import Trial
from ptxlab.fragments.trials.warpgroup import warpgroup_trials
from ptxlab.fragments.trials.wmma import wmma_trial
from ptxlab.matrix.form import AsyncInstruction, Form
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tcgen05 import TensorCoreProduct
from ptxlab.matrix.tensor_memory import TensorMemoryMove
from ptxlab.matrix.wmma_move import WmmaMove

__all__ = ["Trial", "filled", "trials", "tried"]


def tried(form: Form) -> bool:
    return form.family.startswith("tcgen05") or isinstance(
        form, MatrixInstruction | LdMatrix | StMatrix | MovMatrix | WmmaMove
    )


def trials(form: Form, fill: Fill | None = None, *, target: str = "") -> Iterator[Trial]:
    """Yield the trials of a form, or the one launch on what a ``fill`` means; none where it is not tried.

    What it has on a ``target`` alone is tried there.
    """
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
        case TensorMemoryMove():
            yield tensor_moves.move_trial(form, fill)
        case AsyncInstruction() if fill is None and form.family.startswith("tcgen05"):
            yield from _of_tensor_cores(form, target)


def _of_tensor_cores(form: AsyncInstruction, target: str) -> Iterator[Trial]:
    if isinstance(form, TensorCoreProduct):
        yield from product_trials(form, target)
    elif form.family == "tcgen05.cp":
        yield tensor_moves.copy_trial(form)
    elif form.family == "tcgen05.shift":
        yield tensor_moves.shift_trial(form)
    else:
        yield tensor_moves.order_trial(form)


def filled(form: Form, fill: Fill) -> Trial:
    for trial in trials(form, fill):
        return trial
    raise Unsupported(
        f"ptxlab has no program to verify {form.name} with",
        hint="--formula, --element, --register and --format csv show its layout and run nothing",
    )
