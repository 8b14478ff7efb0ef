"""Barriers that complete although not all threads they are for have come to them.

PTX ISA, "bar, barrier": an aligned barrier is one that all threads of a warp execute together, and a
barrier without a number of threads is for all those of the CTA. A barrier that threads are missing from
completes when they end ("exit"), and what a GPU does with the rest of the warp is undefined.
What Compute Sanitizer's synccheck calls divergent threads in a warp is an error here, in a block a warning.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.threads import Threads
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_context import CheckContext, Wording
from ptxlab.syntax.tree import Instruction

_NOWHERE = -1


class BarrierUse:
    """Follows at which barrier each thread of a wave has arrived."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._at: Array = np.full(context.wave.width, _NOWHERE)

    def arrive(self, site: Site, threads: Threads) -> None:
        self._at[threads.mask] = self._context.number(site)

    def counted(self, waited: Array) -> bool:
        """Say whether the barrier that these have ``waited`` at is for a number of threads."""
        at = self._at[waited][:1]
        return not at.size or counts_threads(self._context.numbered(int(at[0])).instruction)

    def synchronize(self, arrived: Array, waited: Array) -> None:
        """See a barrier complete in the CTAs that threads have ``arrived`` in, and ``waited``."""
        wave = self._context.wave
        ctas: Array = np.logical_or.reduce(arrived.reshape(wave.ctas, -1), axis=1)
        here = ctas[wave.cta_of]
        numbers = np.where(waited, self._at, _NOWHERE)
        at = numbers[waited]
        if (at == at[:1]).all() and not (here & wave.alive.mask & ~arrived).any():
            return
        for warp in np.flatnonzero((numbers.reshape(-1, WARP) != _NOWHERE).any(axis=1)):
            self._within_warp(arrived, numbers, int(warp) * WARP)
        for cta in np.flatnonzero(ctas):
            self._within_cta(arrived, numbers, int(cta) * wave.cta_width)

    def _within_warp(self, arrived: Array, numbers: Array, start: int) -> None:
        """Report threads that are missing from an aligned barrier, or at another instruction."""
        context, inside = self._context, slice(start, start + WARP)
        at = numbers[inside]
        site = context.numbered(int(at.max()))
        if not _aligned(site.instruction):
            return
        waited = at != _NOWHERE
        first = start + int(waited.argmax())
        missing = np.flatnonzero(context.wave.alive.mask[inside] & ~arrived[inside])
        elsewhere = np.flatnonzero(waited & (at != at.max()))
        if missing.size:
            self._find_absent("warp", start + missing, site, first)
        elif elsewhere.size:
            other = context.numbered(int(at[elsewhere[0]]))
            self._find_apart("warp", elsewhere.size, site, other, first)

    def _within_cta(self, arrived: Array, numbers: Array, start: int) -> None:
        """Report warps that are missing from a barrier of the whole CTA, or at another instruction."""
        wave, context = self._context.wave, self._context
        inside = slice(start, start + wave.cta_width)
        by_warp = numbers[inside].reshape(-1, WARP).max(axis=1)
        places = np.unique(by_warp[by_warp != _NOWHERE])
        site = context.numbered(int(places[-1])) if places.size else None
        if site is None or counts_threads(site.instruction):
            return
        first = start + int(arrived[inside].argmax())
        absent = np.repeat(~arrived[inside].reshape(-1, WARP).any(axis=1), WARP)
        missing = np.flatnonzero(wave.alive.mask[inside] & absent)
        if missing.size:
            self._find_absent("CTA", start + missing, site, first)
        if places.size > 1 and _aligned(site.instruction):
            elsewhere = WARP * int((by_warp == places[0]).sum())
            self._find_apart("CTA", elsewhere, site, context.numbered(int(places[0])), first)

    def _find_absent(self, group: str, missing: Array, site: Site, first: int) -> None:
        absent = self._context.thread(missing[0])
        what = f"of which {absent} has ended without coming to this barrier"
        hint = (
            "every thread of the CTA is to execute the barrier: take it out of the condition, or "
            "let threads that have no work stay"
        )
        self._find("absent from", group, missing.size, (what, hint), site, None, first)

    def _find_apart(self, group: str, count: int, site: Site, other: Site, first: int) -> None:
        what = "which comes to the barrier at two instructions"
        hint = "PTX allows it; __syncthreads() is to be reached by all threads of a CTA alike"
        if group == "warp":
            hint = "all threads of a warp must execute the same bar.sync; barrier.sync may differ"
        self._find("apart in", group, count, (what, hint), site, other, first)

    def _find(
        self,
        rule: str,
        group: str,
        count: int,
        words: Wording,
        site: Site,
        other: Site | None,
        by: int,
    ) -> None:
        """Note a barrier at ``site`` where thread ``by`` waits for its ``group``, a warp or CTA."""
        whom = "its warp" if group == "warp" else self._context.cta(by)
        told = f"{self._context.thread(by)} waits for {whom}, {words[0]}", words[1]
        severity, rule = "error" if group == "warp" else "warning", f"{rule} {group}"
        self._context.find("barrier", severity, rule, count, told, other, site, "threads")


_TURNS = 4
"""More than lanes of a warp can be apart: arrival and wait of a phase, and those of the next."""


class WarpsTogether:
    """Follows whether the lanes of a warp come to an .aligned barrier of their cluster at one instruction.

    They need not come at one time: a lane that waits for a copy comes later, and a GPU lets the others wait for it.
    Each lane's arrivals and waits are counted, and held against those of the lane that was first.
    """

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._turns: Array = np.zeros(context.wave.width, np.int64)
        self._first: Array = np.zeros(context.wave.warps, np.int64)
        self._at: Array = np.full((context.wave.warps, _TURNS), _NOWHERE)

    def come(self, site: Site, threads: Threads) -> None:
        """See threads come to an instruction of such a barrier."""
        number, warps = self._context.number(site), threads.index // WARP
        turns = self._turns[threads.index]
        self._turns[threads.index] += 1
        new = turns >= self._first[warps]
        self._at[warps[new], turns[new] % _TURNS] = number
        self._first[warps[new]] = turns[new] + 1
        self._compare(threads.index, turns, number)

    def ended(self, threads: Threads) -> None:
        """See threads end: what the first of their warp has come to they never come to."""
        turns = self._turns[threads.index]
        behind = turns < self._first[threads.index // WARP]
        if behind.any():
            self._compare(threads.index[behind], turns[behind], _NOWHERE)

    def _compare(self, index: Array, turns: Array, number: int) -> None:
        """Report threads at another instruction than their warp, or at none, if it is for the whole warp."""
        at = self._at[index // WARP, turns % _TURNS]
        for other in np.unique(at[at != number]):
            sites = [self._context.numbered(int(n)) for n in (number, other) if n != _NOWHERE]
            aligned = [site for site in sites if _aligned(site.instruction)]
            if aligned:
                self._find(index[at == other], aligned[0], sites[-1])

    def _find(self, apart: Array, site: Site, other: Site) -> None:
        who, name = self._context.thread(int(apart[0])), site.instruction.name
        message = f"{who} is not with the rest of its warp at {name}"
        hint = "all threads of a warp execute an .aligned barrier together; leave out .aligned"
        also = None if other is site else other
        words = message, hint
        self._context.find(
            "barrier", "error", "divergent", apart.size, words, also, site, "threads"
        )


def counts_threads(instruction: Instruction) -> bool:
    return len(instruction.operands) > (3 if effects_of(instruction).meets == "red" else 1)


def _aligned(instruction: Instruction) -> bool:
    return bool(effects_of(instruction).aligned)
