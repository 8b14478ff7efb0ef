"""Which native arithmetic a matrix instruction has on a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ptxlab.isa.targets import DotProduct, Target, UnpackedDotProduct
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating, of_problem
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.fragments import BLOCK
from ptxlab.native.tensor_core.fused_step import FusedSteps, Terms, UnpackedSteps
from ptxlab.native.tensor_core.whole_numbers import BitSteps, DoubleSteps, IntegerSteps
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F16
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS, FusedStep

_FAMILIES = ("mma", "wmma", "wgmma")


class Steps(Protocol):
    """An arithmetic: what it keeps of elements, (LLVM type, bytes), and how it adds their products.

    One step takes ``products`` of what is kept, for ``rows`` rows, and D has words of type ``word``.
    """

    @property
    def kept(self) -> tuple[tuple[str, int], ...]: ...

    @property
    def word(self) -> str: ...

    @property
    def products(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def left(self, words: VectorValue, bits: int) -> Sequence[tuple[VectorValue, ...]]:
        """Return what is kept of the elements of A in words that have some, by ``bits`` each."""

    def right(self, words: VectorValue, bits: int) -> Sequence[tuple[VectorValue, ...]]:
        """Return what is kept of those of B."""

    def column(self, code: FunctionBuilder, terms: Terms, d: VectorValue) -> None:
        """Write how a step's products are added to a column of D."""


def steps(form: MatrixInstruction, target: Target) -> Steps | None:
    """Return the arithmetic of ``form``, None where it has no native one."""
    rows = min(BLOCK, form.m)
    if form.family not in _FAMILIES or form.c_type != form.d_type:
        return None
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return IntegerSteps(form.a_type, form.b_type, form.satfinite, form.k, rows)
        case "b1":
            return BitSteps(form.bit_operation, form.k // 32, rows)
        case "f64":
            return DoubleSteps(form.k, rows) if form.rounding == "rn" else None
    rules = floating(form, target)
    a, b, d = OPERANDS[form.a_type], OPERANDS[form.b_type], ACCUMULATORS[form.d_type]
    if isinstance(rules, UnpackedDotProduct):
        how = FusedStep.of(F16, F16, d, rules.halves)
        return UnpackedSteps(how, min(how.products, form.k // 2), rows, a, b, form.k)
    if not isinstance(rules, DotProduct):
        return None
    how = FusedStep.of(a, b, d, rules)
    return FusedSteps(how, min(how.products, form.k), rows) if how.is_narrow else None


def transposed(problem: TensorCoreProblem, target: Target) -> Steps | None:
    """Return the arithmetic of a tcgen05.mma with A and B exchanged, None where it has no native one.

    Its rows are the columns of the problem.
    """
    if problem.form.sparse or problem.scale_type:
        return None
    rows = BLOCK if problem.path.columns % BLOCK == 0 else BLOCK // 2
    if problem.form.kind == "i8":
        return IntegerSteps(problem.b_type, problem.a_type, problem.saturates, problem.k, rows)
    rules = of_problem(problem, target)
    assert isinstance(rules, DotProduct)
    a, b, d = OPERANDS[problem.a_type], OPERANDS[problem.b_type], ACCUMULATORS[problem.d_type]
    how = FusedStep.of(b, a, d, rules)
    return FusedSteps(how, min(how.products, problem.k), rows) if how.is_narrow else None
