"""Which bytes of global memory a launch loads and stores, from what the CTAs of one SM ask for.

Each byte counts once, however often it is asked for, and what is asked for again is told beside it, by how much came
in between. Of loops only some turns are followed: an instruction that comes to further sectors with its turns comes to
as many more in those that are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.memory import MemoryRange
from ptxlab.machine.values import Array
from ptxlab.prediction.sm.requests import SECTOR, Request
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Asked

_GLOBAL = ("global", "generic", "copy", "tensor map")
"""Spaces whose addresses may be of global memory."""


Key = TypeVar("Key")

_STEPS = 4
"""So many distances are told apart between one and twice as far."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes that are ``loaded`` and ``stored``, by the number of the region they are in.

    ``again`` are those that a CTA loads which it had loaded before, by the bytes that it loaded in between.
    """

    loaded: Mapping[int, float]
    stored: Mapping[int, float]
    again: Mapping[float, float]

    @classmethod
    def summed(cls, parts: Sequence[Touched]) -> Touched:
        """Return what several touch, as if nothing were touched by two."""
        return cls(
            _summed([part.loaded for part in parts]),
            _summed([part.stored for part in parts]),
            _summed([part.again for part in parts]),
        )

    def within(self, regions: Sequence[MemoryRange]) -> Touched:
        """Return the same where it is more than there is: CTAs touch what others did."""
        loaded, stored = (
            {n: min(nbytes, regions[n].nbytes) for n, nbytes in each.items()}
            for each in (self.loaded, self.stored)
        )
        return Touched(loaded, stored, self.again)

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


def in_regions(regions: Sequence[MemoryRange], every: Array) -> Array:
    """Return the region that each of some sectors is in, by number, -1 for one before all of them."""
    order = np.argsort([region.base for region in regions])
    bases = np.array([regions[n].base // SECTOR for n in order], np.int64)
    numbers: Array = np.append(order, -1)[np.searchsorted(bases, every, "right") - 1]
    return numbers


def sectors(request: Request | Asked) -> Array:
    """Return the sectors of global memory that are asked for, by number."""
    if isinstance(request, Request):
        return request.every
    every = chain.from_iterable(copy.sectors for _, copy in _copies(request))
    return np.fromiter(every, np.int64)


def of_warps(request: Request | Asked) -> Array:
    """Return for each of these sectors the warp that asks for it, by number."""
    if isinstance(request, Request):
        return np.zeros(0, np.int64) if request.pattern is None else request.pattern.warps
    every = chain.from_iterable([warp] * len(copy.sectors) for warp, copy in _copies(request))
    return np.fromiter(every, np.int64)


def _copies(asked: Asked) -> Iterator[tuple[int, Copy]]:
    """Yield the copies that are asked for, each with its warp's number."""
    for warp, of_warp in enumerate(asked):
        yield from ((warp, copy) for copy in of_warp if isinstance(copy, Copy))


def touched(
    code: Sequence[DecodedInstruction],
    regions: Sequence[MemoryRange],
    requests: Mapping[int, Request | Asked],
    numbers: Array,
    more: Array,
    followed: int,
    ctas: float,
    times: Array | None = None,
) -> Touched:
    """Return what ``ctas`` touch if none touches what another does; some steps of the CTAs ``followed`` are asked about.

    ``numbers`` are the instructions of the steps, each of them issued so many ``times``, ``more`` [instructions] how many times as
    often each is executed.
    """
    asked: dict[int, list[Array]] = defaultdict(list)
    for step, request in sorted(requests.items()):
        every = sectors(request)
        if len(every):
            asked[int(numbers[step])].append(every)
    loaded, stored = (
        {
            n: ctas / followed * SECTOR * count
            for n, count in _by_region(regions, asked, more, [*filter(which, code)]).items()
        }
        for which in (loads, stores)
    )
    steps = {step: sectors(r) for step, r in sorted(requests.items()) if loads(code[numbers[step]])}
    again = _again(steps, numbers, more, times)
    return Touched(
        loaded,
        stored,
        {
            distance * SECTOR / followed: ctas / followed * SECTOR * count
            for distance, count in again.items()
        },
    )


def own(requests: Mapping[int, Request | Asked], numbers: Array) -> dict[int, float]:
    """Return the part of what each instruction asks for at first that an earlier step had asked for, by number.

    ``numbers`` are the instructions of the steps, of which some are asked about, for CTAs that share an SM.
    """
    steps = {step: every for step, r in sorted(requests.items()) if len(every := sectors(r))}
    if not steps:
        return {}
    at = np.repeat(list(steps), [len(every) for every in steps.values()])
    every, first = np.unique(np.concatenate(list(steps.values())), return_index=True)
    begins: dict[int, int] = {}
    for step in steps:
        begins.setdefault(int(numbers[step]), step)
    return {
        number: float(np.mean(at[first[np.searchsorted(every, steps[step])]] < step))
        for number, step in begins.items()
    }


def _again(
    asked: Mapping[int, Array], numbers: Array, more: Array, issued: Array | None
) -> dict[float, float]:
    """Return how many sectors are asked for that an earlier step had asked for, by how many others came in between.

    ``asked`` are the sectors of some steps, in order; each step is ``issued`` so many times.
    """
    unique = {step: np.unique(every) for step, every in asked.items() if len(every)}
    if not unique:
        return {}
    begun = np.array(list(unique))
    steps = np.repeat(begun, [len(every) for every in unique.values()])
    every = np.concatenate(list(unique.values()))
    order = np.lexsort((steps, every))
    steps, every = steps[order], every[order]
    earlier = np.flatnonzero(every[1:] == every[:-1])
    first, second = steps[earlier], steps[earlier + 1]
    # What was asked for since an instruction's turn before is none that came in between.
    known = second[first >= _turns_before(begun, numbers)[np.searchsorted(begun, second)]]
    fresh, not_fresh, times = (
        np.bincount(numbers[of], minlength=len(more)) for of in (steps, known, begun)
    )
    each = ((fresh - not_fresh) / np.maximum(times, 1))[numbers]
    passed = np.cumsum(each if issued is None else each * issued)
    classes = np.round(_STEPS * np.log2(np.maximum(passed[second] - passed[first], 1)))
    # Turns may be left out of the loop of either: what was seen stands for the turns of that which lost most.
    stands_for = np.maximum(more[numbers[first]], more[numbers[second]])
    return {
        2 ** (distance / _STEPS): float(stands_for[classes == distance].sum())
        for distance in np.unique(classes).tolist()
    }


def _turns_before(steps: Array, numbers: Array) -> Array:
    """Return for each of some steps, in order, which of them was the last of the same instruction, -1 where none was."""
    order = np.argsort(numbers[steps], kind="stable")
    of, last = numbers[steps[order]], np.full(len(steps), -1)
    again = np.flatnonzero(of[1:] == of[:-1])
    last[order[again + 1]] = steps[order[again]]
    return last


def _summed(parts: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    sums: dict[Key, float] = defaultdict(float)
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
    """Return how many sectors some instructions touch, by region.

    A sector that several come to stands for as many as it does for that which lost fewest turns.
    """
    parts, stands_for = [np.zeros(0, np.int64)], [np.zeros(0)]
    for number in (i.number for i in which if i.number in asked):
        every = np.unique(np.concatenate(asked[number]))
        grows = len(every) > len(np.unique(asked[number][0]))
        parts.append(every)
        stands_for.append(np.full(len(every), more[number] if grows else 1.0))
    sectors, times = np.concatenate(parts), np.concatenate(stands_for)
    ordered = np.lexsort((times, sectors))
    sectors, first = np.unique(sectors[ordered], return_index=True)
    numbers = in_regions(regions, sectors)
    sums = np.bincount(numbers + 1, times[ordered][first], len(regions) + 1)[1:]
    by_base = sorted(range(len(regions)), key=lambda n: regions[n].base)
    return {n: float(sums[n]) for n in by_base if sums[n]}
