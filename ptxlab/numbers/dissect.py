"""One dot product taken apart: what a tensor core adds up in each step, and what it drops.

It is computed in exact fractions from the definition in ``ptxlab.numbers.tensor_core``, one term after
another, and not by the code that programs run; the two have to agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import DotProduct, UnpackedDotProduct
from ptxlab.numbers.exact import Number, encode, odd
from ptxlab.numbers.formats import F16, Format
from ptxlab.numbers.fused_step import ACCUMULATORS, operand_formats, round_result, shortened
from ptxlab.numbers.tensor_core_software import unpack


@dataclass(frozen=True, slots=True)
class SumTerm:
    """One of the numbers that a step adds.

    k: place along k of a product; None for C, and for the result of a step before.
    value: the exact product, or C.
    exponent: what the step takes for its exponent; None if infinite or NaN, or in an ordinary addition.
    kept: what is left of the value after the bits below the step's ``last_bit`` are dropped.
    """

    k: int | None
    value: Number
    exponent: int | None
    kept: Number

    @property
    def lost(self) -> Number:
        """What was dropped; zero if infinite or NaN."""
        if isinstance(self.value, Fraction) and isinstance(self.kept, Fraction):
            return self.value - self.kept
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class SumStep:
    """One step: a fused sum of truncated terms, or an ordinary addition ("add").

    exponent: the largest of the terms' (E); None if any is infinite or NaN, or in an addition.
    last_bit: the smallest power of two that a term may keep, 2**(E - F); None likewise.
    total: the exact sum of what was kept. word, value: what it is rounded to, as bits and as a number.
    """

    operation: Literal["fused", "add"]
    terms: tuple[SumTerm, ...]
    exponent: int | None
    last_bit: Fraction | None
    total: Number
    word: int
    value: Number


def explain(
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    dtype: str,
    acc: str,
    rules: DotProduct | UnpackedDotProduct,
    b_dtype: str | None = None,
) -> tuple[SumStep, ...]:
    """Return the steps of C + A*B, of which the last one ends in the result.

    ``a`` and ``b`` are one row and column of one instruction, and ``c`` is one number, all raw words.

    ``dtype`` is the PTX type of A, and of B unless ``b_dtype`` is given; ``acc`` that of C and D;
    ``rules`` is the chip's arithmetic of these types. Raises ``Unsupported`` for types that no tensor
    core takes together, ``ValueError`` if there is nothing to multiply or the lengths differ.
    """
    b_type = b_dtype or dtype
    a_form, b_form = operand_formats(dtype, b_type, acc)
    if len(a) != len(b) or not a:
        raise ValueError(f"{len(a)} numbers of A and {len(b)} of B are no dot product")
    addend, result = _decode([c], ACCUMULATORS[acc])[0][0], ACCUMULATORS[acc]
    if isinstance(rules, UnpackedDotProduct):
        halves = (unpack(np.array(x, np.uint8), y) for x, y in ((a, dtype), (b, b_type)))
        unpacked = _products(*(_decode(words, F16) for words in halves))
        return tuple(_unpacked(unpacked, (c, addend), result, rules))
    chunk = rules.chunk * 16 // a_form.word_bits
    products = _products(_decode(a, a_form), _decode(b, b_form))
    return tuple(_fused(products, (c, addend), result, rules, chunk))


ExactProduct = tuple[int, Number, int]
"""The place of a product along k, its value and its exponent."""


def _products(
    left: list[tuple[Number, int]], right: list[tuple[Number, int]]
) -> list[ExactProduct]:
    return [
        (k, x * y, x_exponent + y_exponent)
        for k, ((x, x_exponent), (y, y_exponent)) in enumerate(zip(left, right, strict=True))
    ]


def _fused(
    products: list[ExactProduct],
    c: tuple[int, Number],
    result: Format,
    rules: DotProduct,
    chunk: int,
) -> list[SumStep]:
    """Take the steps of ``chunk`` products each that begin with the word and value ``c``."""
    steps: list[SumStep] = []
    for start in range(0, len(products), chunk):
        c = (steps[-1].word, steps[-1].value) if steps else c
        steps.append(_fused_step(products[start : start + chunk], c, result, rules))
    return steps


def _fused_step(
    products: list[ExactProduct], c: tuple[int, Number], result: Format, rules: DotProduct
) -> SumStep:
    word, addend = c
    (_, c_exponent), *_ = _decode([word], result)
    if result is F16:
        zero, rounded = rules.zero_exponent_f16, result
    else:
        zero, rounded = rules.zero_exponent_f32, shortened(result, rules.result_bits)
    raw: list[tuple[int | None, Number, int]] = [*products, (None, addend, c_exponent)]
    exponents = [zero if value == 0 else exponent for _, value, exponent in raw]
    finite = all(isinstance(value, Fraction) for _, value, _ in raw)
    top = max(exponents) if finite else None
    last_bit = None if top is None else Fraction(2) ** (top - rules.fraction_bits)
    terms = tuple(
        SumTerm(
            k,
            value,
            exponent if isinstance(value, Fraction) else None,
            _truncate(value, last_bit),
        )
        for (k, value, _), exponent in zip(raw, exponents, strict=True)
    )
    total = _sum(term.kept for term in terms)
    bits = round_result(odd(total), rounded)[0]
    return SumStep("fused", terms, top, last_bit, total, *_read(bits, result))


def _unpacked(
    products: list[ExactProduct], c: tuple[int, Number], result: Format, rules: UnpackedDotProduct
) -> list[SumStep]:
    """Take the steps of the two halves, from zero, and the addition of C."""
    steps: list[SumStep] = []
    for pairs in ((0, 1), (2, 3)):
        half = [product for product in products if product[0] % 4 in pairs]
        start = (steps[-1].word, steps[-1].value) if steps else (0, Fraction(0))
        steps += _fused(half, start, result, rules.halves, rules.halves.chunk)
    numbers = (steps[-1].value, c[1])
    terms = tuple(SumTerm(None, value, None, value) for value in numbers)
    total = _sum(numbers)
    # A sum of no terms but zeros is +0, as the instruction's is.
    bits = encode(odd(total), result)[0]
    return [*steps, SumStep("add", terms, None, None, total, *_read(bits, result))]


def _decode(words: Sequence[int] | Array, form: Format) -> list[tuple[Number, int]]:
    with np.errstate(invalid="ignore"):
        values, exponents = form.decode(np.asarray(words, form.word))
    return [
        (Fraction(value) if math.isfinite(value) else value, int(exponent))
        for value, exponent in zip(values.tolist(), exponents, strict=True)
    ]


def _sum(numbers: Iterable[Number]) -> Number:
    total: Number = Fraction(0)
    for number in numbers:
        total += number
    return total


def _truncate(value: Number, last_bit: Fraction | None) -> Number:
    if last_bit is None or not isinstance(value, Fraction):
        return value
    return int(value / last_bit) * last_bit


def _read(word: Any, form: Format) -> tuple[int, Number]:
    """Return a word, and the value it has."""
    return int(word), _decode([word], form)[0][0]
