"""Barriers of CTAs and clusters and mbarriers as a trace sees them, and how long warps stand anywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES, PHASES
from ptxlab.observe.timeline import (
    BarrierPhase,
    MbarrierMoment,
    SharedSpan,
    TracedMbarrier,
    Wait,
    Warps,
)
from ptxlab.observe.trace_context import TraceContext
from ptxlab.syntax.printer import operand_text
from ptxlab.syntax.tree import Instruction


class Waits:
    """Who waits, at barriers and for mbarriers: how long each warp stood before the step at hand."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self.traced: list[Wait] = []
        self._stands = [0] * (context.count * context.cta_warps)
        self._stood = dict.fromkeys(range(len(self._stands)), 0)

    def begin_step(self, warps: Warps) -> None:
        for warp in warps:
            self._stood[warp], self._stands[warp] = self._stands[warp], self._context.now

    def over(self, warps: Iterable[int], until: int, mbarrier: int | None = None) -> None:
        """Have warps go on with the step at hand, whose wait was over at a moment."""
        since = {warp: self._stood[warp] for warp in warps}
        self.add(since, until, self._context.step, mbarrier)

    def add(
        self, since: dict[int, int], until: int, step: int, mbarrier: int | None = None
    ) -> None:
        """Note waits of warps, each since a moment, at a step."""
        alike: dict[int, list[int]] = defaultdict(list)
        for warp, began in since.items():
            if began < until:
                alike[began].append(warp)
        for began, warps in alike.items():
            self.traced.append(Wait(tuple(warps), began, until, step, mbarrier))


class BarrierTrace:
    """Arrivals at barriers, and who waited for the last one."""

    def __init__(self, context: TraceContext, waits: Waits) -> None:
        self._context = context
        self._waits = waits
        self.traced: list[BarrierPhase] = []
        self._at: dict[int, tuple[int, BarrierPhase]] = {}
        self._open: dict[tuple[int | None, str], BarrierPhase] = {}
        self._met = 0

    def meet_cluster(self, effects: Effects, warps: Warps) -> None:
        """See warps arrive at the barrier of the cluster, or go on behind it."""
        if effects.meets == "arrive":
            self._phase(None, "cluster")
        else:
            self._waits.over(warps, self._met)

    def meet(self, instruction: Instruction, warps: Warps) -> None:
        context, name = self._context, operand_text(instruction.operands[0])
        for cta in sorted({warp // context.cta_warps for warp in warps}):
            phase = self._phase(cta, name)
            here = [warp for warp in warps if warp // context.cta_warps == cta]
            self._at.update(dict.fromkeys(here, (context.step, phase)))

    def _phase(self, cta: int | None, name: str) -> BarrierPhase:
        phase = self._open.get((cta, name))
        if phase is None:
            phase = self._open[cta, name] = BarrierPhase(cta, name, [])
            self.traced.append(phase)
        phase.arrivals.append(self._context.step)
        return phase

    def synchronize(self, arrived: Array, released: Array) -> None:
        context = self._context
        for warp in context.warps(arrived):
            phase = self._at[warp][1]
            phase.complete = context.now
            self._open.pop((phase.cta, phase.name), None)
        by_step: dict[int, list[int]] = defaultdict(list)
        for warp in context.warps(released):
            by_step[self._at[warp][0]].append(warp)
        for step, warps in by_step.items():
            self._waits.add(dict.fromkeys(warps, step + 1), context.now, step)

    def clusters_met(self, arrived: Array) -> None:
        if self._context.warps(arrived):
            self._met = self._context.now
            self._open.pop((None, "cluster")).complete = self._met


class MbarrierTrace:
    """Objects by their words in the wave's shared memory, numbered in the order in which they are made."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self._words = context.wave.shared_pitch // OBJECT_BYTES
        self._range = range(
            context.first * self._words, (context.first + context.count) * self._words
        )
        self._numbers: dict[int, int] = {}
        self._completed: dict[int, int] = {}
        self._changed: set[int] = set()
        self.traced: list[TracedMbarrier] = []

    def touch(self, words: Array) -> bool:
        """Have objects looked at again when what changes them is over. Say whether any is followed."""
        here = [word for word in np.unique(words).tolist() if word in self._range]
        self._changed.update(here)
        return bool(here)

    def complete(self, words: Array) -> None:
        if self.touch(words):
            self._completed.update(dict.fromkeys(words.tolist(), self._context.now))
            self.look()

    def look(self) -> None:
        """Note what the objects hold that have changed."""
        for word in sorted(self._changed):
            self._look(word)
        self._changed.clear()

    def known(self, words: Array) -> list[tuple[int, int]]:
        """Return the numbers of objects, each with its phase."""
        self.look()
        numbers = (self._numbers.get(word) for word in np.unique(words).tolist())
        return [(n, self.traced[n].states[-1].phase) for n in numbers if n is not None]

    def passed(self, word: int) -> tuple[int, int]:
        """Return the number of an object, and the moment at which a phase last was complete, 0 for never."""
        return self._numbers[word], self._completed.get(word, 0)

    def _look(self, word: int) -> None:
        context, number = self._context, self._numbers.get(word)
        if not context.wave.mbarriers.valid[word]:
            if number is not None:
                self.traced[number].unmade = context.now
                del self._numbers[word]
            return
        state = context.wave.mbarriers.state(np.array([word]))
        if number is None:
            number = self._numbers[word] = len(self.traced)
            self.traced.append(self._made(word, int(state.expected[0])))
        states = self.traced[number].states
        phase = int(state.phase[0])
        if states:
            phase = states[-1].phase + (phase - states[-1].phase) % PHASES
        now = MbarrierMoment(context.now, phase, int(state.pending[0]), int(state.tx[0]))
        if states and (states[-1].at, states[-1].phase) == (now.at, now.phase):
            states.pop()
        states.append(now)

    def _made(self, word: int, expected: int) -> TracedMbarrier:
        cta, offset = divmod(word - self._range.start, self._words)
        address = offset * OBJECT_BYTES
        name = self._context.name(SharedSpan(cta, address, address + OBJECT_BYTES))
        return TracedMbarrier(cta, address, name, expected, [])
