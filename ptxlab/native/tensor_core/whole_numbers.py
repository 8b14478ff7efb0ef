"""Products of integers, of bits and of float64 as native code, for many rows at once.

See ``ptxlab.numbers.tensor_core_integer`` and ``ptxlab.numbers.doubles``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.tensor_core.terms import Steps, Terms
from ptxlab.native.tracing.trace import applied
from ptxlab.native.value import VectorValue
from ptxlab.numbers.rounding import propagate_nan_f64


@dataclass(frozen=True, slots=True)
class IntegerSteps(Steps):
    """All ``products`` in one step, whose sum fits int32; C is added last, wrapping or clamped."""

    types: tuple[str, str]
    satfinite: bool

    kept = ("i32",)

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        tops = (words << (32 - bits - low) for low in range(0, 32, bits))
        shift = "ashr" if self.types[side][0] == "s" else "lshr"
        return [(top.apply(shift, 32 - bits),) for top in tops]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        total = terms.a(0, 0) * terms.b(0, 0)
        for k in range(1, self.products):
            total = total + terms.a(0, k) * terms.b(0, k)
        return total.call("sadd.sat", sums) if self.satfinite else total + sums


@dataclass(frozen=True, slots=True)
class BitSteps(Steps):
    """All ``products`` of 32 bits each in one step: the bits set in A and B, or xor, are counted."""

    operation: str

    kept = ("i32",)

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        return [(words,)]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        for k in range(self.products):
            left, right = terms.a(0, k), terms.b(0, k)
            both = left & right if self.operation == "and" else left ^ right
            sums = sums + both.call("ctpop")
        return sums


@dataclass(frozen=True, slots=True)
class DoubleSteps(Steps):
    """Fused multiply-adds of float64, each rounded to nearest even, in increasing k."""

    kept = ("double",)
    word = "i64"

    def elements(self, side: int, words: VectorValue, bits: int) -> list[tuple[VectorValue, ...]]:
        return [(words.bits("double"),)]

    def column(self, code: FunctionBuilder, terms: Terms, sums: VectorValue) -> VectorValue:
        total = sums.bits("double")
        for k in range(self.products):
            left, right = terms.a(0, k), terms.b(0, k)
            fused = left.call("fma", right, total)
            total = applied(propagate_nan_f64, np.float64, fused, left, right, total)
        return total.bits("i64")
