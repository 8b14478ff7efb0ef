"""Which instructions wait for the products whose D they touch.

Source: PTX ISA, "wgmma.mma_async", whose D is not to be touched before wgmma.wait_group; an instruction that does
waits (ptxas C7517).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.prepare.program import BoundBlock, BoundInstruction


def await_products(blocks: Sequence[BoundBlock], accumulators: set[int]) -> Sequence[BoundBlock]:
    """Have instructions wait for the products whose D they touch, if not to add to it."""
    if not accumulators:
        return blocks
    return [
        replace(block, instructions=[_awaiting(each, accumulators) for each in block.instructions])
        for block in blocks
    ]


def _awaiting(instruction: BoundInstruction, accumulators: set[int]) -> BoundInstruction:
    site = instruction.site
    adds = effects_of(site.instruction).begins == "products"
    touched = (site.reads - site.writes if adds else site.reads | site.writes) & accumulators
    return replace(instruction, awaited=touched) if touched else instruction
