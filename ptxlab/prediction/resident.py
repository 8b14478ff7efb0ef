"""What CTAs take that share an SM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction import interpreter, trace
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.l2 import Reuse, reuse
from ptxlab.prediction.requests import Request
from ptxlab.prediction.run import Run
from ptxlab.prediction.sm import Sm
from ptxlab.prediction.timing import timings
from ptxlab.prediction.touched import touched
from ptxlab.prediction.turns import Issued, Part, Tiles, Turns
from ptxlab.prediction.warps import Asked, Warp


class ResidentModel:
    """A launch, of which the CTAs of one SM are followed; ``shared`` bytes of shared memory are a CTA's."""

    def __init__(
        self, code: Sequence[DecodedInstruction], launch: Launch, chip: Chip, shared: int
    ) -> None:
        self._code, self._launch, self._chip, self._shared = code, launch, chip, shared
        self._returns = np.array([i.number for i in code if i.does == "return"], int)
        self.reuse: Reuse | None = None
        """What the L2 cache has, as the CTAs that were run first say."""

    def apart(self, ctas: int) -> list[int]:
        """Return CTAs that lie as far apart as there are SMs, by number: those that begin on one SM."""
        launch = self._launch
        apart = self._chip.gpu.sms // launch.cluster * launch.cluster
        last = prod(launch.config.grid) - 1
        return [min(apart * n, last) // launch.cluster * launch.cluster for n in range(ctas)]

    def resident(self, chosen: Sequence[int], sms: int) -> Run:
        """Return what some CTAs take that share an SM, where ``sms`` have any."""
        code, launch = self._code, self._launch
        steps = interpreter.run(code, launch, chosen)
        kinds, kind_of = trace.of_warps(steps, launch.warps * len(chosen))
        issued = Issued(steps.numbers, kinds, kind_of)
        loops = trace.sampled(issued.numbers[kinds[kind_of[0]]], self._returns, len(kind_of))
        part: Turns | Tiles
        if any(i.does == "phase" for i in code):
            part = Tiles(issued, trace.tiles(kinds, issued.numbers, self._returns))
        else:
            part = Turns(issued, loops, self._returns)
        requests: dict[int, Request | Asked] = {}
        asked = np.concatenate(part.kept)
        interpreter.requests(code, launch, chosen, asked, requests.__setitem__)
        if self.reuse is None:
            self.reuse = self._reused(issued, part.kept, requests, loops, len(chosen))
        chip = self._chip.used_by(sms)
        timed = timings(code, np.unique(issued.numbers).tolist(), chip, self.reuse.hits)

        def run(parts: Sequence[Part]) -> list[Run]:
            warps = _warps(issued, parts, requests, launch.warps)
            ran = Sm(chip, timed, warps, self._shared * len(chosen)).run()
            return [*(run for warp in warps for run in warp.passed), ran]

        return part.run(run, requests)

    def _reused(
        self,
        issued: Issued,
        kept: Sequence[Array],
        requests: Mapping[int, Request | Asked],
        loops: Sequence[trace.SampledLoop],
        ctas: int,
    ) -> Reuse:
        """Return what the L2 cache has if all CTAs are as those that are followed."""
        launch, chip = self._launch, self._chip
        every, some = issued.executions(issued.kinds), issued.executions(kept)
        more = every / np.maximum(some, 1)
        times = prod(launch.config.grid) / ctas
        reached = touched(self._code, launch.regions, requests, issued.numbers, more, times)
        first = issued.kinds[issued.kind_of[0]]
        together, size = ctas * chip.gpu.sms, chip.memory.l2_mib << 20
        return reuse(self._code, launch, reached, first, issued.numbers, loops, together, size)


def _warps(
    issued: Issued, parts: Sequence[Part], requests: Mapping[int, Request | Asked], of_cta: int
) -> list[Warp]:
    """Return warps that issue a part of what there is, ``of_cta`` of each CTA."""
    traces = [issued.numbers[part.steps].tolist() for part in parts]
    asks = [
        {at: requests[step] for at, step in enumerate(part.steps.tolist()) if step in requests}
        for part in parts
    ]
    warps = [
        Warp(number // of_cta, traces[kind], asks[kind], number, parts[kind].skipped)
        for number, kind in enumerate(issued.kind_of)
    ]
    for kind, part in enumerate(parts):
        warps[issued.kind_of.index(kind)].marks = list(part.marks)
    return warps
