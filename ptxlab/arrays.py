"""What arrays of numpy are called in types."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of any type; where it matters, a docstring says which, and what its dimensions are."""

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
"""The bits of registers, a word each, however many of them a register has."""


def positions(mask: Mask) -> Integers:
    """Return where a flat mask holds: in 64 bits also where numpy's own positions have 32, as in a browser.

    What is made of positions, such as keys with a time above them, wraps around there without a word.
    """
    return np.flatnonzero(mask).astype(np.int64, copy=False)


class Symbolic:
    """What numpy's functions take for an array, and write down what they do to it: see ``ptxlab.native.tracing``.

    It is one element a thread, of threads that are not there yet.
    """

    known: int | None
    """The integer that all threads have, where that is known."""

    def intrinsic(self, name: str, *others: Any, **options: Any) -> Any:
        """Return what the function of this name makes of it, and of others."""
        raise NotImplementedError


_F = TypeVar("_F", bound=Callable[..., Any])


def intrinsic(function: _F) -> _F:
    """Let a function of arrays be done in another way to what is symbolic, the first argument."""
    name = function.__name__

    @wraps(function)
    def either(x: Any, *others: Any, **options: Any) -> Any:
        if isinstance(x, Symbolic):
            return x.intrinsic(name, *others, **options)
        return function(x, *others, **options)

    return either  # type: ignore[return-value]


def some(mask: Array) -> bool:
    """Say whether a mask that is not empty may hold somewhere.

    numpy's ``any`` and other reductions take five times as long to begin as a search.
    """
    return isinstance(mask, Symbolic) or bool(mask.item(mask.argmax()))


def alike(x: Array) -> int | None:
    """Return the integer that all threads have; None where they differ."""
    if isinstance(x, Symbolic):
        return x.known
    return None if some(x != x[0]) else int(x[0])


@intrinsic
def looked_up(index: Array, table: Array) -> Array:
    """Return the elements of a table."""
    entries: Array = table[index]
    return entries
