"""How far a long work is, told on stderr with what is left of it, and when it has gone on for too long."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from ptxlab.cli.terminal import moves_cursor

PATIENCE = 1.0
"""Seconds before the first word: what is quicker needs none."""

ON_TERMINAL, IN_LOG = 0.1, 10.0
"""Seconds between two words: in one line of a terminal, and as lines of a file."""

LONG = 2.0
"""Seconds from which on it is kept how long a command took, so that it can be said the next time."""

CLEAR = "\r\x1b[K"
"""What takes a line of a terminal back."""


class StatusLine:
    """Called with what is being done; says so in one line of a terminal, or at times in a log."""

    def __init__(self) -> None:
        self.terminal = moves_cursor(sys.stderr)
        self.next = monotonic() + PATIENCE
        self.shown = False

    def __call__(self, text: str) -> None:
        now = monotonic()
        if now < self.next:
            return
        quiet()
        sys.stderr.write(f"{CLEAR}ptxlab: {text}" if self.terminal else f"ptxlab: {text}\n")
        sys.stderr.flush()
        self.shown = True
        self.next = now + (ON_TERMINAL if self.terminal else IN_LOG)

    def clear(self) -> None:
        """Take the line off the terminal again; what else the verb does is told as before."""
        if self.shown and self.terminal:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            _Ticking.resume()
        self.shown = False


class LaunchProgress:
    """Called again and again, with how many CTAs, or ``what``, are done and their total; says so at times.

    Raises TimeoutError in a launch that has lasted ``limit`` seconds; 0 is no limit.
    """

    def __init__(self, limit: float = 0.0, what: str = "CTAs") -> None:
        self.limit = limit
        self.what = what
        self.begun = 0.0
        self.end = math.inf
        self.status = StatusLine()
        self.done = math.inf

    def __call__(self, done: int, total: int) -> None:
        now = monotonic()
        if done < self.done:  # a launch begins
            self.begun = now
            self.status.next = max(self.status.next, now + PATIENCE)
            self.end = now + self.limit if self.limit else math.inf
        self.done = done
        if done >= total:
            self.status.clear()
            self.done = math.inf
        elif now >= self.end:
            self.done = math.inf
            raise TimeoutError(f"not at its end after {self.limit:g} s")
        else:
            self.status(f"{done} of {total} {self.what}{self._left(now, done, total)}")

    def _left(self, now: float, done: int, total: int) -> str:
        if not done:
            return ""
        return f", about {duration((now - self.begun) * (total - done) / done)} left"


def duration(seconds: float) -> str:
    """Write how long something takes, as exactly as a guess deserves."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 100 * 60 else f"{round(seconds / 3600)} h"


class _Ticking:
    """A line on the terminal that says how long a verb is at work, until something else is said.

    Where the same ``command`` was given before, it says how much is left if it takes as long again.
    """

    at_work: _Ticking | None = None
    """That of the verb that is at work, also while something better is said."""

    def __init__(self, verb: str, command: Sequence[str]) -> None:
        self.verb = verb
        self.command = command
        self.begun = monotonic()
        self.over, self.thread = Event(), Thread()
        _Ticking.at_work = self
        self.resume()

    @classmethod
    def resume(cls) -> None:
        """Go on where something better was said, and is not any more."""
        each = cls.at_work
        if each is not None and each not in _ticking:
            each.over, each.thread = Event(), Thread(target=each._tick, daemon=True)
            _ticking.append(each)
            each.thread.start()

    def _tick(self) -> None:
        shown, before, over = False, 0.0, self.over
        while not over.wait(ON_TERMINAL if shown else PATIENCE):
            before = before if shown else _lasted(self.command)
            shown, lasts = True, monotonic() - self.begun
            left = f", about {duration(before - lasts)} left" if before > lasts else ""
            sys.stderr.write(f"{CLEAR}ptxlab: {self.verb}, {duration(lasts)}{left}")
            sys.stderr.flush()
        if shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


_ticking: list[_Ticking] = []


@contextmanager
def ticking(verb: str, command: Sequence[str] = ()) -> Iterator[None]:
    """Say on a terminal how long ``verb`` is at work, until it says how far it is or what came of it."""
    begun = monotonic()
    if moves_cursor(sys.stderr):
        _Ticking(verb, command)
    try:
        yield
        if (lasted := monotonic() - begun) >= LONG:
            from ptxlab.cache import keep

            keep(_DURATIONS, _key(command), str(lasted).encode())
    finally:
        _Ticking.at_work = None
        quiet()


_DURATIONS = "durations"


def _key(command: Sequence[str]) -> tuple[str, ...]:
    return (os.getcwd(), *command)


def _lasted(command: Sequence[str]) -> float:
    """Return how many seconds a command took before, 0 where that is not known."""
    from ptxlab.cache import kept

    return float(kept(_DURATIONS, _key(command)) or 0)


def quiet() -> None:
    """Take back what is said of how long a verb is at work: there is something better to say."""
    while _ticking:
        _ticking.pop().stop()
