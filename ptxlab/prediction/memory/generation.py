"""What CTAs touch that run at a time: which sectors, of what kind, and who comes to one that another has loaded.

Of the hottest loop two turns are asked about, of others some; what is loaded in a later turn stands for those that are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.following import interpreter
from ptxlab.prediction.following.trace import SampledLoop
from ptxlab.prediction.memory.sector_map import SectorMap, scattered
from ptxlab.prediction.memory.touched import loads, of_warps, sectors, stores
from ptxlab.prediction.sm.requests import LINE, SECTOR, Request
from ptxlab.prediction.sm.warps import Asked

_THREADS = 1 << 15
"""So many threads are run at a time."""

SPREAD = 32
"""So many turns of the longest of the loops that are not run whole, and the same part of the others, are asked."""

_LOOKED_AT = 8
"""Of so many lines of the hottest loop one is looked at, by whom it is loaded."""

_PAGE = 2048
"""Bytes of DRAM that lie together: JEDEC JESD250, GDDR6."""

_HOTTEST, _LEFT_OUT = 1, 255
"""Numbers of loops: the hottest, and what is asked of none."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a CTA of a ``launch`` does: the steps that a warp ``issued`` which stands for it, the ``numbers`` of all steps' instructions.

    ``loops`` are those it loses turns of, and ``more`` turns that were not followed, as ``IssueOrder`` has them.
    """

    code: Sequence[DecodedInstruction]
    launch: Launch
    issued: Array
    numbers: Array
    loops: Sequence[SampledLoop]
    more: Mapping[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Access:
    """A step that loads, or stores: its instruction, and the loop it is a later turn of, by number from 1 on, or 0."""

    number: int
    loop: int
    stores: bool


def accesses(walk: Walk) -> dict[int, Access]:
    """Return what loads or stores until the end of the hottest loop's second turn, of other loops some turns."""
    code, issued, numbers, loops = walk.code, walk.issued, walk.numbers, walk.loops
    of_loop, end = np.zeros(len(issued), np.uint8), len(issued)
    for n, sampled in enumerate(loops, 1):
        for run in sampled.loop.runs:
            for first, last in run[1:]:
                of_loop[first:last] = n
            for first, last in run[_spread(run, loops) :] if n > 1 else ():
                of_loop[first:last] = _LEFT_OUT
    if loops and len(loops[0].loop.runs[0]) > 1:
        end = loops[0].loop.runs[0][1][1]
    every = zip(issued[:end].tolist(), of_loop[:end].tolist(), strict=True)
    return {
        step: Access(int(numbers[step]), loop, not loads(code[numbers[step]]))
        for step, loop in every
        if loop != _LEFT_OUT and (loads(code[numbers[step]]) or stores(code[numbers[step]]))
    }


def _spread(run: Sequence[tuple[int, int]], loops: Sequence[SampledLoop]) -> int:
    """Return how many turns of a run are asked: all loops that walk the same rows see the same part of these."""
    longest = max(len(run) for sampled in loops[1:] for run in sampled.loop.runs)
    return max(2, -(-len(run) * min(SPREAD, longest) // longest))


def turns_for_one(loops: Sequence[SampledLoop]) -> list[float]:
    """Return for how many turns a later one stands that was asked for, by number of loop as ``Access`` has them."""
    others = (
        (sampled.loop.turns - len(sampled.loop.runs))
        / (sum(min(len(run), _spread(run, loops)) - 1 for run in sampled.loop.runs) or 1)
        for sampled in loops[1:]
    )
    return [1, *(sampled.loop.turns_of(0) - 1 for sampled in loops[:1]), *others]


def _pieces_in_a_byte(maps: Iterable[tuple[SectorMap, Sequence[float]]]) -> float:
    """Return in how many pieces a byte lies, more than pages; what is of each kind counts for so many turns."""
    pieces = nbytes = 0.0
    for region, turns in maps:
        for kind, each in enumerate(turns):
            pieces += region.pieces(kind) * each
            nbytes += region.count(kind) * SECTOR * each
    return max(0.0, pieces / nbytes - 1 / _PAGE) if nbytes else 0.0


class Generation:
    """The sectors that CTAs load, and store, at some ``steps`` of a walk, by region, and which loop was the first to come to each.

    What a later turn of a loop loads counts for the turns that it stands for.
    """

    def __init__(self, walk: Walk, ctas: Sequence[int], steps: Mapping[int, Access]) -> None:
        launch, self._steps, self._turns = walk.launch, steps, turns_for_one(walk.loops)
        self._regions = sorted(enumerate(launch.regions), key=lambda entry: entry[1].base)
        self._bases = np.array([region.base // SECTOR for _, region in self._regions])
        self.by_region: dict[int, SectorMap] = {}
        self._stored: dict[int, SectorMap] = {}
        self.region_of: dict[int, int] = {}
        self._comers: dict[int, list[Array]] = defaultdict(list)
        """Of some of the sectors of the hottest loop's second turn who comes to them, by region: the sector's number and the CTA's."""
        self._warps, self._begun = launch.warps, 0
        piece = max(1, _THREADS // launch.threads)
        chosen = [cta for cta in ctas if cta % launch.cluster == 0]
        asked, self._ctas = np.array(list(steps), int), len(chosen)
        for self._begun in range(0, len(chosen), piece):
            some = chosen[self._begun : self._begun + piece]
            interpreter.requests(walk.code, launch, some, asked, self._touch, walk.more)

    def _touch(self, step: int, request: Request | Asked) -> None:
        every = sectors(request)
        if not len(every):
            return
        access = self._steps[step]
        by_region = self._stored if access.stores else self.by_region
        first, last = np.searchsorted(self._bases, (every.min(), every.max()), "right") - 1
        if not access.stores:
            self.region_of[access.number] = self._regions[first][0]
        for at in range(first, last + 1):
            number, region = self._regions[at]
            if number not in by_region:
                by_region[number] = SectorMap(region.base, region.nbytes)
            inside: Array | slice = slice(None)
            if first != last:
                inside = np.searchsorted(self._bases, every, "right") - 1 == at
            by_region[number].add(every[inside], access.loop)
            if access.loop == _HOTTEST and not access.stores:
                self._came(
                    number, every[inside], self._begun + of_warps(request)[inside] // self._warps
                )

    def _came(self, region: int, every: Array, ctas: Array) -> None:
        """Note which CTAs come to some sectors."""
        chosen = scattered(every // (LINE // SECTOR), _LOOKED_AT) == 0
        self._comers[region].append(np.stack([every[chosen], ctas[chosen]]))

    @property
    def followers(self) -> Array:
        """Return how many bytes of the hottest loop are come to by a CTA that is so many [CTAs] behind the last that came."""
        followers = np.zeros(self._ctas)
        for region, comers in self._comers.items():
            sectors, ctas = np.unique(np.concatenate(comers, axis=1), axis=1)
            follows = sectors[1:] == sectors[:-1]
            loaded = self.by_region[region].count(_HOTTEST) * SECTOR * self._turns[_HOTTEST]
            each = loaded / (1 + int(np.count_nonzero(~follows)))
            followers += each * np.bincount(np.diff(ctas)[follows], minlength=self._ctas)
        return followers

    def bytes(self, region: int) -> float:
        """Return how many bytes are loaded."""
        loaded = self.by_region[region]
        return SECTOR * sum(loaded.count(n) * each for n, each in enumerate(self._turns))

    @property
    def pieces_in_a_byte(self) -> float:
        """Return in how many pieces a byte lies that is loaded, more than pages: what is asked for in one turn lies together."""
        return _pieces_in_a_byte((loaded, self._turns) for loaded in self.by_region.values())

    @property
    def stored_pieces_in_a_byte(self) -> float:
        """Return the same of what is stored, but in loops."""
        return _pieces_in_a_byte((stored, (1,)) for stored in self._stored.values())

    def shared(self, later: Generation, region: int) -> float:
        """Return the part of what others load later that was loaded here, the hottest loop's second turn apart."""
        theirs = later.by_region.get(region)
        return self.by_region[region].shared(theirs, but=_HOTTEST) if theirs else 0.0
