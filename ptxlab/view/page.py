"""Self-contained HTML pages: how one is put together, and its colours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import ptxlab
from ptxlab.isa.targets import WARP
from ptxlab.view.palette import SCHEMES, lane_colour


def assembled(folder: Traversable, scripts: Sequence[str], parts: Mapping[str, str]) -> str:
    """Return ``page.html`` of a folder with its style sheet, its scripts and other parts put in by name, ``title`` too.

    The head, what makes it light or dark, and how it is printed, are those of all pages; scripts that the folder has not
    are those that pages share.
    """
    shared = files("ptxlab.view") / "page_files"
    own = {file.name for file in folder.iterdir()}

    def text(name: str) -> str:
        return ((folder if name in own else shared) / name).read_text("utf-8")

    known = {
        "head": text("head.html").rstrip(),
        "version": ptxlab.__version__,
        "style": text("style.css") + text("pages.css"),
        "script": "\n".join(map(text, ("scheme.js", *scripts))),
    }
    html = (folder / "page.html").read_text("utf-8")
    for name, part in {**known, **parts}.items():
        html = html.replace(f"@{name}@", part)
    return html


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "</" would end the script element; in JSON the slash may be escaped.
    return text.replace("</", r"<\/")


def in_schemes(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return the colours of pages, and more by name, as variables of the light scheme and of the dark one.

    The dark one is in force where it is asked for, or where the system has it, and never on paper.
    """
    bright, dim = (
        " ".join(f"--{name}: {colour};" for name, colour in {**SCHEMES[mode], **more}.items())
        for mode, more in (("light", light), ("dark", dark))
    )
    return "\n".join(
        [
            f":root {{ {bright} color-scheme: light; }}",
            f'@media screen {{ :root[data-scheme="dark"] {{ {dim} color-scheme: dark; }} }}',
            "@media screen and (prefers-color-scheme: dark) {",
            f'  :root:not([data-scheme="light"]) {{ {dim} color-scheme: dark; }}',
            "}\n",
        ]
    )


def lane_schemes() -> str:
    """Return the colours of pages that show lanes: ``--l5`` is that of lane 5, and fills what is ``.l5``."""
    light, dark = (
        {f"l{lane}": lane_colour(lane, dark=dark) for lane in range(WARP)} for dark in (False, True)
    )
    uses = "".join(f".l{lane}{{fill:var(--l{lane})}}" for lane in range(WARP))
    return f"{in_schemes(light, dark)}{uses}\n"
