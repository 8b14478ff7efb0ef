"""One dot product side by side: exact, rounded once, in order, and step by step on every chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.numbers.dissect import Step
from ptxlab.numbers.exact import Number, dot, in_order, nearest
from ptxlab.numerics.measure import Measured
from ptxlab.numerics.models import Model
from ptxlab.numerics.products import DotProducts


@dataclass(frozen=True, slots=True)
class Result:
    """What the targets of a ``model`` give, and the ``steps`` that lead there."""

    model: Model
    steps: tuple[Step, ...]

    @property
    def word(self) -> int:
        return self.steps[-1].word


@dataclass(frozen=True, slots=True)
class Study:
    """A dot product: its ``exact`` value, that value ``rounded`` once, and what others make of it.

    ``chains`` are the words that fused multiply-adds in increasing k give, by the format of the sum.
    """

    products: DotProducts
    exact: Number
    rounded: int
    chains: dict[str, int]
    results: tuple[Result, ...]
    measured: Measured | None

    @property
    def passed(self) -> bool:
        """Whether the GPU, if one was asked, gave what the model of its target predicts."""
        return self.measured is None or not self.measured.wrong


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
        results=tuple(Result(model, model.steps(products)) for model in models),
        measured=measured,
    )
