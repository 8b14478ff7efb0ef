"""What pictures are made of: the document with its colours, headings and notes, and the measures."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from ptxlab.view.palette import SCHEMES, lane_rules

CELL_HEIGHT, CHARACTER, PADDING = 20, 6.7, 10
MARGIN, INDEX, LINE, TITLE = 12, 34, 17, 30
"""Around everything; for row indices; between lines of text; for the instruction's name."""


def document(about: str, parts: Sequence[str], width: float, height: float) -> str:
    """Return a picture that says what it is ``about``, in light or dark, on its own background."""
    size = f"{n(width)} {n(height)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{n(width)}" '
            f'height="{n(height)}" role="img" class="ptxlab">',
            f"<title>{escape(about)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="p" width="{n(width)}" height="{n(height)}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _style() -> str:
    """Return the style sheet, each rule bound to the picture: a page may hold several."""
    rules = (
        ".ptxlab text{{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:{ink}}}"
        ".ptxlab .c text{{text-anchor:middle}}.ptxlab .m text{{font-weight:700}}"
        ".ptxlab .i{{fill:{quiet};font-size:11px;letter-spacing:-.08em;text-anchor:middle}}.ptxlab .e{{text-anchor:end}}"
        ".ptxlab .t{{font-size:13px;font-weight:600}}.ptxlab .s{{fill:{quiet};font-size:11px}}"
        ".ptxlab .c rect{{stroke:{paper}}}.ptxlab .m rect{{stroke:{ink};stroke-width:2}}"
        ".ptxlab .p{{fill:{paper}}}"
    )
    light, dark = (lane_rules(".ptxlab .l", "fill", dark=dark) for dark in (False, True))
    return in_both_modes(rules, light, dark)


def in_both_modes(rules: str, light: str = "", dark: str = "") -> str:
    """Return ``rules`` with the ``ink``, ``quiet`` and ``paper`` of both modes, and those of one alone."""
    bright, dim = (rules.format_map(SCHEMES[mode]) for mode in ("light", "dark"))
    return f"{bright}{light}@media (prefers-color-scheme:dark){{{dim}{dark}}}"


def notes(lines: Sequence[str]) -> list[str]:
    return [
        f'<text class="s" x="{MARGIN}" y="{n(LINE + 6 + LINE * i)}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]


def legend(lines: Sequence[str]) -> list[str]:
    """Return notes that stand below a heading."""
    return [f'<g transform="translate(0,{TITLE})">', *notes(lines), "</g>"]


def heading(name: str) -> tuple[str, float]:
    """Return an instruction's name at the top, and how wide the picture must be for it."""
    text = f'<text class="t" x="{MARGIN}" y="26">{escape(name)}</text>'
    return text, 2 * MARGIN + len(name) * 7.9


def cell(
    corner: tuple[float, float],
    size: tuple[float, float],
    label: str,
    title: str,
    look: str,
    *,
    outlined: bool = False,
) -> str:
    """Return a rectangle from its upper left ``corner`` on, with a label in its middle.

    ``title`` is what hovering over it says, ``look`` the attribute that colours it.
    """
    (x, y), (width, height) = corner, size
    return (
        f'<g class="c{" m" * outlined}"><title>{escape(title)}</title>'
        f'<rect {look} x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}"/>'
        f'<text x="{n(x + width / 2)}" y="{n(y + height / 2 + 3.5)}">{escape(label)}</text></g>'
    )


def column_index(x: float, y: float, text: str) -> str:
    return f'<text class="i" x="{n(x)}" y="{n(y)}">{text}</text>'


def row_index(x: float, y: float, text: str) -> str:
    return f'<text class="i e" x="{n(x)}" y="{n(y)}">{text}</text>'


def n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
