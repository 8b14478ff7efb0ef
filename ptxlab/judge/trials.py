"""What a candidate is tried with: other numbers each time, other sizes, and numbers that few think of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.judge.arguments import Arguments, drawn, others, told, wider
from ptxlab.judge.rounding import FORMATS


@dataclass(frozen=True)
class Trial:
    """A launch that is asked for: ``arguments`` of these ``sizes``; a ``hard`` one does not count as right or wrong.

    Arguments that are ``aliases`` of others lie in the same memory; ``shifted`` ones begin behind an aligned address.
    """

    name: str
    sizes: Mapping[str, int]
    arguments: dict[str, Any]
    hard: bool = False
    aliases: dict[str, str] = field(default_factory=dict)
    shifted: bool = False


GIVEN, AGAIN = "given", "other numbers"
"""The trial that is checked too, and the one with the same sizes."""


def trials(
    arguments: Arguments, sizes: Mapping[str, int], multiples: Mapping[str, int], seed: int
) -> Iterator[Trial]:
    """Yield all trials, which follow from the seed."""
    given = Trial(GIVEN, sizes, drawn(told(arguments, sizes), (seed, 0), first=True))
    yield given
    yield replace(
        given, name=AGAIN, arguments=drawn(told(arguments, sizes), (seed, 1), first=False)
    )
    more = [wider(sizes, multiples)] if sizes else []
    for number, other in enumerate([*others(sizes, multiples), *more], 2):
        name = ", ".join(f"{name}={size}" for name, size in other.items())
        yield Trial(
            f"sizes {name}", other, drawn(told(arguments, other), (seed, number), first=False)
        )
    for number, (name, change) in enumerate(HARD.items(), 10):
        values = drawn(told(arguments, sizes), (seed, number), first=False)
        rng = np.random.default_rng([seed, number])
        altered = {key: changed(value, change, rng) for key, value in values.items()}
        if any(_is_float(value) for value in values.values()):
            yield Trial(name, sizes, altered, hard=True)
    yield replace(given, name="arrays behind an aligned address", hard=True, shifted=True)


def aliased(given: Trial, inputs: list[str]) -> Trial | None:
    """Return the trial in which two inputs that are alike are the same memory, None where none are."""
    arrays = {
        name: given.arguments[name]
        for name in inputs
        if isinstance(given.arguments[name], np.ndarray)
    }
    for name, array in arrays.items():
        for other, twin in arrays.items():
            if name < other and array.shape == twin.shape and array.dtype == twin.dtype:
                same = {**given.arguments, other: array}
                return replace(
                    given,
                    name=f"{other} is {name}",
                    arguments=same,
                    hard=True,
                    aliases={other: name},
                )
    return None


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype in FORMATS or value.dtype == np.float64)


def changed(value: Any, change: Any, rng: np.random.Generator) -> Any:
    if not _is_float(value):
        return value
    kept = FORMATS.get(value.dtype)
    bias = kept.bias if kept else 1023
    with np.errstate(all="ignore"):
        return change(value.astype(np.float64), bias, rng).astype(value.dtype)


def _not_finite(array: Array, bias: int, rng: np.random.Generator) -> Array:
    changed = array.copy().reshape(-1)
    some = rng.permutation(changed.size)[:3]
    changed[some] = np.array([np.nan, np.inf, -np.inf])[: some.size]
    return changed.reshape(array.shape)


HARD = {
    "large numbers": lambda array, bias, rng: np.ldexp(array, 3 * bias // 8),
    "subnormal numbers": lambda array, bias, rng: np.ldexp(array, -bias - 1),
    "zeros": lambda array, bias, rng: 0.0 * np.nan_to_num(array),
    "NaN and infinities": _not_finite,
}
"""Numbers that few think of, made of usual ones by the bias of the exponents of their type."""
