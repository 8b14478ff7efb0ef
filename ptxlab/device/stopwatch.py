"""What it takes to time work on a GPU: a stopwatch that runs it in batches, and reads its sensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ptxlab.device.protocol import Closing

Work = Callable[[], None]
"""Puts something on a GPU's stream and does not wait for it; each call puts the same there."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The clock of the SMs in MHz and the power of the board in W at one moment, None if unknown."""

    clock: float | None
    power: float | None


class Batch(Closing, Protocol):
    """Work to be done several times, one right after the other."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels it runs, each once; those it cannot learn are left out."""
        ...

    def seconds(self) -> float:
        """Do all of it and return how long that took on the GPU."""
        ...


class Stopwatch(Protocol):
    """Times work, by the GPU's own clock."""

    def batch(self, work: Work, count: int) -> Batch:
        """Prepare ``work`` to be done ``count`` times. It has been done before: nothing is loaded now."""
        ...

    def cold(self, work: Work) -> float:
        """Do ``work`` once with nothing of its data in the L2 cache; return its seconds."""
        ...

    def rest(self, seconds: float) -> None:
        """Leave the GPU idle."""
        ...

    def now(self) -> float:
        """Return the time on the wall, in seconds from anywhere."""
        ...

    def watching(self) -> AbstractContextManager[Sequence[Reading]]:
        """Read the sensors again and again until the end of the ``with``; none where there are none."""
        ...
