"""The steps of a tensor core as native code: truncated products and C, added for many rows at once.

See ``ptxlab.numbers.tensor_core`` for the definition, and ``ptxlab.numbers.tensor_core_scaled`` for that of block-scaled
products. As there, most elements are computed in float32 and int32, and those for which that would not be exact in
float64, as ``ptxlab.numbers.fused_step`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from ptxlab.isa.targets import GroupedDotProduct
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.decoding import (
    elements,
    exponents,
    magnitude,
    power_of_two,
    significands,
    special,
    values,
    widened,
)
from ptxlab.native.tensor_core.terms import Index, Kept, Steps, Terms
from ptxlab.native.tracing.array import odd_single
from ptxlab.native.tracing.trace import applied
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import (
    E2M1,
    F16,
    F32,
    F64,
    SPECIAL_EXPONENT,
    UE8M0,
    ZERO_EXPONENT,
    Format,
)
from ptxlab.numbers.fused_step import HIGHEST, NO_PRODUCT, FusedStep, round_result
from ptxlab.numbers.tensor_core_software import add_words

_FAR, _NEAR = 900, -20000
"""Above all exponents of finite terms, and below all."""


@dataclass(frozen=True, slots=True)
class FusedSteps(Steps):
    """Steps of ``products`` each for ``rows`` rows; the words of C and D are of ``how.addend``.

    A has float32 values, and exponents in int16 that together with B's are those of products. Each of so many
    ``parts`` of a step, if any, has a scale of A and one of B: powers of two, of which the exponents are kept.
    """

    how: FusedStep
    parts: int = 0

    kept = ("float", "i16")

    @property
    def scales(self) -> Sequence[str]:
        return ("i16",) if self.parts else ()

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        a, b = self.how.a, self.how.b
        return elements(words, b if side else a, bits, -a.bias - b.bias if side else 0)

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        return (significands(words, UE8M0)[0],)

    def shift(self, terms: Terms, part: Index) -> VectorValue | None:
        """Return by how many powers of two scales multiply the products of a part."""
        if not self.parts:
            return None
        left, right = terms.scale(0, part)
        return left + right

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        c, c_exponents = self._addend(sums)
        top, count = c_exponents, self.parts or 1
        shifts = [self.shift(terms, part) for part in range(count)]
        starts = range(0, self.products, self.products // count)
        parts = [(range(start, start + starts.step), shifts[i]) for i, start in enumerate(starts)]
        for products, shift in parts:
            # Written out: as a loop it takes a twentieth longer.
            highest = reduce(
                lambda highest, k: highest.call("smax", terms.a(1, k) + terms.b(1, k)),
                products,
                top.like(_NEAR),
            )
            top = top.call("smax", highest if shift is None else highest + shift)
        top = top.is_("slt", NO_PRODUCT).choose(0, top)
        lowest = self.how.lowest
        outside = (top - lowest).is_("ugt", HIGHEST - lowest)
        with code.branch(outside.bits(f"i{self.rows}", 0).is_("ne", 0)) as branch:
            exact = self._exactly(code, terms, c, c_exponents)
            branch.otherwise()
            fast = self._fast(code, terms, top, parts, c)
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

    def _fast(
        self,
        code: FunctionBuilder,
        terms: Terms,
        top: VectorValue,
        parts: Sequence[tuple[range, VectorValue | None]],
        c: VectorValue,
    ) -> VectorValue:
        how = self.how
        top = top.to("sext", "i32")
        field = top.like(how.fraction_bits + F32.bias) - top
        of_c = (field << F32.fraction_bits).bits("float")
        total = (c * of_c).to("fptosi", "i32").to("sitofp", "double")
        for products, shift in parts:
            scale = of_c if shift is None else _shifted(field, shift)

            def added(
                total: VectorValue, k: VectorValue, scale: VectorValue = scale
            ) -> VectorValue:
                return total + (terms.a(0, k) * terms.b(0, k) * scale).to("fptosi", "i32")

            for start in products[:: how.group]:
                group = range(start, min(start + how.group, products.stop))
                total = total + code.fold(top.like(0), group, added).to("sitofp", "double")
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
            value = special(terms.a(0, k), x, how.a) * special(terms.b(0, k), y, how.b)
            exponent, shift = x + y, self.shift(terms, k * (self.parts or 1) // self.products)
            if shift is not None:
                scale = shift.is_("sgt", _FAR).choose(float("nan"), power_of_two(shift))
                value, exponent = value * scale, exponent + shift
            return value, self._of_zeros(exponent)

        c, c_exponents = special(c, c_exponents, how.addend), self._of_zeros(c_exponents)
        total = fused_sum(code, self.products, product, c, c_exponents, how.fraction_bits)
        return rounded(*total, how.result)

    def _of_zeros(self, exponent: VectorValue) -> VectorValue:
        return exponent.is_("slt", NO_PRODUCT).choose(self.how.zero_exponent, exponent)


def fused_sum(
    code: FunctionBuilder,
    count: int,
    term: Callable[[VectorValue], tuple[VectorValue, VectorValue]],
    c: VectorValue,
    c_exponents: VectorValue,
    fraction_bits: int,
) -> tuple[VectorValue, VectorValue]:
    """Add so many terms, float64 values with the exponents that they count with, and C, where all of it is exact.

    Return the sum, and what counts in its place where there are infinities and NaNs.
    """
    terms = Kept.of(code, "double", count, c.lanes)
    top, rough = code.variable(c_exponents), code.variable(c)
    with code.loop(count) as k:
        value, exponent = term(k)
        terms.at(k).store(value)
        top.value = top.value.call("smax", exponent)
        rough.value = rough.value + value
    highest = top.value.is_("sgt", _FAR).choose(_FAR, top.value)
    scale = power_of_two(highest.like(fraction_bits) - highest)
    total = code.fold(
        (c * scale).call("trunc"),
        range(count),
        lambda total, k: total + (terms.at(k).load(c.lanes) * scale).call("trunc"),
    )
    return total * power_of_two(highest - fraction_bits), rough.value


@dataclass(frozen=True, slots=True)
class UnpackedSteps(Steps):
    """All ``products`` of 8-bit ``a_form`` and ``b_form`` in ``parts``, steps of float16 numbers, and C added last.

    See ``ptxlab.numbers.tensor_core_software``.
    """

    parts: FusedSteps
    forms: tuple[Format, Format]

    kept = FusedSteps.kept

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        of_products = -2 * F32.bias if side else 0
        return widened(words, self.forms[side], F16, bits, of_products)

    def place(self, k: int) -> int:
        """Return the place of an element among those that are added: the halves of registers in turn."""
        block, within = divmod(k, 4)
        return self.products // 2 * (within // 2) + 2 * block + within % 2

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        each, form = self.parts.products, self.parts.how.result
        total = code.fold(
            sums.like(0),
            range(self.products // each),
            lambda total, part: self.parts.column(code, terms.behind(part * each), total),
        )
        given = (x.extended(form.word_bits, signed=False) for x in (total, sums))
        words = applied(partial(add_words, acc=form.name), form.word, *given)
        return words.extended(32, signed=False)


@dataclass(frozen=True, slots=True)
class GroupedSteps(Steps):
    """All products in one step, in groups that share their scales, of ``scale_form``: ``blocks`` of these.

    What is kept are numbers e2m1 times two as integers, and of scales the exponents and significands, NaN of a NaN.
    """

    rules: GroupedDotProduct
    scale_form: Format
    blocks: int

    kept = ("i16",)

    @property
    def scales(self) -> Sequence[str]:
        return "i16", "float"

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        numbers = (values(words, E2M1, low) * 2.0 for low in range(0, 32, bits))
        return [(number.to("fptosi", "i32").to("trunc", "i16"),) for number in numbers]

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        exponent, significand = significands(words, self.scale_form)
        number = significand.to("sitofp", "float")
        return exponent, exponent.is_("eq", SPECIAL_EXPONENT).choose(float("nan"), number)

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        """Add all groups in float64, where all of it is exact."""
        rules, count = self.rules, self.products // self.rules.group
        c_exponents = exponents(sums, F32, -F32.bias, rules.zero_exponent).to("trunc", "i16")
        c = special(values(sums, F32), c_exponents, F32)
        group = partial(self._group, terms, count)
        return rounded(*fused_sum(code, count, group, c, c_exponents, rules.fraction_bits), F32)

    def _group(
        self, terms: Terms, count: int, group: VectorValue
    ) -> tuple[VectorValue, VectorValue]:
        """Return the sum of a group times its scales, and their exponent, or that of zero."""
        of_group, block = terms.behind(group * self.rules.group), group * self.blocks // count
        products = [of_group.a(0, k) * of_group.b(0, k) for k in range(self.rules.group)]
        total = some = products[0]
        for product in products[1:]:
            total, some = total + product, some | product
        left, right = terms.scale(0, block)
        exponent = left + right
        left, right = terms.scale(1, block)
        significand = left * right
        number = (total.to("sitofp", "float") * significand).to("fpext", "double")
        unit = 2 * (1 + self.scale_form.fraction_bits)  # of products of integers
        is_zero = some.is_("eq", 0) | significand.is_("oeq", 0)
        return number * power_of_two(exponent - unit), is_zero.choose(
            self.rules.zero_exponent, exponent
        )


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
