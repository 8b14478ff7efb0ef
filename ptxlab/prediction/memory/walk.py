"""What of a CTA's walk is asked about: which steps load or store, of loops how many turns, and which come to nothing new.

Of the hottest loop two turns are asked about, of others some; what is loaded in a later turn stands for those that are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.following import interpreter
from ptxlab.prediction.following.trace import SampledLoop
from ptxlab.prediction.memory.touched import in_regions, loads, of_warps, sectors, stores
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked

SPREAD = 32
"""So many turns of the longest of the loops that are not run whole, and the same part of the others, are asked."""

HOTTEST, _LEFT_OUT = 1, 255
"""Numbers of loops: the hottest, and what is asked of none."""

_MOST_CTAS = 64
"""No SM has so many CTAs."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a CTA of a ``launch`` does: the steps that a warp ``issued`` which stands for it, the ``numbers`` of all steps' instructions.

    ``loops`` are those it loses turns of, and ``more`` turns that were not followed, as ``IssueOrder`` has them. ``requests`` are
    what CTAs ask for that were followed, at some of the steps.
    """

    code: Sequence[DecodedInstruction]
    launch: Launch
    issued: Array
    numbers: Array
    loops: Sequence[SampledLoop]
    more: Mapping[tuple[int, int], int]
    requests: Mapping[int, Request | Asked]


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
    asked = {
        step: Access(int(numbers[step]), loop, not loads(code[numbers[step]]))
        for step, loop in every
        if loop != _LEFT_OUT and (loads(code[numbers[step]]) or stores(code[numbers[step]]))
    }
    again = _coming_again(walk, asked)
    return {step: access for step, access in asked.items() if step not in again}


def later(walk: Walk, cta: int) -> Array:
    """Return the sectors that a CTA loads in turns of the hottest loop behind the second and had not asked for before."""
    end = int(walk.issued[walk.loops[0].loop.runs[0][1][1] - 1])
    steps = [s for s, each in accesses(replace(walk, loops=())).items() if not each.stores]
    asked: dict[int, Array] = {}

    def told(step: int, request: Request | Asked) -> None:
        asked[step] = sectors(request)

    interpreter.requests(walk.code, walk.launch, [cta], np.array(steps, int), told, walk.more)
    none = np.zeros(0, np.int64)
    before, behind = (
        np.concatenate([none, *(every for step, every in asked.items() if (step > end) == late)])
        for late in (False, True)
    )
    return np.setdiff1d(behind, before)


def _coming_again(walk: Walk, asked: Mapping[int, Access]) -> set[int]:
    """Return the steps that come to nothing where earlier ones of the same loop have not been, as most of an unrolled stencil."""
    kinds: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for step, access in asked.items():
        if step in walk.requests:
            kinds[access.loop, access.stores].append(step)
    again: set[int] = set()
    for steps in kinds.values():
        places = [_places(walk.requests[step], walk.launch.warps) for step in steps]
        _, first = np.unique(np.concatenate(places), return_index=True)
        of_step = np.repeat(steps, [len(each) for each in places])
        again |= set(steps) - set(of_step[first].tolist())
    return again


def regions(walk: Walk) -> dict[int, int]:
    """Return the region that each instruction loads from first, by the instruction's number."""
    known: dict[int, int] = {}
    for step, request in walk.requests.items():
        number = int(walk.numbers[step])
        every = sectors(request) if number not in known and loads(walk.code[number]) else ()
        if len(every):
            known[number] = int(in_regions(walk.launch.regions, min(every)))
    return known


def _places(request: Request | Asked, warps: int) -> Array:
    """Return a number for each sector that a CTA of so many warps comes to."""
    places: Array = sectors(request) * _MOST_CTAS + of_warps(request) // warps
    return places


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
