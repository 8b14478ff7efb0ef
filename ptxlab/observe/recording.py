"""What the warps of a CTA had in their registers and shared memory, step by step: the records of a recording.

Steps are those of a ``Timeline``. Of each is kept what it changed, as words of 32 bits: old xor new, so
that a reader goes forwards and backwards in the same way. Before the first step all of them hold 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.observe.timeline import Timeline
from ptxlab.pictured import Readable
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called

Words32 = npt.NDArray[np.uint32]

WORD_BITS = 32

READ, WRITE, COPY = range(3)
"""What an access to shared memory does; what a copy writes is there when it has landed."""


@dataclass(frozen=True, slots=True)
class RegisterInfo:
    """A register of ``function``, declared with type ``declared`` of ``bits``.

    Its bits are numbers of type ``holds``: of the fragment that it is a part of, of the instructions that
    write it, or of those that read it, where its declaration leaves that open.
    """

    name: str
    function: str
    declared: str
    holds: str
    bits: int

    @property
    def words(self) -> int:
        """How many words of 32 bits it takes."""
        return -(-self.bits // WORD_BITS)


@dataclass(frozen=True, slots=True)
class FragmentInfo:
    """An operand of a matrix instruction and its registers by number, None for what is none."""

    layout: FragmentLayout
    registers: tuple[int | None, ...]
    result: bool


@dataclass(frozen=True, slots=True)
class RecordedOperands:
    """The registers, by number, that an instruction reads and writes, and its ``fragments``.

    ``descriptors`` are those of the registers that say where its factors lie in shared memory, with the family
    ("wgmma", "tcgen05") whose descriptors they are.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fragments: tuple[FragmentInfo, ...]
    descriptors: dict[int, str]


@dataclass(frozen=True, slots=True)
class Turns:
    """Who executed what: in ``step`` the warp ``warp``, with the lanes in the bits of ``lanes``.

    The lanes are those that the guard lets execute it.
    """

    step: Words32
    warp: Words32
    lanes: Words32


@dataclass(frozen=True, slots=True)
class RegisterChanges:
    """What registers of warps have become in steps, an entry each.

    ``words`` has for each entry, one after another, a word of each lane, the low words of wide registers
    first.
    """

    step: Words32
    warp: Words32
    register: Words32
    words: Words32


@dataclass(frozen=True, slots=True)
class SharedChanges:
    """What runs of shared memory, or of Tensor Memory, have become in steps: ``count`` words from ``first`` on.

    There is an entry for each. The words of Tensor Memory are its cells, 512 of a lane after those of the one before.
    """

    step: Words32
    first: Words32
    count: Words32
    words: Words32


@dataclass(frozen=True, slots=True)
class SharedAccesses:
    """Accesses of warps to shared memory of the CTA, an entry each.

    Warps are counted through the CTAs of the cluster. Of the lanes in the bits of ``lanes`` the ``addresses``
    are, one after another, where each one's ``nbytes`` begin; ``kind`` is READ, WRITE or COPY.
    """

    step: Words32
    warp: Words32
    kind: Words32
    nbytes: Words32
    lanes: Words32
    addresses: Words32


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a product that lies in shared memory of the CTA, as a warpgroup from ``warp`` on reads it.

    Its lines, rows of the matrix where it is ``by_row``, else columns, are in units of 16 bytes that lie at
    ``units``, [lines, units of a line], counted from the beginning of the CTA's shared memory.
    """

    operand: SharedOperand
    by_row: bool
    warp: int
    swizzle: str
    units: Array


@dataclass(frozen=True, slots=True)
class Recording(Readable):
    """What happened, who took part, and what that made of registers and shared memory.

    ``rank`` is the position of the CTA in its cluster, ``warps`` are those whose registers are kept.
    ``operands`` are those of the timeline's places, ``calls`` the lines they were inlined from, the innermost
    first. ``shared_bytes`` is how much shared memory the CTA has,
    ``variables`` what begins where in it; all count from its beginning, which is at the address
    ``shared_base``. ``cells`` are those of its Tensor Memory. ``swizzles`` say by the number of a flight how the copy engine permutes what it
    moves, ``factors`` by the number of a product what it reads.
    """

    timeline: Timeline
    rank: int
    warps: tuple[int, ...]
    registers: tuple[RegisterInfo, ...]
    operands: tuple[RecordedOperands, ...]
    calls: tuple[tuple[SourceLine, ...], ...]
    turns: Turns
    changes: RegisterChanges
    shared_bytes: int
    shared_base: int
    variables: dict[str, int]
    shared: SharedChanges
    cells: SharedChanges
    accesses: SharedAccesses
    swizzles: dict[int, str]
    factors: dict[int, tuple[Factor, ...]]

    def __repr__(self) -> str:
        timeline = self.timeline
        warps = f"{len(self.warps)} warp{'s' * (len(self.warps) != 1)}"
        return (
            f"<recording of {called(timeline.kernel)} on {timeline.target}: {len(timeline.executed)} steps, "
            f"{warps}, {len(self.registers)} registers, {timeline.config!r}>"
        )

    def became(self) -> Iterator[tuple[int, int, int, Words32]]:
        """Yield step, warp, number of a register, and what its lanes hold then, [lanes, words]."""
        held: dict[tuple[int, int], Words32] = {}
        end = 0
        entries = (self.changes.step, self.changes.warp, self.changes.register)
        for step, warp, number in zip(*(column.tolist() for column in entries), strict=True):
            words = self.registers[number].words
            first, end = end, end + WARP * words
            change = self.changes.words[first:end].reshape(words, WARP).T
            held[warp, number] = held.get((warp, number), np.uint32(0)) ^ change
            yield step, warp, number, held[warp, number]

    def stored(self) -> Iterator[tuple[int, int, Words32]]:
        """Yield step, number of the first word of shared memory, and what some words from it on are then."""
        yield from _became(self.shared)

    def filled(self) -> Iterator[tuple[int, int, Words32]]:
        """Yield the same of the cells of Tensor Memory."""
        yield from _became(self.cells)


def _became(changes: SharedChanges) -> Iterator[tuple[int, int, Words32]]:
    size = int((changes.first + changes.count).max(initial=0))
    memory = np.zeros(size, np.uint32)
    end = 0
    entries = (changes.step, changes.first, changes.count)
    for step, at, count in zip(*(column.tolist() for column in entries), strict=True):
        first, end = end, end + count
        memory[at : at + count] ^= changes.words[first:end]
        yield step, at, memory[at : at + count].copy()
