"""Which native arithmetic a matrix instruction has on a target, and those of integers, of bits and of float64.

See ``ptxlab.numbers.tensor_core_integer`` and ``ptxlab.numbers.doubles``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.isa.targets import DotProduct, GroupedDotProduct, Target, UnpackedDotProduct
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating, of_problem
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.compiler import has_halves
from ptxlab.native.tensor_core.fused_step import FusedSteps, GroupedSteps, UnpackedSteps
from ptxlab.native.tensor_core.operands import BLOCK
from ptxlab.native.tensor_core.terms import Steps, Terms
from ptxlab.native.tracing.trace import applied
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F16, FORMATS
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS, FusedStep
from ptxlab.numbers.rounding import propagate_nan_f64


@dataclass(frozen=True, slots=True)
class IntegerSteps(Steps):
    """All ``products`` in one step, whose sum fits int32; C is added last, wrapping or clamped."""

    types: tuple[str, str]
    satfinite: bool

    kept = ("i32",)

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        tops = (words << (32 - bits - low) for low in range(0, 32, bits))
        shift = "ashr" if self.types[side][0] == "s" else "lshr"
        return [(top.apply(shift, 32 - bits),) for top in tops]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        total = code.fold(
            sums.like(0),
            range(self.products),
            lambda total, k: total + terms.a(0, k) * terms.b(0, k),
        )
        return total.call("sadd.sat", sums) if self.satfinite else total + sums


@dataclass(frozen=True, slots=True)
class BitSteps(Steps):
    """All ``products`` of 32 bits each in one step: the bits set in A and B, or xor, are counted."""

    operation: str

    kept = ("i32",)

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        return [(words,)]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        def added(sums: VectorValue, k: VectorValue) -> VectorValue:
            return sums + terms.a(0, k).apply(self.operation, terms.b(0, k)).call("ctpop")

        return code.fold(sums, range(self.products), added)


@dataclass(frozen=True, slots=True)
class DoubleSteps(Steps):
    """Fused multiply-adds of float64, each rounded to nearest even, in increasing k."""

    kept = ("double",)
    word = "i64"

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        return [(words.bits("double"),)]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        def added(total: VectorValue, k: VectorValue) -> VectorValue:
            left, right = terms.a(0, k), terms.b(0, k)
            fused = left.call("fma", right, total)
            return applied(propagate_nan_f64, np.float64, fused, left, right, total)

        return code.fold(sums.bits("double"), range(self.products), added).bits("i64")


# ---- which one an instruction has ----


def depth(form: MatrixInstruction) -> int:
    """Return how many numbers a row of A has: of a sparse one those that are left, of bits words."""
    a = form.held("A").cols
    return a // 32 if form.a_type == "b1" else a


def steps(form: MatrixInstruction, target: Target) -> Steps | None:
    """Return the arithmetic of ``form``, None where it has no native one."""
    rows, k = min(BLOCK, form.m), depth(form)
    if form.c_type != form.d_type:
        return None
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return IntegerSteps(k, rows, (form.a_type, form.b_type), form.satfinite)
        case "b1":
            return BitSteps(k, rows, form.bit_operation)
        case "f64":
            return DoubleSteps(k, rows) if form.rounding == "rn" else None
    types, scale = (form.a_type, form.b_type, form.d_type), next(iter(form.scales), None)
    scales = (scale.dtype, scale.blocks) if scale else ("", 0)
    return _floating(floating(form, target), types, k, rows, *scales)


def transposed(problem: TensorCoreProblem, target: Target) -> Steps | None:
    """Return the arithmetic of a tcgen05.mma with A and B exchanged, None where it has no native one.

    Its rows are the columns of the problem.
    """
    rows, k = BLOCK if problem.path.columns % BLOCK == 0 else BLOCK // 2, problem.a.cols
    if problem.form.kind == "i8":
        return IntegerSteps(k, rows, (problem.b_type, problem.a_type), problem.saturates)
    types = problem.b_type, problem.a_type, problem.d_type
    rules = of_problem(problem, target)
    return _floating(rules, types, k, rows, problem.scale_type, problem.blocks)


def _floating(
    rules: object, types: tuple[str, str, str], k: int, rows: int, scale_type: str, blocks: int
) -> Steps | None:
    """Return the arithmetic of A, B and D of these types, with so many scales along k."""
    a, b, d = OPERANDS[types[0]], OPERANDS[types[1]], ACCUMULATORS[types[2]]
    if d is F16 and not has_halves():
        return None
    match rules:
        case UnpackedDotProduct():
            how = FusedStep.of(F16, F16, d, rules.halves)
            parts = FusedSteps(min(how.products, k // 2), rows, how)
            return UnpackedSteps(k, rows, parts, (a, b))
        case GroupedDotProduct():
            return GroupedSteps(k, rows, rules, FORMATS[scale_type], blocks)
        case DotProduct():
            how = FusedStep.of(a, b, d, rules)
            products = min(how.products, k)
            if how.is_narrow and (not blocks or products == k):
                return FusedSteps(products, rows, how, blocks)
    return None
