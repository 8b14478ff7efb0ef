"""When a register's value is no longer needed, so that its memory is reused while it is in cache.

Ordinary backward liveness over the blocks of a function. Registers are only dropped while a single
group of threads is alive, because another group may still need its own threads' values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

import numpy as np

# Dropping costs a step; doing it every few steps is often enough to stay in the cache.
INTERVAL = 8


class Uses(NamedTuple):
    """The registers one instruction reads and writes; ``partial`` writes keep some threads' values."""

    reads: frozenset[int]
    writes: frozenset[int]
    partial: bool = False


@dataclass(slots=True)
class BlockFlow:
    """The uses of one block's instructions in order, and the blocks that may follow."""

    uses: list[Uses] = field(default_factory=list)
    successors: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Liveness:
    """Which registers matter in a block that has this ``flow``, and those ``live`` behind it.

    Those to ``keep`` are never dropped; of them the ``unread`` matter to nobody.
    """

    flow: BlockFlow
    live: AbstractSet[int]
    keep: set[int]
    unread: set[int]

    def drops(self, count: int) -> Iterator[tuple[int, list[int]]]:
        """Yield after which of the first ``count`` instructions registers are dropped, and which."""
        pending: set[int] = set()
        dying = self._dying()
        for position, use in enumerate(self.flow.uses[:count]):
            # A register that died and was written again since holds a new value.
            pending -= use.writes
            pending |= dying[position]
            if pending and (position % INTERVAL == INTERVAL - 1 or position == count - 1):
                yield position, sorted(pending)
                pending = set()

    def lasting(self) -> list[set[int]]:
        """Return the registers whose values matter after each instruction."""
        kept = self.keep - self.unread
        return [after | kept for after in _backward(self.flow, self.live)[1:]]

    def needed(self) -> set[int]:
        """Return the registers whose values matter before the first instruction."""
        return self._needed

    @cached_property
    def _needed(self) -> set[int]:
        return _read(self.flow, self.live) | (self.keep - self.unread)

    def _dying(self) -> list[frozenset[int]]:
        """Return the registers that nobody needs after each instruction, which is the last to name them."""
        named = {each for use in self.flow.uses for each in use.reads | use.writes}
        live, dying = {each for each in named if each in self.live}, []
        for use in reversed(self.flow.uses):
            dying.append((use.reads | use.writes) - live - self.keep)
            _step_back(use, live)
        return dying[::-1]


def temporary(blocks: Sequence[Liveness]) -> Iterator[set[int]]:
    """Yield of each block of a function the registers that nobody needs who stands at the beginning of any block.

    What the last instruction reads is not among them: threads may wait there, and have it looked at later.
    """
    needed = reduce(or_, (_bits(block.live) for block in blocks), _bits(blocks[0].needed()))
    for block in blocks:
        last = block.flow.uses[-1].reads if block.flow.uses else frozenset()
        written = _written(block.flow) - last
        yield {register for register in written if not needed >> register & 1} | block.unread


class _Registers(AbstractSet[int]):
    """Registers as the bits of a number: a large function has thousands, of which each block knows hundreds."""

    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __contains__(self, register: object) -> bool:
        return isinstance(register, int) and bool(self.bits >> register & 1)

    def __iter__(self) -> Iterator[int]:
        each = np.frombuffer(self.bits.to_bytes(self.bits.bit_length() // 8 + 1, "little"), "u1")
        return iter(np.flatnonzero(np.unpackbits(each, bitorder="little")).tolist())

    def __len__(self) -> int:
        return self.bits.bit_count()


def _bits(registers: Iterable[int]) -> int:
    """Return the number whose bits are ``registers``."""
    if isinstance(registers, _Registers):
        return registers.bits
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits


def live_out(flows: Sequence[BlockFlow]) -> Sequence[AbstractSet[int]]:
    """Return the registers that are read after each block."""
    # With nothing read behind it a block tells what it reads itself; what it writes wholly is not
    # read before it for another's sake.
    reads = [_bits(_read(flow, set())) for flow in flows]
    unwritten = [~_bits(_written(flow)) for flow in flows]
    before: list[list[int]] = [[] for _ in flows]
    for number, flow in enumerate(flows):
        for successor in flow.successors:
            before[successor].append(number)
    live_in = list(reads)
    result = [0] * len(flows)
    waiting = dict.fromkeys(range(len(flows)))  # the last block is taken first
    while waiting:
        number, _ = waiting.popitem()
        live = 0
        for successor in flows[number].successors:
            live |= live_in[successor]
        if live != result[number]:
            result[number] = live
            live_in[number] = reads[number] | live & unwritten[number]
            waiting |= dict.fromkeys(before[number])
    return [_Registers(bits) for bits in result]


def _written(flow: BlockFlow) -> set[int]:
    """Return the registers that a block writes for all threads."""
    return set().union(*(use.writes for use in flow.uses if not use.partial))


def _read(flow: BlockFlow, live: AbstractSet[int]) -> set[int]:
    """Return the registers that are read before the first instruction, those ``live`` behind it among them."""
    read = set(live)
    for use in reversed(flow.uses):
        _step_back(use, read)
    return read


def _step_back(use: Uses, live: set[int]) -> None:
    """Make of the registers read after an instruction those that are read before it."""
    if not use.partial:
        live -= use.writes
    live |= use.reads


def _backward(flow: BlockFlow, live: AbstractSet[int]) -> list[set[int]]:
    """Return the registers that are read before the first instruction, and after each of them."""
    before = [set(live)]
    for use in reversed(flow.uses):
        read = set(before[-1])
        _step_back(use, read)
        before.append(read)
    return before[::-1]
