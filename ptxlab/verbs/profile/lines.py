"""The lines of a Profile: what stands there, what was counted, and all of it as a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxlab.observe.counters import COUNTERS, IDEAL, Counts
from ptxlab.observe.profile import Line, Profile
from ptxlab.view.colour import Heat
from ptxlab.view.sources import Sources, source_text
from ptxlab.view.text import aligned

KEYS = (*(counter.name for counter in COUNTERS), "excess", "lanes")
"""What lines can be sorted by beside their number, the most first."""

_COLUMNS = {
    "executed": "executed",
    "lanes": "lanes",
    "partial": "partial",
    "splits": "splits",
    "requests": "global",
    "sectors": "sectors",
    "sectors_ideal": "ideal",
    "shared_requests": "shared",
    "shared_wavefronts": "wavefronts",
    "shared_ideal": "ideal",
    "local_requests": "local",
    "local_sectors": "sectors",
    "local_ideal": "ideal",
    "collisions": "collisions",
    "flops": "FLOPs",
    "integer_ops": "int ops",
}
"""The counters in the table, and their headings: each space's follow its name."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line to be shown: where it is, what stands there, what was counted."""

    place: str
    text: str
    line: Line


def rows(profile: Profile, sources: Sources, by: str) -> list[Row]:
    """Return the lines of PTX (``by`` "ptx") or of CUDA C ("cuda"), from the top."""
    if by == "ptx":
        return [Row(str(e.number), ptx_text(profile, e.number), e) for e in profile.lines]
    several = len(profile.sources) > 1
    return [
        Row(
            f"{os.path.basename(path)}:{line.number}" if several else str(line.number),
            source_text(sources, path, line.number),
            line,
        )
        for path, lines in profile.sources.items()
        for line in lines
    ]


def ptx_text(profile: Profile, number: int) -> str:
    return profile.text[number - 1].strip().replace("\t", " ")


def short(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def table(shown: Sequence[Row], heat: Heat) -> list[str]:
    """Return a heading, and a line for each row; what nothing was counted of has no column."""
    used = [name for name in _COLUMNS if any(getattr(row.line.counts, name) for row in shown)]
    most = max((row.line.counts.executed for row in shown), default=0)
    head = ["line", *(_COLUMNS[name] for name in used)]
    cells = [[row.place, *(_cell(row.line.counts, name) for name in used)] for row in shown]
    plain = aligned([head, *cells])
    width = max(map(len, plain))
    lines = [plain[0]]
    for row, line, numbers in zip(shown, plain[1:], cells, strict=True):
        heats = [0.0, *(_heat(row.line.counts, name, most) for name in used)]
        lines.append(f"{_painted(line.ljust(width), numbers, heats, heat)}  {row.text}".rstrip())
    return lines


def _painted(line: str, cells: Sequence[str], heats: Sequence[float], heat: Heat) -> str:
    parts, rest = [], line
    for cell, how in zip(cells, heats, strict=True):
        before, _, rest = rest.partition(cell) if cell else ("", "", rest)
        parts += [before, heat(cell, how)]
    return "".join([*parts, rest])


def _cell(counts: Counts, name: str) -> str:
    if name == "lanes":
        return average(counts)
    value: int = getattr(counts, name)
    return f"{value:,}" if value else "."


def average(counts: Counts) -> str:
    return f"{counts.lanes:.1f}".removesuffix(".0")


def _heat(counts: Counts, name: str, most: int) -> float:
    value: int = getattr(counts, name)
    if name in IDEAL and value:
        ideal: int = getattr(counts, IDEAL[name])
        return 1 - ideal / value
    return value / most if name == "executed" else 0.0
