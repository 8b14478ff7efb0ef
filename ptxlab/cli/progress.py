"""How far a long emulation is, told on stderr."""

from __future__ import annotations

import math
import sys
from time import monotonic

PATIENCE = 1.0
"""Seconds before the first word: what is quicker needs none."""

ON_TERMINAL, IN_LOG = 0.1, 10.0
"""Seconds between two words: in one line of a terminal, and as lines of a file."""


class Progress:
    """Called again and again during a launch, with CTAs done and their total; says so at times."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.done = math.inf
        self.next = 0.0
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` CTAs have run."""
        if done < self.done:  # a launch begins
            self.next = monotonic() + PATIENCE
        self.done = done
        if done >= total:
            self.clear()
        elif monotonic() >= self.next:
            text = f"ptxlab: {done} of {total} CTAs"
            sys.stderr.write(f"\r{text}" if self.terminal else f"{text}\n")
            sys.stderr.flush()
            self.shown = True
            self.next = monotonic() + (ON_TERMINAL if self.terminal else IN_LOG)

    def clear(self) -> None:
        """Take the line off the terminal again."""
        if self.shown and self.terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self.shown = False
