"""The dot products to look at: raw words of A, B and C, given or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array, Doubles
from ptxlab.errors import PtxlabError
from ptxlab.numbers.exact import decode, encode
from ptxlab.numbers.formats import F16, F32, Format
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS

MOST = 1 << 22
"""Most products drawn at once, over all dot products: some seconds of work."""


@dataclass(frozen=True, slots=True)
class DotProducts:
    """Dot products c + sum of a*b of one length: ``a`` and ``b`` are [k, count], ``c`` is [count].

    Raw words of the PTX types ``dtype`` and ``acc``.
    """

    dtype: str
    acc: str
    a: Array
    b: Array
    c: Array

    @property
    def k(self) -> int:
        return len(self.a)

    @property
    def count(self) -> int:
        return len(self.c)

    @property
    def operand(self) -> Format:
        return OPERANDS[self.dtype]

    @property
    def accumulator(self) -> Format:
        return ACCUMULATORS[self.acc]

    @property
    def chains(self) -> tuple[Format, ...]:
        """The formats in which a sum may be kept before it is one of ``acc``."""
        return tuple(form for form in (F32, F16) if form.word_bits >= self.accumulator.word_bits)

    def values(self) -> tuple[Doubles, Doubles, Doubles]:
        a, b = decode(self.a, self.operand), decode(self.b, self.operand)
        return a, b, decode(self.c, self.accumulator)


def given(dtype: str, acc: str, a: Sequence[int], b: Sequence[int], c: int) -> DotProducts:
    """Return the one dot product of these raw words. Raises PtxlabError unless a and b match."""
    if len(a) != len(b) or not a:
        raise PtxlabError(
            f"a has {len(a)} elements and b has {len(b)}",
            hint="a dot product takes as many of both, and at least one",
        )
    word = OPERANDS[dtype].word
    left, right = (np.array(words, word).reshape(-1, 1) for words in (a, b))
    return DotProducts(dtype, acc, left, right, np.array([c], ACCUMULATORS[acc].word))


def draw(
    dtype: str,
    acc: str,
    *,
    k: int,
    count: int = 1,
    seed: int = 0,
    spread: int | None = None,
    c: int | None = None,
) -> DotProducts:
    """Draw ``count`` dot products of length ``k`` and round them to ``dtype`` and ``acc``.

    Numbers are standard normal, or, with a ``spread``, of any sign and significand and with an
    exponent from -spread to 0, all as likely. ``c`` is a raw word in place of drawn ones.

    Raises PtxlabError for a ``spread`` that goes below the normal numbers, and for more than
    ``MOST`` products in all.
    """
    operand, accumulator = OPERANDS[dtype], ACCUMULATORS[acc]
    if k * count > MOST:
        raise PtxlabError(
            f"{count} dot products of {k} are more than {MOST:,} products",
            hint="take a smaller --k or --count",
        )
    for form in (operand, accumulator):
        if spread is not None and spread > -form.lowest_exponent:
            raise PtxlabError(
                f"a spread of {spread} goes below the normal numbers of {form.name}",
                hint=f"the smallest is 2^{form.lowest_exponent}",
            )
    generator = np.random.default_rng(seed)
    shape = (count, 2 * k + 1)
    if spread is None:
        drawn = generator.standard_normal(shape)
    else:
        drawn = generator.uniform(1, 2, shape) * generator.choice((-1.0, 1.0), shape)
        drawn = np.ldexp(drawn, -generator.integers(0, spread, shape, endpoint=True))
    a, b = encode(drawn[:, :k].T, operand), encode(drawn[:, k : 2 * k].T, operand)
    last = encode(drawn[:, -1], accumulator)
    return DotProducts(dtype, acc, a, b, last if c is None else np.full_like(last, c))
