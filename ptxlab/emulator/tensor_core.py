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

``_exact_step`` is this definition in float64. The rest of this file computes the same bits in
float32 and int32, for many warps at once; the few elements where those would not be exact (special
values, exponents near the ends of float32's range) go to ``_exact_step``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np

from ptxlab.emulator.number_formats import (
    BF16,
    F16,
    F32,
    TF32,
    ZERO_EXPONENT,
    Array,
    Format,
    round_any,
    store,
)
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import DotProduct

FORMATS: dict[tuple[str, str], tuple[Format, Format]] = {
    ("f16", "f32"): (F16, F32),
    ("f16", "f16"): (F16, F16),
    ("bf16", "f32"): (BF16, F32),
    ("tf32", "f32"): (TF32, F32),
}
"""Formats of the operands and of the accumulator, by their PTX types."""

_HIGHEST = 126
"""Largest exponent E at which float32 products are exact: below 2**(E + 2) they are finite."""
_NO_PRODUCT = -1000
"""Separates the exponents of products of nonzero factors from those with a zero factor."""

_WARPS = 512
"""Warps computed together: long rows for numpy's inner loops, still small enough for the cache."""
_ELEMENTS = 65536
"""Elements of D computed together."""
_PRODUCTS = 65536
"""Products held at once: 256 KiB."""


def multiply_add(a: Array, b: Array, c: Array, *, dtype: str, acc: str, rules: DotProduct) -> Array:
    """Compute D = A*B + C for a batch of warps on raw words, with the bits of a tensor core.

    ``a`` is [m, k, warps], ``b`` is [k, n, warps], ``c`` and the result are [m, n, warps]: unsigned
    words of the PTX type ``dtype`` (uint16; uint32 for tf32) and ``acc`` (uint32 for f32, uint16
    for f16). ``rules`` is the arithmetic of the chip; ``rules.chunk`` counts 16-bit products, and
    half as many tf32 products are fused.

    Raises ``Unsupported`` when tensor cores of these types are not modelled, ``ValueError`` for
    arrays that do not fit together.
    """
    if (dtype, acc) not in FORMATS:
        known = ", ".join(f"{one} into {other}" for one, other in FORMATS)
        raise Unsupported(
            f"tensor-core arithmetic of .{dtype} into .{acc} is not modelled",
            hint=f"modelled are {known}",
        )
    operand, result = FORMATS[dtype, acc]
    (m, k, warps), n = a.shape, b.shape[1]
    if b.shape != (k, n, warps) or c.shape != (m, n, warps):
        raise ValueError(f"shapes {a.shape}, {b.shape} and {c.shape} are not m*k, k*n and m*n")
    if (a.dtype, b.dtype, c.dtype) != (operand.word, operand.word, result.word):
        raise ValueError(f"words are {a.dtype}, {b.dtype} and {c.dtype}, not {dtype} and {acc}")
    step = rules.chunk * 16 // operand.word_bits
    zero = rules.zero_exponent_f32 if result is F32 else rules.zero_exponent_f16
    arithmetic = _Arithmetic(operand, result, rules.fraction_bits, step, zero)
    d = np.array(c, order="C")
    if a.size and b.size:
        with np.errstate(all="ignore"):
            for rows, columns, part in _blocks(m, n, warps):
                _add_block(
                    a[rows, :, part], b[:, columns, part], d[rows, columns, part], arithmetic
                )
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


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """What one step does: formats, bits kept (F), products fused, exponent of a zero term."""

    operand: Format
    result: Format
    fraction_bits: int
    step: int
    zero_exponent: int

    @property
    def lowest(self) -> int:
        """Smallest exponent E at which float32 products are exact.

        One that underflows there is below 2**-126 and so below the last bit kept, 2**(E - F).
        """
        return self.fraction_bits - 125

    @property
    def is_narrow(self) -> bool:
        """Whether float32 and int32 are enough: true of every generation so far.

        The sum of a step's products, each below 2**(F + 2), must not leave int32, and no term may
        be below that of a zero (see ``_find_exponents``).
        """
        fits = self.step << (self.fraction_bits + 2) <= 1 << 31
        return fits and self.zero_exponent < self.result.lowest_exponent


class _Memory:
    """The arrays that one block works in, kept between calls: fresh ones cost page faults."""

    def __init__(self, m: int, n: int, k: int, step: int, warps: int) -> None:
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
        self.total = empty(np.int32, m)
        self.c_term = empty(np.int32, m)
        self.result = empty(np.float64, m)

    def decode(
        self, words: Array, form: Format, values: Array, exponents: Array, zero: int
    ) -> None:
        """Decode ``words`` into two of the arrays."""
        scratch = self.scratch.view(form.word)[: 3 * words.size].reshape(3, *words.shape)
        form.values(words, values)
        form.exponents(words, exponents, zero, scratch)


@lru_cache(maxsize=4)
def _memory(thread: int, m: int, n: int, k: int, step: int, warps: int) -> _Memory:
    return _Memory(m, n, k, step, warps)


def _add_block(a: Array, b: Array, d: Array, how: _Arithmetic) -> None:
    """Add A*B to ``d`` in place, one step after another, for warps that fit the cache."""
    (m, k, warps), n = a.shape, b.shape[1]
    memory = _memory(threading.get_ident(), m, n, k, how.step, warps)
    memory.decode(a, how.operand, memory.a_values, memory.a_exponents, ZERO_EXPONENT)
    memory.decode(b, how.operand, memory.b_values, memory.b_exponents, ZERO_EXPONENT)
    for start in range(0, k, how.step):
        chunk = slice(start, start + how.step)
        memory.decode(d, how.result, memory.c_values, memory.c_exponents, how.zero_exponent)
        _find_exponents(memory, chunk)
        outside = _outside(memory, how)
        if outside is not None:
            row, column, warp = np.nonzero(outside)
            exact = _exact_step(a[row, chunk, warp].T, b[chunk, column, warp], d[outside], how)
        _sum_terms(memory, chunk, how)
        store(memory.result, how.result, d)
        if outside is not None:
            d[outside] = exact


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


def _outside(memory: _Memory, how: _Arithmetic) -> Array | None:
    """Say for which elements float32 and int32 are not exact; None where they always are."""
    if not how.is_narrow:
        return np.ones(memory.top.shape, np.bool_)
    if memory.top.min() >= how.lowest and memory.top.max() <= _HIGHEST:
        return None
    empty = (memory.top_product < _NO_PRODUCT) & (memory.c_exponents == how.zero_exponent)
    outside: Array = (memory.top > _HIGHEST) | ((memory.top < how.lowest) & ~empty)
    return outside if outside.any() else None


def _sum_terms(memory: _Memory, chunk: slice, how: _Arithmetic) -> None:
    """Truncate and add the terms of every element, leaving the exact sums in ``memory.result``."""
    np.clip(memory.top, how.lowest, _HIGHEST, out=memory.top)
    field = memory.scale.view(np.int32)
    np.subtract(how.fraction_bits + F32.bias, memory.top, out=field, casting="unsafe")
    np.left_shift(field, F32.exponent_shift, out=field)
    for rows, a, b in _slabs(memory, memory.a_values, memory.b_values, chunk):
        products = memory.products[: a.shape[0], : a.shape[1]]
        terms = memory.terms[: a.shape[0], : a.shape[1]]
        np.multiply(a, b, out=products)
        np.multiply(products, memory.scale[rows], out=products)
        np.copyto(terms, products, casting="unsafe")
        np.add.reduce(terms, axis=0, out=memory.total[rows])
    np.multiply(memory.c_values, memory.scale, out=memory.c_values)
    np.copyto(memory.c_term, memory.c_values, casting="unsafe")
    np.copyto(memory.result, memory.total)
    np.add(memory.result, memory.c_term, out=memory.result)
    np.divide(memory.result, memory.scale, out=memory.result)


def _exact_step(a: Array, b: Array, c: Array, how: _Arithmetic) -> Array:
    """Compute one step as it is defined, for words ``a`` and ``b`` [k, elements] and ``c`` [elements].

    Every float64 operation here is exact: products have at most 22 bits, the sum at most 53, and
    the exponents stay far inside float64's range.
    """
    a_values, a_exponents = how.operand.decode(a)
    b_values, b_exponents = how.operand.decode(b)
    c_values, c_exponents = how.result.decode(c)
    products = a_values * b_values
    exponents = np.where(products == 0, how.zero_exponent, a_exponents + b_exponents)
    c_exponents = np.where(c_values == 0, how.zero_exponent, c_exponents)
    top = np.maximum(exponents.max(axis=0), c_exponents)
    last_bit = np.ldexp(1.0, top - how.fraction_bits)
    total = np.trunc(products / last_bit).sum(axis=0) + np.trunc(c_values / last_bit)
    rough = products.sum(axis=0) + c_values
    return round_any(np.where(np.isfinite(rough), total * last_bit, rough), how.result)
