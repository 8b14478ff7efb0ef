"""The roofline of a GPU as a picture, with the rungs of the ladder where their counts put them.

Both axes are logarithmic: FLOP for a byte across, TFLOP/s up. A rung stands at the height of its limit
twice: filled at the FLOP it does for a byte of room in L1 cache and shared memory, hollow at the FLOP
for a byte of sectors of global memory. A dot on a line is held back by what the line stands for. Arrows
lead from a rung to those that improve on it. Shapes and dashes tell all apart without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ptxlab.gemm.bounds import L1
from ptxlab.gemm.explain import ExplainedRung, LadderExplanation
from ptxlab.gemm.measures import brief
from ptxlab.verbs.gemm.story import FFMA, heading, levels_of, peaks
from ptxlab.verbs.gemm.svg_room import (
    LETTER,
    LETTER_HEIGHT,
    Rectangle,
    Segment,
    around,
    meet,
    write_along,
)
from ptxlab.view.svg_parts import LINE, MARGIN, document, in_both_modes, n

WIDTH, HEIGHT = 760.0, 520.0
"""Of the part that has the axes."""

LEFT, TOP, RIGHT, BOTTOM = 62.0, 56.0, 24.0, 84.0
RADIUS = 5.0
"""Of a mark."""
RINGS = 24
"""How many circles around a mark are tried for its name."""
ROOM = 1.6
"""By what factor the axes go on beyond what is to be seen."""

DASHES = ("8 3", "2 3", "")
"""Of the slopes, from the slowest memory to the fastest."""

STYLE = in_both_modes(
    ".ptxlab .g{{stroke:{quiet};stroke-opacity:.25;fill:none}}"
    ".ptxlab .f{{stroke:{quiet};fill:none}}"
    ".ptxlab .o{{stroke:{ink};stroke-width:1.5;fill:none}}"
    ".ptxlab .q{{fill:{quiet}}}.ptxlab .v{{stroke:{quiet};stroke-width:.6}}"
    ".ptxlab .a{{stroke:{quiet};fill:none}}"
    ".ptxlab .j{{stroke:{ink};stroke-dasharray:1 3;fill:none}}"
    ".ptxlab .k{{fill:{ink}}}"
    ".ptxlab .w{{stroke:{ink};fill:{paper}}}"
    ".ptxlab .h{{paint-order:stroke;stroke:{paper};stroke-width:3px}}"
)


@dataclass(frozen=True, slots=True)
class Axes:
    """What of the two axes is seen: FLOP a byte from ``least`` to ``most``, TFLOP/s likewise."""

    least: float
    most: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, explanation: LadderExplanation) -> Axes:
        """Return axes that have room for all rungs and the corner of every roof."""
        rungs = [step.bounds for step in explanation.steps]
        tops = [peak for _, peak in peaks(explanation)]
        corners = [
            max(tops) / explanation.gpu.tflops(moved) for _, moved in levels_of(explanation.gpu)
        ]
        across = [each.intensity[level] for each in rungs for level in ("global", "L1")]
        heights = [each.tflops for each in rungs]
        return cls(
            min(across) / ROOM,
            max([*across, *corners]) * ROOM,
            min(heights) / ROOM,
            max([*heights, *tops]) * ROOM,
        )

    def x(self, flop_per_byte: float) -> float:
        return LEFT + WIDTH * _part(flop_per_byte, self.least, self.most)

    def y(self, tflops: float) -> float:
        return TOP + HEIGHT * (1 - _part(tflops, self.lowest, self.highest))


@dataclass(frozen=True, slots=True)
class RungSpot:
    """Where a rung stands."""

    step: ExplainedRung
    x: float
    outside: float
    y: float

    @property
    def square(self) -> bool:
        """Whether it computes on tensor cores."""
        return self.step.facts.opcode != FFMA

    def taken(self) -> Iterator[Rectangle]:
        for x in (self.x, self.outside):
            yield around(x, self.y, RADIUS + 2)


def svg(explanation: LadderExplanation) -> str:
    axes = Axes.of(explanation)
    spots = [_spot(axes, step) for step in explanation.steps]
    roofs, arrows = list(_roofs(axes, explanation)), list(_arrows(spots))
    taken = [box for spot in spots for box in spot.taken()]
    taken += [box for line in (*roofs, *arrows) for box in line.taken()]
    parts = [
        f"<style>{STYLE}</style>",
        f'<text class="t" x="{MARGIN}" y="26">Roofline of the {escape(explanation.gpu.name)}</text>',
        f'<text class="s" x="{MARGIN}" y="{n(26 + LINE)}">{escape(heading(explanation))}</text>',
        *_grid(axes),
        *(f'<path class="o" stroke-dasharray="{roof.dash}" d="{roof.path}"/>' for roof in roofs),
        *(f'<path class="a" d="{arrow.path}{arrow.head}"/>' for arrow in arrows),
        *(write_along(roof, taken) for roof in roofs),
        *(_marks(spot) for spot in spots),
        *_labels(spots, taken),
        *_notes(explanation),
    ]
    about = f"Roofline of the {explanation.gpu.name}: {heading(explanation)}"
    return document(about, parts, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)


def _spot(axes: Axes, step: ExplainedRung) -> RungSpot:
    intensity = step.bounds.intensity
    y = axes.y(step.bounds.tflops)
    return RungSpot(step, axes.x(intensity["L1"]), axes.x(intensity["global"]), y)


# ---- axes and roofs -----------------------------------------------------------------------------


def _grid(axes: Axes) -> Iterator[str]:
    """Yield a line for every round number, and the names of the axes."""
    right, bottom = LEFT + WIDTH, TOP + HEIGHT
    for value in _round_numbers(axes.least, axes.most):
        x = n(axes.x(value))
        yield f'<path class="g" d="M{x},{n(TOP)}V{n(bottom)}"/>'
        yield f'<text class="i" x="{x}" y="{n(bottom + 13)}">{value:g}</text>'
    for value in _round_numbers(axes.lowest, axes.highest):
        y = axes.y(value)
        yield f'<path class="g" d="M{n(LEFT)},{n(y)}H{n(right)}"/>'
        yield f'<text class="i e" x="{n(LEFT - 6)}" y="{n(y + 3)}">{value:g}</text>'
    yield f'<rect class="f" x="{n(LEFT)}" y="{n(TOP)}" width="{n(WIDTH)}" height="{n(HEIGHT)}"/>'
    middle = n(TOP + HEIGHT / 2)
    yield f'<text class="i" x="{n(LEFT + WIDTH / 2)}" y="{n(bottom + 28)}">FLOP for a byte</text>'
    yield f'<text class="i" x="16" y="{middle}" transform="rotate(-90 16 {middle})">TFLOP/s</text>'


def _roofs(axes: Axes, explanation: LadderExplanation) -> Iterator[Segment]:
    """Yield what memory allows, up to the highest ceiling, and what arithmetic does beyond it."""
    gpu = explanation.gpu
    ceilings = list(peaks(explanation))
    highest = max(peak for _, peak in ceilings)
    speeds = [(name, gpu.tflops(moved)) for name, moved in levels_of(gpu)]
    dashes = (DASHES[0], *DASHES[1 - len(speeds) :])
    for (name, speed), dash in zip(speeds, dashes, strict=True):
        first = max(axes.least, axes.lowest / speed)
        start = axes.x(first), axes.y(first * speed)
        end = axes.x(highest / speed), axes.y(highest)
        yield Segment(*start, *end, f"{name}, {brief(speed)} TB/s", dash)
    _, fastest = speeds[-1]
    if gpu.mma_sync < 1:
        ceilings += [("mma.sync", gpu.mma_sync * peak) for name, peak in ceilings if name != FFMA]
    for name, peak in ceilings:
        y, dash = axes.y(peak), DASHES[0] if name == "mma.sync" else ""
        start = axes.x(peak / fastest), y
        yield Segment(*start, LEFT + WIDTH, y, f"{name}, {brief(peak)} TFLOP/s", dash)


# ---- rungs --------------------------------------------------------------------------------------


def _arrows(spots: Sequence[RungSpot]) -> Iterator[Segment]:
    """Yield an arrow from every rung to each that is told after it, where there is room for one."""
    of = {spot.step.facts.algorithm.name: spot for spot in spots}
    for spot in spots:
        if start := of.get(spot.step.after):
            whole = Segment(start.x, start.y, spot.x, spot.y)
            if whole.length > 4 * RADIUS:
                yield Segment(start.x, start.y, *whole.at(whole.length - RADIUS - 2))


def _marks(spot: RungSpot) -> str:
    """Return both marks of a rung, what joins them, and what hovering over them says."""
    told = " ".join((spot.step.facts.algorithm.name + ":", *spot.step.story.sentences))
    join = f'<path class="j" d="M{n(spot.x)},{n(spot.y)}H{n(spot.outside)}"/>'
    marks = _mark(spot, spot.outside, "w") + _mark(spot, spot.x, "k")
    return f"<g><title>{escape(told)}</title>{join}{marks}</g>"


def _mark(spot: RungSpot, x: float, kind: str) -> str:
    if spot.square:
        side = n(2 * RADIUS - 1)
        corner = n(x - RADIUS + 0.5), n(spot.y - RADIUS + 0.5)
        return (
            f'<rect class="{kind}" x="{corner[0]}" y="{corner[1]}" width="{side}" height="{side}"/>'
        )
    return f'<circle class="{kind}" cx="{n(x)}" cy="{n(spot.y)}" r="{n(RADIUS)}"/>'


def _labels(spots: Sequence[RungSpot], taken: list[Rectangle]) -> Iterator[str]:
    """Yield the name of every rung where there is room, and a line to its filled mark from afar."""
    names: list[Rectangle] = []
    for spot in spots:
        name = spot.step.facts.algorithm.name
        places = list(_places(spot, len(name) * LETTER))
        free = (box for box in places if _is_free(box, taken))
        clear = (box for box in free if not meet(list(_leader(spot, box).taken()), names))
        box = next(clear, places[0])
        taken.append(box)
        names.append(box)
        leader = _leader(spot, box)
        if leader.length > 3 * RADIUS:
            yield f'<path class="v" d="{leader.path}"/>'
        yield f'<text class="h" x="{n(box.left)}" y="{n(box.bottom - 2)}">{escape(name)}</text>'


def _leader(spot: RungSpot, box: Rectangle) -> Segment:
    """Return the line from a filled mark to the nearest point of its name."""
    x, y = min(max(spot.x, box.left), box.right), min(max(spot.y, box.top), box.bottom)
    return Segment(spot.x, spot.y, x, y)


def _places(spot: RungSpot, width: float) -> Iterator[Rectangle]:
    """Yield where a name may stand, the best first: in rings around the mark."""
    for ring in range(RINGS):
        away = RADIUS + 4 + ring * 6
        for turn in (0, 1, -1, 2, -2, 4, 3, -3):  # eighths of a full one
            across, down = math.cos(turn * math.pi / 4), math.sin(turn * math.pi / 4)
            left = spot.x + across * away - width * (1 - across) / 2
            middle = spot.y + down * (away + LETTER_HEIGHT / 2)
            yield Rectangle(
                left, middle - LETTER_HEIGHT / 2, left + width, middle + LETTER_HEIGHT / 2
            )


def _is_free(box: Rectangle, taken: Sequence[Rectangle]) -> bool:
    inside = box.left > LEFT and box.right < LEFT + WIDTH
    inside = inside and box.top > TOP and box.bottom < TOP + HEIGHT
    return inside and not meet((box,), taken)


def _notes(explanation: LadderExplanation) -> Iterator[str]:
    lines = (
        "height: the most that a rung's counts allow; lines: published peaks; nothing is measured",
        f"filled: FLOP for a byte of room in {L1}; hollow: for a byte of sectors of global memory",
        "circles: FFMA; squares: tensor cores; an arrow leads to the rung that improves on one",
    )
    for number, line in enumerate(lines):
        y = TOP + HEIGHT + 46 + number * (LINE - 3)
        yield f'<text class="s" x="{MARGIN}" y="{n(y)}">{escape(line)}</text>'


# ---- parts --------------------------------------------------------------------------------------


def _part(value: float, least: float, most: float) -> float:
    return math.log(value / least) / math.log(most / least)


def _round_numbers(least: float, most: float) -> list[float]:
    """Return the powers of ten, and twice and five times these where no two are seen."""
    powers = range(math.floor(math.log10(least)), math.floor(math.log10(most)) + 1)
    seen = [
        [times * 10.0**power for power in powers for times in each] for each in ((1,), (1, 2, 5))
    ]
    tens, more = ([value for value in each if least <= value <= most] for each in seen)
    return tens if len(tens) > 1 else more
