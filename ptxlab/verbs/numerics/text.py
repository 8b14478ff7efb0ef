"""A Study or a Survey of dot products as text, exact numbers drawn bit by bit below each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction

import numpy as np

from ptxlab.isa.targets import DotProduct
from ptxlab.numbers.dissect import SumStep, SumTerm
from ptxlab.numbers.exact import Number, decode, ulps
from ptxlab.numbers.formats import F32, Format
from ptxlab.numbers.types import TYPES
from ptxlab.numerics.models import MMA_SYNC, Measured, Model
from ptxlab.numerics.products import DotProducts
from ptxlab.numerics.study import ModelResult, ProductSurvey, Study
from ptxlab.view.text import aligned, hexadecimal, number

DIGITS = 30
"""Decimal digits of an exact value; with more of them it is said in full as a power of two only."""


# ---- one dot product as text ----------------------------------------------------------------


def study_text(study: Study) -> str:
    """Return the result of every way side by side, and then each step of each model."""
    products = study.products
    parts = [
        [
            f"c + sum of a[k]*b[k], k = {_ranges(range(products.k))}; "
            f"{products.dtype} in, {products.acc} out",
            f"exact value  {_exact(study.exact)}",
        ],
        _side_by_side(study),
        *(_steps(study, result) for result in study.results),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _side_by_side(study: Study) -> list[str]:
    form = study.products.accumulator
    rows = [("rounded once", study.rounded, "")]
    rows += [(f"{name} fma, in order of k", word, "") for name, word in study.chains.items()]
    rows += [(" ".join(result.model.targets), result.word, "") for result in study.results]
    if (measured := study.measured) is not None:
        rows.append((measured.name, int(measured.words[0]), _verdict(measured)))
    width = max(len(label) for label, _, _ in rows)
    cells = [("", "bits", "value", "ulps")]
    for label, word, _ in rows:
        steps = _signed(ulps(word, study.rounded, form))
        cells.append((f"{label:{width}}", bits_of(word, form), _value(word, form), steps))
    notes = ["", *(note for _, _, note in rows)]
    return [f"{line}  {note}".rstrip() for line, note in zip(aligned(cells), notes, strict=True)]


def _signed(steps: int | None) -> str:
    return "-" if steps is None else f"{steps:+d}" if steps else "0"


def _verdict(measured: Measured) -> str:
    if not measured.wrong:
        return f"as predicted for {measured.arch}"
    return f"NOT as predicted for {measured.arch}"


def _steps(study: Study, result: ModelResult) -> list[str]:
    lines = [_heading(result.model, study.products)]
    for index, step in enumerate(result.steps, 1):
        head = f"step {index} of {len(result.steps)}"
        lines += ["", *_step(head, step, study.products)]
    return lines


def _heading(model: Model, products: DotProducts) -> str:
    """Return the arithmetic of a model, and on which of its targets nobody has measured that."""
    unmeasured = " ".join(model.unmeasured)
    return _arithmetic(model, products) + f"; unmeasured: {unmeasured}" * bool(unmeasured)


def _arithmetic(model: Model, products: DotProducts) -> str:
    targets = " ".join(model.targets)
    if model.instruction != MMA_SYNC:
        targets += f", {model.instruction}"
    if isinstance(model.rules, DotProduct):
        short = products.acc == "f32" and model.rules.result_bits < F32.fraction_bits
        return (
            f"{targets}: add C and {at_once(model.rules, products)} products at once, "
            f"keeping {model.rules.fraction_bits} bits below the largest exponent"
            + (f" and {model.rules.result_bits} of the fraction of D" if short else "")
        )
    halves = model.rules.halves
    return (
        f"{targets}: by f16 tensor cores, {halves.chunk} products at once, keeping {halves.fraction_bits} bits "
        "below the largest exponent: the k with k mod 4 < 2, then the others; then add C"
    )


def at_once(rules: DotProduct, products: DotProducts) -> int:
    return rules.chunk * 16 // products.operand.word_bits


def _step(head: str, step: SumStep, products: DotProducts) -> list[str]:
    """Return one step: its terms bit by bit, those cut off behind a line, their sum, and D."""
    form = products.accumulator
    result = f"{bits_of(step.word, form)} = {_value(step.word, form)}"
    if step.operation == "add":
        x, c = (_number(term.value, form) for term in step.terms)
        return [f"{head}: the sum {x} plus C {c}, rounded to nearest even", f"D: {result}"]
    ks = [term.k for term in step.terms if term.k is not None]
    head = f"{head}: k = {_ranges(ks)}"
    if step.exponent is None or step.last_bit is None or not isinstance(step.total, Fraction):
        special = ", ".join(
            f"{_name(term)} is {float(term.value)}"
            for term in step.terms
            if not isinstance(term.value, Fraction)
        )
        return [f"{head}, where {special}", f"D: {result}"]
    drawn = [term.kept for term in step.terms if isinstance(term.kept, Fraction)]
    ruler = Ruler.over([*drawn, step.total], floor_log2(step.last_bit))
    rows = [["", "a", "b", "exponent"], *(_term(term, products) for term in step.terms)]
    names = aligned([*rows, ["sum", "", "", ""], ["D", "", "", ""]])
    bits = [f"  {ruler.heading()}"]
    bits += [
        f"{_sign(term.value)} {ruler.draw(term.value)}"
        for term in step.terms
        if isinstance(term.value, Fraction)
    ]
    bits.append(f"{_sign(step.total)} {ruler.draw(step.total)}")
    bits.append(_rounded(step, ruler, form))
    how = "to nearest even" if products.acc == "f16" else "toward zero"
    width = max(map(len, names))
    return [
        f"{head}; largest exponent {step.exponent}, last bit kept 2^{ruler.unit}",
        *(f"{name:{width}}  {line}".rstrip() for name, line in zip(names, bits, strict=True)),
        f"D, the sum rounded {how}: {result}",
    ]


def _term(term: SumTerm, products: DotProducts) -> list[str]:
    if term.k is None:
        return ["C", _number(term.value, products.accumulator), "", str(term.exponent)]
    values = [_value(int(words[term.k, 0]), products.operand) for words in (products.a, products.b)]
    return [str(term.k), *values, str(term.exponent)]


def _name(term: SumTerm) -> str:
    return "C" if term.k is None else f"a[{term.k}]*b[{term.k}]"


def _ranges(ks: Sequence[int]) -> str:
    """Return ``0 to 7``, or all of them where some between are missing."""
    if len(ks) > 1 and ks[-1] - ks[0] == len(ks) - 1:
        return f"{ks[0]} to {ks[-1]}"
    return ", ".join(map(str, ks))


def _sign(value: Number) -> str:
    return "-" if value < 0 else "+"


def _rounded(step: SumStep, ruler: Ruler, form: Format) -> str:
    if not isinstance(step.value, Fraction):
        return f"  {float(step.value)}"
    exponent = floor_log2(step.value) if step.value else form.lowest_exponent
    last = max(exponent, form.lowest_exponent) - form.fraction_bits
    return f"{_sign(step.value)} {ruler.draw_to(step.value, last)}"


# ---- numbers --------------------------------------------------------------------------------


def _exact(exact: Number) -> str:
    """Return a value in decimal, with dots where digits follow, and in full as a power of two."""
    if not isinstance(exact, Fraction):
        return str(exact)
    context = Context(prec=DIGITS)
    decimal = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    more = "..." if context.flags[Inexact] else ""
    return f"{decimal}{more} = {power(exact)}"


def _number(value: Number | float, form: Format) -> str:
    """Return a number of ``form`` with as many digits as tell it from its neighbours."""
    kind = TYPES.get(form.name)
    return number(float(value) if kind is None else kind.dtype.type(float(value)))


def _value(word: int, form: Format) -> str:
    return _number(value_of(word, form), form)


def value_of(word: int, form: Format) -> float:
    return float(decode(np.array([word], form.word), form)[0])


def bits_of(word: int, form: Format) -> str:
    return hexadecimal(word, form.word_bits)


# ---- many dot products as text --------------------------------------------------------------


def survey_text(survey: ProductSurvey) -> str:
    """Return how often each two ways differ, in percent."""
    products = survey.products
    rows = [["", *survey.names]]
    width = max(map(len, survey.names))
    for name, counts in zip(survey.names, survey.differ.tolist(), strict=True):
        shares = [f"{100 * count / products.count:.2f}" for count in counts]
        rows.append([f"{name:{width}}", *shares])
    for row in range(1, len(rows)):
        rows[row][row] = "."
    lines = [
        f"{products.count} dot products of {products.k}; {products.dtype} in, {products.acc} out",
        "how many have other bits, in percent",
        "",
        *aligned(rows),
        "",
        *(_heading(model, products) for model in survey.models),
    ]
    if (measured := survey.measured) is not None:
        wrong = f"{measured.wrong} of {products.count} are " if measured.wrong else "all "
        lines.append(f"{measured.name}: {wrong}{_verdict(measured)}")
    return "\n".join(lines) + "\n"


LONG_RUN = 8
"""Zeros behind the cut that are still drawn one by one."""


@dataclass(frozen=True, slots=True)
class Ruler:
    """The columns of a drawing: one for each power of two from ``top`` down to ``unit``."""

    top: int
    unit: int

    @classmethod
    def over(cls, numbers: Sequence[Fraction], unit: int) -> Ruler:
        return cls(max([unit, *(floor_log2(number) for number in numbers if number)]), unit)

    @property
    def width(self) -> int:
        return self.top - self.unit + 1

    def heading(self) -> str:
        """Return the weights of the first and the last column, above them, and what is behind."""
        first, last = f"2^{self.top}", f"2^{self.unit}"
        return f"{first}{last:>{max(self.width - len(first), len(last) + 1)}}| cut off"

    def draw(self, number: Fraction) -> str:
        """Return the bits of |number|, dots before the first, and those below the last after "|"."""
        units = abs(number) / Fraction(2) ** self.unit
        whole = int(units)
        kept = f"{whole:b}" if whole else ""
        return f"{kept:.>{self.width}}|{_behind(units - whole)}"

    def draw_to(self, number: Fraction, last: int) -> str:
        """Return the bits of |number| down to 2**last, which is all of them, and blanks after."""
        end = min(max(last, self.unit), self.top)
        kept = f"{int(abs(number) / Fraction(2) ** end):b}"
        return f"{kept:.>{self.top - end + 1}}{'':{end - self.unit}}|"


def _behind(rest: Fraction) -> str:
    """Return the bits of ``rest``, which is below 1, from the binary point on."""
    if not rest:
        return ""
    length = rest.denominator.bit_length() - 1
    bits = f"{rest.numerator:0{length}b}"
    zeros = len(bits) - len(bits.lstrip("0"))
    return f"({zeros} zeros){bits[zeros:]}" if zeros > LONG_RUN else bits


def floor_log2(number: Fraction) -> int:
    """Return the exponent of the power of two at or below |number|, which is not zero."""
    numerator, denominator = abs(number).as_integer_ratio()
    exponent = numerator.bit_length() - denominator.bit_length()
    return exponent - (abs(number) < Fraction(2) ** exponent)


def power(number: Fraction) -> str:
    """Return a multiple of a power of two exactly, as ``-37 * 2^-5``."""
    numerator, denominator = number.as_integer_ratio()
    exponent = -(denominator.bit_length() - 1)
    while numerator and numerator % 2 == 0:
        numerator //= 2
        exponent += 1
    return f"{numerator} * 2^{exponent}"
