"""How often two ways to add up a dot product give different bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptxlab.errors import PtxlabError
from ptxlab.numbers.exact import in_order, rounded_once
from ptxlab.numbers.formats import Array
from ptxlab.numerics.measure import Measured
from ptxlab.numerics.models import Model
from ptxlab.numerics.products import DotProducts

EXACT = "rounded once"
"""The way without any rounding but the last."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Many dot products, each added up in several ways.

    ``names`` are the ways: ``EXACT``, then chains of fused multiply-adds, then the models by their
    first targets, then the GPU if one was asked. ``differ`` [way, way] counts the dot products
    whose bits are not the same in two of them.
    """

    products: DotProducts
    models: tuple[Model, ...]
    names: tuple[str, ...]
    differ: npt.NDArray[np.int64]
    measured: Measured | None

    @property
    def passed(self) -> bool:
        """Whether the GPU, if one was asked, always gave what the model of its target predicts."""
        return self.measured is None or not self.measured.wrong


def survey(
    products: DotProducts, models: Sequence[Model], measured: Measured | None = None
) -> Survey:
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
    return Survey(products, tuple(models), tuple(words), differ, measured)
