"""Self-contained HTML pages: how one is put together, and the colours of those with lanes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import ptxlab
from ptxlab.isa.targets import WARP
from ptxlab.view.palette import lane_colour

_COLOURS = {
    "light": "--ink: #1f2328; --quiet: #59636e; --faint: #818b98; --line: #d1d9e0; --paper: #ffffff; "
    "--ground: #f6f8fa; --raised: #ffffff; --accent: #0550ae; --accent-soft: #ddf4ff; "
    "--good: #116329; --good-soft: #dafbe1; --open: #7d4e00; --open-soft: #fff8c5; "
    "--bad: #a40e26; --bad-soft: #ffebe9;",
    "dark": "--ink: #f0f6fc; --quiet: #9198a1; --faint: #818b98; --line: #3d444d; --paper: #0d1117; "
    "--ground: #0d1117; --raised: #151b23; --accent: #79c0ff; --accent-soft: #12315a; "
    "--good: #7ee787; --good-soft: #12361f; --open: #e3b341; --open-soft: #3a2d0d; "
    "--bad: #ff9a92; --bad-soft: #4a1519;",
}


def assembled(folder: Traversable, scripts: Sequence[str], parts: Mapping[str, str]) -> str:
    """Return ``page.html`` of a folder with its style sheet, its scripts and other parts put in by name.

    Scripts that the folder has not are those that pages share.
    """
    shared = files("ptxlab.view") / "page_files"
    own = {one.name for one in folder.iterdir()}
    texts = [((folder if name in own else shared) / name).read_text("utf-8") for name in scripts]
    known = {
        "version": ptxlab.__version__,
        "style": (folder / "style.css").read_text("utf-8"),
        "script": "\n".join(texts),
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


def in_schemes(light: str, dark: str) -> str:
    """Return declarations of the light scheme, and of the dark one: asked for, or the system's."""
    return "\n".join(
        [
            f":root {{ {light} color-scheme: light; }}",
            f':root[data-scheme="dark"] {{ {dark} color-scheme: dark; }}',
            "@media (prefers-color-scheme: dark) {",
            f'  :root:not([data-scheme="light"]) {{ {dark} color-scheme: dark; }}',
            "}\n",
        ]
    )


def lane_schemes() -> str:
    """Return the colours of pages that show lanes: ``--l5`` is that of lane 5, and fills what is ``.l5``."""
    light, dark = (
        _COLOURS[mode]
        + "".join(f" --l{n}: {lane_colour(n, dark=mode == 'dark')};" for n in range(WARP))
        for mode in ("light", "dark")
    )
    uses = "".join(f".l{lane}{{fill:var(--l{lane})}}" for lane in range(WARP))
    return f"{in_schemes(light, dark)}{uses}\n"
