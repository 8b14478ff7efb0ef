"""Two layouts held against each other, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.layouts.layout import height
from ptxlab.verbs.layout.layouts import SCHEMA, Fragments, LayoutAnswer, Offsets, check_size
from ptxlab.view.text import counted


@dataclass(frozen=True, slots=True)
class Compared:
    """What a layout was called, and what it is compared with, each as offsets [rows, columns] or elements [threads, values]."""

    names: tuple[str, str]
    tables: tuple[Array, Array]
    axes: tuple[str, str]

    @property
    def differing(self) -> Array:
        """The places [number, 2] where both lead elsewhere."""
        return np.argwhere(self.tables[0] != self.tables[1])

    def text(self, width: int | None = None) -> str:
        own, other = self.names
        every = self.tables[0].size
        if not len(self.differing):
            return f"the same: all {every} of {own} and {other}"
        (i, j), (first, second) = self.differing[0], self.axes
        ours, theirs = (table[i, j] for table in self.tables)
        what = "element" if first == "thread" else "offset"
        return "\n".join(
            [
                f"{counted(len(self.differing), 'place')} of {every} differ",
                f"the first is {first} {i}, {second} {j}",
                f"  {what} {ours}  {own}",
                f"  {what} {theirs}  {other}",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the same as data; what differs is [place, place, of the layout, of the other]."""
        differing = [[*map(int, at), *(int(t[*at]) for t in self.tables)] for at in self.differing]
        own, other = self.names
        return {
            "schema": SCHEMA,
            "layout": own,
            "compare": other,
            "axes": self.axes,
            "differing": differing,
        }

    def svg(self) -> str:
        raise PtxlabError("a comparison is no picture", hint="leave out --compare or --format svg")


def compare(names: tuple[str, str], answers: tuple[LayoutAnswer, LayoutAnswer]) -> Compared:
    """Hold a layout against another, by the names of both. Raises ValueError where they are not of the same kind and size."""
    (own, axes), (other, other_axes) = (_table(answer) for answer in answers)
    if axes != other_axes:
        raise ValueError(
            "one says where elements lie in memory, and the other which thread holds them"
        )
    if own.shape != other.shape:
        sizes = (f"{a.shape[0]} {axes[0]}s of {a.shape[1]} {axes[1]}s" for a in (own, other))
        raise ValueError(f"they are of different sizes, {' and '.join(sizes)}")
    own_name, other_name = (_called(*pair) for pair in zip(names, answers, strict=True))
    return Compared((own_name, other_name), (own, other), axes)


def _called(name: str, answer: LayoutAnswer) -> str:
    """Return how a layout is named: with what options made of it, or which operand it is."""
    if isinstance(answer, Fragments):
        return f"{answer.operands[0].operand} of {name}"
    return answer.layout.notation if isinstance(answer, Offsets) and not answer.about else name


def _table(answer: LayoutAnswer) -> tuple[Array, tuple[str, str]]:
    """Return offsets by row and column, or of fragments the element by thread and value, columns one after the other."""
    if isinstance(answer, Fragments):
        if len(answer.operands) > 1:
            raise ValueError("an instruction has several layouts: --operand chooses one")
        [fragment] = answer.operands
        row, col = np.moveaxis(fragment.table().reshape(fragment.threads, -1, 2), -1, 0)
        return row + fragment.rows * col, ("thread", "value")
    if not isinstance(answer, Offsets) or answer.element is not None:
        raise ValueError("only layouts and the fragments of an instruction are compared")
    layout = answer.layout
    check_size(layout)
    tall = height(layout)
    table = np.asarray(layout(np.arange(layout.size))).reshape(-1, tall).T
    return table, ("thread", "value") if answer.about else ("row", "column")
