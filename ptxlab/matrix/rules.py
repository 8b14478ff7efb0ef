"""Which of a target's floating-point arithmetics a matrix instruction uses, and that in words.

Source: see ``ptxlab.isa.targets``.
"""

from __future__ import annotations

from ptxlab.isa.targets import DotProduct, GroupedDotProduct, Target, UnpackedDotProduct
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem

Rules = DotProduct | UnpackedDotProduct | GroupedDotProduct

_INTEGERS = ("s8", "u8", "s4", "u4")
_DIRECTIONS = {"rn": "to nearest even", "rz": "toward zero", "rm": "down", "rp": "up"}


def floating(form: MatrixInstruction, target: Target) -> Rules | None:
    """Return how ``target`` adds up products of ``form``, whose A is of floating-point numbers but f64.

    None where its tensor cores have no such product.
    """
    known = target.arithmetic
    if form.a_type == "f16" and (form.family, form.k) == ("mma", 4):
        return known.m8n8k4
    if form.a_type == "tf32" and form.family == "wmma":
        return known.wmma_tf32
    if form.a_type in ("f16", "bf16", "tf32"):
        return known.dot16
    if form.shared:
        return known.dot8_async
    return known.grouped4 if form.held("B").bits == 4 else known.dot8


def of_problem(problem: TensorCoreProblem, target: Target) -> Rules | None:
    """Return how ``target`` adds up products of a ``tcgen05.mma`` that are not of integers, None as above."""
    known = target.arithmetic
    if problem.bits == 4:
        return known.grouped4
    return known.dot8_async if problem.bits == 8 else known.dot16


def arithmetic(form: MatrixInstruction, target: Target) -> str:
    """Say how ``target`` adds up D of ``form``, which it has."""
    if form.a_type in _INTEGERS:
        end = "is clamped" if form.satfinite else "wraps around"
        return f"exact; what 32 bits cannot hold {end}"
    if form.a_type == "b1":
        return (
            f"the bits set in A {form.bit_operation} B are counted and added to C; it wraps around"
        )
    if form.a_type == "f64":
        direction = _DIRECTIONS[form.rounding]
        return f"fused multiply-adds in increasing k, each rounded {direction}"
    rules = floating(form, target)
    if rules is None:
        return "no tensor-core instruction: float32 operations, each rounded to nearest even"
    if isinstance(rules, GroupedDotProduct):
        return (
            f"groups of {rules.group} products with the same scales are summed exactly; the scaled sums "
            f"and C are cut off {rules.fraction_bits} bits below the largest exponent and added"
        )
    if isinstance(rules, UnpackedDotProduct):
        return (
            "unpacked to f16: the products of k mod 4 in {0, 1}, then those of {2, 3}, cut off "
            f"{rules.halves.fraction_bits} bits below the largest exponent, are added at once; "
            "then C is added, rounding to nearest even"
        )
    return _steps(form, rules)


def _steps(form: MatrixInstruction, rules: DotProduct) -> str:
    products = rules.chunk * 16 // form.held("B").bits
    depth = form.k // 2 if form.metadata else form.k
    of = f"{min(products, depth)} products" + (" at a time" if depth > products else "")
    text = f"{of} and C, cut off {rules.fraction_bits} bits below the largest exponent, are added at once"
    if form.d_type == "f32" and rules.result_bits < 23:
        text += f"; D has {rules.result_bits} fraction bits"
    return text
