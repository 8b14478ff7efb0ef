"""CUDA C that stands in a Python file as a string: its lines are those of that file."""

from __future__ import annotations

import linecache


def standing_in(path: str, text: str) -> str | None:
    """Return a source with the line of the file that has it as a string, None where that file has it not."""
    whole = "".join(linecache.getlines(path))
    at = whole.find(text) if text.strip() else -1
    line = whole.count("\n", 0, at) + 1
    return f'#line {line} "{path}"\n{text}' if at >= 0 else None
