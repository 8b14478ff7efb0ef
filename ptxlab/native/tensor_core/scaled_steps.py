"""Block-scaled products as native code, for many rows at once.

See ``ptxlab.numbers.tensor_core_scaled`` for the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.targets import GroupedDotProduct
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.decoding import (
    exponents,
    power_of_two,
    significands,
    special,
    values,
)
from ptxlab.native.tensor_core.fused_step import FusedSteps, rounded
from ptxlab.native.tensor_core.terms import Index, Steps, Terms
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import E2M1, F32, UE8M0, Format

_FAR = 500
"""Above all exponents of finite terms."""


@dataclass(frozen=True, slots=True)
class ScaledSteps(FusedSteps):
    """Steps in ``parts`` that have one scale of A and one of B each: powers of two, of which the exponents are kept."""

    parts: int

    scales = ("i16",)

    @property
    def blocks(self) -> int:
        return self.parts

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        return (significands(words, UE8M0)[0],)

    def shift(self, terms: Terms, block: Index) -> VectorValue:
        return terms.a_scale(0, block) + terms.b_scale(0, block)


@dataclass(frozen=True, slots=True)
class GroupedSteps(Steps):
    """All products in one step, in groups that share their scales, of ``scale_form``: ``blocks`` of these.

    What is kept are numbers e2m1 times two, and of scales the exponents and significands, all of them integers.
    """

    rules: GroupedDotProduct
    scale_form: Format
    blocks: int

    kept = ("i16",)
    scales = ("i16", "i16")

    def left(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        return [
            ((values(words, E2M1, low) * 2.0).to("fptosi", "i32").to("trunc", "i16"),)
            for low in range(0, 32, bits)
        ]

    right = left

    def scale(self, words: VectorValue) -> tuple[VectorValue, ...]:
        return significands(words, self.scale_form)

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        """Add all groups in float64, where all of it is exact."""
        rules, count = self.rules, self.products // self.rules.group
        c_exponents = exponents(sums, F32, -F32.bias, rules.zero_exponent)
        c = special(values(sums, F32), c_exponents, F32)
        top, highest, groups = c_exponents, None, []
        for group in range(count):
            number, exponent, is_zero = self._group(terms, group, group * self.blocks // count)
            groups.append((number, exponent))
            highest = exponent if highest is None else highest.call("smax", exponent)
            top = top.call("smax", is_zero.choose(rules.zero_exponent, exponent))
        assert highest is not None
        # Where there are infinities and NaNs, only ``rough`` counts.
        top = top.is_("sgt", _FAR).choose(_FAR, top)
        down = top.like(rules.fraction_bits) - top
        total = (c * power_of_two(down)).call("trunc")
        unit = 2 * (1 + self.scale_form.fraction_bits)  # of products of integers
        for number, exponent in groups:
            total = total + (number * power_of_two(exponent + down - unit)).call("trunc")
        rough = highest.is_("sgt", _FAR).choose(float("nan"), c)
        return rounded(total * power_of_two(down.like(0) - down), rough, F32)

    def _group(
        self, terms: Terms, group: int, block: int
    ) -> tuple[VectorValue, VectorValue, VectorValue]:
        """Return the sum of a group times its scales' significands, their exponent, and whether it counts as zero."""
        first = group * self.rules.group
        total = terms.a(0, first) * terms.b(0, first)
        some = total
        for k in range(first + 1, first + self.rules.group):
            product = terms.a(0, k) * terms.b(0, k)
            total, some = total + product, some | product
        exponent, significand = (terms.a_scale(part, block).to("sext", "i32") for part in range(2))
        exponent = exponent + terms.b_scale(0, block).to("sext", "i32")
        significand = significand * terms.b_scale(1, block).to("sext", "i32")
        number = (total.to("sext", "i32") * significand).to("sitofp", "double")
        is_zero = some.is_("eq", 0) | significand.is_("eq", 0)
        return number, exponent, is_zero
