"""Shared memory of one CTA in a dump: the state of mbarriers, and tiles read through their swizzle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.readers import one_of, positive, several, suggestion, word
from ptxlab.device.snapshot import MbarrierSnapshot, SharedSnapshot
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.errors import PtxlabError
from ptxlab.numbers.types import STORED, TYPES, ScalarType
from ptxlab.tensormap.tensor_map import SWIZZLE_MODES
from ptxlab.view.colour import plain
from ptxlab.view.json import members
from ptxlab.view.text import aligned, grid, number, values

READABLE = TYPES | STORED
_SWIZZLES = tuple(name for name in SWIZZLE_MODES if not name.endswith("flip8B"))
_size = several(positive, "ROWSxCOLS, such as 8x64", counts=(2,), separator="x")


@dataclass(frozen=True, slots=True)
class SharedSpot:
    """A place in shared memory: a variable, or nothing, and how many bytes behind its beginning."""

    text: str
    variable: str
    offset: int

    def address(self, memory: SharedSnapshot, nbytes: int) -> int:
        """Return where it is. Raises PtxlabError unless so many bytes are there."""
        if self.variable and self.variable not in memory.variables:
            known = memory.variables
            raise PtxlabError(
                f"there is no shared variable {self.variable}{suggestion(self.variable, known)}",
                hint=f"there are {', '.join(known)}; or give an address" if known else None,
            )
        address = memory.variables.get(self.variable, 0) + self.offset
        if address + nbytes > len(memory.data):
            raise PtxlabError(
                f"{self.text} ends at byte {address + nbytes:#x} of shared memory, "
                f"of which the CTA has {len(memory.data):#x}"
            )
        return address

    def mbarrier(self, memory: SharedSnapshot) -> tuple[int, MbarrierSnapshot | None]:
        """Return its address, and the mbarrier there if it is one."""
        address = self.address(memory, OBJECT_BYTES)
        return address, memory.mbarriers.get(address)


@dataclass(frozen=True, slots=True)
class ShownTile:
    """A matrix in shared memory, row by row without gaps, before ``swizzle`` moves its 16-byte units."""

    spot: SharedSpot
    rows: int
    cols: int
    kind: ScalarType
    swizzle: str

    def read(self, memory: SharedSnapshot) -> Array:
        size = self.kind.bits // 8
        start = self.spot.address(memory, self.rows * self.cols * size)
        byte = start + np.arange(self.rows * self.cols * size)
        swizzled = SWIZZLE_MODES[self.swizzle].swizzle(byte)
        if swizzled.max() >= len(memory.data):
            raise PtxlabError(
                f"{self.spot.text}: its swizzle {self.swizzle} leads out of shared memory"
            )
        words = memory.data[swizzled].view(f"u{size}").reshape(self.rows, self.cols)
        return values(words, self.kind.dtype)


def spot(text: str) -> SharedSpot:
    """Read ``NAME``, ``NAME+OFFSET`` or an address."""
    match = re.fullmatch(r"(?:([A-Za-z_$%][\w$]*)(?:\+(\w+))?|(\w+))", text)
    if match is None:
        raise ValueError(f"{text!r} is not NAME, NAME+OFFSET or an address, such as full+8")
    name, offset, address = match.groups()
    return SharedSpot(text, name or "", word(offset or address or "0"))


def tile(text: str) -> ShownTile:
    """Read ``PLACE:ROWSxCOLS:TYPE`` or ``PLACE:ROWSxCOLS:TYPE:SWIZZLE``."""
    parts = text.split(":")
    if len(parts) not in (3, 4):
        raise ValueError(
            f"{text!r} is not PLACE:ROWSxCOLS:TYPE[:SWIZZLE], such as a:64x64:bf16:128B"
        )
    where, size, dtype, swizzle = (*parts, "none")[:4]
    rows, cols = _size(size)
    whole = {
        name: kind for name, kind in READABLE.items() if kind.bits >= 8 and kind.kind != "packed"
    }
    kind = whole[one_of("type", dtype, whole)]
    return ShownTile(spot(where), rows, cols, kind, one_of("swizzle", swizzle, _SWIZZLES))


def text(
    memory: SharedSnapshot | None,
    spots: Sequence[SharedSpot],
    tiles: Sequence[ShownTile],
    width: int | None = None,
) -> list[list[str]]:
    """Return a table of the mbarriers, and a matrix for each tile."""
    if memory is None:
        return [["shared memory: the warp was not there"]] if spots or tiles else []
    blocks = []
    if spots:
        head = ["mbarrier", "address", "phase", "parity", "pending", "expected", "tx"]
        rows = [[spot.text, *_state(memory, spot)] for spot in spots]
        blocks.append(aligned([head, *rows]))
    for tile in tiles:
        cells = [[number(value) for value in row] for row in tile.read(memory)]
        title = f"{tile.spot.text}  {tile.rows} x {tile.cols} of {tile.kind.name}, swizzle {tile.swizzle}"
        nobody = dict.fromkeys(np.ndindex(tile.rows, tile.cols), 0)
        blocks.append([title, *grid(cells, nobody, plain, width=width)])
    return blocks


def _state(memory: SharedSnapshot, spot: SharedSpot) -> list[str]:
    address, state = spot.mbarrier(memory)
    if state is None:
        return [f"{address:#x}", *"-----"]
    numbers = (state.phase, state.phase % 2, state.pending, state.expected, state.tx)
    return [f"{address:#x}", *map(str, numbers)]


def as_json(
    memory: SharedSnapshot | None, spots: Sequence[SharedSpot], tiles: Sequence[ShownTile]
) -> dict[str, Any]:
    """Return both as JSON data: no entry where the warp was not there, None for what is no mbarrier."""
    if memory is None:
        return {"mbarriers": [], "tiles": []}
    return {
        "mbarriers": [
            {
                "name": spot.text,
                "address": address,
                "state": None
                if state is None
                else members(state, "phase", "pending", "expected", "tx"),
            }
            for spot in spots
            for address, state in [spot.mbarrier(memory)]
        ],
        "tiles": [
            {
                "name": tile.spot.text,
                "address": tile.spot.address(memory, 0),
                "dtype": tile.kind.name,
                "swizzle": tile.swizzle,
                "values": tile.read(memory),
            }
            for tile in tiles
        ],
    }
