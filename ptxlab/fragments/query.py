"""Narrowing a report to one lane, or to one element of the matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.errors import PtxlabError
from ptxlab.fragments.report import FragmentReport, element_bits
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place


@dataclass(frozen=True, slots=True)
class Held:
    """One element where a lane holds it, and the bit pattern that was dumped there."""

    layout: FragmentLayout
    place: Place
    row: int
    col: int
    bits: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What to look at: everything, one ``lane``, or one ``element`` (row, col) of each operand."""

    lane: int | None = None
    element: tuple[int, int] | None = None

    @property
    def everything(self) -> bool:
        return self.lane is None and self.element is None

    def check(self, instruction: Form) -> None:
        """Raise PtxlabError if ``instruction`` has no such lane, or no operand such an element."""
        layout = instruction.operands[-1]
        if self.lane is not None and not 0 <= self.lane < layout.threads:
            last = layout.threads - 1
            group = "warp has lanes" if layout.holder == "lane" else "warpgroup has threads"
            raise PtxlabError(
                f"there is no {layout.holder} {self.lane}", hint=f"a {group} 0 to {last}"
            )
        if self.element is None:
            return
        row, col = self.element
        if not any(0 <= row < o.rows and 0 <= col < o.cols for o in instruction.operands):
            sizes = ", ".join(f"{o.operand} {o.rows} x {o.cols}" for o in instruction.operands)
            raise PtxlabError(f"no operand has an element {row},{col}", hint=f"they are {sizes}")

    def has(self, lane: int, row: int, col: int) -> bool:
        """Say whether what ``lane`` holds of (row, col) is looked at."""
        return self.lane in (None, lane) and self.element in (None, (row, col))

    def places(self, layout: FragmentLayout) -> Iterator[Place]:
        """Yield the places of what is looked at of an operand, lanes and registers upward."""
        for lane, registers in enumerate(layout.table().tolist()):
            for register, elements in enumerate(registers):
                for i, (row, col) in enumerate(elements):
                    if self.has(lane, row, col):
                        yield Place(lane, register, i)


def select(report: FragmentReport, selection: Selection) -> tuple[Held, ...]:
    """Return what the selection names of every operand, in order, lanes and registers upward.

    An element is looked for in every operand that is large enough to have it.
    """
    return tuple(
        held for layout in report.instruction.operands for held in _of(report, layout, selection)
    )


def _of(report: FragmentReport, layout: FragmentLayout, selection: Selection) -> Iterator[Held]:
    words = report.shown.registers[layout.operand]
    for place in selection.places(layout):
        lane, register, element = place
        row, col = layout.table()[place].tolist()
        bits = element_bits(layout, int(words[lane, register]), element)
        yield Held(layout, place, row, col, bits)
