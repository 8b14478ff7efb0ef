"""A stopwatch for a GPU that does nothing: work takes what it is told to, and the time is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Batch, Stopwatch, StreamWork


class SimulatedBatch(Batch):
    def __init__(self, stopwatch: Simulated, work: StreamWork, count: int) -> None:
        self.stopwatch, self.work, self.count = stopwatch, work, count
        stopwatch.open += 1

    @property
    def kernels(self) -> tuple[str, ...]:
        return (self.stopwatch.names.get(self.work, "kernel"),)

    def seconds(self) -> float:
        return self.stopwatch.run(self.work, self.count)

    def close(self) -> None:
        self.stopwatch.open -= 1


class Simulated(Stopwatch):
    """``costs`` gives the seconds of one launch of a work, by how often it was asked before.

    ``log`` notes what happened: the name of a work and its launches, or a rest.
    """

    def __init__(
        self, names: dict[StreamWork, str], costs: dict[str, Callable[[int], float]]
    ) -> None:
        self.names, self.costs = names, costs
        self.log: list[tuple[str, float]] = []
        self.time = 100.0
        self.open = 0
        self.asked: dict[str, int] = {}
        self.readings: list[Reading] = [Reading(1700, 600), Reading(1800, None)]

    def run(self, work: StreamWork, count: int) -> float:
        name = self.names[work]
        number = self.asked.get(name, 0)
        self.asked[name] = number + 1
        seconds = count * self.costs[name](number)
        self.time += seconds
        self.log.append((name, count))
        return seconds

    def batch(self, work: StreamWork, count: int) -> SimulatedBatch:
        return SimulatedBatch(self, work, count)

    def cold(self, work: StreamWork) -> float:
        self.log.append(("flush", 0))
        return self.run(work, 1)

    def rest(self, seconds: float) -> None:
        self.time += seconds
        self.log.append(("rest", seconds))

    def now(self) -> float:
        return self.time

    @contextmanager
    def watching(self) -> Iterator[Sequence[Reading]]:
        yield self.readings
