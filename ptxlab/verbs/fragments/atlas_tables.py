"""What entries of the atlas share: each different layout, section, metadata and scale once, by number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ptxlab.fragments.code import accessible, cuda, template
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata
from ptxlab.verbs.fragments.runs import vertical
from ptxlab.view.json import members


class Tables:
    """The tables of one page; every method returns the number of what it is given."""

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {
            name: [] for name in ("layouts", "sections", "sparse", "scales")
        }
        self._numbers: dict[tuple[str, str], int] = {}
        self._layouts: dict[FragmentLayout, int] = {}
        self._accesses: dict[str, str] = {}

    def _number(self, table: str, item: Any) -> int:
        """Return the number of an item: different ones are numbered in the order they come."""
        items, key = self._items[table], (table, json.dumps(item))
        if key not in self._numbers:
            self._numbers[key] = len(items)
            items.append(item)
        return self._numbers[key]

    def layout(self, layout: FragmentLayout) -> int:
        if layout not in self._layouts:
            self._layouts[layout] = self._number("layouts", compact(layout))
        return self._layouts[layout]

    def operands(self, form: Form) -> dict[str, int]:
        return {layout.operand: self.layout(layout) for layout in form.operands}

    def accesses(self, form: Form) -> None:
        """Keep how each operand of ``form`` is loaded or stored, by the number of its layout and its name."""
        for layout in form.operands:
            name = f"{self.layout(layout)}{layout.operand}"
            if name not in self._accesses and accessible(layout):
                self._accesses[name] = "\n".join([cuda(layout), *template(layout)])

    def section(self, title: str) -> int:
        return self._number("sections", title)

    def sparse(self, metadata: Metadata) -> int:
        return self._number("sparse", _sparse(metadata))

    def scale(self, scale: Scale) -> int:
        return self._number("scales", _scale(scale))

    def as_json(self) -> dict[str, Any]:
        return {**self._items, "accesses": self._accesses}


def compact(layout: FragmentLayout) -> dict[str, Any]:
    """Return a layout as JSON data: what each bit of its places adds to row and column.

    ``steps`` has for lane, register and element one (row, col) a bit, low bits first. A layout that
    is no such sum has ``cells`` in its place: the number row * cols + col of every place.
    """
    entry: dict[str, Any] = {
        **members(layout, "rows", "cols", "bits"),
        "registers": layout.registers_per_lane,
        "elements": layout.elements_per_register,
        "matrices": layout.matrices,
        "vertical": vertical(layout),
    }
    if layout.threads != WARP:
        entry["threads"] = layout.threads
    table = layout.table()
    steps = [_steps(table, axis) for axis in range(3)]
    if np.array_equal(_sum(steps, table.shape), table):
        entry["steps"] = dict(zip(("lane", "register", "element"), steps, strict=True))
    else:
        entry["cells"] = (table[..., 0] * layout.cols + table[..., 1]).ravel().tolist()
    return entry


def _steps(table: np.ndarray[Any, Any], axis: int) -> list[list[int]]:
    """Return what each bit of one index adds, the other two being zero."""
    along = np.moveaxis(table, axis, 0)[:, 0, 0]
    return [along[1 << bit].tolist() for bit in range((len(along) - 1).bit_length())]


def _sum(steps: list[list[list[int]]], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    total = np.zeros(shape, np.int64)
    for axis, bits in enumerate(steps):
        index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(4)])
        for bit, step in enumerate(bits):
            total += (index >> bit & 1) * np.array(step)
    return total


def _sparse(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata of A: how much is kept, and the (lane, low bit) of each row's chunks."""
    kept, of = metadata.granularity
    places = [
        [metadata.place(row, chunk) for chunk in range(metadata.chunks)]
        for row in range(metadata.rows)
    ]
    return {"kept": kept, "of": of, "places": places}


def _scale(scale: Scale) -> dict[str, Any]:
    """Return the scales of A or B: the (lane, byte) of each line's blocks."""
    places = [
        [scale.place(line, block) for block in range(scale.blocks)] for line in range(scale.lines)
    ]
    return {"blocks": scale.blocks, "dtype": scale.dtype, "places": places}
