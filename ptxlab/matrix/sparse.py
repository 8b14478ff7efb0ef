"""Sparse A of ``mma.sp``: where its metadata lies, what it says, and how a matrix is compressed.

Half of every row of A is zero and left out. A row is cut into chunks, two of whose four units stay; a
chunk's 4-bit metadata holds the 2-bit numbers of those units, the lower unit in the lower bits. A
unit is one element; of 4-bit types it is two neighbours, and of tf32 it is half an element.

In a quad of lanes one, two or all four lanes hold the metadata of the quad's rows g and g + 8, and
the sparsity selector says which. A lane holds either four chunks of both rows (types of 16 bits and
more: row g in the low half) or eight chunks of one row (narrower types: lanes alternate the rows).

Sources: PTX ISA, "Sparse matrix storage" and "Matrix fragments for multiply-accumulate operation with
sparse matrix A"; for the lanes, the order in which CUTLASS stores metadata (``host_reorder.h``) and
its layouts for sm_120. Each warp of a warpgroup holds that of its 16 rows as ``mma.sp`` would (PTX ISA,
"Matrix Fragments for sparse wgmma.mma_async.m64nNk32" and its sisters, whose figures are of a warp).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import WARP

ROWS = 16
QUAD = 4
_UNITS = 4
_CHUNK_BITS = 4
ORDERED = tuple(low | high << 2 for low, high in combinations(range(_UNITS), 2))
"""The metadata of a chunk with its units in increasing order: all that ``ordered_metadata`` takes."""
UNORDERED = tuple(high | low << 2 for low, high in combinations(range(_UNITS), 2))
PAIRED = (0b0100, 0b1110)
"""The metadata of a chunk of two tf32: the first element stays, or the second."""


class InvalidMetadata(ValueError):
    """A metadata value the ISA does not define: ``chunk`` of ``row`` of the matrix of that number."""

    def __init__(self, matrix: int, row: int, chunk: int, value: int) -> None:
        super().__init__(f"metadata {value:#06b} of chunk {chunk} of row {row}")
        self.matrix = matrix
        self.row = row
        self.chunk = chunk


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata operand for A of ``rows`` x ``k`` elements of ``bits``.

    ``bits`` is the width that counts for sparsity: 8 also for narrower types in 8-bit containers.
    ``ordered`` says that the instruction is ``mma.sp::ordered_metadata``. Every 16 rows are a warp's;
    lanes count the threads of all warps.
    """

    k: int
    bits: int
    ordered: bool
    rows: int = ROWS

    @property
    def threads(self) -> int:
        """How many threads have a metadata register."""
        return self.rows // ROWS * WARP

    @property
    def granularity(self) -> tuple[int, int]:
        """How many of how many neighbouring elements of a row may differ from zero."""
        return {32: (1, 2), 4: (4, 8)}.get(self.bits, (2, 4))

    @property
    def neighbours(self) -> int:
        """How many whole neighbouring elements a unit is."""
        return 2 if self.bits == 4 else 1

    @property
    def chunks(self) -> int:
        """How many chunks a row of A has."""
        return self.k // self.granularity[1]

    @property
    def chunks_per_lane(self) -> int:
        """How many neighbouring chunks of a row one lane describes."""
        return 4 if self.bits >= 16 else 8

    @property
    def lanes_per_quad(self) -> int:
        """How many lanes of a quad hold metadata that counts."""
        return ROWS * self.chunks * _CHUNK_BITS // 32 // 8

    @property
    def selectors(self) -> range:
        """The sparsity selectors: each names other lanes of the quad."""
        return range(QUAD // self.lanes_per_quad)

    @property
    def allowed(self) -> tuple[int, ...]:
        """The metadata values of a chunk that are defined."""
        if self.bits == 32:
            return PAIRED
        return ORDERED if self.ordered else ORDERED + UNORDERED

    def place(self, row: int, chunk: int, selector: int = 0) -> tuple[int, int]:
        """Return the lane that holds the chunk's metadata, and the lowest of its four bits.

        Raises ValueError for no selector.
        """
        lane, shift = _places(self, selector)
        return int(lane[row, chunk]), int(shift[row, chunk])

    def encode(self, values: Array, selector: int = 0) -> Array:
        """Return the metadata register [..., threads] of the chunks' values [..., rows, chunks].

        Both are uint32. Lanes that hold no metadata get zero. Raises ValueError for no selector.
        """
        lane, shift = _places(self, selector)
        values = np.asarray(values, np.uint32)
        words = np.zeros((*values.shape[:-2], self.threads), np.uint32)
        for row, chunk in np.ndindex(lane.shape):
            words[..., lane[row, chunk]] |= values[..., row, chunk] << shift[row, chunk]
        return words

    def decode(self, words: Array, selector: int = 0) -> Array:
        """Return the chunks' values [..., rows, chunks] of a metadata register [..., threads], both uint32.

        Raises ValueError for no selector.
        """
        lane, shift = _places(self, selector)
        return np.asarray(np.asarray(words, np.uint32)[..., lane] >> shift & 15)

    def validate(self, values: Array) -> None:
        """Raise InvalidMetadata for the first of the values [matrices, rows, chunks] of uint32 not allowed."""
        wrong = np.argwhere(~np.isin(values, self.allowed))
        if wrong.size:
            matrix, row, chunk = map(int, wrong[0])
            raise InvalidMetadata(matrix, row, chunk, int(values[matrix, row, chunk]))

    def columns(self, values: Array) -> Array:
        """Return the column of A of every compressed element, [..., rows, k / 2] of int64, of valid values."""
        values = np.asarray(values, np.int64)
        units = np.stack([values & 3, values >> 2 & 3], axis=-1)
        kept, of = self.granularity
        start = of * np.arange(self.chunks)[:, np.newaxis]
        if self.bits == 32:
            within = units[..., :1] // 2
        elif self.bits == 4:
            within = (2 * units[..., np.newaxis] + np.arange(2)).reshape(*units.shape[:-1], kept)
        else:
            within = units
        return np.asarray((start + within).reshape(*values.shape[:-1], self.k // 2))

    def compress(self, matrix: Array) -> tuple[Array, Array]:
        """Return the compressed elements [rows, k / 2] and chunk values [rows, chunks] of bit patterns [rows, k].

        Elements keep their type, values are uint32.
        Raises ValueError for a row with more elements that are not zero than the granularity allows.
        """
        matrix = np.asarray(matrix)
        _, of = self.granularity
        used = matrix.reshape(self.rows, self.chunks, of) != 0
        candidates = np.array(PAIRED if self.bits == 32 else ORDERED)
        values = np.zeros((self.rows, self.chunks), np.uint32)
        for row, chunk in np.ndindex(values.shape):
            values[row, chunk] = self._value(used[row, chunk], candidates, row, chunk)
        return np.take_along_axis(matrix, self.columns(values), axis=-1), values

    def _value(self, used: Array, candidates: Array, row: int, chunk: int) -> int:
        kept, of = self.granularity
        for value in candidates:
            one_chunk = Metadata(of, self.bits, self.ordered).columns(np.array([[value]]))[0]
            if not np.delete(used, one_chunk).any():
                return int(value)
        raise ValueError(f"chunk {chunk} of row {row} is not {kept}:{of} sparse")

    def expand(self, compressed: Array, values: Array) -> Array:
        """Return A [..., rows, k] with zeros, of the type of compressed elements [..., rows, k / 2]."""
        compressed = np.asarray(compressed)
        full = np.zeros((*compressed.shape[:-1], self.k), compressed.dtype)
        np.put_along_axis(full, self.columns(values), compressed, axis=-1)
        return full


@cache
def _places(metadata: Metadata, selector: int) -> tuple[Array, Array]:
    """Return the lane, and the lowest bit, of the metadata of each row's chunks, read-only."""
    if selector not in metadata.selectors:
        raise ValueError(
            f"no sparsity selector {selector}: it is 0 to {len(metadata.selectors) - 1}"
        )
    row, chunk = np.indices((metadata.rows, metadata.chunks))
    warp, upper, group = row // ROWS, row // 8 % 2, row % 8
    window, within = np.divmod(chunk, metadata.chunks_per_lane)
    if metadata.bits >= 16:
        in_quad, shift = window, 16 * upper + _CHUNK_BITS * within
    else:
        in_quad, shift = upper + 2 * window, _CHUNK_BITS * within
    lane = WARP * warp + QUAD * group + selector * metadata.lanes_per_quad + in_quad
    shift = shift.astype(np.uint32)
    lane.flags.writeable = shift.flags.writeable = False
    return lane, shift
