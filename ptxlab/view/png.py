"""A picture in pixels: an SVG as resvg draws it, on white, two pixels for each of its units.

Resvg comes as a wheel, with the extra ``png``, and needs no libraries of the system.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from ptxlab.errors import DeviceUnavailable
from ptxlab.installation import adding_extra

SCALE = 2

_MONOSPACE = (
    "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Ubuntu Mono", "Menlo", "Consolas", "Courier New",
)  # fmt: skip
"""What systems call their letters of one width: resvg knows none by "monospace", and leaves text out."""


def require() -> None:
    """Raise DeviceUnavailable where resvg is not installed."""
    if find_spec("resvg_py") is None:
        raise DeviceUnavailable("the package resvg_py is not installed", hint=adding_extra("png"))


def png(svg: str) -> bytes:
    """Return the PNG of an SVG. Raises DeviceUnavailable without resvg, or without letters of one width."""
    require()
    return _drawn(svg, _font())


@cache
def _font() -> str:
    letter, nothing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><text y="15" font-family="monospace">{text}</text></svg>'
        for text in ("M", "")
    )
    for family in _MONOSPACE:
        if _drawn(letter, family) != _drawn(nothing, family):
            return family
    raise DeviceUnavailable(
        f"no font of one width is installed: {', '.join(_MONOSPACE)}",
        hint="a picture as .svg has the fonts of who looks at it",
    )


def _drawn(svg: str, font: str) -> bytes:
    draw = import_module("resvg_py").svg_to_bytes
    return bytes(draw(svg_string=svg, zoom=SCALE, background="white", monospace_family=font))
