"""How tiles lie in shared memory: the swizzle they were filled with, that they are read with, where it begins.

A program may have arranged its data for another layout beforehand, and the swizzle is one of addresses, so
that what is found here is a warning. Source: PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor
Format" of wgmma, "Shared memory descriptor" of tcgen05; CUDA C++ Programming Guide, "Swizzle Modes".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.transfer import MemoryAccess, Tiles
from ptxlab.matrix.bit_record import BitField, BitRecord
from ptxlab.matrix.descriptor import TCGEN05_DESCRIPTOR, WGMMA_DESCRIPTOR
from ptxlab.observe.check_context import CheckContext
from ptxlab.tensormap.tensor_map import SWIZZLE_MODES

_RECORDS = {"products": WGMMA_DESCRIPTOR, "tensor_work": TCGEN05_DESCRIPTOR}


class _Filled(NamedTuple):
    """What a tensor copy fills: rows of ``row_bytes``, swizzled."""

    site: Site
    swizzle: str
    row_bytes: int


class TileLayouts:
    """Of the shared memory of a wave which tensor copy last filled it, if one did."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._filled = context.shadow.table(np.int32)
        self._copies: list[_Filled | None] = [None]
        self._numbers: dict[_Filled, int] = {}

    @property
    def _record(self) -> BitRecord | None:
        """The descriptors by which a product reads tiles, None for copies."""
        return _RECORDS.get(effects_of(self._context.site.instruction).begins)

    def see(self, moved: MemoryAccess, granules: Array) -> None:
        """See asynchronous work begin that reads or writes granules of shared memory."""
        tiles = moved.tiles
        if moved.writes:
            self.written(granules, tiles)
        if tiles is None:
            return
        if self._record is not None and self._fits(tiles, granules, self._record):
            return  # where the pattern begins is told of the copies
        self._aligned(tiles)

    def written(self, granules: Array, tiles: Tiles | None = None) -> None:
        """See granules written, by a tensor copy if as ``tiles``; a single row is plain bytes."""
        number = 0
        if tiles is not None and tiles.rows > 1:
            copy = _Filled(self._context.site, tiles.swizzle, tiles.row_bytes)
            number = self._numbers.setdefault(copy, len(self._copies))
            if number == len(self._copies):
                self._copies.append(copy)
        if number or len(self._copies) > 1:
            self._filled.data[granules] = number

    def _fits(self, tiles: Tiles, granules: Array, record: BitRecord) -> bool:
        """Say whether tensor copies filled all that a product reads as it does; report where one did not."""
        context, filled = self._context, self._filled.data.take(granules)
        copies = [(number, self._copies[number]) for number in np.unique(filled).tolist()]
        layout = tiles.swizzle, tiles.row_bytes
        for number, copy in copies:
            if copy is None or copy[1:] == layout:
                continue
            there = np.flatnonzero(filled == number)
            message = (
                f"this product reads {context.shared(int(granules[there[0]]))} by a descriptor of "
                f"{_layout(tiles.swizzle, tiles.row_bytes)}, and line {copy.site.line} fills that by a "
                f"tensor map of {_layout(copy.swizzle, copy.row_bytes)}"
            )
            count = there.size * context.shadow.size
            words = message, _remedy(copy, tiles, record.field("swizzle"))
            context.find("async", "warning", "swizzle", count, words, copy.site)
        return all(copy is not None and copy[1:] == layout for _, copy in copies)

    def _aligned(self, tiles: Tiles) -> None:
        """Report tiles that begin in the middle of their swizzle's pattern, of which nobody is told."""
        context, mode = self._context, SWIZZLE_MODES[tiles.swizzle]
        behind = tiles.first % context.wave.shared_pitch % mode.period
        late = np.flatnonzero(behind >= mode.span)
        if tiles.swizzle == "none" or not late.size:
            return
        product = self._record is not None
        message = (
            f"the tile of this {'product' if product else 'copy'} begins at "
            f"{context.shared_at(int(tiles.first[late[0]]))}, {int(behind[late[0]])} bytes behind a multiple of "
            f"{mode.period}, where the pattern of its {tiles.swizzle} swizzle begins"
            + (", and the descriptor's base offset is 0" if product else "")
        )
        hint = (
            f"have every tile and stage begin at a multiple of {mode.period}: align shared memory so, and make "
            "stages multiples of it"
        )
        words = message, hint
        context.find("alignment", "warning", "swizzle", late.size, words, unit="threads")


def _layout(swizzle: str, row_bytes: int) -> str:
    if swizzle == "none":
        return f"rows of {row_bytes} bytes without swizzle"
    return f"swizzle {swizzle}"


def _remedy(copy: _Filled, tiles: Tiles, field: BitField) -> str:
    """Say what to change, the map or the ``field`` of the descriptor."""
    code = (field.codes or {}).get(copy.swizzle)
    if copy.swizzle == tiles.swizzle:
        return (
            f"a box of {tiles.row_bytes} bytes along dimension 0, as 8 rows of those are what the descriptor "
            "reads together, or a swizzle in both"
        )
    if copy.swizzle == "none":
        return f"swizzle {tiles.swizzle} in the tensor map, as in the descriptor"
    return f"{code} in bits {field.low} to {field.low + field.bits - 1} of the descriptor, or swizzle {tiles.swizzle} in the tensor map"
