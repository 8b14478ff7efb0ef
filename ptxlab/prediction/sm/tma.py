"""Copies of the tensor memory accelerator: which sectors of global memory a box, or bytes in a row, are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.prediction.sm.mbarriers import Key
from ptxlab.prediction.sm.requests import LINE, SECTOR
from ptxlab.tensormap.box import box_of
from ptxlab.tensormap.encoding import MAP_BYTES

_BOXES = 512
"""So many boxes are kept, of which CTAs that run in step copy the same: 10 MB of sectors of 16 KB each."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy: the ``sectors`` it takes, and ``nbytes`` for a ``key``, None where it stores.

    It comes to ``ctas`` CTAs of a cluster. ``rows`` are those of a box, of up to a line each.
    """

    key: Key | None
    nbytes: int
    sectors: tuple[int, ...]
    ctas: int = 1
    rows: int = 0

    @property
    def loads(self) -> bool:
        return self.key is not None


def copied(
    data: bytes,
    coordinates: tuple[int, ...],
    key: Key | None,
    ctas: int,
    text: str,
    told: bool = True,
) -> Copy:
    """Return the copy of a box of a tensor map, which is given by its bytes; where nobody is ``told`` without its sectors."""
    if len(data) != MAP_BYTES:
        raise Unsupported(f"'{text}' has a tensor map that is not known")
    try:
        if not told:
            return Copy(key, box_of(data).counted, (), ctas)
        nbytes, sectors, lines = _box(data, coordinates)
    except ValueError as error:
        raise Unsupported(f"'{text}' has no tensor map that is one: {error}") from None
    return Copy(key, nbytes, sectors, ctas, lines)


@lru_cache(_BOXES)
def _box(data: bytes, coordinates: tuple[int, ...]) -> tuple[int, tuple[int, ...], int]:
    """Return the bytes that a copy of a box counts for, its sectors, and its rows of up to a line each."""
    box = box_of(data)
    rows = box.rows(coordinates)
    length = rows.stop - rows.start
    along = np.append(np.arange(0, length, SECTOR), max(length - 1, 0))
    places = rows.addresses[:, None] + along if length else rows.addresses[:, None]
    sectors = np.unique(places // SECTOR)
    return box.counted, tuple(sectors.tolist()), len(rows.addresses) * -(-length // LINE)


def in_a_row(address: int, nbytes: int, key: Key | None, ctas: int) -> Copy:
    """Return the copy of so many bytes of global memory."""
    end = -(-(address + nbytes) // SECTOR)
    return Copy(key, nbytes, tuple(range(address // SECTOR, end)), ctas)
