"""The lines of a Profile: what stands there, what was counted, and all of it as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxlab.observe.counters import COUNTERS, IDEAL, Counts
from ptxlab.observe.profile import Profile, ProfiledLine
from ptxlab.view.colour import Heat
from ptxlab.view.sources import Sources, at_line, source_text
from ptxlab.view.text import aligned
from ptxlab.view.width import shortened

KEYS = (*(counter.name for counter in COUNTERS), "excess", "lanes")
"""What lines can be sorted by beside their number, the most first."""


def sort_keys() -> dict[str, str]:
    """Return the names of each key: its own, the heading of its column, and Nsight Compute's metric.

    A heading that several columns have is that of the first.
    """
    headings = {heading: name for name, heading in reversed(_COLUMNS.items())}
    metrics = {counter.metric.partition(",")[0]: counter.name for counter in COUNTERS}
    return {**metrics, **headings, **{name: name for name in ("line", *KEYS)}}


_COLUMNS = {"executed": "executed", "lanes": "lanes"}
_COLUMNS |= {counter.name: counter.heading for counter in COUNTERS if counter.heading}
"""What has a column in the table, and its heading."""

_LEAST = (
    "integer_ops", "partial", "splits", "requests", "shared_requests", "local_requests",
    "engine_shared", "tensor_shared", "tmem_written", "tmem_read", "collisions", "flops", "lanes",
    "sectors_ideal", "local_ideal", "shared_ideal", "tensor_ideal",
)  # fmt: skip
"""The counters that make way on a narrow terminal, the least first."""

_TEXT = 24
"""How much of a line's text is shown at least."""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line to be shown: where it is, what stands there, what was counted."""

    where: str
    text: str
    line: ProfiledLine


def rows(profile: Profile, sources: Sources, by: str) -> list[ShownLine]:
    """Return the lines of PTX (``by`` "ptx"), of CUDA C ("cuda") or of machine code ("sass"), from the top."""
    if by == "sass":
        return [ShownLine(str(e.number), _beside(profile, e), e) for e in profile.lines]
    if by == "ptx" and not profile.machine_code:
        return [ShownLine(str(e.number), ptx_text(profile, e.number), e) for e in profile.lines]
    several = len(profile.sources) > 1
    return [
        ShownLine(
            at_line(path, line.number) if several else str(line.number),
            source_text(sources, path, line.number),
            line,
        )
        for path, lines in profile.sources.items()
        for line in lines
    ]


def _beside(profile: Profile, line: ProfiledLine) -> str:
    """Return an instruction of machine code, and the line that it was made from."""
    text, source = ptx_text(profile, line.number), line.instructions[0].source
    return text if source is None else f"{text}  {at_line(*source)}"


def ptx_text(profile: Profile, number: int) -> str:
    return profile.text[number - 1].strip().replace("\t", " ")


def short(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def table(shown: Sequence[ShownLine], heat: Heat, screen: int | None = None) -> list[str]:
    """Return a heading, and a line for each row; what nothing was counted of has no column.

    On a ``screen`` of so many columns the least counters make way for the text of the lines, which is
    cut at the edge; a last line names them.
    """
    used = [name for name in _COLUMNS if any(getattr(row.line.counts, name) for row in shown)]
    gone = []
    for name in (name for name in _LEAST if name in used):
        if screen is None or len(_numbers(shown, used)[0]) + 2 + _TEXT <= screen:
            break
        used.remove(name)
        gone.append(name)
    most = max((row.line.counts.executed for row in shown), default=0)
    plain = _numbers(shown, used)
    width = max(map(len, plain))
    lines = [plain[0]]
    for row, line in zip(shown, plain[1:], strict=True):
        numbers = _cells(row, used)
        heats = [0.0, *(_heat(row.line.counts, name, most) for name in used)]
        text = row.text if screen is None else shortened(row.text, max(_TEXT, screen - width - 2))
        lines.append(f"{_painted(line.ljust(width), numbers, heats, heat)}  {text}".rstrip())
    if gone:
        lines.append(f"not shown for the terminal's width: {', '.join(gone)} (names as in --json)")
    return lines


def _numbers(shown: Sequence[ShownLine], used: Sequence[str]) -> list[str]:
    head = ["line", *(_COLUMNS[name] for name in used)]
    return aligned([head, *(_cells(row, used) for row in shown)])


def _cells(row: ShownLine, used: Sequence[str]) -> list[str]:
    return [row.where, *(_cell(row.line.counts, name) for name in used)]


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
