"""``--expect NAME=WHAT``: what a kernel should leave in an array, and whether it did.

WHAT is a file or an array as ``--arg`` takes them, or a NumPy expression over the arguments as they
were before the launch. All of it is read and computed before a device is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.arrays import ELEMENT_TYPES, ArrayValue, converted, errors
from ptxlab.verbs.launching.expression import evaluate, is_rounded
from ptxlab.verbs.launching.launch import Argument
from ptxlab.verbs.launching.values import ArgumentValue, is_array, named, read

SHOWN = 5
"""How many differences are shown of an array that is wrong."""


USUAL = {
    "f64": 1e-12, "f32": 1e-6, "tf32": 1e-3, "f16": 2e-3, "bf16": 1.6e-2, "e4m3": 0.125, "e5m2": 0.25,
}  # fmt: skip
"""Of what a number is, and of the largest one: 16 units in the last place of f32, 4 of f16 and bf16, 2 of fewer bits."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An array as it should be; ``text`` is what the user wrote for it."""

    name: str
    text: str
    array: Array


@dataclass(frozen=True, slots=True)
class Difference:
    """An element that is not as expected: its indices, what it is, and what it should be."""

    index: tuple[int, ...]
    value: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Expectation:
    """An array compared with what it should be: ``expected``, in the user's words.

    ``wrong`` of its ``elements`` differ by more than the tolerance; ``differences`` are the first of
    them. ``largest_error`` is over all elements, NaN where one is not a number.
    """

    name: str
    expected: str
    rtol: float
    atol: float
    elements: int
    wrong: int
    largest_error: float
    differences: tuple[Difference, ...]


def expected(
    wanted: Sequence[tuple[str, str]], values: Mapping[str, ArgumentValue]
) -> list[Expected]:
    """Compute what ``--expect`` asks for. Raises PtxlabError for a name that is no array argument."""
    before = named(values)
    expectations = []
    for name, text in wanted:
        given = array_argument("--expect", name, values)
        if is_array(text):
            value = read(name, text, (0,))
            assert isinstance(value, ArrayValue)
            array = value.array
        else:
            array = np.asarray(evaluate(text, before))
        expectations.append(Expected(name, text, _fitted(name, text, array, given)))
    return expectations


def array_argument(option: str, name: str, values: Mapping[str, ArgumentValue]) -> ArrayValue:
    """Return the array of that name, or raise PtxlabError with the names there are."""
    argument = values.get(name)
    if isinstance(argument, ArrayValue):
        return argument
    arrays = [name for name, value in values.items() if isinstance(value, ArrayValue)]
    raise PtxlabError(
        f"{option} {name}: no array argument has this name{suggestion(name, arrays)}",
        hint=f"arrays are {', '.join(arrays)}" if arrays else None,
    )


def usual_tolerance(wanted: Expected, dtype: str) -> tuple[float, float]:
    """Return how far off a right kernel may be that adds up in another order, in f32 or wider, by the type it stores.

    Nothing for what is no sum and no function of numbers, and for integers.
    """
    rtol = USUAL.get(dtype, 0.0) if is_rounded(wanted.text) else 0.0
    finite = np.abs(wanted.array.astype(np.float64))
    return rtol, rtol * float(np.max(finite, initial=0.0, where=np.isfinite(finite)))


def compare(
    wanted: Expected, argument: Argument, tolerance: tuple[float, float] | None
) -> Expectation:
    """Compare an array element by element, as ``errors`` does; ``tolerance`` None is what is usual."""
    value, want = np.asarray(argument.value), wanted.array
    tolerance = tolerance or usual_tolerance(wanted, argument.dtype)
    rtol, atol = tolerance
    right, error = errors(value, want, tolerance)
    return Expectation(
        name=wanted.name,
        expected=wanted.text,
        rtol=rtol,
        atol=atol,
        elements=value.size,
        wrong=int(np.count_nonzero(~right)),
        largest_error=float(np.max(error, initial=0.0)),
        differences=tuple(
            Difference(tuple(map(int, index)), value[tuple(index)], want[tuple(index)])
            for index in np.argwhere(~right)[:SHOWN]
        ),
    )


def _fitted(name: str, text: str, array: Array, given: ArrayValue) -> Array:
    """Bring an expectation to the shape of its array and, where that holds floats, to its type."""
    shape = given.array.shape
    if array.dtype.hasobject or array.dtype.kind in "cSUmM":
        raise PtxlabError(f"--expect {name}={text}: it is {array.dtype}, and no array of numbers")
    if array.ndim and array.shape != shape:
        raise PtxlabError(
            f"--expect {name}={text}: its shape is {_shape(array.shape)}, {name} is {_shape(shape)}"
        )
    if ELEMENT_TYPES[given.dtype].kind == "float":
        array = converted(array, ELEMENT_TYPES[given.dtype])
    return np.broadcast_to(array, shape)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
