"""Colour by lane: one hue for each group of four lanes, four shades in a group."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from functools import cache

Paint = Callable[[str, int], str]
"""Takes a text and the lane it belongs to, and returns the text as it is to be written."""


def plain(text: str, lane: int) -> str:
    """Return the text as it is: for pipes, files, and NO_COLOR."""
    return text


def on_terminal() -> Paint:
    """Return the painter for this terminal, in as many colours as it says it has."""
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style

    name = Console().color_system
    if name is None:
        return plain
    system = {
        "standard": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
        "windows": ColorSystem.WINDOWS,
    }[name]

    @cache
    def style(lane: int) -> Style:
        group, in_group = divmod(lane, 4)
        rgb = colorsys.hls_to_rgb(group / 8, 0.62 + 0.08 * in_group, 0.65)
        return Style(color="black", bgcolor="#" + "".join(f"{round(255 * c):02x}" for c in rgb))

    def paint(text: str, lane: int) -> str:
        return style(lane).render(text, color_system=system)

    return paint
