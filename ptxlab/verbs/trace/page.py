"""A Timeline as one HTML page, with lanes to zoom and pan; it needs no network.

The page holds the JSON of ``--json`` and the lines of PTX, and its scripts (``page_files/``) draw from
these.
"""

from __future__ import annotations

import math
from html import escape
from importlib.resources import files

from ptxlab.observe.timeline import Timeline
from ptxlab.prediction.sm.issues import PredictedIssues
from ptxlab.verbs.trace.text import as_json, heading, notes, totals
from ptxlab.view.json import plain
from ptxlab.view.page import assembled, embedded, in_schemes
from ptxlab.view.palette import oklab
from ptxlab.view.sources import Sources

SCRIPTS = ("framed.js", "lanes.js", "words.js", "draw.js", "cycles.js", "events.js")
AROUND = 6
"""Lines of PTX that are shown before and after those that were executed."""

HUES = {"mma": 55, "copy": 305, "sync": 15, "shared": 150, "memory": 245}
"""Degrees in Oklab of the classes of instructions; what is in none of these is grey."""

_REST = {
    "light": {"other": "#c3cad1", "even": "#c9e7e4", "odd": "#f3e3b5"},
    "dark": {"other": "#4a525c", "even": "#1d4a48", "odd": "#54461b"},
}
_LIGHTNESS = {"light": (0.70, 0.135, 0.90, 0.05), "dark": (0.68, 0.125, 0.36, 0.06)}
"""Lightness and chroma of a class, then of its pale colour."""


def page(timeline: Timeline, sources: Sources, predicted: PredictedIssues | None = None) -> str:
    folder = files("ptxlab.verbs.trace") / "page_files"
    told = plain(as_json(timeline, sources, predicted)) | {"text": _lines(timeline)}
    parts = {
        "colours": in_schemes(_colours("light"), _colours("dark")),
        "title": escape(heading(timeline)),
        "totals": "".join(
            f"<li><b>{escape(name)}</b> {escape(what)}</li>"
            for name, what in totals(timeline)
            if not name.startswith(("  ", "mbarrier"))
        ),
        "notes": "".join(f'<p class="note">{escape(note)}</p>' for note in notes(timeline)),
        "schedule": escape(timeline.schedule),
        "data": embedded(told),
    }
    return assembled(folder, SCRIPTS, parts)


def _lines(timeline: Timeline) -> dict[int, str]:
    """Return the lines of PTX that were executed, and those around them."""
    wanted = {
        line
        for site in timeline.places
        for line in range(site.line - AROUND, site.line + AROUND + 1)
        if 1 <= line <= len(timeline.text)
    }
    return {line: timeline.text[line - 1].expandtabs(4) for line in sorted(wanted)}


def _colours(mode: str) -> dict[str, str]:
    colours = dict(_REST[mode])
    lightness, chroma, pale, faint = _LIGHTNESS[mode]
    for name, degrees in HUES.items():
        a, b = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        colours[name] = oklab(lightness, chroma * a, chroma * b)
        colours[f"{name}-pale"] = oklab(pale, faint * a, faint * b)
    return colours
