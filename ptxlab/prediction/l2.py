"""What the L2 cache has of what a grid loads.

CTAs that are resident together walk through their operands in step: what the first to come finds in
the cache, all find there. A cache that replaces at random keeps, of F bytes that come around again and
again, the part h of which h = exp(-(1 - h) F / C) holds, C being its size; pointers chased through more
than the cache of an H100 and a GH200 take as long as that says (markdewing/AI_kernels).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction import interpreter
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.requests import SECTOR, Request
from ptxlab.prediction.sector_map import SectorMap
from ptxlab.prediction.touched import Touched, loads, sectors, stores
from ptxlab.prediction.trace import SampledLoop
from ptxlab.prediction.warps import Asked

_THREADS = 1 << 15
"""So many threads are run at a time."""
_ROUNDS = 60


SPREAD = 32
"""So many turns of the longest of the loops that are not run whole, and the same part of the others, are asked."""

_PAGE = 2048
"""Bytes of DRAM that lie together: JEDEC JESD250, GDDR6."""

_HOTTEST, _LEFT_OUT = 1, 255
"""Numbers of loops: the hottest, and what is asked of none."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """``hits`` is the part of the lines that the L2 cache has, by instruction, all where none is named.

    ``begun`` is the same for the CTAs that run first, where it is cold. ``loaded`` and ``stored`` are the bytes that a
    launch moves from and to DRAM, in so many ``pieces`` that lie apart.
    """

    hits: Mapping[int, float] = field(default_factory=dict)
    loaded: float = 0.0
    stored: float = 0.0
    begun: Mapping[int, float] | None = None
    pieces: float = 0.0

    @property
    def first(self) -> Reuse:
        """What the CTAs that run first find."""
        return self if self.begun is None else replace(self, hits=self.begun)


@dataclass(frozen=True, slots=True)
class Cache:
    """An L2 cache of ``whole`` bytes, which keeps ``size`` bytes of what SMs of all its parts ask for.

    A ``cold`` one has nothing when a launch begins.
    """

    size: float
    whole: float
    cold: bool = False

    @classmethod
    def of(cls, chip: Chip) -> Cache:
        """Return the L2 cache of a chip."""
        return cls(chip.l2_bytes, chip.gpu.l2_mib * (1 << 20), chip.cold)

    def has_all(self, footprint: float, times: float) -> bool:
        """Say whether a launch finds all bytes that it touches, which each CTA asks for that is one of ``times``.

        What is too large is gone when the next launch comes to it in the same order: of an array that is written from
        another A100 and H200 have nothing left that are a tenth larger than L2, A40 and L40 half, and nothing of what is 1.6
        times as large (RRZE-HPC/gpu-benches, gpu-small-kernels).
        """
        return not self.cold and footprint * min(times, self.whole / self.size) <= self.whole


def kept(footprint: float, size: float) -> float:
    """Return the part of ``footprint`` bytes, asked for in turns, that a cache of ``size`` bytes has."""
    if footprint <= size:
        return 1.0
    hits = 0.0
    for _ in range(_ROUNDS):
        hits = math.exp(-(1 - hits) * footprint / size)
    return hits


def reuse(
    code: Sequence[DecodedInstruction],
    launch: Launch,
    touched: Touched,
    issued: Array,
    numbers: Array,
    loops: Sequence[SampledLoop],
    resident: int,
    cache: Cache,
    more: Mapping[tuple[int, int], int],
    begun: Mapping[int, float] | None,
) -> Reuse:
    """Work out what a cache has for a grid of which ``resident`` CTAs run at a time.

    ``touched`` is what the whole grid does, once for each CTA; ``issued`` are the steps of a warp, ``numbers`` their instructions;
    ``loops`` those it loses turns of, ``more`` turns that were not followed, as ``IssueOrder`` has them; ``begun`` is
    what those that run first find in a cold cache: the part of what an instruction asks for at first that its own CTA had asked for before.
    """
    there = touched.within(launch.regions)
    size = cache.size
    asked, loaded, stored = _bytes(touched, there)
    if cache.has_all(there.footprint, asked / (loaded or 1)):
        return Reuse()
    steps = _accesses(code, issued, numbers, loops)
    loading = {step: access for step, access in steps.items() if not access.stores}
    ctas = int(np.prod(launch.config.grid))
    first, two = (
        _Touched(code, launch, range(n * resident, min((n + 1) * resident, ctas)), asked_for, more)
        for n, asked_for in enumerate((steps, loading))
    )
    turns = _turns_for_one(loops)
    together = {n: first.bytes(n, turns) for n in first.by_region}
    again = kept(sum(together.values()) + stored * resident / ctas, size)
    hits = {n: again * first.shared(two, n) for n in first.by_region}
    moved = sum((1 - hits[n]) * together[n] for n in together) * ctas / resident
    moved = max(loaded, moved) + lost(touched, there, resident, size)
    pieces = moved * first.pieces_in_a_byte(turns) + stored * first.stored_pieces_in_a_byte
    return Reuse(
        {number: hits[n] for number, n in first.region_of.items()}, moved, stored, begun, pieces
    )


def _bytes(touched: Touched, there: Touched) -> tuple[float, float, float]:
    """Return the bytes that are loaded once for each CTA that asks for them, those that are loaded, and those that are stored."""
    asked, loaded = (sum(each.loaded.values()) for each in (touched, there))
    return asked, loaded, sum(there.stored.values())


def lost(touched: Touched, there: Touched, resident: int, size: float) -> float:
    """Return the bytes that CTAs come to again when a cache of ``size`` bytes has them no longer.

    ``touched`` has what several touch once for each of them, ``there`` but once; ``resident`` CTAs run at a time.
    """
    asked, loaded, _ = _bytes(touched, there)
    if not asked:
        return 0.0
    apart = loaded / asked
    return sum(
        (1 - kept(distance * resident * apart, size)) * nbytes * apart
        for distance, nbytes in touched.again.items()
    )


def reuse_of_uneven(
    code: Sequence[DecodedInstruction],
    launch: Launch,
    touched: Touched,
    resident: int,
    cache: Cache,
) -> Reuse:
    """Work out the same for CTAs that differ: each is as likely to come to what another ``touched`` as any.

    ``touched`` has what several touch once for each of them. Those that run at a time come there in step.
    """
    there = touched.within(launch.regions)
    every, size = there.footprint, cache.size
    asked, loaded, stored = _bytes(touched, there)
    if cache.has_all(every, asked / (loaded or 1)):
        return Reuse()
    if not asked:
        return Reuse({}, loaded, stored)
    shared = 1 - loaded / asked
    in_step = min(1.0, resident / launch.ctas)
    later = kept(every * resident / launch.ctas, size)
    hits = (in_step + (1 - in_step) * later) * shared
    moved = (1 - hits) * asked
    moved = max(loaded, moved) + lost(touched, there, resident, size)
    return Reuse({i.number: hits for i in code if loads(i)}, moved, stored)


@dataclass(frozen=True, slots=True)
class _Access:
    """A step that loads, or stores: its instruction, and the loop it is a later turn of, by number from 1 on, or 0."""

    number: int
    loop: int
    stores: bool


def _accesses(
    code: Sequence[DecodedInstruction],
    issued: Array,
    numbers: Array,
    loops: Sequence[SampledLoop],
) -> dict[int, _Access]:
    """Return what loads or stores until the end of the hottest loop's second turn, of other loops some turns."""
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
        step: _Access(int(numbers[step]), loop, not loads(code[numbers[step]]))
        for step, loop in every
        if loop != _LEFT_OUT and (loads(code[numbers[step]]) or stores(code[numbers[step]]))
    }


def _spread(run: Sequence[tuple[int, int]], loops: Sequence[SampledLoop]) -> int:
    """Return how many turns of a run are asked: all loops that walk the same rows see the same part of these."""
    longest = max(len(run) for sampled in loops[1:] for run in sampled.loop.runs)
    return max(2, -(-len(run) * min(SPREAD, longest) // longest))


def _turns_for_one(loops: Sequence[SampledLoop]) -> list[float]:
    """Return for how many turns a later one stands that was asked for, by number of loop as ``_Access`` has them."""
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


class _Touched:
    """The sectors that CTAs load, and store, at some ``steps``, by region, and which loop was the first to come to each."""

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        launch: Launch,
        ctas: Sequence[int],
        steps: Mapping[int, _Access],
        more: Mapping[tuple[int, int], int],
    ) -> None:
        self._steps = steps
        self._regions = sorted(enumerate(launch.regions), key=lambda entry: entry[1].base)
        self._bases = np.array([region.base // SECTOR for _, region in self._regions])
        self.by_region: dict[int, SectorMap] = {}
        self._stored: dict[int, SectorMap] = {}
        self.region_of: dict[int, int] = {}
        piece = max(1, _THREADS // launch.threads)
        chosen = [cta for cta in ctas if cta % launch.cluster == 0]
        asked = np.array(list(steps), int)
        for begin in range(0, len(chosen), piece):
            some = chosen[begin : begin + piece]
            interpreter.requests(code, launch, some, asked, self._touch, more)

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
            inside = every
            if first != last:
                inside = every[np.searchsorted(self._bases, every, "right") - 1 == at]
            by_region[number].add(inside, access.loop)

    def bytes(self, region: int, turns: Sequence[float]) -> float:
        """Return how many bytes are loaded; what a later turn of a loop loads counts for so many ``turns``."""
        loaded = self.by_region[region]
        return SECTOR * sum(loaded.count(n) * each for n, each in enumerate(turns))

    def pieces_in_a_byte(self, turns: Sequence[float]) -> float:
        """Return in how many pieces a byte lies that is loaded, more than pages: what is asked for in one turn lies together."""
        return _pieces_in_a_byte((loaded, turns) for loaded in self.by_region.values())

    @property
    def stored_pieces_in_a_byte(self) -> float:
        """Return the same of what is stored, but in loops."""
        return _pieces_in_a_byte((stored, (1,)) for stored in self._stored.values())

    def shared(self, later: _Touched, region: int) -> float:
        """Return the part of what others load later that was loaded here, the hottest loop's second turn apart."""
        theirs = later.by_region.get(region)
        return self.by_region[region].shared(theirs, but=_HOTTEST) if theirs else 0.0
