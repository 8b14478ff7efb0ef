"""The numbers of tcgen05.mma: matrices of raw words in, D out, as the tensor cores of a target compute.

Each instruction is one step over all of its k, of a sparse A over what is stored of it. Measured on a B200 are
dense and sparse products of one CTA; m, n, a second CTA and ``.ws`` change nothing in the arithmetic. No published
measurement settles a k of 96 and an addend that is scaled down: they are computed by the same rule.

Source: github.com/sf-tensor/tcgen05 6f19f22, ``tcgen05_model/MODEL.md`` and ``hardware_validation``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import Factors
from ptxlab.isa.targets import DotProduct, GroupedDotProduct, Target
from ptxlab.matrix.rules import of_problem
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.numbers.formats import CONTAINED, FORMATS
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_integer import multiply_add_integer
from ptxlab.numbers.tensor_core_scaled import multiply_add_grouped, multiply_add_scaled
from ptxlab.numbers.tensor_core_sparse import SparseRows

Product = Callable[..., Array]

_TOGETHER = 1 << 20
"""How many scaled products are held at once."""


@cache
def arithmetic(problem: TensorCoreProblem, target: Target) -> Callable[[Factors], Array]:
    """Return how D is computed of the factors of products, [.., products] each."""
    product = _product(problem, target)
    sign = sign_bit(problem) if problem.negates else 0

    def compute(factors: Factors) -> Array:
        a, b, c, scales = factors.a, factors.b, factors.c, factors.scales
        if sign:
            a = a ^ a.dtype.type(sign)
        if factors.places is None:
            return product(a, b, c, *scales)
        rows = SparseRows(factors.places)
        if scales:
            scales = (rows.left(scales[0]), rows.repeated(scales[1]))
        return rows.restore(product(rows.left(a), rows.picked(b), rows.accumulator(c), *scales))

    return compute


def _product(problem: TensorCoreProblem, target: Target) -> Product:
    types: dict[str, Any] = {"a_type": problem.a_type, "b_type": problem.b_type}
    if problem.form.kind == "i8":
        return partial(multiply_add_integer, **types, satfinite=problem.saturates)
    rules = of_problem(problem, target)
    if isinstance(rules, GroupedDotProduct):
        rules = replace(rules, chunk=max(rules.chunk, problem.k))
        return _in_parts(partial(multiply_add_grouped, scale_type=problem.scale_type, rules=rules))
    assert isinstance(rules, DotProduct)
    if problem.scale_type:
        return _in_parts(partial(multiply_add_scaled, **types, rules=rules))
    a_type, b_type, d_type = problem.a_type, problem.b_type, problem.d_type
    return partial(multiply_add, dtype=a_type, b_dtype=b_type, acc=d_type, rules=rules)


def _in_parts(product: Product) -> Product:
    """Return a scaled product that takes a few rows of a few products at a time, for the cache."""

    def compute(a: Array, b: Array, c: Array, a_scales: Array, b_scales: Array) -> Array:
        (m, n, count), k = c.shape, b.shape[0]
        some = max(1, min(count, _TOGETHER // (k * n)))
        rows = max(1, _TOGETHER // (k * n * some))
        d = np.empty_like(c)
        for first in range(0, count, some):
            part = slice(first, first + some)
            for row in range(0, m, rows):
                of = slice(row, row + rows)
                d[of, :, part] = product(
                    a[of, :, part],
                    b[..., part],
                    c[of, :, part],
                    a_scales[of, :, part],
                    b_scales[..., part],
                )
        return d

    return compute


def sign_bit(problem: TensorCoreProblem) -> int:
    """Return the sign bit of a word of A."""
    if problem.bits == 4:
        return 1 << (FORMATS["e2m1"].bits - 1)
    form = CONTAINED.get(problem.a_type) or FORMATS[problem.a_type]
    return 1 << (form.low_bit + form.sign_bit)


def scaled_down(c: Array, shift: int, d_type: str) -> Array:
    """Return addends times 2**-shift, words as they were; what is lost is cut off."""
    if not shift:
        return c
    if d_type == "f16":
        values = c.view(np.float16).astype(np.float64) * 2.0**-shift
        cut = np.trunc(values * 2.0**24) * 2.0**-24
        return np.where(np.abs(values) < 2.0**-14, cut, values).astype(np.float16).view(np.uint16)
    values = c.view(np.float32).astype(np.float64) * 2.0**-shift
    small = np.abs(values) < 2.0**-126
    cut = np.where(small, np.trunc(values * 2.0**149) * 2.0**-149, values)
    return np.asarray(cut.astype(np.float32)).view(np.uint32)
