"""The steps of a tensor core as native code: truncated products and C, added for many rows at once.

See ``ptxlab.numbers.tensor_core`` for the definition. As there, most elements are computed in float32 and
int32, and those for which that would not be exact in float64, as ``ptxlab.numbers.fused_step`` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.decoding import (
    elements,
    exponents,
    magnitude,
    power_of_two,
    special,
    values,
    widened,
)
from ptxlab.native.tensor_core.terms import Index, Steps, Terms
from ptxlab.native.tracing.casts import odd_single
from ptxlab.native.tracing.trace import applied
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F16, F32, F64, ZERO_EXPONENT, Format
from ptxlab.numbers.fused_step import HIGHEST, NO_PRODUCT, FusedStep, round_result
from ptxlab.numbers.tensor_core_software import add_words

_FAR = 900
"""Above all exponents of finite terms."""


@dataclass(frozen=True, slots=True)
class FusedSteps(Steps):
    """Steps of ``products`` each for ``rows`` rows; the words of C and D are of ``how.addend``.

    A has float32 values, and exponents in int16 that together with B's are those of products.
    """

    how: FusedStep

    kept = ("float", "i16")

    def left(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        return elements(words, self.how.a, bits, 0)

    def right(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        return elements(words, self.how.b, bits, -self.how.a.bias - self.how.b.bias)

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        c, c_exponents = self._addend(sums)
        top = c_exponents
        shifts = [self.shift(terms, block) for block in range(self.blocks)]
        each = self.products // self.blocks
        for block, shift in enumerate(shifts):
            highest = None
            for k in range(block * each, (block + 1) * each):
                exponent = terms.a(1, k) + terms.b(1, k)
                highest = exponent if highest is None else highest.call("smax", exponent)
            assert highest is not None
            top = top.call("smax", highest if shift is None else highest + shift)
        top = top.is_("slt", NO_PRODUCT).choose(0, top)
        lowest = self.how.lowest
        outside = (top - lowest).is_("ugt", HIGHEST - lowest)
        with code.branch(outside.bits(f"i{self.rows}", 0).is_("ne", 0)) as branch:
            exact = self._exactly(code, terms, c, c_exponents)
            branch.otherwise()
            fast = self._fast(terms, top, shifts, c)
        return branch.merged(exact, fast)

    def _addend(self, words: VectorValue) -> tuple[VectorValue, VectorValue]:
        """Return the values and exponents of C.

        A zero C whose exponent would be too low for float32 counts as no term: where only such terms
        are above it, the column is computed exactly.
        """
        form, zero = self.how.addend, self.how.zero_exponent
        zero = zero if zero >= self.how.lowest else ZERO_EXPONENT
        exponent = exponents(words, form, -form.bias, zero)
        return values(words, form), exponent.to("trunc", "i16")

    @property
    def blocks(self) -> int:
        """How many parts of a step have scales of their own."""
        return 1

    def shift(self, terms: Terms, block: Index) -> VectorValue | None:
        """Return by how many powers of two scales multiply the products of a block."""
        return None

    def _fast(
        self,
        terms: Terms,
        top: VectorValue,
        shifts: Sequence[VectorValue | None],
        c: VectorValue,
    ) -> VectorValue:
        how = self.how
        top = top.to("sext", "i32")
        field = top.like(how.fraction_bits + F32.bias) - top
        scale = (field << F32.fraction_bits).bits("float")
        total = (c * scale).to("fptosi", "i32").to("sitofp", "double")
        scales = [scale if shift is None else _shifted(field, shift) for shift in shifts]
        for first in range(0, self.products, how.group):
            part = None
            for k in range(first, min(first + how.group, self.products)):
                scale = scales[k * self.blocks // self.products]
                term = (terms.a(0, k) * terms.b(0, k) * scale).to("fptosi", "i32")
                part = term if part is None else part + term
            assert part is not None
            total = total + part.to("sitofp", "double")
        field = top + (F32.bias - how.fraction_bits)
        unit = (field << F32.fraction_bits).bits("float")
        if how.result is F16:
            return to_f16(to_odd(total).to("fptrunc", "float") * unit)
        kept = total.bits("i64") & (-1 << (F64.fraction_bits - how.result.fraction_bits))
        return (kept.bits("double").to("fptrunc", "float") * unit).bits("i32")

    def _exactly(
        self, code: FunctionBuilder, terms: Terms, c: VectorValue, c_exponents: VectorValue
    ) -> VectorValue:
        """Add one step's products to a column, whatever the numbers are."""
        how = self.how

        def product(k: VectorValue) -> tuple[VectorValue, VectorValue]:
            x, y = terms.a(1, k), terms.b(1, k)
            left, right = special(terms.a(0, k), x, how.a), special(terms.b(0, k), y, how.b)
            shift = self.shift(terms, k * self.blocks // self.products)
            if shift is None:
                return left * right, self._of_zeros(x + y)
            scale = shift.is_("sgt", _FAR).choose(float("nan"), power_of_two(shift))
            return left * right * scale, self._of_zeros(x + y + shift)

        c = special(c, c_exponents, how.addend)
        top = code.variable(self._of_zeros(c_exponents))
        rough = code.variable(c)
        with code.loop(self.products) as k:
            value, exponent = product(k)
            top.value = top.value.call("smax", exponent)
            rough.value = rough.value + value
        top_exponent = top.value
        # Where there are infinities and NaNs, only ``rough`` counts.
        highest = top_exponent.is_("sgt", _FAR).choose(_FAR, top_exponent)
        scale = power_of_two(highest.like(how.fraction_bits) - highest)
        unit = power_of_two(highest - how.fraction_bits)
        total = code.variable((c * scale).to("fptosi", "i32").to("sitofp", "double"))
        with code.loop(self.products) as k:
            term = (product(k)[0] * scale).to("fptosi", "i32")
            total.value = total.value + term.to("sitofp", "double")
        return rounded(total.value * unit, rough.value, how.result)

    def _of_zeros(self, exponent: VectorValue) -> VectorValue:
        return exponent.is_("slt", NO_PRODUCT).choose(self.how.zero_exponent, exponent)


@dataclass(frozen=True, slots=True)
class UnpackedSteps(Steps):
    """All ``products`` of 8-bit ``a_form`` and ``b_form`` in ``parts``, steps of float16 numbers, and C added last.

    See ``ptxlab.numbers.tensor_core_software``.
    """

    parts: FusedSteps
    a_form: Format
    b_form: Format

    kept = FusedSteps.kept

    def left(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        return widened(words, self.a_form, F16, bits)

    def right(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        wide = widened(words, self.b_form, F16, bits)
        return [(value, exponent - 2 * F32.bias) for value, exponent in wide]

    def place(self, k: int) -> int:
        """Return the place of an element among those that are added: the halves of registers in turn."""
        block, within = divmod(k, 4)
        return self.products // 2 * (within // 2) + 2 * block + within % 2

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        each, form = self.parts.products, self.parts.how.result
        total = code.variable(sums.like(0))
        with code.loop(self.products // each) as part:
            total.value = self.parts.column(code, terms.behind(part * each), total.value)
        given = (x.extended(form.word_bits, signed=False) for x in (total.value, sums))
        words = applied(partial(add_words, acc=form.name), form.word, *given)
        return words.extended(32, signed=False)


def _shifted(field: VectorValue, shift: VectorValue) -> VectorValue:
    """Return a power of two with an exponent field of float32, and so many more.

    Beyond float32's exponents the products are too small to count, or all of them are zero.
    """
    field = field + shift.to("sext", "i32")
    field = field.call("smax", field.like(1)).call("smin", field.like(2 * F32.bias))
    return (field << F32.fraction_bits).bits("float")


def rounded(v: VectorValue, rough: VectorValue, result: Format) -> VectorValue:
    """Round float64 to words; ``rough`` has the infinities and NaNs."""
    finite = magnitude(rough).is_("olt", float("inf"))
    words = applied(partial(round_result, result=result), np.float64, finite.choose(v, rough))
    return words.extended(32, signed=False)


def to_odd(numbers: VectorValue) -> VectorValue:
    """Round float64 to the bits of float32, to odd: a later rounding to fewer bits is not changed by it."""
    return applied(odd_single, np.float64, numbers)


def to_f16(numbers: VectorValue) -> VectorValue:
    """Round float32 to the nearest float16, ties to even, as int32 words; a zero is positive.

    Not for NaN.
    """
    words = numbers.to("fptrunc", "half").bits("i16").extended(32, signed=False)
    return (words & F16.nan).is_("eq", 0).choose(0, words)
