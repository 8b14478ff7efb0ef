"""One step of a tensor core, as it is defined: formats, and the fused sum of truncated terms.

See ``ptxlab.numbers.tensor_core`` for the definition. Here it is in float64, where all of it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ptxlab.arrays import Array, some
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import DotProduct
from ptxlab.numbers.formats import CONTAINED, F16, F32, Format, alone
from ptxlab.numbers.rounding import ROUNDINGS, magnitudes

OPERANDS: dict[str, Format] = {
    name: CONTAINED[name]
    for name in ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
}
"""Formats of A and B by their PTX types; those of up to 8 bits lie in the containers of kind::f8f6f4."""

ACCUMULATORS = {"f16": F16, "f32": F32}
"""Formats of C and D by their PTX types."""


HIGHEST = 126
"""Largest exponent E at which float32 products are exact: below 2**(E + 2) they are finite."""
NO_PRODUCT = -1000
"""Separates the exponents of products of nonzero factors from those with a zero factor."""


def operand_formats(a_type: str, b_type: str, acc: str) -> tuple[Format, Format]:
    """Return the formats of A and B. Bytes go with each other; only they and f16 add up to f16."""
    a, b = OPERANDS.get(a_type), OPERANDS.get(b_type)
    if a and b and acc in ACCUMULATORS:
        bytes_only = a.word_bits == b.word_bits == 8
        if bytes_only or (a is b and (acc == "f32" or a is F16)):
            return a, b
    types = f".{a_type}" if a_type == b_type else f".{a_type} and .{b_type}"
    raise Unsupported(
        f"tensor-core arithmetic of {types} into .{acc} is not modelled",
        hint=f"modelled are f16 into f16 and f32, bf16 and tf32 into f32, and any two of "
        f"{', '.join(name for name, form in OPERANDS.items() if form.word_bits == 8)}",
    )


@cache
def shortened(form: Format, fraction_bits: int) -> Format:
    """Return a format whose words are those of ``form`` with fewer bits, at their top."""
    lost = form.fraction_bits - fraction_bits
    return replace(form, fraction_bits=fraction_bits, low_bit=form.low_bit + lost)


@dataclass(frozen=True, slots=True)
class FusedStep:
    """One step: formats, bits kept (F), products fused (L), exponent of a zero term.

    ``result`` is the format D is rounded to, ``addend`` that of the words that hold it.
    """

    a: Format
    b: Format
    addend: Format
    result: Format
    fraction_bits: int
    products: int
    zero_exponent: int

    @classmethod
    def of(cls, a: Format, b: Format, result: Format, rules: DotProduct) -> FusedStep:
        products = rules.chunk * 16 // a.word_bits
        if result is F16:
            return cls(a, b, F16, F16, rules.fraction_bits, products, rules.zero_exponent_f16)
        rounded = shortened(F32, rules.result_bits)
        return cls(a, b, F32, rounded, rules.fraction_bits, products, rules.zero_exponent_f32)

    @property
    def lowest(self) -> int:
        """Smallest exponent E at which float32 products are exact.

        One that underflows there is below 2**-126 and so below the last bit kept, 2**(E - F).
        """
        return self.fraction_bits - 125

    @property
    def group(self) -> int:
        """How many products, each below 2**(F + 2) when cut off, may be added in int32."""
        return (1 << 31) >> (self.fraction_bits + 2)

    @property
    def groups(self) -> int:
        """How many such groups one step has."""
        return -(-self.products // max(self.group, 1))

    @property
    def is_narrow(self) -> bool:
        """Whether float32 and int32 are enough: true of every generation so far.

        A product must fit int32, and no term may be below that of a zero (see ``_find_exponents``).
        """
        return self.group > 0 and self.zero_exponent < self.addend.lowest_exponent


def exact_step(a: Array, b: Array, c: Array, c_form: Format, how: FusedStep) -> Array:
    """Compute one step as it is defined, for words ``a`` and ``b`` [k, elements] and ``c`` [elements]."""
    a_values, a_exponents = how.a.decode(a)
    b_values, b_exponents = how.b.decode(b)
    products = a_values * b_values
    exponents = np.where(products == 0, how.zero_exponent, a_exponents + b_exponents)
    terms = (products, exponents, *c_form.decode(c))
    return round_result(fused_sum(*terms, how.fraction_bits, how.zero_exponent), how.result)


def fused_sum(
    terms: Array,
    exponents: Array,
    c: Array,
    c_exponents: Array,
    fraction_bits: int,
    zero_exponent: int,
) -> Array:
    """Add ``terms`` [k, ...] and ``c`` [...], float64, as defined above, all but the rounding.

    ``exponents`` are the terms', ``zero_exponent`` already among them. Special values come out as
    infinities and NaN. Every float64 operation here is exact: terms have at most 24 bits, the sum
    at most 53, and the exponents stay far inside float64's range.
    """
    c_exponents = np.where(c == 0, zero_exponent, c_exponents)
    top = np.maximum(exponents.max(axis=0), c_exponents)
    last_bit = np.ldexp(1.0, top - fraction_bits)
    total = np.trunc(terms / last_bit).sum(axis=0) + np.trunc(c / last_bit)
    rough: Array = terms.sum(axis=0) + c
    return np.where(np.isfinite(rough), total * last_bit, rough)


def round_result(values: Array, result: Format) -> Array:
    """Round float64 ``values`` to words of ``result``: float32 toward zero, float16 to nearest even.

    Overflow gives infinity, but what truncates to the largest float32 stays finite. Zero is positive,
    and NaN the canonical one: all bits set but the sign. ``values`` may be overwritten.
    """
    if not some(~((np.abs(values) >= result.min_normal) | (values == 0))):
        quickly = np.empty(values.shape, result.word)
        with np.errstate(over="ignore"):
            store(values, result, quickly)
        return quickly
    finite = np.isfinite(values)
    toward = ROUNDINGS["rz" if result.word_bits == F32.word_bits else "rn"]
    codes = magnitudes(values, result, toward)
    assert result.infinity is not None
    codes = np.where(finite, np.minimum(codes, result.infinity), result.infinity)
    negative = ((values < 0) & (codes > 0)).astype(np.int64)
    words = (codes | negative << result.sign_bit) << result.low_bit
    rounded: Array = np.where(np.isnan(values), result.nan_word, words).astype(result.word)
    return rounded


def store(values: Array, result: Format, out: Array) -> None:
    """Round ``values`` without NaNs, which are overwritten, as ``round_result`` does, into ``out``.

    They must be multiples of the smallest number of ``result``, 2**-149 for float32.
    """
    if result.word_bits == F32.word_bits:
        bits = values.view(np.int64)
        np.bitwise_and(bits, alone(-1 << (52 - result.fraction_bits), np.int64), out=bits)
        np.copyto(out.view(np.float32), values, casting="unsafe")
        return
    np.copyto(out.view(np.float16), values, casting="unsafe")
    negative_zero = out == 0x8000
    if negative_zero.any():
        np.copyto(out, 0, where=negative_zero)
