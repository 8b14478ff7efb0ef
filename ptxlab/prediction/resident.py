"""What CTAs take that share an SM, of which some turns of their loops are run clock by clock.

The turns of a hot loop are alike: a few are run, and again as many more, and the difference is what
each of the rest costs. What issues very much loses turns of other loops, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
from ptxlab.prediction.warps import Asked, Skipped, Warp


class ResidentModel:
    """A launch, of which the CTAs of one SM are followed; ``shared`` bytes of shared memory are a CTA's."""

    def __init__(
        self, code: Sequence[DecodedInstruction], launch: Launch, chip: Chip, shared: int
    ) -> None:
        self._code, self._launch, self._chip, self._shared = code, launch, chip, shared
        self.reuse = Reuse()

    def resident(self, ctas: int, sms: int) -> Run:
        """Return what CTAs take that lie as far apart as there are SMs, of which ``sms`` have some."""
        launch, chip = self._launch, self._chip
        every = int(np.prod(launch.config.grid))
        apart = chip.gpu.sms // launch.cluster * launch.cluster
        chosen = [min(apart * n, every - 1) // launch.cluster * launch.cluster for n in range(ctas)]
        steps = interpreter.run(self._code, launch, chosen)
        kinds, kind_of = trace.of_warps(steps, launch.warps * ctas)
        numbers, first = steps.numbers, kinds[kind_of[0]]
        returns = np.array([i.number for i in self._code if i.does == "return"], int)
        loops = trace.sampled(numbers[first], returns, len(kind_of))
        if not self.reuse.nbytes:
            size = chip.memory.l2_mib << 20
            together = ctas * chip.gpu.sms
            self.reuse = reuse(self._code, launch, first, numbers, loops, together, size)
        work = _Work(self, numbers, kinds, kind_of, chosen, chip.used_by(sms))
        if any(i.does == "phase" for i in self._code):
            return work.tiled(trace.tiles(kinds, numbers, returns))
        return work.turned(loops, returns)

    def requests(self, chosen: Sequence[int], asked: Array) -> dict[int, Request | Asked]:
        """Return what the steps ``asked`` about of some CTAs ask memory for."""
        requests: dict[int, Request | Asked] = {}
        interpreter.requests(self._code, self._launch, chosen, asked, requests.__setitem__)
        return requests

    def run(self, numbers: Array, warps: Sequence[Warp], ctas: int, chip: Chip) -> Run:
        """Run warps on an SM; ``numbers`` are the instructions of all steps."""
        timed = timings(self._code, np.unique(numbers).tolist(), chip, self.reuse.hits)
        return Sm(chip, timed, warps, self._shared * ctas).run()

    @property
    def warps(self) -> int:
        return self._launch.warps


@dataclass(frozen=True, slots=True)
class _Part:
    """The ``steps`` that are run of one kind of warps, and what is ``skipped`` before some of them."""

    steps: Array
    skipped: Mapping[int, Sequence[Skipped]] = field(default_factory=dict)


class _Work:
    """What the warps of CTAs that share an SM issue, kind by kind, to be run in part."""

    def __init__(
        self,
        model: ResidentModel,
        numbers: Array,
        kinds: Sequence[Array],
        kind_of: Sequence[int],
        chosen: Sequence[int],
        chip: Chip,
    ) -> None:
        self._model, self._numbers, self._kinds, self._kind_of = model, numbers, kinds, kind_of
        self._chosen, self._chip = chosen, chip
        self._requests: dict[int, Request | Asked] = {}

    def turned(self, loops: Sequence[trace.SampledLoop], returns: Array) -> Run:
        """Run some turns of each loop, and as many more, whose difference is what the others cost."""
        own = [trace.alike(loops, self._numbers[issued], returns) for issued in self._kinds]

        def left(shortened: int = -1) -> list[Array]:
            return [
                trace.kept(len(issued), those, shortened)
                for issued, those in zip(self._kinds, own, strict=True)
            ]

        def run(of_kinds: Sequence[Array]) -> Run:
            whole = zip(self._kinds, own, of_kinds, strict=True)
            return self._run(
                [
                    _Part(issued[there], self._skipped(issued, trace.gaps(those, there)))
                    if len(loops) > 1
                    else _Part(issued[there])
                    for issued, those, there in whole
                ]
            )

        first = self._kind_of[0]
        more = left()
        self._ask([issued[there] for issued, there in zip(self._kinds, more, strict=True)])
        many = run(more)
        parts = [(1.0, many)]
        for sampled in loops:
            fewer = left(sampled.loop.head)
            shown = trace.turns_in(sampled.loop, more[first]) - trace.turns_in(
                sampled.loop, fewer[first]
            )
            if shown:
                rest = sampled.left_out / shown
                parts += [(rest, many), (-rest, run(fewer))]
        return Run.summed(parts)

    def tiled(self, tiles: dict[int, list[int]] | None) -> Run:
        """Run all, or of a persistent kernel some tiles: warps that wait for each other lose no turn."""
        kept = list(self._kinds)
        if tiles is None:
            self._ask(kept)
            return self._run([_Part(steps) for steps in kept])
        few = trace.FEW_TILES
        for kind, begun in tiles.items():
            kept[kind] = kept[kind][: begun[few + 1]]
        self._ask(kept)
        longest = max(tiles, key=lambda kind: len(kept[kind]))
        begun = tiles[longest]
        passed: list[Run] = []
        self._run([_Part(steps) for steps in kept], longest, [begun[1], begun[few]], passed)
        fewer, more = passed
        rest = (len(begun) - few) / (few - 1)
        return Run.summed([(1, more), (rest, more), (-rest, fewer)])

    def _ask(self, steps: Sequence[Array]) -> None:
        self._requests = self._model.requests(self._chosen, np.concatenate(steps))

    def _skipped(self, issued: Array, gaps: Iterable[trace.Gap]) -> dict[int, list[Skipped]]:
        """Return what the turns would load that are left out, by the place behind them."""
        skipped: dict[int, list[Skipped]] = defaultdict(list)
        for gap in gaps:
            for n in range(gap.length):
                step, later = int(issued[gap.first + n]), int(issued[gap.last + n])
                number = int(self._numbers[step])
                request, other = self._requests.get(step), self._requests.get(later)
                alike = number == self._numbers[later]
                if alike and isinstance(request, Request) and isinstance(other, Request):
                    skipped[gap.position].append(
                        Skipped(number, gap.turns, gap.apart, request, other)
                    )
        return skipped

    def _run(
        self,
        parts: Sequence[_Part],
        marked: int = 0,
        marks: Sequence[int] = (),
        passed: list[Run] | None = None,
    ) -> Run:
        """Run a part of each kind of warps; ``passed`` are told when one of the ``marked`` kind is there."""
        traces = [self._numbers[part.steps].tolist() for part in parts]
        asks = [
            {
                at: self._requests[step]
                for at, step in enumerate(part.steps.tolist())
                if step in self._requests
            }
            for part in parts
        ]
        warps = [
            Warp(number // self._model.warps, traces[kind], asks[kind], number, parts[kind].skipped)
            for number, kind in enumerate(self._kind_of)
        ]
        if passed is not None:
            first = warps[self._kind_of.index(marked)]
            first.marks, first.passed = list(marks), passed
        return self._model.run(self._numbers, warps, len(self._chosen), self._chip)
