"""A time limit for what a test calls many times."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_most(seconds: int, error: type[BaseException]) -> Iterator[None]:
    """Interrupt what takes longer, by raising ``error`` in it."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
