"""Bars beside each other as a picture, with lines that they may reach and marks of what others did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ptxlab.view.svg_parts import LINE, MARGIN, TITLE, document, heading, in_both_modes, n

BAR, GAP, WIDTH, ROOM = 16, 6, 560, 150
"""Height of a bar and what is between two; width of the longest; room for the text behind it."""

LETTER = 6.2
"""Width of a character in the labels."""

COLOURS = ("l6", "l14", "l22", "l30")
"""Classes of the style sheet, far apart; the parts of a bar have one each."""

STYLE = in_both_modes(
    ".ptxlab .r{{stroke:{quiet};stroke-dasharray:4 3;fill:none}}"
    ".ptxlab .d{{stroke:{ink};fill:none}}"
    ".ptxlab .v{{paint-order:stroke;stroke:{paper};stroke-width:3px}}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one or several ``parts``, one after the other, with a ``text`` behind it.

    ``mark`` is where a diamond stands, None for none.
    """

    label: str
    parts: tuple[float, ...]
    text: str
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across all bars of a panel, at ``value``."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on a scale of their own, from 0 to the longest of them or the last of the ``rules``."""

    title: str
    bars: tuple[Bar, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def most(self) -> float:
        """What the whole width stands for."""
        ends = [sum(bar.parts) for bar in self.bars] + [bar.mark or 0.0 for bar in self.bars]
        return max([*ends, *(rule.value for rule in self.rules)], default=0.0) or 1.0


def chart(about: str, panels: Sequence[Panel], parts: Sequence[str], notes: Sequence[str]) -> str:
    """Return the picture of all panels, one below the other.

    ``parts`` says what the parts of a bar are, if they have several; ``notes`` stand at the end.
    """
    title, room = heading(about)
    labels = [bar.label for panel in panels for bar in panel.bars]
    left = MARGIN + max(map(len, labels), default=0) * LETTER + GAP
    drawn = [f"<style>{STYLE}</style>", title]
    top = float(TITLE + MARGIN)
    if len(parts) > 1:
        drawn += _key(parts, left, top)
        top += LINE
    for panel in panels:
        drawn += _panel(panel, left, top)
        top = _bottom(panel, top) + LINE
    for note in notes:
        drawn.append(f'<text class="s" x="{MARGIN}" y="{n(top)}">{escape(note)}</text>')
        top += LINE
    width = max([left + WIDTH + ROOM, room, *(2 * MARGIN + len(note) * 6.8 for note in notes)])
    return document(about, drawn, width, top)


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    scale = WIDTH / panel.most
    yield f'<text class="s" x="{n(left)}" y="{n(top + 10)}">{escape(panel.title)}</text>'
    first = top + LINE * (1 + bool(panel.rules))
    for rule in panel.rules:
        x = left + rule.value * scale
        bottom = _bottom(panel, top) - GAP
        yield f'<text class="i" x="{n(x)}" y="{n(first - 7)}">{escape(rule.label)}</text>'
        yield f'<path class="r" d="M{n(x)},{n(first - 4)}V{n(bottom)}"/>'
    for number, bar in enumerate(panel.bars):
        yield from _bar(bar, left, first + number * (BAR + GAP), scale)


def _bar(bar: Bar, left: float, y: float, scale: float) -> Iterator[str]:
    yield f'<text class="e" x="{n(left - GAP)}" y="{n(y + 12)}">{escape(bar.label)}</text>'
    x = left
    for part, colour in zip(bar.parts, COLOURS, strict=False):
        yield (
            f'<rect class="{colour}" x="{n(x)}" y="{n(y)}" width="{n(part * scale)}" '
            f'height="{BAR}"/>'
        )
        x += part * scale
    if bar.mark is not None:
        yield _diamond(left + bar.mark * scale, y + BAR / 2)
        x = max(x, left + bar.mark * scale + BAR / 2)
    yield f'<text class="v" x="{n(x + GAP)}" y="{n(y + 12)}">{escape(bar.text)}</text>'


def _bottom(panel: Panel, top: float) -> float:
    return top + LINE * (1 + bool(panel.rules)) + len(panel.bars) * (BAR + GAP)


def _diamond(x: float, y: float) -> str:
    half = BAR / 2 - 2
    return f'<path class="d" d="M{n(x - half)},{n(y)}l{n(half)},{n(-half)} {n(half)},{n(half)} {n(-half)},{n(half)}z"/>'


def _key(parts: Sequence[str], left: float, top: float) -> Iterator[str]:
    x = left
    for part, colour in zip(parts, COLOURS, strict=False):
        yield f'<rect class="{colour}" x="{n(x)}" y="{n(top - 9)}" width="10" height="10"/>'
        yield f'<text x="{n(x + 14)}" y="{n(top)}">{escape(part)}</text>'
        x += 14 + len(part) * LETTER + 2 * GAP
