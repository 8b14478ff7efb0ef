"""Which instructions wait for the products whose D they touch: those that no wait before them has seen to.

What threads read when their products have landed, and somebody has waited for the registers of D since, can be
read as any register. It is found by going through the blocks forward, as liveness is backward. Source: PTX ISA,
"wgmma.mma_async", whose D is not to be touched before wgmma.wait_group; an instruction that does waits (C7517).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.prepare.program import BoundBlock, BoundInstruction
from ptxlab.syntax.tree import Integer


@dataclass(frozen=True, slots=True)
class _Progress:
    """What is true of a thread's products however it came to a point: which registers it has ``settled`` since it
    had products write them, whether all products have ``landed``, and all are in groups that are ``closed``."""

    settled: frozenset[int]
    landed: bool
    closed: bool

    def meet(self, other: _Progress) -> _Progress:
        landed, closed = self.landed and other.landed, self.closed and other.closed
        return _Progress(self.settled & other.settled, landed, closed)


def await_products(blocks: Sequence[BoundBlock], accumulators: set[int]) -> Sequence[BoundBlock]:
    """Have instructions wait for the products whose D they touch, if not to add to it."""
    if not accumulators:
        return blocks
    every = frozenset(accumulators)
    before = {0: _Progress(every, landed=True, closed=True)}
    todo = [0]
    while todo:
        number = todo.pop()
        _, after = _awaiting(blocks[number], before[number], every)
        for following in blocks[number].successors:
            known = before.get(following, after)
            if following not in before or known.meet(after) != known:
                before[following] = known.meet(after)
                todo.append(following)
    nothing = _Progress(frozenset(), landed=False, closed=False)
    return [
        replace(block, instructions=_awaiting(block, before.get(number, nothing), every)[0])
        for number, block in enumerate(blocks)
    ]


def _awaiting(
    block: BoundBlock, progress: _Progress, every: frozenset[int]
) -> tuple[list[BoundInstruction], _Progress]:
    """Return the instructions of a block with what they wait for, and the progress behind them."""
    instructions = []
    settled, landed, closed = progress.settled, progress.landed, progress.closed
    for instruction in block.instructions:
        site, effects = instruction.site, effects_of(instruction.site.instruction)
        reads, writes = site.reads & every, site.writes & every
        if effects.begins == "products":
            touched = reads - writes
        elif instruction.lowered is None:
            touched = reads | writes
        else:  # other warpgroups may have products write the lanes of theirs
            touched = reads - settled | writes
            touched = every if touched and landed else touched
        settled |= touched
        instructions.append(replace(instruction, awaited=touched) if touched else instruction)
        if effects.begins == "products":
            settled, landed, closed = settled - writes, False, False
        elif instruction.guard is None and effects.commits == "products":
            closed = True
        elif instruction.guard is None and effects.waits == "products":
            [count] = site.instruction.operands
            landed = closed and isinstance(count, Integer) and count.value == 0
    return instructions, _Progress(settled, landed, closed)
