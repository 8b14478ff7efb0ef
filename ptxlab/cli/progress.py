"""How far a long emulation is, told on stderr, and when it has gone on for too long."""

from __future__ import annotations

import math
import sys
from time import monotonic

PATIENCE = 1.0
"""Seconds before the first word: what is quicker needs none."""

ON_TERMINAL, IN_LOG = 0.1, 10.0
"""Seconds between two words: in one line of a terminal, and as lines of a file."""


class StatusLine:
    """Called with what is being done; says so in one line of a terminal, or at times in a log."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next = monotonic() + PATIENCE
        self.shown = False

    def __call__(self, text: str) -> None:
        now = monotonic()
        if now < self.next:
            return
        sys.stderr.write(f"\r\x1b[Kptxlab: {text}" if self.terminal else f"ptxlab: {text}\n")
        sys.stderr.flush()
        self.shown = True
        self.next = now + (ON_TERMINAL if self.terminal else IN_LOG)

    def clear(self) -> None:
        """Take the line off the terminal again."""
        if self.shown and self.terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self.shown = False


class LaunchProgress:
    """Called again and again, with how many CTAs, or ``what``, are done and their total; says so at times.

    Raises TimeoutError in a launch that has lasted ``limit`` seconds; 0 is no limit.
    """

    def __init__(self, limit: float = 0.0, what: str = "CTAs") -> None:
        self.limit = limit
        self.what = what
        self.end = math.inf
        self.status = StatusLine()
        self.done = math.inf

    def __call__(self, done: int, total: int) -> None:
        now = monotonic()
        if done < self.done:  # a launch begins
            self.status.next = now + PATIENCE
            self.end = now + self.limit if self.limit else math.inf
        self.done = done
        if done >= total:
            self.status.clear()
            self.done = math.inf
        elif now >= self.end:
            self.done = math.inf
            raise TimeoutError(f"not at its end after {self.limit:g} s")
        else:
            self.status(f"{done} of {total} {self.what}")
