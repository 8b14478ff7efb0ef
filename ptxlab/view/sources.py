"""The files that line info names: where instructions come from, as far as they are at hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ptxlab.files import read_text

Sources = Mapping[str, Sequence[str]]
"""The lines of files, by the names that line info has for them."""


def read_sources(paths: Iterable[str]) -> Sources:
    """Return the lines of the files that are there and are text."""
    lines = {}
    for path in paths:
        try:
            lines[path] = read_text(path).splitlines()
        except (OSError, ValueError):
            continue
    return lines


def at_line(path: str, number: int) -> str:
    """Return how a line is named where there is little space: ``gemm.cuh:122``."""
    return f"{os.path.basename(path)}:{number}"


def source_text(sources: Sources, path: str, number: int) -> str:
    """Return a line without what is around it, "" where its file is not at hand."""
    lines = sources.get(path, ())
    return lines[number - 1].expandtabs().strip() if number <= len(lines) else ""


def indented(sources: Sources, path: str, number: int) -> tuple[int, str]:
    """Return the column where the text of a line begins, from 1 on, and the line: 1 and "" where it is not at hand."""
    lines = sources.get(path, ())
    text = lines[number - 1].expandtabs().rstrip() if number <= len(lines) else ""
    return len(text) - len(text.lstrip()) + 1, text
