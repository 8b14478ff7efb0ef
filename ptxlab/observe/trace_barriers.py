"""Barriers of CTAs and clusters as a trace sees them, and how long warps stand anywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ptxlab.arrays import Array
from ptxlab.observe.timeline import Meeting, Wait, Warps
from ptxlab.observe.trace_scene import TraceScene
from ptxlab.syntax.printer import operand_text
from ptxlab.syntax.tree import Instruction


class Waits:
    """Who waits, at barriers and for mbarriers: how long each warp stood before the step at hand."""

    def __init__(self, scene: TraceScene) -> None:
        self._scene = scene
        self.found: list[Wait] = []
        self._stands = [0] * (scene.count * scene.cta_warps)
        self._stood = dict.fromkeys(range(len(self._stands)), 0)

    def begin_step(self, warps: Warps) -> None:
        """Have warps execute the step at hand."""
        for warp in warps:
            self._stood[warp], self._stands[warp] = self._stands[warp], self._scene.now

    def over(self, warps: Iterable[int], until: int, mbarrier: int | None = None) -> None:
        """Have warps go on with the step at hand, whose wait was over at a moment."""
        since = {warp: self._stood[warp] for warp in warps}
        self.add(since, until, self._scene.step, mbarrier)

    def add(
        self, since: dict[int, int], until: int, step: int, mbarrier: int | None = None
    ) -> None:
        """Note waits of warps, each since a moment, at a step."""
        alike: dict[int, list[int]] = defaultdict(list)
        for warp, began in since.items():
            if began < until:
                alike[began].append(warp)
        for began, warps in alike.items():
            self.found.append(Wait(tuple(warps), began, until, step, mbarrier))


class BarrierTrace:
    """Arrivals at barriers, and who waited for the last one."""

    def __init__(self, scene: TraceScene, waits: Waits) -> None:
        self._scene = scene
        self._waits = waits
        self.found: list[Meeting] = []
        self._at: dict[int, tuple[int, Meeting]] = {}
        self._open: dict[tuple[int | None, str], Meeting] = {}
        self._met = 0

    def meet_cluster(self, instruction: Instruction, warps: Warps) -> None:
        """See warps arrive at the barrier of the cluster, or go on behind it."""
        if "arrive" in instruction.modifiers:
            self._meeting(None, "cluster")
        else:
            self._waits.over(warps, self._met)

    def meet(self, instruction: Instruction, warps: Warps) -> None:
        """See warps arrive at a barrier of their CTA."""
        scene, name = self._scene, operand_text(instruction.operands[0])
        for cta in sorted({warp // scene.cta_warps for warp in warps}):
            meeting = self._meeting(cta, name)
            here = [warp for warp in warps if warp // scene.cta_warps == cta]
            self._at.update(dict.fromkeys(here, (scene.step, meeting)))

    def _meeting(self, cta: int | None, name: str) -> Meeting:
        meeting = self._open.get((cta, name))
        if meeting is None:
            meeting = self._open[cta, name] = Meeting(cta, name, [])
            self.found.append(meeting)
        meeting.arrivals.append(self._scene.step)
        return meeting

    def synchronize(self, arrived: Array, released: Array) -> None:
        """See barriers of CTAs complete."""
        scene = self._scene
        for warp in scene.warps(arrived):
            meeting = self._at[warp][1]
            meeting.complete = scene.now
            self._open.pop((meeting.cta, meeting.name), None)
        by_step: dict[int, list[int]] = defaultdict(list)
        for warp in scene.warps(released):
            by_step[self._at[warp][0]].append(warp)
        for step, warps in by_step.items():
            self._waits.add(dict.fromkeys(warps, step + 1), scene.now, step)

    def clusters_met(self, arrived: Array) -> None:
        """See barriers of clusters complete."""
        if self._scene.warps(arrived):
            self._met = self._scene.now
            self._open.pop((None, "cluster")).complete = self._met
