"""A Profile as one HTML page: its hottest lines, the source and the PTX, each line with its counters, coloured by one.

The page needs no network. Its script shows the counter that is chosen, and follows a line of CUDA C to
the PTX it became and back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from importlib.resources import files
from itertools import groupby

from ptxlab.observe.counters import COUNTERS, Counts
from ptxlab.observe.profile import Profile, ProfiledLine
from ptxlab.verbs.profile.lines import average, short
from ptxlab.verbs.profile.text import heading, tell, totals
from ptxlab.view.page import assembled, in_schemes
from ptxlab.view.sources import Sources, at_line
from ptxlab.view.text import counted as counted_lines

_HEADS = ("line", "executed", "lanes", "sectors", "ideal", "wavefronts", "ideal", "")


CONTEXT = 2
"""Lines that are shown before and behind those that were executed."""


def page(profile: Profile, sources: Sources) -> str:
    """Return the page: the hottest lines, the files of the source that are at hand, the kernel's own first, and the PTX."""
    folder = files("ptxlab.verbs.profile") / "page_files"
    own = profile.path.removesuffix(" (PTX)")
    known = sorted(
        (path for path in profile.sources if path in sources),
        key=lambda path: (not path.endswith(own), -_most(profile.sources[path])),
    )
    listings = [
        _listing(profile, path, sources[path], profile.sources[path], "here", is_open=True)
        for path in known
    ]
    listings.append(
        _listing(profile, profile.path, profile.text, profile.lines, "from", is_open=not known)
    )
    parts = {
        "colours": in_schemes({}, {}),
        "counters": _counters(profile.totals),
        "totals": "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in totals(profile)
        ),
        "title": escape(heading(profile)),
        "listings": "\n".join(listings),
    }
    return assembled(folder, ("copy.js", "script.js"), parts)


def _most(lines: Iterable[ProfiledLine]) -> int:
    return max((line.counts.executed for line in lines), default=0)


def _listing(
    profile: Profile,
    path: str,
    texts: Iterable[str],
    lines: Iterable[ProfiledLine],
    mark: str,
    *,
    is_open: bool,
) -> str:
    """Return a file; a line of it names, as ``mark``, the line of CUDA C that it is or comes from."""
    counted = {line.number: line for line in lines}
    rows = []
    for number, text in enumerate(texts, 1):
        line = counted.get(number)
        source = line.instructions[0].source if line else None
        data = {"place": at_line(path, number)}
        data |= {} if source is None else {mark: f"{source.path}:{source.line}"}
        rows.append(_row(profile, number, text, line, data))
    ran = {number for number, line in counted.items() if line.counts.executed}
    shown = [
        bool(ran.intersection(range(n - CONTEXT, n + CONTEXT + 1))) for n in range(1, len(rows) + 1)
    ]
    body = []
    for kept, group in groupby(zip(shown, rows, strict=True), key=lambda each: each[0]):
        text = "\n".join(row for _, row in group)
        body.append(f"<tbody>{text}</tbody>" if kept else _folded(text))
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    executed = f"{len(ran)} of {len(rows)} lines executed"
    return (
        f"<details{' open' * is_open}><summary><h2>{escape(short(path))}</h2> <small>{executed}</small></summary>\n"
        f'<div class="listing" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        + "\n".join(body)
        + "\n</table></div></details>"
    )


def _folded(rows: str) -> str:
    """Return rows that are there when they are asked for."""
    lines = counted_lines(rows.count("<tr"), "line")
    words = f"{lines} that no warp executed"
    button = f'<button type="button" aria-expanded="false">{words}</button>'
    return (
        f'<tbody><tr class="gap"><td colspan="{len(_HEADS)}">{button}</td></tr></tbody>'
        f"<tbody hidden>{rows}</tbody>"
    )


def _row(
    profile: Profile, number: int, text: str, line: ProfiledLine | None, data: Mapping[str, str]
) -> str:
    shown = f"<td>{escape(text.rstrip())}"
    if line is None:
        return (
            f'<tr class="never"><td>{number}</td>{"<td></td>" * (len(_HEADS) - 2)}{shown}</td></tr>'
        )
    counts = line.counts
    kept = {name: value for name, value in _values(counts).items() if value}
    attributes = {"counts": json.dumps(kept, separators=(",", ":")), **data}
    named = "".join(f' data-{name}="{escape(value)}"' for name, value in attributes.items())
    never = "" if counts.executed else ' class="never"'
    if line.conflict is not None:
        shown += f'<p class="conflict">{escape(tell(profile, line.conflict))}</p>'
    lanes = average(counts) if counts.executed else ""
    cells = [
        f"<td>{number}</td><td></td><td>{lanes}</td>",
        _against(counts.sectors, counts.sectors_ideal),
        _against(counts.shared_wavefronts, counts.shared_ideal),
    ]
    return f"<tr{never}{named}>{''.join(cells)}{shown}</td></tr>"


def _against(actual: int, ideal: int) -> str:
    if not actual:
        return "<td></td><td></td>"
    waste = ' class="waste"' if actual > ideal else ""
    return f"<td{waste}>{actual:,}</td><td>{ideal:,}</td>"


def _values(counts: Counts) -> dict[str, int]:
    return {**asdict(counts), "excess": counts.excess}


def _counters(totals: Counts) -> str:
    values = _values(totals)
    excess = ("excess", "excess", "sectors and wavefronts beyond the ideal ones")
    known = [
        (
            counter.name,
            counter.name.replace("_", " "),
            counter.meaning + f" ({counter.metric})" * bool(counter.metric),
        )
        for counter in COUNTERS
    ]
    return "".join(
        f'<option value="{name}" title="{escape(meaning)}">{escape(heading)}</option>'
        for name, heading, meaning in (*known, excess)
        if values[name]
    )
