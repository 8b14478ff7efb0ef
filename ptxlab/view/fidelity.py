"""What is said of results whose bits nobody has measured."""

from __future__ import annotations

from collections.abc import Sequence

NEAREST = "they are those of the nearest rule that is known"


def unverified(lines: Sequence[int]) -> list[str]:
    """Return a sentence on the lines of PTX of which nobody has measured the bits; nothing if there are none."""
    if not lines:
        return []
    *first, last = map(str, lines)
    which = f"lines {', '.join(first)} and {last}" if first else f"line {last}"
    return [f"unverified: nobody has measured the bits of {which}, {NEAREST}"]
