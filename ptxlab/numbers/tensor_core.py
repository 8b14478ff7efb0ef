"""Floating-point matrix multiply-add as tensor cores compute it, to the bit.

A tensor core does not add one product after another. It adds ``chunk`` exact products and C in one
step, after cutting each of them off at a fixed number of bits below the largest exponent among
them. With ``F = fraction_bits`` and each term written as ``s * 2**e`` (a product has the sum of its
factors' exponents, a subnormal the exponent of the smallest normal number, a zero term the
exponent ``zero_exponent``), one step is

    E = largest e of all terms
    S = sum of truncate(s * 2**(F + e - E))         toward zero, each term by itself
    D = round(S * 2**(E - F))                       float32: toward zero; float16: to nearest even

The rounded D is the C of the next ``chunk`` products, in increasing k. How many products are fused
and how many bits are kept differs between generations, so the same PTX gives different bits on
different chips: see ``ptxlab.isa.targets``. Special values: any NaN, infinity times zero, or
infinities of both signs give the canonical NaN; otherwise an infinity wins; a zero is positive.

Source: MMA-Sim, arXiv 2511.10909 ("T-FDPA"); Khattak & Mikaitis, arXiv 2512.07004.

``ptxlab.numbers.fused_step`` is this definition in float64. This file computes the same bits in
float32 and int32, for many warps at once; the few elements where those would not be exact (special
values, exponents near the ends of float32's range) go there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from math import isqrt

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import DotProduct
from ptxlab.numbers.formats import F32, ZERO_EXPONENT, Format, alone
from ptxlab.numbers.fused_step import (
    ACCUMULATORS,
    HIGHEST,
    NO_PRODUCT,
    FusedStep,
    exact_step,
    operand_formats,
    store,
)

_WARPS = 512
"""Warps computed together: long rows for numpy's inner loops, still small enough for the cache."""
_ELEMENTS = 65536
"""Elements of D computed together."""
_PRODUCTS = 65536
"""Products held at once: 256 KiB."""


def multiply_add(
    a: Array,
    b: Array,
    c: Array,
    *,
    dtype: str,
    acc: str,
    rules: DotProduct,
    b_dtype: str | None = None,
    c_dtype: str | None = None,
) -> Array:
    """Compute D = A*B + C for a batch of warps on raw words, with the bits of a tensor core.

    ``a`` is [m, k, warps], ``b`` is [k, n, warps], ``c`` and the result are [m, n, warps]: unsigned
    words of the PTX type ``dtype`` (uint16; uint32 for tf32; uint8 for the 8-bit containers, which
    hold one number each) and ``acc`` (uint32 for f32, uint16 for f16). ``b_dtype`` is the type of B
    where it differs from A's, ``c_dtype`` that of C where it differs from D's. ``rules`` is the
    arithmetic of the chip.

    Raises ``Unsupported`` when tensor cores of these types are not modelled, ``ValueError`` for
    arrays that do not fit together.
    """
    a_form, b_form = operand_formats(dtype, b_dtype or dtype, acc)
    result, addend = ACCUMULATORS[acc], ACCUMULATORS[c_dtype or acc]
    (m, k, warps), n = a.shape, b.shape[1]
    if b.shape != (k, n, warps) or c.shape != (m, n, warps):
        raise ValueError(f"shapes {a.shape}, {b.shape} and {c.shape} are not m*k, k*n and m*n")
    if (a.dtype, b.dtype, c.dtype) != (a_form.word, b_form.word, addend.word):
        raise ValueError(f"words are {a.dtype}, {b.dtype} and {c.dtype}, not {dtype} and {acc}")
    if addend is not result and not k:
        raise ValueError(f"without products a C of {c_dtype} has no step that makes it {acc}")
    arithmetic = FusedStep.of(a_form, b_form, result, rules)
    d = np.array(c, order="C") if addend is result else np.empty(c.shape, result.word)
    if a.size and b.size:
        with np.errstate(all="ignore"):
            for rows, columns, part in _blocks(m, n, warps):
                block = d[rows, columns, part]
                source = block if addend is result else c[rows, columns, part]
                _add_block(a[rows, :, part], b[:, columns, part], source, addend, block, arithmetic)
    return d


def _blocks(m: int, n: int, warps: int) -> Iterator[tuple[slice, slice, slice]]:
    """Cut D [m, n, warps] into blocks for the cache; an m16n8 product of any k is cut by warps only."""
    width = min(warps, _WARPS)
    elements = max(1, _ELEMENTS // width)
    rows = min(m, max(1, isqrt(2 * elements)))
    columns = max(1, elements // rows)
    for part in range(0, warps, width):
        for row in range(0, m, rows):
            for column in range(0, n, columns):
                yield (
                    slice(row, row + rows),
                    slice(column, column + columns),
                    slice(part, part + width),
                )


class _Memory:
    """The arrays that one block works in, kept between calls: fresh ones cost page faults."""

    def __init__(self, m: int, n: int, k: int, step: int, groups: int, warps: int) -> None:
        step = min(step, k)
        rows = min(m, max(1, _PRODUCTS // (step * n * warps)))

        def empty(dtype: type[np.generic], *outer: int) -> Array:
            """Make an array [..., n, warps] whose longer one of these is contiguous in memory."""
            if n > warps:
                return np.empty((*outer, warps, n), dtype).swapaxes(-1, -2)
            return np.empty((*outer, n, warps), dtype)

        self.rows = rows
        self.scratch = np.empty(3 * max(m * k, k * n, m * n) * warps, np.uint32)
        self.a_values = np.empty((m, k, warps), np.float32)
        self.a_exponents = np.empty((m, k, warps), np.int16)
        self.b_values = empty(np.float32, k)
        self.b_exponents = empty(np.int16, k)
        self.c_values = empty(np.float32, m)
        self.c_exponents = empty(np.int16, m)
        self.sums = empty(np.int16, step, rows)
        self.products = empty(np.float32, step, rows)
        self.terms = empty(np.int32, step, rows)
        self.top_product = empty(np.int16, m)
        self.top = empty(np.int16, m)
        self.scale = empty(np.float32, m)
        self.totals = empty(np.int32, groups, m)
        self.c_term = empty(np.int32, m)
        self.result = empty(np.float64, m)

    def decode(
        self,
        words: Array,
        form: Format,
        values: Array,
        exponents: Array,
        zero: int,
    ) -> None:
        """Decode ``words`` into two of the arrays."""
        scratch = self.scratch.view(form.word)[: 3 * words.size].reshape(3, *words.shape)
        form.values(words, values)
        form.exponents(words, exponents, zero, scratch)


@lru_cache(maxsize=4)
def _memory(thread: int, m: int, n: int, k: int, step: int, groups: int, warps: int) -> _Memory:
    return _Memory(m, n, k, step, groups, warps)


def _add_block(a: Array, b: Array, c: Array, c_form: Format, d: Array, how: FusedStep) -> None:
    """Add A*B to ``c``, one step after another, into ``d``, for warps that fit the cache.

    ``c`` may be ``d`` itself; otherwise it is words of ``c_form``.
    """
    (m, k, warps), n = a.shape, b.shape[1]
    memory = _memory(threading.get_ident(), m, n, k, how.products, how.groups, warps)
    memory.decode(a, how.a, memory.a_values, memory.a_exponents, ZERO_EXPONENT)
    memory.decode(b, how.b, memory.b_values, memory.b_exponents, ZERO_EXPONENT)
    for start in range(0, k, how.products):
        chunk = slice(start, start + how.products)
        memory.decode(c, c_form, memory.c_values, memory.c_exponents, how.zero_exponent)
        _find_exponents(memory, chunk)
        outside = _outside(memory, how)
        if outside is not None:
            row, column, warp = np.nonzero(outside)
            exact = exact_step(
                a[row, chunk, warp].T, b[chunk, column, warp], c[outside], c_form, how
            )
        _sum_terms(memory, chunk, how)
        store(memory.result, how.result, d)
        if outside is not None:
            d[outside] = exact
        c, c_form = d, how.addend


def _slabs(
    memory: _Memory, a: Array, b: Array, chunk: slice
) -> Iterator[tuple[slice, Array, Array]]:
    """Cut [m, k, warps] and [k, n, warps] into rows of A, shaped to broadcast to [k, m, n, warps]."""
    a = a[:, chunk].transpose(1, 0, 2)[:, :, None]
    b = b[chunk, None]
    for start in range(0, a.shape[1], memory.rows):
        rows = slice(start, start + memory.rows)
        yield rows, a[:, rows], b


def _find_exponents(memory: _Memory, chunk: slice) -> None:
    """Find the largest exponent of the products, and of all terms, of every element of D.

    A zero product counts as lower than any other term here, and not as ``zero_exponent``. That is
    the same, because C is never below ``zero_exponent``: a zero C has it, and a subnormal C more.
    """
    for rows, a, b in _slabs(memory, memory.a_exponents, memory.b_exponents, chunk):
        sums = memory.sums[: a.shape[0], : a.shape[1]]
        np.add(a, b, out=sums)
        np.maximum.reduce(sums, axis=0, out=memory.top_product[rows])
    np.maximum(memory.top_product, memory.c_exponents, out=memory.top)


def _outside(memory: _Memory, how: FusedStep) -> Array | None:
    """Say for which elements float32 and int32 are not exact; None where they always are."""
    if not how.is_narrow:
        return np.ones(memory.top.shape, np.bool_)
    if memory.top.min() >= how.lowest and memory.top.max() <= HIGHEST:
        return None
    empty = (memory.top_product < NO_PRODUCT) & (memory.c_exponents == how.zero_exponent)
    outside: Array = (memory.top > HIGHEST) | ((memory.top < how.lowest) & ~empty)
    return outside if outside.any() else None


def _sum_terms(memory: _Memory, chunk: slice, how: FusedStep) -> None:
    """Truncate and add the terms of every element, leaving the exact sums in ``memory.result``."""
    np.clip(memory.top, how.lowest, HIGHEST, out=memory.top)
    field = memory.scale.view(np.int32)
    np.subtract(alone(how.fraction_bits + F32.bias, np.int32), memory.top, out=field)
    np.left_shift(field, alone(F32.fraction_bits, np.int32), out=field)
    for rows, a, b in _slabs(memory, memory.a_values, memory.b_values, chunk):
        products = memory.products[: a.shape[0], : a.shape[1]]
        terms = memory.terms[: a.shape[0], : a.shape[1]]
        np.multiply(a, b, out=products)
        np.multiply(products, memory.scale[rows], out=products)
        np.copyto(terms, products, casting="unsafe")
        for group, total in enumerate(memory.totals):
            first = group * how.group
            np.add.reduce(terms[first : first + how.group], axis=0, out=total[rows])
    np.multiply(memory.c_values, memory.scale, out=memory.c_values)
    np.copyto(memory.c_term, memory.c_values, casting="unsafe")
    np.copyto(memory.result, memory.totals[0])
    for total in memory.totals[1:]:
        np.add(memory.result, total, out=memory.result)
    np.add(memory.result, memory.c_term, out=memory.result)
    np.divide(memory.result, memory.scale, out=memory.result)
