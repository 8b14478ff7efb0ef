"""Colour in a terminal: by lane, one hue for each group of four, four shades in a group; and by heat."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.color import ColorSystem

Paint = Callable[[str, int], str]
"""Takes a text and the lane it belongs to, and returns the text as it is to be written."""

Heat = Callable[[str, float], str]
"""Takes a text and how hot it is, from 0 to 1, and returns the text as it is to be written."""


def plain(text: str, of: float) -> str:
    """Return the text as it is: for pipes, files, and NO_COLOR."""
    return text


def on_terminal() -> Paint:
    """Return the painter of lanes for this terminal, in as many colours as it says it has."""
    from rich.style import Style

    system = _system()
    if system is None:
        return plain

    @cache
    def style(lane: int) -> Style:
        group, in_group = divmod(lane, 4)
        return Style(color="black", bgcolor=_rgb(group / 8, 0.62 + 0.08 * in_group, 0.65))

    return lambda text, lane: style(lane).render(text, color_system=system)


def heat_on_terminal() -> Heat:
    """Return the painter of heat for this terminal: from yellow to red, bold at the end."""
    from rich.style import Style

    system = _system()
    if system is None:
        return plain

    def paint(text: str, heat: float) -> str:
        if heat <= 0:
            return text
        style = Style(color=_rgb((1 - heat) / 6, 0.55, 0.85), bold=heat > 0.9)
        return style.render(text, color_system=system)

    return paint


def _rgb(hue: float, lightness: float, saturation: float) -> str:
    channels = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _system() -> ColorSystem | None:
    """Return how many colours this terminal has, None for none."""
    from rich.color import ColorSystem
    from rich.console import Console

    return {
        "standard": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
        None: None,
    }[Console().color_system]
