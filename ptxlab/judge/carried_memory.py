"""Which numbers of a memory are carried (``ptxlab.judge.carried``): all others are exactly what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.memory import Bytes
from ptxlab.judge.carried import Carried
from ptxlab.numbers.formats import FORMATS

GRANULE = 2
"""Bytes: the smallest number that is carried has so many."""

KINDS = ("f32", "f16", "bf16", "f64")
_EXACT, _REST = len(KINDS), len(KINDS) + 1
"""Of a granule that holds what is there, and of one in which the number of the one before goes on."""


class Mixed(Exception):
    """A part of a carried number is read, or several kinds of them as one."""


def decoded(words: Array, kind: str) -> Array:
    """Return words as the numbers of a kind that are in them, [words, numbers] in float64."""
    raw = np.ascontiguousarray(words).view(FORMATS[kind].dtype)
    return raw.reshape(len(words), -1).astype(np.float64)


class CarriedMemory:
    """The numbers of a ``memory`` by granules, at those where they begin."""

    def __init__(self, memory: Bytes) -> None:
        self._memory = memory
        granules = -(-memory.data.size // GRANULE)
        self.kinds = np.full(granules, _EXACT, np.uint8)
        self.numbers = Carried(*(np.zeros(granules) for _ in range(4)))

    def load(self, first: Array, nbytes: int) -> tuple[str, Carried] | None:
        """Return the kind of numbers in ``nbytes`` from each byte on, [first, numbers]; None where all are what is there."""
        granules = _granules(first, nbytes)
        kinds = self.kinds[granules]
        if (kinds == _EXACT).all():
            return None
        known = set(np.unique(kinds).tolist()) - {_EXACT, _REST}
        if len(known) != 1:
            raise Mixed
        (code,) = known
        size = FORMATS[KINDS[code]].dtype.itemsize
        step = size // GRANULE
        if nbytes % size:
            raise Mixed
        begins = kinds[:, ::step] == code
        rest = kinds.reshape(len(first), -1, step)[:, :, 1:]
        if not (rest == np.where(begins, _REST, _EXACT)[:, :, None]).all():
            raise Mixed
        at = granules[:, ::step]
        there = self._memory.items(size).take(at // step).reshape(-1)
        exact = Carried.exact(decoded(there, KINDS[code]).reshape(at.shape))
        carried = self.numbers.each(lambda column: column[at])
        return KINDS[code], carried.or_else(begins, exact)

    def store(self, first: Array, nbytes: int, held: tuple[str, Carried] | None) -> None:
        """Have numbers of a kind lie from each byte on, [first, numbers]; for None what is there is exact from now on."""
        granules = _granules(first, nbytes)
        if nbytes < GRANULE and (self.kinds[granules] != _EXACT).any():
            raise Mixed
        self.kinds[granules] = _EXACT
        if held is None:
            return
        kind, carried = held
        step = FORMATS[kind].dtype.itemsize // GRANULE
        if carried.value.shape[1] * GRANULE * step != nbytes:
            raise Mixed
        inexact = carried.off != 0
        at = granules[:, ::step][inexact]
        self.kinds[at] = KINDS.index(kind)
        for more in range(1, step):
            self.kinds[at + more] = _REST
        for column, new in zip(self.numbers.columns(), carried.columns(), strict=True):
            column[at] = new[inexact]

    def add(self, first: Array, kind: str, terms: Carried, roundings: float) -> None:
        """Add terms to the numbers at each byte, in any order."""
        size = FORMATS[kind].dtype.itemsize
        places = np.unique(first)
        held = self.load(places, size)
        if held is None:
            there = self._memory.items(size).take(places // size)
            held = kind, Carried.exact(decoded(there, kind))
        if held[0] != kind:
            raise Mixed
        which = np.searchsorted(places, first)
        columns = [column[:, 0].copy() for column in held[1].columns()]
        more = Carried(terms.value, terms.magnitude, terms.roundings + roundings, terms.error)
        for column, new in zip(columns, more.columns(), strict=True):
            np.add.at(column, which, new[:, 0])
        self.store(places, size, (kind, Carried(*(column[:, None] for column in columns))))

    def holds(self, first: Array, nbytes: int) -> bool:
        """Say whether any number there is carried."""
        return bool((self.kinds[_granules(first, nbytes)] != _EXACT).any())

    def copied(self, first: Array, nbytes: int) -> list[Array]:
        """Return all that is known of ``nbytes`` from each byte on, to be ``put`` elsewhere."""
        granules = _granules(first, nbytes)
        return [column[granules] for column in (self.kinds, *self.numbers.columns())]

    def put(self, first: Array, nbytes: int, copied: list[Array]) -> None:
        granules = _granules(first, nbytes)
        for column, new in zip((self.kinds, *self.numbers.columns()), copied, strict=True):
            column[granules] = new


def _granules(first: Array, nbytes: int) -> Any:
    return first[:, None] // GRANULE + np.arange(max(1, nbytes // GRANULE))
