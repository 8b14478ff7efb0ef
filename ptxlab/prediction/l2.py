"""What the L2 cache has of what a grid loads.

CTAs that are resident together walk through their operands in step: what the first to come finds in
the cache, all find there. A cache that replaces at random keeps, of F bytes that come around again and
again, the part h of which h = exp(-(1 - h) F / C) holds, C being its size; pointers chased through more
than the cache of an H100 and a GH200 take as long as that says (markdewing/AI_kernels).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ptxlab.prediction import machine
from ptxlab.prediction.asynchronous import Asked
from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.pipes import OPCODES, REDUCTIONS, is_bulk_store
from ptxlab.prediction.requests import SECTOR, Request
from ptxlab.prediction.tma import Copy
from ptxlab.prediction.trace import Loop
from ptxlab.prediction.values import Array

_THREADS = 1 << 15
"""So many threads are run at a time."""
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Reuse:
    """``hits`` is the part of the lines that the L2 cache has, by instruction, all where none is named.

    ``nbytes`` are those that a launch moves from and to DRAM.
    """

    hits: dict[int, float] = field(default_factory=dict)
    nbytes: float = 0.0


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
    issued: Array,
    numbers: Array,
    loop: Loop | None,
    resident: int,
    size: float,
) -> Reuse:
    """Work out what a cache of ``size`` bytes has for a grid of which ``resident`` CTAs run at a time.

    ``issued`` are the steps of a warp, ``numbers`` their instructions.
    """
    every = float(sum(region.nbytes for region in launch.regions))
    if every <= size:
        return Reuse({}, every)
    first, both = _turns(loop, len(issued))
    steps = issued[:both].tolist()
    asked = {step: int(numbers[step]) for step in steps if _loads(code[numbers[step]])}
    limit = int(issued[first - 1])
    ctas = int(np.prod(launch.config.grid))
    one, two = (
        _Touched(code, launch, range(n * resident, min((n + 1) * resident, ctas)), asked, limit)
        for n in (0, 1)
    )
    loaded = sum(launch.regions[n].nbytes for n in one.by_region)
    turns = 1 if loop is None else len(loop.runs[0])
    touched = {n: one.bytes(n, turns) for n in one.by_region}
    stored = (every - loaded) * resident / ctas
    again, once = kept(sum(touched.values()) + stored, size), kept(every, size)
    hits = {n: once + (again - once) * one.shared(two, n) for n in one.by_region}
    moved = sum((1 - hits[n]) * touched[n] for n in touched) * ctas / resident
    return Reuse(
        {number: hits[n] for number, n in one.region_of.items()}, max(every, moved + every - loaded)
    )


def _turns(loop: Loop | None, steps: int) -> tuple[int, int]:
    """Return where the first and the second turn of the loop end."""
    if loop is None or len(loop.runs[0]) < 2:
        return steps, steps
    (_, first), (_, second) = loop.runs[0][:2]
    return first, second


def _loads(i: DecodedInstruction) -> bool:
    row = OPCODES.get(i.sass.opcode)
    stores = i.sass.opcode in ("ST", "STG", "UTMASTG", *REDUCTIONS) or is_bulk_store(i)
    return row is not None and row.memory in ("global", "copy", "tensor map") and not stores


def _sectors(request: Request | Asked) -> Iterable[tuple[int, ...]]:
    if isinstance(request, Request):
        return request.sectors
    return (one.sectors for of_warp in request for one in of_warp if isinstance(one, Copy))


class _Touched:
    """The sectors that CTAs load until step ``limit``, and in the turn behind it, by region.

    ``asked`` are the steps that load, and their instructions.
    """

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        launch: Launch,
        ctas: Sequence[int],
        asked: Mapping[int, int],
        limit: int,
    ) -> None:
        self.by_region: dict[int, tuple[set[int], set[int]]] = {}
        self.region_of: dict[int, int] = {}
        ends = np.array([(r.base + r.nbytes) // SECTOR for r in launch.regions])
        order = np.argsort(ends)
        piece = max(1, _THREADS // launch.threads)
        chosen = [one for one in ctas if one % launch.cluster == 0]
        for begin in range(0, len(chosen), piece):
            part = chosen[begin : begin + piece]
            found = machine.requests(code, launch, part, np.array(list(asked), int))
            for step, request in found.items():
                sectors = np.unique(np.fromiter(chain.from_iterable(_sectors(request)), np.int64))
                if not len(sectors):
                    continue
                region = int(order[np.searchsorted(ends[order], sectors[0], "right")])
                self.region_of[asked[step]] = region
                sets = self.by_region.setdefault(region, (set(), set()))
                sets[step > limit].update(sectors.tolist())

    def bytes(self, region: int, turns: int) -> int:
        first, second = self.by_region[region]
        return SECTOR * (len(first) + len(second - first) * (turns - 1))

    def shared(self, later: _Touched, region: int) -> float:
        """Return the part of what others load later that was loaded here."""
        first, _ = self.by_region[region]
        theirs, _ = later.by_region.get(region, (set(), set()))
        return len(first & theirs) / len(theirs) if theirs else 0.0
