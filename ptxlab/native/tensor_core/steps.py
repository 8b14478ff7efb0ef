"""Which native arithmetic a matrix instruction has on a target."""

from __future__ import annotations

from ptxlab.isa.targets import DotProduct, GroupedDotProduct, Target, UnpackedDotProduct
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating, of_problem
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native.compiler import has_halves
from ptxlab.native.tensor_core.fused_step import FusedSteps, UnpackedSteps
from ptxlab.native.tensor_core.operands import BLOCK
from ptxlab.native.tensor_core.scaled_steps import GroupedSteps, ScaledSteps
from ptxlab.native.tensor_core.terms import Steps
from ptxlab.native.tensor_core.whole_numbers import BitSteps, DoubleSteps, IntegerSteps
from ptxlab.numbers.formats import F16, FORMATS
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS, FusedStep


def depth(form: MatrixInstruction) -> int:
    """Return how many numbers a row of A has: of a sparse one those that are left, of bits words."""
    a = form.held("A").cols
    return a // 32 if form.a_type == "b1" else a


def steps(form: MatrixInstruction, target: Target) -> Steps | None:
    """Return the arithmetic of ``form``, None where it has no native one."""
    rows, k = min(BLOCK, form.m), depth(form)
    if form.c_type != form.d_type or (form.d_type == "f16" and not has_halves()):
        return None
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return IntegerSteps(k, rows, form.a_type, form.b_type, form.satfinite)
        case "b1":
            return BitSteps(k, rows, form.bit_operation)
        case "f64":
            return DoubleSteps(k, rows) if form.rounding == "rn" else None
    rules = floating(form, target)
    a, b, d = OPERANDS[form.a_type], OPERANDS[form.b_type], ACCUMULATORS[form.d_type]
    if isinstance(rules, UnpackedDotProduct):
        how = FusedStep.of(F16, F16, d, rules.halves)
        return UnpackedSteps(min(how.products, k // 2), rows, how, a, b, k)
    if isinstance(rules, GroupedDotProduct):
        scale = form.scales[0]
        return GroupedSteps(k, rows, rules, FORMATS[scale.dtype], scale.blocks)
    if not isinstance(rules, DotProduct):
        return None
    blocks = form.scales[0].blocks if form.scales else 0
    return _fused(FusedStep.of(a, b, d, rules), k, rows, blocks)


def _fused(how: FusedStep, k: int, rows: int, blocks: int) -> Steps | None:
    """Return steps for a k, with so many scales along it."""
    products = min(how.products, k)
    if not how.is_narrow or (blocks and products < k):
        return None
    return ScaledSteps(products, rows, how, blocks) if blocks else FusedSteps(products, rows, how)


def transposed(problem: TensorCoreProblem, target: Target) -> Steps | None:
    """Return the arithmetic of a tcgen05.mma with A and B exchanged, None where it has no native one.

    Its rows are the columns of the problem.
    """
    if problem.d_type == "f16" and not has_halves():
        return None
    rows = BLOCK if problem.path.columns % BLOCK == 0 else BLOCK // 2
    k = problem.a.cols
    if problem.form.kind == "i8":
        return IntegerSteps(k, rows, problem.b_type, problem.a_type, problem.saturates)
    rules = of_problem(problem, target)
    if isinstance(rules, GroupedDotProduct):
        scale = FORMATS[problem.scale_type]
        return GroupedSteps(k, rows, rules, scale, problem.blocks)
    assert isinstance(rules, DotProduct)
    a, b, d = OPERANDS[problem.a_type], OPERANDS[problem.b_type], ACCUMULATORS[problem.d_type]
    return _fused(FusedStep.of(b, a, d, rules), k, rows, problem.blocks)
