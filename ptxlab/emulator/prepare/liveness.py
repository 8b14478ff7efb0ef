"""When a register's value is no longer needed, so that its memory is reused while it is in cache.

Ordinary backward liveness over the blocks of a function. Registers are only dropped while a single
group of threads is alive, because another group may still need its own threads' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame

# Dropping costs a step; doing it every few steps is often enough to stay in the cache.
INTERVAL = 8


@dataclass(frozen=True, slots=True)
class Uses:
    """The registers one instruction reads and writes; ``partial`` writes keep some threads' values."""

    reads: frozenset[int]
    writes: frozenset[int]
    partial: bool = False


@dataclass(slots=True)
class BlockFlow:
    """The uses of one block's instructions in order, and the blocks that may follow."""

    uses: list[Uses] = field(default_factory=list)
    successors: tuple[int, ...] = ()


@dataclass(slots=True)
class Drop:
    """Forget registers that nobody reads again."""

    slots: Sequence[int]

    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Drop them if these threads are all that lives."""
        if threads.full:
            registers = frame.registers
            initial = cast(Sequence[Array], frame.layout.initial)  # constants are never dropped
            for slot in self.slots:
                registers[slot] = initial[slot]


def live_out(flows: Sequence[BlockFlow]) -> list[set[int]]:
    """Return the registers that are read after each block."""
    # With nothing read behind it a block tells what it reads itself; what it writes wholly is not
    # read before it for another's sake.
    reads = [_backward(flow, set())[0] for flow in flows]
    writes = [set().union(*(use.writes for use in flow.uses if not use.partial)) for flow in flows]
    live_in = [set(own) for own in reads]
    result: list[set[int]] = [set() for _ in flows]
    changed = True
    while changed:
        changed = False
        for number in range(len(flows) - 1, -1, -1):
            live = set().union(*(live_in[s] for s in flows[number].successors))
            if len(live) > len(result[number]):
                result[number] = live
                live_in[number] = reads[number] | (live - writes[number])
                changed = True
    return result


def lasting(flow: BlockFlow, live: set[int], keep: set[int]) -> list[set[int]]:
    """Return the registers that are read after each instruction of a block, and those to ``keep``."""
    return [after | keep for after in _backward(flow, live)[1:]]


def needed(flow: BlockFlow, live: set[int], keep: set[int]) -> set[int]:
    """Return the registers that are read from the beginning of a block on, and those to ``keep``."""
    found = set(live)
    for use in reversed(flow.uses):
        if not use.partial:
            found -= use.writes
        found |= use.reads
    return found | keep


def _backward(flow: BlockFlow, live: set[int]) -> list[set[int]]:
    """Return the registers that are read before the first instruction, and after each of them."""
    found = [live]
    for use in reversed(flow.uses):
        live = (live if use.partial else live - use.writes) | use.reads
        found.append(live)
    return found[::-1]


def with_drops(
    steps: Sequence[Step], flow: BlockFlow, live: set[int], keep: set[int]
) -> list[Step]:
    """Return ``steps`` with ``Drop`` steps where registers die; those in ``keep`` never do."""
    _, *after = _backward(flow, live)
    result: list[Step] = []
    pending: set[int] = set()
    for position, step in enumerate(steps):
        result.append(step)
        # A register that died and was written again since holds a new value.
        use = flow.uses[position]
        pending -= use.writes
        pending |= (use.reads | use.writes) - after[position] - keep
        if pending and (position % INTERVAL == INTERVAL - 1 or position == len(steps) - 1):
            result.append(Drop(tuple(sorted(pending))))
            pending = set()
    return result
