"""Block-scaled matrix multiply-add: numbers of 8 bits and less that share a scale along k.

kind::mxf8f6f4 scales the terms of an ordinary step (see ``ptxlab.numbers.tensor_core``): a product
times both scales has the exponent of the product plus those of the scales.

kind::mxf4 and kind::mxf4nvf4 first add up each group of 16 products, exactly. A group times both its
scales is one term, and its exponent is the sum of the scales' exponents alone, so that up to
``fraction_bits`` below that survive. Only a group in which every product is zero counts as zero.

Scales: ue8m0 is 2**(x - 127), and NaN for 255; ue4m3 is e4m3 without its sign, which is ignored. A NaN
scale makes the result NaN.

Source: MMA-Sim, arXiv 2511.10909 ("ST-FDPA", "GST-FDPA"); PTX ISA, "Block Scaling for mma.sync".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import DotProduct, GroupedDotProduct
from ptxlab.numbers.formats import E2M1, F32, FORMATS, UE8M0, Format
from ptxlab.numbers.fused_step import OPERANDS, FusedStep, fused_sum, round_result

_TERMS = 1 << 17
"""How many terms are computed together, so that they stay in the cache."""


def multiply_add_scaled(
    a: Array,
    b: Array,
    c: Array,
    a_scales: Array,
    b_scales: Array,
    *,
    a_type: str,
    b_type: str,
    rules: DotProduct,
) -> Array:
    """Compute D = (A * scales) * (B * scales) + C of kind::mxf8f6f4 for a batch of warps.

    ``a`` is [m, k, warps] and ``b`` [k, n, warps] of 8-bit containers, ``c`` and the result
    [m, n, warps] of f32 as uint32. ``a_scales`` [m, blocks, warps] and ``b_scales``
    [blocks, n, warps] are ue8m0, each for k / blocks numbers. ``rules`` is the target's ``dot8``,
    or its ``dot8_async`` for tcgen05.mma.
    """
    step = FusedStep.of(OPERANDS[a_type], OPERANDS[b_type], F32, rules)
    k, blocks = b.shape[0], b_scales.shape[0]

    def terms(chunk: slice, columns: slice, part: slice) -> tuple[Array, Array]:
        block = np.arange(k)[chunk] * blocks // k
        x, x_exponent = _scaled(step.a, a[:, chunk, part], a_scales[:, block, part])
        y, y_exponent = _scaled(step.b, b[chunk, columns, part], b_scales[block, columns, part])
        products = _outer(np.multiply, x, y)
        sums = _outer(np.add, x_exponent, y_exponent)
        return products, np.where(products == 0, step.zero_exponent, sums)

    return _accumulate(terms, c, range(0, k, step.products), step)


def _scaled(form: Format, words: Array, scales: Array) -> tuple[Array, Array]:
    """Return the values and exponents of ``words``, of which each has a scale."""
    values, exponents = form.decode(words)
    scale, scale_exponents = UE8M0.decode(scales)
    return values * scale, exponents.astype(np.int32) + scale_exponents


def multiply_add_grouped(
    a: Array,
    b: Array,
    c: Array,
    a_scales: Array,
    b_scales: Array,
    *,
    scale_type: str,
    rules: GroupedDotProduct,
) -> Array:
    """Compute D = (A * scales) * (B * scales) + C of kind::mxf4 and mxf4nvf4 for a batch of warps.

    ``a`` is [m, k, warps] and ``b`` [k, n, warps] of bytes with one e2m1 each, in the low four bits;
    ``c`` and the result are [m, n, warps] of f32 as uint32. ``a_scales`` [m, blocks, warps] and
    ``b_scales`` [blocks, n, warps] are bytes of ``scale_type``, ue8m0 or ue4m3, each for k / blocks
    numbers. ``rules`` is the target's ``grouped4``.
    """
    k, blocks = b.shape[0], b_scales.shape[0]

    def terms(chunk: slice, columns: slice, part: slice) -> tuple[Array, Array]:
        block = np.arange(k)[chunk][:: rules.group] * blocks // k
        sums, empty = _group_sums(a[:, chunk, part], b[chunk, columns, part], rules.group)
        left, left_exponent = _scale(a_scales[:, block, part], scale_type)
        right, right_exponent = _scale(b_scales[block, columns, part], scale_type)
        scale = _outer(np.multiply, left, right)
        exponents = _outer(np.add, left_exponent, right_exponent)
        groups = sums * np.ldexp(scale, exponents)
        return groups, np.where(empty | (scale == 0), rules.zero_exponent, exponents)

    return _accumulate(terms, c, range(0, k, rules.chunk), rules)


def _outer(operation: np.ufunc, left: Array, right: Array) -> Array:
    """Combine [m, k, warps] with [k, n, warps] to [k, m, n, warps]."""
    result: Array = operation(left.transpose(1, 0, 2)[:, :, None], right[:, None])
    return result


def _accumulate(
    terms: Callable[[slice, slice, slice], tuple[Array, Array]],
    c: Array,
    starts: range,
    rules: FusedStep | GroupedDotProduct,
) -> Array:
    """Add to ``c`` step by step the terms (values, exponents) of slices of k, of the columns and of the warps."""
    d = np.array(c, order="C")
    rows, columns, warps = c.shape
    across = min(warps, max(1, _TERMS // (starts.step * rows * columns)))
    down = max(1, _TERMS // (starts.step * rows * across))
    with np.errstate(all="ignore"):
        for warp, column in product(range(0, warps, across), range(0, columns, down)):
            some, part = slice(column, column + down), slice(warp, warp + across)
            for start in starts:
                addend = F32.decode(d[:, some, part])
                products = terms(slice(start, start + starts.step), some, part)
                total = fused_sum(*products, *addend, rules.fraction_bits, rules.zero_exponent)
                d[:, some, part] = round_result(total, F32)
    return d


def _group_sums(a: Array, b: Array, group: int) -> tuple[Array, Array]:
    """Add up the products of each group, and say where all of them are zero: [groups, m, n, warps]."""
    groups = -(-b.shape[0] // group)
    left, _ = E2M1.decode(a)
    right, _ = E2M1.decode(b)
    left = left.astype(np.float32).reshape(len(a), groups, -1, a.shape[2]).transpose(3, 1, 0, 2)
    right = right.astype(np.float32).reshape(groups, -1, *b.shape[1:]).transpose(3, 0, 1, 2)
    sums = np.matmul(left, right)
    empty = np.matmul(np.abs(left), np.abs(right)) == 0
    return sums.transpose(1, 2, 3, 0).astype(np.float64), empty.transpose(1, 2, 3, 0)


def _scale(words: Array, scale_type: str) -> tuple[Array, Array]:
    """Split scales into significand and exponent; a subnormal has the lowest normal exponent."""
    values, exponents = FORMATS[scale_type].decode(words)
    exponents = np.where(np.isfinite(values) & (values != 0), exponents, 0).astype(np.int32)
    return np.ldexp(values, -exponents), exponents
