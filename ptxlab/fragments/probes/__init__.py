"""Probe kernels: programs generated for one instruction, whose results say where its elements are."""

from collections.abc import Iterator

from ptxlab.errors import Unsupported
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probes import tensor_moves
from ptxlab.fragments.probes.kernel import ProbeKernel
from ptxlab.fragments.probes.multiply import multiply_probe_kernels
from ptxlab.fragments.probes.rows import load_probe_kernel, move_probe_kernel, store_probe_kernel
from ptxlab.fragments.probes.tensor_products import product_probe_kernels
from ptxlab.fragments.probes.warpgroup import warpgroup_probe_kernels
from ptxlab.fragments.probes.wmma import wmma_probe_kernel
from ptxlab.matrix.form import AsyncInstruction, Form
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tcgen05 import TensorCoreProduct
from ptxlab.matrix.tensor_memory import TensorMemoryMove
from ptxlab.matrix.wmma_move import WmmaMove

__all__ = ["ProbeKernel", "filled", "probe_kernels", "tried"]


def tried(form: Form) -> bool:
    return form.family.startswith("tcgen05") or isinstance(
        form, MatrixInstruction | LdMatrix | StMatrix | MovMatrix | WmmaMove
    )


def probe_kernels(
    form: Form, fill: Fill | None = None, *, target: str = ""
) -> Iterator[ProbeKernel]:
    """Yield the probe kernels of a form, or the one launch on what a ``fill`` means; none where it is not tried.

    What it has on a ``target`` alone is tried there.
    """
    match form:
        case MatrixInstruction() if form.shared:
            yield from warpgroup_probe_kernels(form, fill)
        case MatrixInstruction() if form.family != "wmma":
            yield from multiply_probe_kernels(form, fill)
        case MatrixInstruction() | WmmaMove():
            yield wmma_probe_kernel(form, fill)
        case LdMatrix():
            yield load_probe_kernel(form, fill)
        case StMatrix():
            yield store_probe_kernel(form, fill)
        case MovMatrix():
            yield move_probe_kernel(form, fill)
        case TensorMemoryMove():
            yield tensor_moves.move_probe_kernel(form, fill)
        case AsyncInstruction() if fill is None and form.family.startswith("tcgen05"):
            yield from _of_tensor_cores(form, target)


def _of_tensor_cores(form: AsyncInstruction, target: str) -> Iterator[ProbeKernel]:
    if isinstance(form, TensorCoreProduct):
        yield from product_probe_kernels(form, target)
    elif form.family == "tcgen05.cp":
        yield tensor_moves.copy_probe_kernel(form)
    elif form.family == "tcgen05.shift":
        yield tensor_moves.shift_probe_kernel(form)
    else:
        yield tensor_moves.order_probe_kernel(form)


def filled(form: Form, fill: Fill) -> ProbeKernel:
    for probe_kernel in probe_kernels(form, fill):
        return probe_kernel
    raise Unsupported(
        f"ptxlab has no program to verify {form.name} with",
        hint="--formula, --element, --register and --format csv show its layout and run nothing",
    )
