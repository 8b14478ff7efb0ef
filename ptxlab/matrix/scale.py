"""The scale operands of block-scaled ``mma``: which byte of which lane scales which elements.

A row of A, and a column of B, is cut into 1, 2 or 4 blocks along k with one scale byte each, in one
32-bit register a lane. ``byte-id`` names the byte of the first block and ``thread-id`` the lanes
that count: of A's quad of lanes a pair, rows g and g + 8; of B's quad one lane, column g.

Source: PTX ISA, "Block Scaling for mma.sync".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ptxlab.arrays import Array

QUAD = 4
LINES = {"A": 16, "B": 8}
BYTES = 4
THREAD_IDS = {"A": range(2), "B": range(QUAD)}


@dataclass(frozen=True, slots=True)
class Scale:
    """The scales of operand A (``lines`` rows) or B (``lines`` columns), ``blocks`` a line.

    ``dtype`` is the PTX type of a scale, ue8m0 or ue4m3.
    """

    operand: Literal["A", "B"]
    blocks: int
    dtype: str

    @property
    def lines(self) -> int:
        """How many rows of A or columns of B there are."""
        return LINES[self.operand]

    @property
    def byte_ids(self) -> range:
        """The byte-ids the ISA allows for this many blocks."""
        return range(0, BYTES, self.blocks)

    @property
    def thread_ids(self) -> range:
        """The thread-ids the ISA allows."""
        return THREAD_IDS[self.operand]

    def place(self, line: int, block: int, byte_id: int = 0, thread_id: int = 0) -> tuple[int, int]:
        """Return (lane, byte of its register) of the scale of ``block`` of ``line``.

        Raises ValueError for an id the ISA does not allow.
        """
        if byte_id not in self.byte_ids or thread_id not in self.thread_ids:
            raise ValueError(
                f"scale {self.operand} with {self.blocks} blocks takes byte-id in {[*self.byte_ids]} "
                f"and thread-id in {[*self.thread_ids]}, not {byte_id} and {thread_id}"
            )
        if self.operand == "A":
            return QUAD * (line % 8) + 2 * thread_id + line // 8, byte_id + block
        return QUAD * line + thread_id, byte_id + block

    def unpack(self, words: Array, byte_id: int = 0, thread_id: int = 0) -> Array:
        """Return the scales [..., lines, blocks] of uint8 of registers [..., 32] of uint32."""
        lines, blocks = range(self.lines), range(self.blocks)
        places = np.array(
            [[self.place(line, block, byte_id, thread_id) for block in blocks] for line in lines]
        )
        lane, shift = places[..., 0], (8 * places[..., 1]).astype(np.uint32)
        return (np.asarray(words, np.uint32)[..., lane] >> shift).astype(np.uint8)
