"""What CTAs touch that run at a time: which sectors, of what kind, and who comes to one that another has loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.values import Array
from ptxlab.prediction.following import interpreter
from ptxlab.prediction.memory.sector_map import SectorMap, scattered
from ptxlab.prediction.memory.touched import in_regions, of_warps, sectors
from ptxlab.prediction.memory.walk import HOTTEST, Access, Walk, turns_for_one
from ptxlab.prediction.sm.requests import LINE, SECTOR, Request
from ptxlab.prediction.sm.warps import Asked

_THREADS = 1 << 15
"""So many threads are run at a time."""

_LOOKED_AT = 8
"""Of so many lines of the hottest loop one is looked at, by whom it is loaded."""

_PAGE = 2048
"""Bytes of DRAM that lie together: JEDEC JESD250, GDDR6."""

_PAIR = 2
"""Sectors that L2 asks for where it lacks one: taken so, as six products of carsonpo/octomul on A40 want it."""

_PREFETCH = {"LTC128B": 4, "LTC256B": 8}
"""The same by an instruction's prefetch size: PTX ISA, ld, .level::prefetch_size."""


def _pieces_in_a_byte(maps: Iterable[tuple[SectorMap, Sequence[float], int]]) -> float:
    """Return in how many pieces a byte lies, more than pages; what is of each kind counts for so many turns, and so many sectors are fetched together."""
    pieces = nbytes = 0.0
    for region, turns, fetched in maps:
        for kind, each in enumerate(turns):
            pieces += region.pieces(kind, fetched) * each
            nbytes += region.count(kind) * SECTOR * each
    return max(0.0, pieces / nbytes - 1 / _PAGE) if nbytes else 0.0


def fetched_together(i: DecodedInstruction) -> int:
    """Return how many sectors DRAM gives where L2 lacks one: a prefetch size of an instruction says more."""
    return next((n for name, n in _PREFETCH.items() if i.has(name)), _PAIR)


class Generation:
    """The sectors that CTAs load, and store, at some ``steps`` of a walk, by region, and which loop was the first to come to each.

    What a later turn of a loop loads counts for the turns that it stands for.
    """

    def __init__(self, walk: Walk, ctas: Sequence[int], steps: Mapping[int, Access]) -> None:
        self._launch = launch = walk.launch
        self._steps, self._turns = steps, turns_for_one(walk.loops)
        self._regions = sorted(enumerate(launch.regions), key=lambda entry: entry[1].base)
        self._bases = np.array([region.base // SECTOR for _, region in self._regions])
        self.by_region: dict[int, SectorMap] = {}
        self._stored: dict[int, SectorMap] = {}
        self._code, self._fetched = walk.code, defaultdict[int, int](int)
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
        fetched = fetched_together(self._code[access.number])
        for at in range(first, last + 1):
            number, region = self._regions[at]
            self._fetched[number] = max(self._fetched[number], fetched)
            if number not in by_region:
                by_region[number] = SectorMap(region.base, region.nbytes)
            inside: Array | slice = slice(None)
            if first != last:
                inside = np.searchsorted(self._bases, every, "right") - 1 == at
            by_region[number].add(every[inside], access.loop)
            if access.loop == HOTTEST and not access.stores:
                self._came(
                    number, every[inside], self._begun + of_warps(request)[inside] // self._warps
                )

    def _came(self, region: int, every: Array, ctas: Array) -> None:
        """Note which CTAs come to some sectors."""
        chosen = scattered(every // (LINE // SECTOR), _LOOKED_AT) == 0
        self._comers[region].append(np.stack([every[chosen], ctas[chosen]]))

    def part_of(self, every: Array) -> float:
        """Return the part of some sectors that is loaded."""
        at = in_regions(self._launch.regions, every)
        known = (loaded.known(every[at == n]) for n, loaded in self.by_region.items())
        return sum(known) / max(1, len(every))

    @property
    def followers(self) -> Array:
        """Return how many bytes of the hottest loop are come to by a CTA that is so many [CTAs] behind the last that came."""
        followers = np.zeros(self._ctas)
        for region, comers in self._comers.items():
            sectors, ctas = np.unique(np.concatenate(comers, axis=1), axis=1)
            follows = sectors[1:] == sectors[:-1]
            loaded = self.by_region[region].count(HOTTEST) * SECTOR * self._turns[HOTTEST]
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
        return _pieces_in_a_byte(
            (loaded, self._turns, self._fetched[number])
            for number, loaded in self.by_region.items()
        )

    @property
    def stored_pieces_in_a_byte(self) -> float:
        """Return the same of what is stored, but in loops."""
        return _pieces_in_a_byte((stored, (1,), 1) for stored in self._stored.values())

    def shared(self, later: Generation, region: int) -> float:
        """Return the part of what others load later that was loaded here, the hottest loop's second turn apart."""
        theirs = later.by_region.get(region)
        return self.by_region[region].shared(theirs, but=HOTTEST) if theirs else 0.0
