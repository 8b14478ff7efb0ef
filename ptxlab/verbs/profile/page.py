"""A Profile as one HTML page: the source and the PTX, each line with its counters, coloured by one.

The page needs no network. Its script shows the counter that is chosen, and follows a line of CUDA C to
the PTX it became and back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from importlib.resources import files

from ptxlab.observe.counters import COUNTERS, Counts
from ptxlab.observe.profile import Profile, ProfiledLine
from ptxlab.verbs.profile.lines import average, short
from ptxlab.verbs.profile.text import heading, tell, totals
from ptxlab.view.page import assembled, in_schemes
from ptxlab.view.sources import Sources

_HEADS = ("line", "executed", "lanes", "sectors", "ideal", "wavefronts", "ideal", "")


def page(profile: Profile, sources: Sources) -> str:
    """Return the page: totals, the files of CUDA C that are at hand, and the PTX."""
    folder = files("ptxlab.verbs.profile") / "page_files"
    listings = [
        _listing(profile, path, sources[path], lines, "here")
        for path, lines in profile.sources.items()
        if path in sources
    ]
    listings.append(_listing(profile, profile.path, profile.text, profile.lines, "from"))
    parts = {
        "colours": in_schemes({}, {}),
        "counters": _counters(profile.totals),
        "totals": "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in totals(profile)
        ),
        "title": escape(heading(profile)),
        "listings": "\n".join(listings),
    }
    return assembled(folder, ("script.js",), parts)


def _listing(
    profile: Profile, path: str, texts: Iterable[str], lines: Iterable[ProfiledLine], mark: str
) -> str:
    """Return a file; a line of it names, as ``mark``, the line of CUDA C that it is or comes from."""
    counted = {line.number: line for line in lines}
    body = []
    for number, text in enumerate(texts, 1):
        line = counted.get(number)
        source = line.instructions[0].source if line else None
        data = {} if source is None else {mark: f"{source.path}:{source.line}"}
        body.append(_row(profile, number, text, line, data))
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    return (
        f'<h2>{escape(short(path))}</h2>\n<div class="listing"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n"
        "<tbody>\n" + "\n".join(body) + "\n</tbody></table></div>"
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
