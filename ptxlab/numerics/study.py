"""Dot products added up in several ways: one of them step by step, or how often many differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array, Integers
from ptxlab.errors import PtxlabError
from ptxlab.numbers.dissect import SumStep
from ptxlab.numbers.exact import Number, dot, in_order, nearest, rounded_once
from ptxlab.numerics.models import Measured, Model
from ptxlab.numerics.products import DotProducts

EXACT = "rounded once"
"""The way without any rounding but the last."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Dot products, and what a GPU made of them if one was asked."""

    products: DotProducts
    measured: Measured | None

    @property
    def passed(self) -> bool:
        """Whether the GPU, if one was asked, gave what the model of its target predicts."""
        return self.measured is None or not self.measured.wrong


# ---- one, step by step ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What the targets of a ``model`` give, and the ``steps`` that lead there."""

    model: Model
    steps: tuple[SumStep, ...]

    @property
    def word(self) -> int:
        return self.steps[-1].word


@dataclass(frozen=True, slots=True)
class Study(Compared):
    """A dot product: its ``exact`` value, that value ``rounded`` once, and what others make of it.

    ``chains`` are the words that fused multiply-adds in increasing k give, by the format of the sum.
    """

    exact: Number
    rounded: int
    chains: dict[str, int]
    results: tuple[ModelResult, ...]


def study(
    products: DotProducts, models: Sequence[Model], measured: Measured | None = None
) -> Study:
    """Take the one dot product of ``products`` apart."""
    numbers = products.values()
    a, b, c = (values.ravel().tolist() for values in numbers)
    exact = dot(a, b, c[0])
    result = products.accumulator
    return Study(
        products=products,
        exact=exact,
        rounded=nearest(exact, result),
        chains={chain.name: int(in_order(*numbers, chain, result)[0]) for chain in products.chains},
        results=tuple(ModelResult(model, model.steps(products)) for model in models),
        measured=measured,
    )


# ---- many, counted --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProductSurvey(Compared):
    """Many dot products, each added up in several ways.

    ``names`` are the ways: ``EXACT``, then chains of fused multiply-adds, then the models by their
    first targets, then the GPU if one was asked. ``differ`` [way, way] counts the dot products
    whose bits are not the same in two of them.
    """

    models: tuple[Model, ...]
    names: tuple[str, ...]
    differ: Integers


def survey(
    products: DotProducts, models: Sequence[Model], measured: Measured | None = None
) -> ProductSurvey:
    """Add up all ``products`` in every way and count the differences.

    Raises PtxlabError unless all numbers are finite.
    """
    numbers = products.values()
    if not all(np.isfinite(values).all() for values in numbers):
        raise PtxlabError("a survey is of finite numbers only", hint="give another --c")
    result = products.accumulator
    words: dict[str, Array] = {EXACT: rounded_once(*numbers, result)}
    for chain in products.chains:
        words[f"{chain.name} fma chain"] = in_order(*numbers, chain, result)
    words |= {model.targets[0]: model.compute(products) for model in models}
    if measured is not None:
        words[measured.name] = measured.words
    ways = np.stack(list(words.values()))
    differ = (ways[:, None] != ways[None]).sum(axis=-1)
    return ProductSurvey(products, measured, tuple(models), tuple(words), differ)
