"""Colours: those of pictures and pages, and of the 32 lanes, one hue for each group of four, four shades in it.

The hues and shades are even steps in Oklab (Björn Ottosson, "A perceptual color space for image
processing"), so that no lane stands out and the text on all of them is equally legible.
"""

from __future__ import annotations

import math

from ptxlab.isa.targets import WARP

SCHEMES = {
    "light": {
        "ink": "#1f2328", "quiet": "#59636e", "faint": "#818b98", "line": "#d1d9e0", "paper": "#ffffff",
        "ground": "#f6f8fa", "raised": "#ffffff", "accent": "#0550ae", "accent-soft": "#ddf4ff",
        "good": "#116329", "good-soft": "#dafbe1", "open": "#7d4e00", "open-soft": "#fff8c5",
        "bad": "#a40e26", "bad-soft": "#ffebe9",
    },
    "dark": {
        "ink": "#f0f6fc", "quiet": "#9198a1", "faint": "#818b98", "line": "#3d444d", "paper": "#0d1117",
        "ground": "#0d1117", "raised": "#151b23", "accent": "#79c0ff", "accent-soft": "#12315a",
        "good": "#7ee787", "good-soft": "#12361f", "open": "#e3b341", "open-soft": "#3a2d0d",
        "bad": "#ff9a92", "bad-soft": "#4a1519",
    },
}  # fmt: skip
"""The colours of both schemes by what they are for; text is drawn in ``ink`` on ``paper``."""


def lane_colour(lane: int, *, dark: bool) -> str:
    """Return the sRGB colour of a lane: a hue for its group of four, a lightness for its place.

    Threads of a warpgroup have the colours of their lanes.
    """
    group, position = divmod(lane % WARP, 4)
    hue = math.radians(20 + group * 45)
    lightness = (0.36 + 0.055 * position) if dark else (0.93 - 0.055 * position)
    chroma = 0.085 if dark else 0.075
    return oklab(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def lane_rules(prefix: str, declaration: str, *, dark: bool) -> str:
    """Return one CSS rule a lane: ``prefix`` and its number, ``declaration`` and its colour."""
    return "".join(
        f"{prefix}{lane}{{{declaration}:{lane_colour(lane, dark=dark)}}}" for lane in range(WARP)
    )


def oklab(lightness: float, a: float, b: float) -> str:
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * gamma(channel)):02x}" for channel in linear)


def gamma(channel: float) -> float:
    channel = min(max(channel, 0.0), 1.0)
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055
