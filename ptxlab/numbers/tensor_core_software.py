"""Forms that are one tensor-core instruction on some chips and a sequence of operations on others.

Where a chip has no instruction for a form, ptxas makes it from other products and additions in
float32 or float16 that round to nearest even. The sequences here are read from SASS.

8-bit floating point (sm_90, sm_100): the operands are unpacked to float16, exactly, the low halves
of the registers and then the high ones, so that k mod 4 in {0, 1} is one product, starting from zero,
and {2, 3} the next. C is added last (FADD, or HADD2 for float16).

m8n8k4 (sm_80 on), a float32 D:  t = fma(a3, b3, fma(a2, b2, fma(a1, b1, fma(a0, b0, 0))));  D = C + t
               a float16 D:      D = half((C + fma(a1, b1, a0 * b0)) + fma(a3, b3, a2 * b2))

wmma of float16 with C and D of different types: it is the product with a float32 C and D, to which
C is widened before, or from which D is rounded after.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import DotProduct, UnpackedDotProduct
from ptxlab.numbers.floats import fma_f32_nearest
from ptxlab.numbers.formats import F16, Format
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS
from ptxlab.numbers.rounding import canonical_nan, narrow
from ptxlab.numbers.tensor_core import multiply_add


def multiply_add_bytes(
    a: Array,
    b: Array,
    c: Array,
    *,
    a_type: str,
    b_type: str,
    acc: str,
    rules: DotProduct | UnpackedDotProduct,
) -> Array:
    """Compute D = A*B + C of 8-bit containers as ``multiply_add`` does, in hardware or in software.

    ``a`` is [m, k, warps] and ``b`` [k, n, warps] of bytes, ``c`` and the result [m, n, warps] of
    words of ``acc``. ``rules`` is the target's ``dot8`` or ``dot8_async``.
    """
    if isinstance(rules, DotProduct):
        return multiply_add(a, b, c, dtype=a_type, b_dtype=b_type, acc=acc, rules=rules)
    total = np.zeros_like(c)
    first = np.arange(b.shape[0]) % 4 < 2
    for half in (first, ~first):
        total = multiply_add(
            unpack(a[:, half], a_type),
            unpack(b[half], b_type),
            total,
            dtype="f16",
            acc=acc,
            rules=rules.halves,
        )
    return add_words(total, c, acc)


@np.errstate(all="ignore")
def multiply_add_m8n8k4(
    a: Array, b: Array, c: Array, *, c_type: str, d_type: str, rules: DotProduct | None
) -> Array:
    """Compute D = A*B + C of mma.m8n8k4 on float16, for k = 4.

    ``a`` is [m, 4, warps] and ``b`` [4, n, warps] of uint16, ``c`` and the result [m, n, warps] of
    words of ``c_type`` and ``d_type``. ``rules`` is the target's ``m8n8k4``. A caller with the four
    products of a warp counts them as warps.
    """
    if rules is not None:
        return multiply_add(a, b, c, dtype="f16", c_dtype=c_type, acc=d_type, rules=rules)
    left = a.view(np.float16).astype(np.float32)[:, :, None]
    right = b.view(np.float16).astype(np.float32)[None]
    addend = _widen(c, c_type)
    if d_type == "f32":
        total = np.zeros(c.size, np.float32)
        for k in range(4):
            total = _fma(left[:, k], right[:, k], total)
        return canonical_nan(addend.ravel() + total).view(np.uint32).reshape(c.shape)
    total = addend.ravel()
    for k in (0, 2):
        product = (left[:, k] * right[:, k]).ravel()
        total = total + _fma(left[:, k + 1], right[:, k + 1], product)
    return _to_words(total, F16).reshape(c.shape)


def multiply_add_wmma(
    a: Array, b: Array, c: Array, *, c_type: str, d_type: str, rules: DotProduct
) -> Array:
    """Compute D = A*B + C of wmma.mma on float16, whose C and D may differ in type.

    The arrays are those of ``multiply_add``; ``rules`` is the target's ``dot16``.
    """
    if c_type == d_type:
        return multiply_add(a, b, c, dtype="f16", acc=d_type, rules=rules)
    wide = _widen(c, c_type).view(np.uint32)
    d = multiply_add(a, b, wide, dtype="f16", acc="f32", rules=rules)
    return d if d_type == "f32" else _to_words(d.view(np.float32), F16)


def unpack(words: Array, dtype: str) -> Array:
    """Convert bytes to float16 words, exactly."""
    form = OPERANDS[dtype]
    if form.word_bits != 8:
        raise ValueError(f".{dtype} is not a type of 8-bit containers")
    values, _ = form.decode(np.arange(256))
    return values.astype(np.float16).view(np.uint16)[words]


@np.errstate(all="ignore")
def add_words(x: Array, c: Array, acc: str) -> Array:
    """Add words of ``acc``, rounding to nearest even once: for float16 that of float32 cannot be seen."""
    return _to_words(_widen(x, acc) + _widen(c, acc), ACCUMULATORS[acc])


def _fma(x: Array, y: Array, total: Array) -> Array:
    """Add products [m, n, warps] to ``total``, all of them flat."""
    left, right = np.broadcast_arrays(x, y)
    return fma_f32_nearest(left.ravel(), right.ravel(), total)


@np.errstate(all="ignore")
def _widen(words: Array, acc: str) -> Array:
    """Convert words to float32, exactly."""
    return words.view(ACCUMULATORS[acc].dtype).astype(np.float32)


@np.errstate(all="ignore")
def _to_words(values: Array, form: Format) -> Array:
    """Round float32 to words, to nearest even; a NaN becomes the canonical one."""
    return narrow(values, form).view(form.word)
