"""Barriers that complete although not all threads they are for have come to them.

PTX ISA, "bar, barrier": an aligned barrier is one that all threads of a warp execute together, and a
barrier without a number of threads is for all those of the CTA. A barrier that threads are missing from
completes when they end ("exit"), and what a GPU does with the rest of the warp is undefined.
What Compute Sanitizer's synccheck calls divergent threads in a warp is an error here, in a block a warning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator import Site
from ptxlab.emulator.run.threads import Threads
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_scene import Scene
from ptxlab.syntax.tree import Instruction

Array = npt.NDArray[Any]

_NOWHERE = -1


class BarrierUse:
    """Follows at which barrier each thread of a wave has arrived."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._at: Array = np.full(scene.wave.width, _NOWHERE)

    def arrive(self, site: Site, lanes: Threads) -> None:
        self._at[lanes.mask] = self._scene.number(site)

    def counted(self, waited: Array) -> bool:
        """Say whether the barrier that these have ``waited`` at is for a number of threads."""
        at = self._at[waited][:1]
        return not at.size or counts_threads(self._scene.numbered(int(at[0])).instruction)

    def synchronize(self, arrived: Array, waited: Array) -> None:
        """See a barrier complete in the CTAs that threads have ``arrived`` in, and ``waited``."""
        wave = self._scene.wave
        ctas: Array = np.logical_or.reduce(arrived.reshape(wave.ctas, -1), axis=1)
        here = ctas[wave.cta_of]
        numbers = np.where(waited, self._at, _NOWHERE)
        at = numbers[waited]
        if (at == at[:1]).all() and not (here & wave.alive.mask & ~arrived).any():
            return
        self._within_warps(arrived.reshape(-1, WARP), numbers.reshape(-1, WARP))
        for cta in np.flatnonzero(ctas):
            self._within_cta(arrived, numbers, int(cta))

    def _within_warps(self, arrived: Array, numbers: Array) -> None:
        launched = self._scene.wave.alive.mask.reshape(-1, WARP)
        for warp in np.flatnonzero((numbers != _NOWHERE).any(axis=1)):
            waited = numbers[warp] != _NOWHERE
            first = int(warp) * WARP + int(waited.argmax())
            site = self._scene.numbered(int(numbers[warp].max()))
            if not _aligned(site.instruction):
                continue
            missing = np.flatnonzero(launched[warp] & ~arrived[warp])
            if missing.size:
                absent = int(warp) * WARP + int(missing[0])
                self._find_absent("error", "its warp", missing.size, site, first, absent)
                continue
            elsewhere = np.flatnonzero(waited & (numbers[warp] != numbers[warp].max()))
            if elsewhere.size:
                self._find_apart(
                    "error",
                    "its warp",
                    elsewhere.size,
                    site,
                    self._scene.numbered(int(numbers[warp, elsewhere[0]])),
                    first,
                )

    def _within_cta(self, arrived: Array, numbers: Array, cta: int) -> None:
        """Report warps that are missing from a barrier of the whole CTA, or at another instruction."""
        wave, scene = self._scene.wave, self._scene
        start = cta * wave.cta_width
        inside = slice(start, start + wave.cta_width)
        by_warp = numbers[inside].reshape(-1, WARP).max(axis=1)
        places = np.unique(by_warp[by_warp != _NOWHERE])
        site = scene.numbered(int(places[-1])) if places.size else None
        if site is None or counts_threads(site.instruction):
            return
        first = start + int(arrived[inside].argmax())
        absent = np.repeat(~arrived[inside].reshape(-1, WARP).any(axis=1), WARP)
        missing = start + np.flatnonzero(wave.alive.mask[inside] & absent)
        group = scene.cta(first)
        if missing.size:
            self._find_absent("warning", group, missing.size, site, first, int(missing[0]))
        if places.size > 1 and _aligned(site.instruction):
            elsewhere = WARP * int((by_warp == places[0]).sum())
            other = scene.numbered(int(places[0]))
            self._find_apart("warning", group, elsewhere, site, other, first)

    def _find_absent(
        self, severity: str, group: str, count: int, site: Site, first: int, absent: int
    ) -> None:
        scene = self._scene
        scene.find(
            "barrier",
            severity,
            f"absent from {'warp' if severity == 'error' else 'CTA'}",
            count,
            lambda: (
                f"{scene.thread(first)} waits for {group}, of which {scene.thread(absent)} has ended "
                "without coming to this barrier",
                "every thread of the CTA is to execute the barrier: take it out of the condition, or "
                "let threads that have no work stay",
            ),
            site=site,
            unit="threads",
        )

    def _find_apart(
        self, severity: str, group: str, count: int, site: Site, other: Site, first: int
    ) -> None:
        scene = self._scene
        aligned = "all threads of a warp must execute the same bar.sync; barrier.sync may differ"
        alike = "PTX allows it; __syncthreads() is to be reached by all threads of a CTA alike"
        scene.find(
            "barrier",
            severity,
            f"apart in {'warp' if severity == 'error' else 'CTA'}",
            count,
            lambda: (
                f"{scene.thread(first)} waits for {group}, which comes to the barrier at two "
                "instructions",
                aligned if severity == "error" else alike,
            ),
            other,
            site,
            "threads",
        )


def is_barrier(instruction: Instruction) -> bool:
    return instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers


def counts_threads(instruction: Instruction) -> bool:
    return len(instruction.operands) > (3 if "red" in instruction.modifiers else 1)


def _aligned(instruction: Instruction) -> bool:
    return instruction.opcode == "bar" or "aligned" in instruction.modifiers
