"""Which bytes of global memory a launch loads and stores, from what the CTAs of one SM ask for.

Each byte counts once, however often it is asked for. Of loops only some turns are followed: an instruction that comes
to further sectors with its turns comes to as many more in those that are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.memory import MemoryRange
from ptxlab.machine.values import Array
from ptxlab.prediction.requests import SECTOR, Request
from ptxlab.prediction.tma import Copy
from ptxlab.prediction.warps import Asked

_GLOBAL = ("global", "generic", "copy", "tensor map")
"""Spaces whose addresses may be of global memory."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes that are ``loaded`` and ``stored``, by the number of the region they are in."""

    loaded: Mapping[int, float]
    stored: Mapping[int, float]

    @classmethod
    def summed(cls, parts: Sequence[Touched]) -> Touched:
        """Return what several touch, as if nothing were touched by two."""
        return cls(
            *(_summed(each) for each in zip(*((p.loaded, p.stored) for p in parts), strict=True))
        )

    def within(self, regions: Sequence[MemoryRange]) -> Touched:
        """Return the same where it is more than there is: CTAs touch what others did."""
        return Touched(
            *(
                {n: min(nbytes, regions[n].nbytes) for n, nbytes in each.items()}
                for each in (self.loaded, self.stored)
            )
        )

    @property
    def footprint(self) -> float:
        """The bytes that would be in a cache that loses none."""
        both = {*self.loaded, *self.stored}
        return sum(max(self.loaded.get(n, 0), self.stored.get(n, 0)) for n in both)


def loads(i: DecodedInstruction) -> bool:
    """Say whether an instruction may load from global memory."""
    row = i.row
    if row is None or row.space not in _GLOBAL:
        return False
    return not i.copies_out if row.does == "bulk copy" else row.loads


def stores(i: DecodedInstruction) -> bool:
    """Say whether an instruction may store to global memory, or change what is there."""
    row = i.row
    if row is None or row.space not in _GLOBAL:
        return False
    return i.copies_out if row.does == "bulk copy" else row.stores or row.atomic


def sectors(request: Request | Asked) -> Array:
    """Return the sectors of global memory that are asked for, by number."""
    if isinstance(request, Request):
        return request.every
    copies = (copy for of_warp in request for copy in of_warp if isinstance(copy, Copy))
    return np.fromiter(chain.from_iterable(copy.sectors for copy in copies), np.int64)


def touched(
    code: Sequence[DecodedInstruction],
    regions: Sequence[MemoryRange],
    requests: Mapping[int, Request | Asked],
    numbers: Array,
    more: Array,
    ctas: float,
) -> Touched:
    """Return what a launch touches if no CTA touches what another does; some steps of some CTAs are followed.

    ``numbers`` are the instructions of the steps, ``more`` [instructions] how many times as often each is executed, and
    ``ctas`` how many times as many CTAs there are.
    """
    asked: dict[int, list[Array]] = defaultdict(list)
    for step, request in sorted(requests.items()):
        every = sectors(request)
        if len(every):
            asked[int(numbers[step])].append(every)
    loaded, stored = (
        {
            n: ctas * SECTOR * count
            for n, count in _by_region(regions, asked, more, [*filter(which, code)]).items()
        }
        for which in (loads, stores)
    )
    return Touched(loaded, stored)


def _summed(parts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for part in parts:
        for key, value in part.items():
            sums[key] += value
    return dict(sums)


def _by_region(
    regions: Sequence[MemoryRange],
    asked: Mapping[int, Sequence[Array]],
    more: Array,
    which: Sequence[DecodedInstruction],
) -> dict[int, float]:
    """Return how many sectors some instructions touch, by region."""
    order = sorted(range(len(regions)), key=lambda n: regions[n].base)
    bases = np.array([regions[n].base // SECTOR for n in order])
    of_region: dict[int, list[Array]] = defaultdict(list)
    single: dict[int, float] = defaultdict(float)
    scaled: dict[int, float] = defaultdict(float)
    for number in (i.number for i in which if i.number in asked):
        every = np.unique(np.concatenate(asked[number]))
        grows = len(every) > len(np.unique(asked[number][0]))
        places = np.searchsorted(bases, every, "right") - 1
        for at in np.unique(places[places >= 0]).tolist():
            inside = every[places == at]
            of_region[order[at]].append(inside)
            single[order[at]] += len(inside)
            scaled[order[at]] += len(inside) * (more[number] if grows else 1)
    return {
        n: len(np.unique(np.concatenate(each))) * scaled[n] / single[n]
        for n, each in of_region.items()
    }
