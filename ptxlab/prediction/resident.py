"""What CTAs take that share an SM: they are followed, instruction by instruction, and then run clock by clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.following import interpreter, trace
from ptxlab.prediction.following.turns import Issued, Part, Passed, Requests, Tiles, Turns
from ptxlab.prediction.memory.l2 import Cache, Reuse, reuse, reuse_of_uneven
from ptxlab.prediction.memory.touched import Touched, loads, own, touched
from ptxlab.prediction.memory.walk import Walk
from ptxlab.prediction.sm.issues import Issue, RecordingSm
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.succession import FAR, FEWEST, ROUNDS, SuccessionSm
from ptxlab.prediction.sm.timing import InstructionTiming, timings
from ptxlab.prediction.sm.warps import Asked, Warp, Window
from ptxlab.prediction.survey import Survey
from ptxlab.prediction.what_if import NOTHING, WhatIf

_IN_SUCCESSION = 400_000
"""So many instructions of warps are run of CTAs that follow each other."""


@dataclass(frozen=True, slots=True)
class Followed:
    """``ctas`` that share an SM, by number: what their warps issue, which part is run, and what that asks memory for.

    ``walk`` is what each of them walks through.
    """

    ctas: Sequence[int]
    issued: Issued
    walk: Walk
    part: Turns | Tiles
    requests: Mapping[int, Request | Asked]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What of a launch is looked at: ``followed`` of its ``ctas``, and ``run``, which were run clock by clock.

    The warps of the latter issue ``issued`` instructions, of which ``ran`` were run: a few turns of a loop stand for all.
    """

    ctas: int
    followed: int
    run: int
    issued: int
    ran: int


class ResidentModel:
    """A launch, of which the CTAs of one SM are followed; ``shared`` bytes of shared memory are a CTA's."""

    def __init__(
        self, code: Sequence[DecodedInstruction], launch: Launch, chip: Chip, shared: int
    ) -> None:
        self._code, self._launch, self._chip, self._shared = code, launch, chip, shared
        self._what_if = NOTHING
        self._known: dict[tuple[int, ...], Followed] = {}
        self._touched: dict[tuple[tuple[int, ...], float], Touched] = {}
        self._reuses: dict[tuple[int, ...], Reuse] = {}
        self._runs: list[tuple[Any, Run]] = []
        self._asked: dict[tuple[int, ...], Followed] = {}
        self._returns = np.array([i.number for i in code if i.does == "return"], int)

    def apart(self, ctas: int, first: int = 0) -> list[int]:
        """Return CTAs that lie as far apart as there are SMs, by number, from the ``first`` if there are so many: those that share an SM."""
        launch = self._launch
        apart = self._chip.gpu.sms // launch.cluster * launch.cluster
        last = prod(launch.config.grid) - 1
        first = max(0, min(first, last - apart * (ctas - 1)))
        return [
            min(first + apart * n, last) // launch.cluster * launch.cluster for n in range(ctas)
        ]

    def changed(self, what_if: WhatIf) -> ResidentModel:
        """Return the same with changes: who has been followed need not be again."""
        other = copy(self)
        other._what_if, other._chip, other._asked = what_if, what_if.chip(self._chip), {}
        return other

    def on(self, chip: Chip) -> ResidentModel:
        """Return the same on a chip that differs in its clock."""
        other = copy(self)
        other._chip = chip
        return other

    def queued(self, seconds: float) -> ResidentModel:
        """Return the same where loads wait so much longer for DRAM."""
        return self.on(self._chip.queued(seconds))

    @cached_property
    def waits(self) -> bool:
        """Whether warps wait for each other by mbarriers."""
        return interpreter.waits(self._code)

    def followed(self, ctas: Sequence[int]) -> Followed:
        """Follow some CTAs, by number."""
        key = tuple(ctas)
        if key not in self._known:
            self._known[key] = self._follow(ctas)
        return self._known[key]

    def sampled(self, survey: Survey) -> Sampled:
        """Return what was run since the last change, of a launch of which a ``survey`` was made."""
        asked = self._asked.values()
        return Sampled(
            survey.of_all,
            len(survey.ctas),
            len({cta for followed in asked for cta in followed.ctas}),
            sum(int(each.issued.executions().sum()) for each in asked),
            sum(int(each.issued.followed(each.part.kept).sum()) for each in asked),
        )

    def _follow(self, ctas: Sequence[int]) -> Followed:
        code, launch = self._code, self._launch
        told = range(len(code)) if self.waits else ()
        steps = interpreter.run(code, launch, ctas, told, measured=True)
        kinds, kind_of = trace.of_warps(steps, launch.warps * len(ctas))
        issued = Issued(steps.numbers, kinds, kind_of, steps.times)
        kind = self._walking(issued)
        walked = kinds[kind]
        loops = trace.sampled(
            issued.numbers[walked], self._returns, len(kind_of), issued.times_of(walked)
        )
        part: Turns | Tiles
        if self.waits:
            tiles = trace.stretch(kinds, kind_of, issued.numbers, self._returns, steps.times)
            part = Tiles(issued, tiles, steps.more)
        else:
            part = Turns(issued, loops, self._returns, kind)
        asked = np.concatenate(part.kept)
        if self.waits:
            requests = {
                step: steps.requests[step] for step in asked.tolist() if step in steps.requests
            }
        else:
            requests = {}
            interpreter.requests(code, launch, ctas, asked, requests.__setitem__, steps.more)
        walk = Walk(code, launch, walked, issued.numbers, loops, steps.more, requests)
        return Followed(ctas, issued, walk, part, requests)

    def _walking(self, issued: Issued) -> int:
        """Return the kind of warps that loads most often, the first of those: others wait for it, or have nothing to do at an edge."""
        loading = np.array([loads(instruction) for instruction in self._code])

        def loaded(kind: int) -> int:
            steps = issued.kinds[kind]
            return issued.count(steps[loading[issued.numbers[steps]]])

        return max(dict.fromkeys(issued.kind_of), key=loaded)

    def touched(self, followed: Followed, ctas: float) -> Touched:
        """Return the memory that so many CTAs touch which do as those that were followed, each apart from the others."""
        key = tuple(followed.ctas), ctas
        if key not in self._touched:
            issued = followed.issued
            every, some = issued.executions(), issued.followed(followed.part.kept)
            self._touched[key] = touched(
                self._code,
                self._launch.regions,
                followed.requests,
                issued.numbers,
                every / np.maximum(some, 1),
                len(followed.ctas),
                ctas,
                issued.times,
            )
        return self._touched[key]

    def reuse(self, followed: Followed, reached: Touched | None = None) -> Reuse:
        """Return what the L2 cache has if all CTAs do as those that were followed, but for what they touch if that is told."""
        key = tuple(followed.ctas)
        if key not in self._reuses:
            self._reuses[key] = self._worked_out(followed, reached)
        return self._what_if.reuse(self._reuses[key])

    def reuse_of_uneven(self, touched: Touched, together: int) -> Reuse:
        """Return the same of CTAs that differ, ``together`` on an SM, of which all have ``touched`` so much."""
        chip, resident = self._chip, self._chip.gpu.sms * together
        reuse = reuse_of_uneven(self._code, self._launch, touched, resident, Cache.of(chip))
        return self._what_if.reuse(reuse)

    def _worked_out(self, followed: Followed, reached: Touched | None) -> Reuse:
        chip, reached = self._chip, reached or self.touched(followed, self._launch.ctas)
        begun = own(followed.requests, followed.issued.numbers) if chip.cold else None
        together, cache = len(followed.ctas), Cache.of(chip)
        return reuse(followed.walk, reached, together, chip.gpu.sms, cache, begun)

    def issues(self, followed: Followed, reuse: Reuse, sms: int) -> tuple[list[Issue], int]:
        """Return what the first CTA issues, in the order of time, and how much of it is left out."""
        ran: list[RecordingSm] = []

        def recording(*args: Any) -> Sm:
            ran.append(RecordingSm(*args))
            return ran[-1]

        self.run(followed, reuse, sms, recording)
        issued, first = followed.issued, ran[0].recorded  # others have fewer turns of a loop
        of_cta = issued.kind_of[: self._launch.warps]
        every = sum(issued.count(issued.kinds[kind]) for kind in of_cta)
        return first, every - len(first)

    def run(self, followed: Followed, reuse: Reuse, sms: int, made: Callable[..., Sm] = Sm) -> Run:
        """Return what CTAs take that share an SM, where ``sms`` have any."""
        issued, asked = followed.issued, followed.requests
        chip, requests, timed = self._timed(followed, reuse, sms)

        # A change of what is not used is none: what an SM is made of is the same, and so is what it does.
        orders = any(isinstance(each, tuple) for each in asked.values())
        rates = chip.gpu.tensor if orders else None
        near = all(t.hits >= 1 for t in timed.values())  # nothing waits for DRAM
        latency = {what: n for what, n in chip.latency.items() if not near or what != "dram"}
        made_of = tuple(followed.ctas), chip.memory, latency, rates, timed, requests is asked
        for known, ran in self._runs if made is Sm else ():
            if known == made_of:
                return ran

        def run(parts: Sequence[Part], window: Window | None = None) -> tuple[Passed, Run]:
            warps = _warps(issued, parts, requests, self._launch.warps, window)
            ran = made(chip, timed, warps, self._shared * len(followed.ctas)).run()
            both = zip(issued.kind_of, warps, strict=True)
            return {
                (kind, at): told for kind, warp in both for at, told in warp.passed.items()
            }, ran

        self._runs.append((made_of, followed.part.run(run, requests).steady()))
        return self._runs[-1][1]

    def in_succession(self, followed: Followed, reuse: Reuse, sms: int) -> Run | None:
        """Return what CTAs take that share an SM if others were there before and come after, one where one has ended.

        None where they are long: where turns are left out, or warps wait for each other by mbarriers.
        """
        issued, together = followed.issued, len(followed.ctas)
        every = int(issued.executions().sum())
        whole = every == int(issued.followed(followed.part.kept).sum())
        rounds = min(ROUNDS, _IN_SUCCESSION // every)
        if self.waits or not whole or rounds < FEWEST:
            return None
        chip, requests, timed = self._timed(followed, reuse, sms)
        requests = {
            step: each.as_common(together) if isinstance(each, Request) else each
            for step, each in requests.items()
        }
        parts = [Part(steps) for steps in issued.kinds]
        warps: list[Warp] = []
        for number in range(rounds):
            for warp in _warps(issued, parts, requests, self._launch.warps):
                warp.cta += number * together
                warp.apart = number * FAR
                warps.append(warp)
        return SuccessionSm(chip, timed, warps, self._shared * together, together).steady()

    def _timed(
        self, followed: Followed, reuse: Reuse, sms: int
    ) -> tuple[Chip, Requests, dict[int, InstructionTiming]]:
        """Return the chip where ``sms`` have CTAs, what these ask for, and what their instructions take there."""
        chip, numbers = self._chip.used_by(sms), followed.issued.numbers
        self._asked[tuple(followed.ctas)] = followed
        requests = self._what_if.requests(self._code, numbers, followed.requests)
        each = timings(self._code, np.unique(numbers).tolist(), chip, reuse.hits)
        return chip, requests, {number: self._what_if.timing(t) for number, t in each.items()}


def _warps(
    issued: Issued,
    parts: Sequence[Part],
    requests: Mapping[int, Request | Asked],
    of_cta: int,
    window: Window | None = None,
) -> list[Warp]:
    """Return warps that issue a part of what there is, ``of_cta`` of each CTA.

    Their marks are told to a ``window``, all of them, or are asked of the first of a kind.
    """
    traces = [issued.numbers[part.steps].tolist() for part in parts]
    asks = [
        {at: requests[step] for at, step in enumerate(part.steps.tolist()) if step in requests}
        for part in parts
    ]
    warps = [
        Warp(number // of_cta, traces[kind], asks[kind], number, parts[kind].skipped)
        for number, kind in enumerate(issued.kind_of)
    ]
    first = [warps[issued.kind_of.index(kind)] for kind in range(len(parts))]
    for warp in warps if window else first:
        part = parts[issued.kind_of[warp.number]]
        warp.marks, warp.ends, warp.window = list(part.marks), part.ends, window
    return warps
