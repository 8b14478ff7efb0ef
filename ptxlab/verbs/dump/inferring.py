"""Which tile of which argument an operand's registers hold, found by the numbers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.dump.expecting import patterns

_COPIES = 4
"""A number that an array has more often says nothing about its place."""
_CANDIDATES = 8


def tile_of(layout: FragmentLayout, words: Array, arguments: Mapping[str, Any]) -> str | None:
    """Return the tile that registers [thread, register] hold, in any order, as an expression: ``a[0:16,16:32]``.

    It is the tile with the most of the numbers and, of several, with the most in their places, if that is half;
    otherwise as it is and not transposed. None where no argument has half of them, or its numbers do not tell
    its elements apart.
    """
    if layout.matrices > 1:
        return None
    held = layout.unpack(words).astype(np.uint64)
    best, named = (held.size // 2, 0), None
    for name, array in arguments.items():
        for end in ("", ".T"):
            matrix = _matrix(layout, array, end)
            if matrix is None:
                continue
            for row, col in _corners(held, matrix):
                tile = matrix[row : row + layout.rows, col : col + layout.cols]
                right = int(np.count_nonzero(tile == held))
                score = _common(tile, held), right * (2 * right >= held.size)
                if score > best:
                    rows, cols = f"{row}:{row + layout.rows}", f"{col}:{col + layout.cols}"
                    where = f"{cols},{rows}" if end else f"{rows},{cols}"
                    best, named = score, f"{name}[{where}]{end}"
    return named


def _matrix(layout: FragmentLayout, array: Any, end: str) -> Array | None:
    """Return the bits of an argument in the operand's type, None where it has no such tile."""
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        return None
    matrix = array.T if end else array
    if matrix.shape[0] < layout.rows or matrix.shape[1] < layout.cols:
        return None
    return patterns(layout, matrix)


def _corners(held: Array, matrix: Array) -> Iterator[tuple[int, int]]:
    """Yield where tiles begin that may be meant: which have the most of the numbers, in any order or in place.

    Registers that are exchanged may have no number in its place: only what all of the tile holds tells it.
    """
    order = np.argsort(matrix, axis=None, kind="stable")
    ordered = matrix.ravel()[order]
    begins = np.searchsorted(ordered, held)
    counts = np.searchsorted(ordered, held, "right") - begins
    most = np.array(matrix.shape) - held.shape
    some = (counts > 0) & (counts <= _COPIES)
    held_at, copies = np.argwhere(some), counts[some]
    nth = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    flat = order[np.repeat(begins[some], copies) + nth]
    cells = np.stack(np.unravel_index(flat, matrix.shape), axis=-1)
    corners = cells - np.repeat(held_at, copies, axis=0)
    inside = ((corners >= 0) & (corners <= most)).all(axis=1)
    among = np.zeros(matrix.shape, np.int32)
    among.flat[flat] = 1
    in_tile = _window_sums(among, held.shape)
    if len(cells):
        first = sorted(
            np.argpartition(-in_tile, min(_CANDIDATES, in_tile.size) - 1, axis=None)[:_CANDIDATES]
        )
        yield from zip(
            *(each.tolist() for each in np.unravel_index(first, in_tile.shape)), strict=True
        )
    votes = Counter((row, col) for row, col in corners[inside].tolist())
    yield from (corner for corner, _ in votes.most_common(_CANDIDATES))


def _window_sums(matrix: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum of every tile of this shape, by the corner where it begins."""
    rows, cols = shape
    sums = np.pad(matrix, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    down = sums[rows:] - sums[:-rows]
    tiles: Array = down[:, cols:] - down[:, :-cols]
    return tiles


def _common(left: Array, other: Array) -> int:
    """Return how many numbers two matrices have in common, wherever they are."""
    (a, first), (b, second) = (np.unique(each, return_counts=True) for each in (left, other))
    _, at, beside = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return int(np.minimum(first[at], second[beside]).sum())
