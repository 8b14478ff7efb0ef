"""A stream: where work is put, to be done at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Stream:
    """A stream, whose work is done when it is put there."""

    flags: int = 0

    def enqueue(self, work: Callable[[], None]) -> None:
        work()
