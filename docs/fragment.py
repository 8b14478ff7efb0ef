"""Draw docs/fragment.svg, the picture of the README, from the layouts in ptxlab.isa.

python docs/fragment.py            write the picture
python docs/fragment.py --check    say whether the committed picture is what this would write
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from ptxlab.isa import LANES, FragmentLayout, find

PICTURE = Path(__file__).with_name("fragment.svg")
OPERATION, DTYPE = "m16n8k16", "bf16"
LANE = 6
"""The lane whose registers are named in the picture."""

CELL_WIDTH, CELL_HEIGHT, STEP_GAP = 25, 20, 46
LEFT, TOP = 8, 44


def colour(lane: int, dark: bool) -> str:
    """Return the sRGB colour of a lane: a hue for its group of four, a lightness for its place."""
    group, place = divmod(lane, 4)
    hue = math.radians(20 + group * 45)
    lightness = (0.36 + 0.055 * place) if dark else (0.93 - 0.055 * place)
    chroma = 0.085 if dark else 0.075
    return oklab(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def oklab(lightness: float, a: float, b: float) -> str:
    """Return an Oklab colour as #rrggbb (Björn Ottosson, "A perceptual color space")."""
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
    """Return the sRGB value of a linear one, clipped to what a screen shows."""
    channel = min(max(channel, 0.0), 1.0)
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055


def style() -> str:
    """Return the style sheet: one class a lane, in light and in dark."""
    light = "".join(f".l{lane}{{fill:{colour(lane, False)}}}" for lane in range(LANES))
    dark = "".join(f".l{lane}{{fill:{colour(lane, True)}}}" for lane in range(LANES))
    return (
        "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;text-anchor:middle}"
        ".n{font-size:10px;fill:#1f2328;opacity:.75}"
        ".r{font-size:11px;font-weight:700;fill:#1f2328}"
        ".t{font-size:15px;font-weight:600;fill:#1f2328}.s{font-size:12px;fill:#59636e}"
        ".f{stroke:#ffffff;stroke-width:1}.m{fill:none;stroke:#1f2328;stroke-width:2}"
        f"{light}"
        "@media (prefers-color-scheme:dark){"
        ".n,.r,.t{fill:#f0f6fc}.s{fill:#9198a1}.f{stroke:#0d1117}.m{stroke:#f0f6fc}"
        f"{dark}}}"
    )


def operand(layout: FragmentLayout, title: str, left: int) -> list[str]:
    """Return the drawing of one operand: each cell coloured by the lane that holds the element."""
    middle = left + layout.cols * CELL_WIDTH / 2
    parts = [f'<text class="t" x="{middle:g}" y="{TOP - 14}">{title}</text>']
    marks = []
    for row in range(layout.rows):
        for col in range(layout.cols):
            (place,) = layout.registers(row, col)
            x, y = left + col * CELL_WIDTH, TOP + row * CELL_HEIGHT
            parts.append(
                f'<rect class="f l{place.lane}" x="{x}" y="{y}" width="{CELL_WIDTH}" '
                f'height="{CELL_HEIGHT}"/>'
            )
            mine = place.lane == LANE
            text = f"{layout.operand.lower()}{place.register}" if mine else f"{place.lane}"
            parts.append(
                f'<text class="{"r" if mine else "n"}" x="{x + CELL_WIDTH / 2:g}" '
                f'y="{y + CELL_HEIGHT / 2 + 4:g}">{text}</text>'
            )
            if mine:
                marks.append(
                    f'<rect class="m" x="{x + 1}" y="{y + 1}" width="{CELL_WIDTH - 2}" '
                    f'height="{CELL_HEIGHT - 2}" rx="3"/>'
                )
    return parts + marks


def picture() -> str:
    """Return the SVG text."""
    instruction = find(OPERATION, dtype=DTYPE)
    parts: list[str] = []
    left = LEFT
    for name, sign in (("A", "×"), ("B", "="), ("D", "")):
        layout = instruction.operand(name)
        title = f"{name}  {layout.rows}×{layout.cols} {layout.dtype}"
        parts += operand(layout, title, left)
        left += layout.cols * CELL_WIDTH
        if sign:
            y = TOP + layout.rows * CELL_HEIGHT / 2 + 6
            parts.append(f'<text class="t" x="{left + STEP_GAP / 2:g}" y="{y:g}">{sign}</text>')
            left += STEP_GAP
    width = left + LEFT
    height = TOP + 16 * CELL_HEIGHT + 58
    caption = (
        "each number is the lane that holds the element; the four lanes of a group share a hue",
        f"outlined: all that lane {LANE} holds, two bf16 in each register of A and B,"
        " one f32 in each of D",
    )
    for line, text in enumerate(caption):
        y = height - 34 + 18 * line
        parts.append(f'<text class="s" x="{width / 2:g}" y="{y}">{text}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>Which lane of a warp holds which element in {instruction.name}</title>",
            f"<style>{style()}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write the picture, or with --check compare it."""
    text = picture()
    if sys.argv[1:] == ["--check"]:
        return int(PICTURE.read_text(encoding="utf-8") != text)
    PICTURE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
