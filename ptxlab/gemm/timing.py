"""How GEMMs are timed: cool and in a burst, warm and sustained, or with a cold cache, always in turns.

Two kernels that are timed one after the other do not meet the same GPU: the second one finds it warmer
and slower. So all that are to be compared take turns, a few milliseconds each, several rounds long,
and what is told is a median with the 20th and the 80th percentile.

  burst      the GPU has rested; few launches, so that it is cool and at its highest clock
  sustained  the GPU works for seconds without a pause, as its power limit lets it
  cold       before every launch the L2 cache is filled with something else
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Stopwatch, StreamWork, Timing

MOST = 1024
"""Launches of a batch at most."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """How much is measured.

    A burst comes after ``rest`` seconds, ``rounds`` times, and has at most ``burst`` launches. Sustained
    work lasts at least ``seconds`` and ``rounds``. A batch is as many launches as take ``batch``
    seconds. ``cold`` launches are timed one by one, none if 0.
    """

    rounds: int = 3
    rest: float = 2.0
    burst: int = 20
    seconds: float = 3.0
    batch: float = 0.010
    cold: int = 0


@dataclass(frozen=True, slots=True)
class Arm:
    """One of several that take turns: its work, how many launches of it are a batch, its kernels."""

    work: StreamWork
    launches: int
    kernels: tuple[str, ...] = ()


def warmed(stopwatch: Stopwatch, work: StreamWork, procedure: Procedure) -> Arm:
    """Run ``work`` by itself until its time is known, and return it as an arm."""
    with stopwatch.batch(work, 1) as once:
        seconds = once.seconds()
        if seconds < procedure.batch:  # it may have been slow, for being the first
            seconds = min(seconds, once.seconds(), once.seconds())
        return Arm(work, max(1, min(round(procedure.batch / seconds), MOST)), once.kernels)


def burst(stopwatch: Stopwatch, arms: Sequence[Arm], procedure: Procedure) -> list[Timing]:
    """Time every arm after a rest of its own, in turns."""
    with ExitStack() as stack:
        launches = [min(arm.launches, procedure.burst) for arm in arms]
        batches = [
            stack.enter_context(stopwatch.batch(arm.work, count))
            for arm, count in zip(arms, launches, strict=True)
        ]
        taken: list[list[float]] = [[] for _ in arms]
        for _ in range(procedure.rounds):
            for batch, samples in zip(batches, taken, strict=True):
                stopwatch.rest(procedure.rest)
                samples.append(batch.seconds())
    return [Timing.of(samples, count) for samples, count in zip(taken, launches, strict=True)]


def sustained(
    stopwatch: Stopwatch, arms: Sequence[Arm], procedure: Procedure
) -> tuple[list[Timing], Reading]:
    """Time arms in turns without a pause; return also the mean clock and power meanwhile.

    Who was first in one round is last in the next.
    """
    with ExitStack() as stack:
        batches = [stack.enter_context(stopwatch.batch(arm.work, arm.launches)) for arm in arms]
        readings = stack.enter_context(stopwatch.watching())
        taken: list[list[float]] = [[] for _ in arms]
        turns = list(zip(batches, taken, strict=True))
        began = stopwatch.now()
        for number, order in enumerate(cycle((turns, turns[::-1]))):
            if number >= procedure.rounds and stopwatch.now() - began >= procedure.seconds:
                break
            for batch, samples in order:
                samples.append(batch.seconds())
    timings = [Timing.of(samples, arm.launches) for samples, arm in zip(taken, arms, strict=True)]
    return timings, mean(readings)


def cold(stopwatch: Stopwatch, arms: Sequence[Arm], procedure: Procedure) -> list[Timing]:
    """Time single launches of every arm in turns, each with nothing in the L2 cache."""
    taken: list[list[float]] = [[] for _ in arms]
    for _ in range(procedure.cold):
        for arm, samples in zip(arms, taken, strict=True):
            samples.append(stopwatch.cold(arm.work))
    return [Timing.of(samples, 1) for samples in taken]


def mean(readings: Sequence[Reading]) -> Reading:
    """Return the mean of the sensors' readings, None for one that nothing is known of."""
    clocks = [reading.clock for reading in readings if reading.clock is not None]
    powers = [reading.power for reading in readings if reading.power is not None]
    return Reading(
        sum(clocks) / len(clocks) if clocks else None,
        sum(powers) / len(powers) if powers else None,
    )
