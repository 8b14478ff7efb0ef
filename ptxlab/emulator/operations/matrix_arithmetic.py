"""Which arithmetic a matrix instruction has on a target: the table from its types to a function.

All functions take and return matrices of raw words with the warps last; see
``ptxlab.numbers.tensor_core`` and its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ptxlab.isa.targets import Target
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating
from ptxlab.numbers.doubles import (
    multiply_add_double,
)
from ptxlab.numbers.formats import Array
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_integer import multiply_add_bits, multiply_add_integer
from ptxlab.numbers.tensor_core_scaled import multiply_add_grouped, multiply_add_scaled
from ptxlab.numbers.tensor_core_software import (
    multiply_add_bytes,
    multiply_add_m8n8k4,
    multiply_add_wmma,
)
from ptxlab.numbers.tensor_core_sparse import Rows

Product = Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Factors:
    """What one multiplication takes: A [m, k, warps], B [k, n, warps], C [m, n, warps].

    ``places`` are the k of A's elements, [m, k / 2, warps], where A is sparse and without its zeros.
    ``scales`` are those of A, [m, blocks, warps], and B, [blocks, n, warps], where there are any.
    """

    a: Array
    b: Array
    c: Array
    places: Array | None = None
    scales: tuple[Array, ...] = ()


def arithmetic(form: MatrixInstruction, target: Target) -> Callable[[Factors], Array]:
    """Return how ``target`` computes D of ``form``."""
    product = _scaled(form, target) if form.scales else _product(form, target)

    def compute(factors: Factors) -> Array:
        if factors.places is None:
            return product(factors.a, factors.b, factors.c, *factors.scales)
        rows = Rows(factors.places)
        scales: tuple[Array, ...] = ()
        if factors.scales:
            scales = (rows.left(factors.scales[0]), rows.repeated(factors.scales[1]))
        a, b, c = rows.left(factors.a), rows.picked(factors.b), rows.accumulator(factors.c)
        return rows.restore(product(a, b, c, *scales))

    return compute


def _product(form: MatrixInstruction, target: Target) -> Product:
    pair: dict[str, Any] = {"a_type": form.a_type, "b_type": form.b_type}
    ends: dict[str, Any] = {"c_type": form.c_type, "d_type": form.d_type}
    rules: Any = floating(form, target)
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return partial(multiply_add_integer, **pair, satfinite=form.satfinite)
        case "b1":
            return partial(multiply_add_bits, operation=form.bit_operation)
        case "f64":
            return partial(multiply_add_double, rounding=form.rounding)
        case "f16" if form.family == "wmma":
            return partial(multiply_add_wmma, **ends, rules=rules)
        case "f16" if form.k == 4:
            return partial(multiply_add_m8n8k4, **ends, rules=rules)
        case "f16" | "bf16" | "tf32":
            return partial(multiply_add, dtype=form.a_type, acc=form.d_type, rules=rules)
    return partial(multiply_add_bytes, **pair, acc=form.d_type, rules=_present(form, target))


def _scaled(form: MatrixInstruction, target: Target) -> Product:
    if form.operand("B").bits == 4:
        scale_type = form.scales[0].dtype
        rules = _present(form, target)
        return partial(multiply_add_grouped, scale_type=scale_type, rules=rules)
    pair: dict[str, Any] = {"a_type": form.a_type, "b_type": form.b_type}
    return partial(multiply_add_scaled, **pair, rules=_present(form, target))


def _present(form: MatrixInstruction, target: Target) -> Any:
    """Return the arithmetic of the target, which has one where it runs the instruction."""
    rules = floating(form, target)
    if rules is None:
        raise ValueError(f"{target.name} has no arithmetic for {form.name}")
    return rules
