"""Tensor Memory of one CTA in a dump: accumulators as matrices, or lanes by columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.readers import one_of, positive, several
from ptxlab.device.snapshot import SharedSnapshot
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import WARP
from ptxlab.matrix.tensor_memory_operand import LANES, DataPath
from ptxlab.numbers.types import STORED, TYPES, ScalarType
from ptxlab.view.colour import Paint
from ptxlab.view.json import members
from ptxlab.view.text import grid, number, values

_CELL_BITS = 32
_RAW = "lanes"
_LAYOUTS = {
    "A": (256, 2, False, False), "B": (128, 2, False, False), "C": (128, 2, False, True),
    "D": (128, 1, False, False), "E": (64, 1, True, False), "F": (64, 1, False, False), "G": (32, 1, True, False),
}  # fmt: skip
"""By the ISA's letters m, cta_group, whether it is one of ``.ws``, and whether of a sparse A."""
_USUAL = {256: "A", 128: "D", 64: "F", 32: "G"}
_size = several(positive, "MxN, such as 128x64", counts=(2,), separator="x")


@dataclass(frozen=True, slots=True)
class TensorTile:
    """``rows`` x ``cols`` numbers from a column on, in a layout of D, or ``lanes`` by columns as they are.

    Of a pair a CTA has half of the rows. A number of D has a cell of its own, in its low bits.
    """

    column: int
    rows: int
    cols: int
    kind: ScalarType
    layout: str

    @property
    def title(self) -> str:
        what = "lanes by columns" if self.layout == _RAW else f"layout {self.layout}"
        size = f"{self.rows} x {self.cols} of {self.kind.name}"
        return f"Tensor Memory from column {self.column} on  {size}, {what}"

    @property
    def width(self) -> int:
        """How many columns of Tensor Memory it takes."""
        if self.layout == _RAW:
            return -(-self.cols * self.kind.bits // _CELL_BITS)
        return self._path.columns

    @property
    def _path(self) -> DataPath:
        m, group, stationary, sparse = _LAYOUTS[self.layout]
        return DataPath.of(m, self.cols, group, stationary=stationary, sparse=sparse)

    def first_row(self, memory: SharedSnapshot) -> int:
        """Return the number of the first row that the CTA has."""
        paired = self.layout != _RAW and _LAYOUTS[self.layout][1] > 1
        return memory.rank % 2 * self._path.rows if paired else 0

    def places(self) -> tuple[Array, Array]:
        """Return (lane, column) of each number of the CTA, and nothing else of lanes by columns."""
        if self.layout == _RAW:
            lane, column = np.indices((self.rows, self.cols))
            return lane, column * self.kind.bits // _CELL_BITS
        return self._path.d()

    def read(self, memory: SharedSnapshot) -> Array:
        """Return the numbers. Raises PtxlabError for columns that nobody has allocated."""
        last = self.column + self.width
        if last > memory.allocated.size or not memory.allocated[self.column : last].all():
            count = int(np.count_nonzero(memory.allocated))
            raise PtxlabError(
                f"columns {self.column} to {last - 1} of Tensor Memory are not all allocated there",
                hint=f"{count} columns are, the first at {int(memory.allocated.argmax())}"
                if count
                else "no column is: look behind tcgen05.alloc, and before tcgen05.dealloc",
            )
        lane, column = self.places()
        if self.layout == _RAW:
            cells = memory.cells[: self.rows, self.column : last]
            words = np.ascontiguousarray(cells).view(f"u{self.kind.bits // 8}")[:, : self.cols]
        else:
            cells = memory.cells[lane, self.column + column]
            words = (cells & np.uint32((1 << self.kind.bits) - 1)).astype(f"u{self.kind.bits // 8}")
        return values(words, self.kind.dtype)


def tile(text: str) -> TensorTile:
    """Read ``COLUMN:MxN:TYPE`` or ``COLUMN:MxN:TYPE:LAYOUT``."""
    parts = text.split(":")
    if len(parts) not in (3, 4) or not re.fullmatch(r"\d+", parts[0]):
        raise ValueError(f"{text!r} is not COLUMN:MxN:TYPE[:LAYOUT], such as 0:128x64:f32")
    rows, cols = _size(parts[1])
    known = {
        name: kind
        for name, kind in (TYPES | STORED).items()
        if 8 <= kind.bits <= _CELL_BITS and kind.kind != "packed"
    }
    kind = known[one_of("type", parts[2], known)]
    usual = _USUAL.get(rows, _RAW)
    layout = one_of("layout", parts[3] if len(parts) > 3 else usual, (*_LAYOUTS, _RAW))
    if layout == _RAW:
        if rows > LANES:
            raise ValueError(f"{text!r}: there are {LANES} lanes")
        return TensorTile(int(parts[0]), rows, cols, kind, layout)
    m = _LAYOUTS[layout][0]
    if rows != m or cols % (8 * (LANES // rows if layout in "EG" else 1)):
        raise ValueError(
            f"{text!r}: layout {layout} is that of an m of {m}, and of an n in whole eights"
        )
    return TensorTile(int(parts[0]), rows, cols, kind, layout)


def text(
    memory: SharedSnapshot | None, tiles: Sequence[TensorTile], paint: Paint, width: int | None
) -> list[list[str]]:
    """Return a matrix for each tile, each number in the colour of the lane that loads it by 32x32b."""
    if memory is None:
        return [["Tensor Memory: the warp was not there"]] if tiles else []
    blocks = []
    for tile in tiles:
        held = tile.read(memory)
        lanes = tile.places()[0] % WARP
        colours = {at: int(lanes[at]) for at in np.ndindex(held.shape)}
        cells = [[number(value) for value in row] for row in held]
        first = tile.first_row(memory)
        heads = [str(first + row) for row in range(len(cells))], [*map(str, range(tile.cols))]
        blocks.append([tile.title, *grid(cells, colours, paint, heads=heads, width=width)])
    return blocks


def as_json(memory: SharedSnapshot | None, tiles: Sequence[TensorTile]) -> list[dict[str, Any]]:
    """Return the tiles as JSON data, nothing where the warp was not there."""
    if memory is None:
        return []
    return [
        {
            **members(tile, "column", "layout"),
            "dtype": tile.kind.name,
            "first_row": tile.first_row(memory),
            "values": tile.read(memory),
        }
        for tile in tiles
    ]
