"""Lines and names in a picture, and where in it there is room for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ptxlab.view.svg_parts import n

LETTER, LETTER_HEIGHT = 6.1, 11.0
HEAD, STEP = 6.0, 8.0
"""Of an arrow; from one place to the next that are looked at."""
NAMED = 12
"""In how many parts the name of a line is looked at."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of the picture that is taken."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Rectangle) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True, slots=True)
class Segment:
    """A straight line with a ``name``, if any, and dashes."""

    x0: float
    y0: float
    x1: float
    y1: float
    name: str = ""
    dash: str = ""

    @property
    def path(self) -> str:
        return f"M{n(self.x0)},{n(self.y0)}L{n(self.x1)},{n(self.y1)}"

    @property
    def head(self) -> str:
        across, down = self.direction
        x, y = self.x1 - HEAD * across, self.y1 - HEAD * down
        aside, below = HEAD / 2 * down, HEAD / 2 * across
        return (
            f"M{n(x - aside)},{n(y + below)}L{n(self.x1)},{n(self.y1)}"
            f"L{n(x + aside)},{n(y - below)}"
        )

    @property
    def length(self) -> float:
        return math.hypot(self.x1 - self.x0, self.y1 - self.y0)

    @property
    def direction(self) -> tuple[float, float]:
        """How far across and down a step of one goes."""
        return (self.x1 - self.x0) / self.length, (self.y1 - self.y0) / self.length

    def at(self, along: float) -> tuple[float, float]:
        """Return the point so far from the beginning."""
        across, down = self.direction
        return self.x0 + along * across, self.y0 + along * down

    def taken(self) -> Iterator[Rectangle]:
        for step in range(int(self.length / STEP) + 1):
            yield around(*self.at(step * STEP), 2.0)


def around(x: float, y: float, reach: float) -> Rectangle:
    return Rectangle(x - reach, y - reach, x + reach, y + reach)


def write_along(line: Segment, taken: list[Rectangle]) -> str:
    """Write the name of a line above it, as near to it and its end as there is room; take that."""
    long = len(line.name) * LETTER
    last = line.length - long - STEP
    steps = range(int(max(last, 0) / STEP) + 1)
    tries = [(last - step * STEP, rise) for rise in (5.0, 13.0) for step in steps]
    begin, rise = next((at for at in tries if not meet(_above(line, *at, long), taken)), tries[0])
    taken += _above(line, begin, rise, long)
    x, y = line.at(begin)
    angle = math.degrees(math.asin(line.direction[1]))
    turn = f' transform="rotate({n(angle)} {n(x)} {n(y)})"' if angle else ""
    return f'<text class="h q" x="{n(x)}" y="{n(y - rise)}"{turn}>{escape(line.name)}</text>'


def _above(line: Segment, begin: float, rise: float, long: float) -> list[Rectangle]:
    """Return the places of a text that stands so far above a line."""
    across, down = line.direction
    points = (line.at(begin + part * long / NAMED) for part in range(NAMED + 1))
    away = rise + 5
    return [around(x + away * down, y - away * across, 4.5) for x, y in points]


def meet(boxes: Sequence[Rectangle], taken: Sequence[Rectangle]) -> bool:
    """Say whether any of one has a point in common with any of the other."""
    hull = Rectangle(
        min(box.left for box in boxes),
        min(box.top for box in boxes),
        max(box.right for box in boxes),
        max(box.bottom for box in boxes),
    )
    near = [other for other in taken if hull.meets(other)]
    return any(box.meets(other) for box in boxes for other in near)
