"""What the L2 cache has of what a grid loads.

CTAs that are resident together walk through their operands in step: what the first to come finds in
the cache, all find there. Where an SM has several, which end one after the other, those that follow begin one after
the other, too, and some come to what another has loaded when the cache has lost it. A cache that replaces at random
keeps, of F bytes that come around again and again, the part h of which h = exp(-(1 - h) F / C) holds, C being its size; pointers chased through more
than the cache of an H100 and a GH200 take as long as that says (markdewing/AI_kernels).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.memory.generation import Generation
from ptxlab.prediction.memory.touched import Touched, loads, stores
from ptxlab.prediction.memory.walk import SPREAD, Walk, accesses, later, regions

_ROUNDS = 60

_OVERLAP = 0.1
"""Where others have loaded so much of what a CTA comes to in later turns of a loop, as rows that stencils share, all turns are asked about."""

APART = 0.25
"""How far apart CTAs begin that follow others, of what it were if they began evenly: assumed. For 03_gemm_shmem of xudoong/GEMM,
of 4096 on A100, Nsight Compute has 831 MB of DRAM; a quarter makes 932 of it, a half 1593, nothing 448."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """``hits`` is the part of the lines that the L2 cache has, by instruction, all where none is named.

    ``begun`` is the same for the CTAs that run first, where it is cold, ``late`` for those that begin one after the other, so that they
    find what others of their generation have loaded. ``loaded`` and ``stored`` are the bytes that a
    launch moves from and to DRAM, in so many ``pieces`` that lie apart.
    """

    hits: Mapping[int, float] = field(default_factory=dict)
    loaded: float = 0.0
    stored: float = 0.0
    begun: Mapping[int, float] | None = None
    pieces: float = 0.0
    late: Mapping[int, float] | None = None

    @property
    def first(self) -> Reuse:
        """What the CTAs that run first find."""
        return self if self.begun is None else replace(self, hits=self.begun)

    @property
    def in_succession(self) -> Reuse:
        """What CTAs find that begin one after the other."""
        return self if self.late is None else replace(self, hits=self.late)


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

    def has_all(self, touched: Touched, there: Touched) -> bool:
        """Say whether a launch finds all bytes that are ``there``, of which CTAs ``touched`` so many, once for each of them.

        What both halves of a cache ask for is in it twice. What is too large is gone when the next launch comes to it in the same order: of an array that is written from
        another A100 and H200 have nothing left that are a tenth larger than L2, A40 and L40 half, and nothing of what is 1.6
        times as large (RRZE-HPC/gpu-benches, gpu-small-kernels).
        """
        asked, loaded, _ = _bytes(touched, there)
        times = min(asked / loaded, self.whole / self.size) if loaded else 1.0
        return not self.cold and there.footprint * times <= self.whole


def kept(footprint: float, size: float) -> float:
    """Return the part of ``footprint`` bytes, asked for in turns, that a cache of ``size`` bytes has."""
    if footprint <= size:
        return 1.0
    hits = 0.0
    for _ in range(_ROUNDS):
        hits = math.exp(-(1 - hits) * footprint / size)
    return hits


def reuse(
    walk: Walk,
    touched: Touched,
    together: int,
    sms: int,
    cache: Cache,
    begun: Mapping[int, float] | None,
) -> Reuse:
    """Work out what a cache has for a grid of which each of the ``sms`` has ``together`` CTAs at a time, that ``walk`` alike.

    ``touched`` is what the whole grid does, once for each CTA; ``begun`` is what those that run first find in a cold
    cache: the part of what an instruction asks for at first that its own CTA had asked for before.
    """
    there = touched.within(walk.launch.regions)
    size = cache.size
    if cache.has_all(touched, there):
        return Reuse()
    _, loaded, stored = _bytes(touched, there)
    resident = together * sms
    generations = int(np.prod(walk.launch.config.grid)) / resident
    first, two = _generations(walk, resident)
    # A loop stands for turns in which another may come to the same: at most it is what each CTA loads.
    at_most = {n: nbytes / max(1.0, generations) for n, nbytes in touched.loaded.items()}
    of_one = {n: min(first.bytes(n), at_most.get(n, math.inf)) for n in first.by_region}
    stored_by_one = stored / generations
    again = kept(sum(of_one.values()) + stored_by_one, size)
    hits = {n: again * first.shared(two, n) for n in first.by_region}
    fresh = sum((1 - hits[n]) * of_one[n] for n in of_one)
    moved = max(loaded, fresh * generations) + lost(touched, there, resident, size)
    of, late = regions(walk), None
    if together > 1 and generations > 1:
        moved += _late(first.followers, fresh + stored_by_one, size) * (generations - 1)
        later_on = {n: 1 - (1 - hits[n]) * of_one[n] / at_most[n] for n in hits if n in at_most}
        late = _by_instruction(walk.code, of, later_on)
    pieces = moved * first.pieces_in_a_byte + stored * first.stored_pieces_in_a_byte
    return Reuse(_by_instruction(walk.code, of, hits), moved, stored, begun, pieces, late)


def _generations(walk: Walk, resident: int) -> tuple[Generation, Generation]:
    """Return what the first CTAs touch of which so many run at a time, and what those behind them load."""
    ctas = int(np.prod(walk.launch.config.grid))

    def from_on(begin: int) -> range:
        return range(begin, min(begin + resident, ctas))

    steps, some = accesses(walk), from_on(0)
    first = Generation(walk, some, steps)
    if not first.by_region:  # who begins first may have nothing to do
        some = from_on(ctas // 2 // resident * resident)
        first = Generation(walk, some, steps)
    middle = some[(len(some) - 1) // 2]
    if _few_turns(walk) and first.part_of(later(walk, middle)) > _OVERLAP:
        walk = replace(walk, loops=())
        steps = accesses(walk)
        first = Generation(walk, some, steps)
    loading = {step: access for step, access in steps.items() if not access.stores}
    return first, Generation(walk, from_on(some.stop), loading)


def _few_turns(walk: Walk) -> bool:
    """Say whether all turns of the only loop can be asked about, of which there are three or more."""
    if len(walk.loops) != 1 or walk.launch.cluster > 1:
        return False
    loop = walk.loops[0].loop
    return 2 < len(loop.runs[0]) == loop.turns <= SPREAD


def _by_instruction(
    code: Sequence[DecodedInstruction], of: Mapping[int, int], hits: Mapping[int, float]
) -> dict[int, float]:
    """Return what the cache has ``of`` the region that an instruction loads from, and nothing where it stores."""
    loaded = {number: hits[region] for number, region in of.items() if region in hits}
    return _nothing_stored(code) | loaded


def _late(followers: Array, others: float, size: float) -> float:
    """Return the bytes of a generation that are loaded again, as a cache of ``size`` bytes has lost them when others come to them.

    ``followers`` [CTAs of a generation] are the bytes that one comes to so many CTAs behind another, and ``others`` those that a
    generation takes into the cache beside what is loaded again.
    """
    behind, late = np.arange(len(followers)) / len(followers), 0.0
    for _ in range(_ROUNDS):
        late = float(followers @ -np.expm1(-APART * behind * (others + late) / size))
    return late


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
    if cache.has_all(touched, there):
        return Reuse()
    every, size = there.footprint, cache.size
    asked, loaded, stored = _bytes(touched, there)
    lacked = _nothing_stored(code)
    if not asked:
        return Reuse(lacked, loaded, stored)
    shared = 1 - loaded / asked
    in_step = min(1.0, resident / launch.ctas)
    later = kept(every * resident / launch.ctas, size)
    hits = (in_step + (1 - in_step) * later) * shared
    moved = (1 - hits) * asked
    moved = max(loaded, moved) + lost(touched, there, resident, size)
    return Reuse(lacked | {i.number: hits for i in code if loads(i)}, moved, stored)


def _nothing_stored(code: Sequence[DecodedInstruction]) -> dict[int, float]:
    """Say of all that stores that a cache which has not all has none of where it does."""
    return {i.number: 0.0 for i in code if stores(i)}
